// words counts the words of all files below a directory, and shows a pipeline at work:
//
//   walk the tree  -->  count the words of a file  -->  add up, file by file
//   one thread          all workers                     one thread at a time
//
// The walk is an input range of std: parallel_pipeline() reads it on one thread at a time, and runs no
// further ahead than `tokens` files. So memory has a bound, however large the tree is. Then a plain loop
// does the same, and the program compares the two results.

#include <bide/parallel/parallel_pipeline.hpp>
#include <bide/parallel/parallel_sort.hpp>
#include <bide/sched/scheduler.hpp>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct word_counts {
    std::map<std::string, std::size_t, std::less<>> words; // in lower case
    std::size_t files = 0;
    std::size_t unreadable = 0;

    bool operator==(const word_counts&) const = default;
};

// A word has letters, digits, underscores, and any bytes that are not ASCII.
bool is_part_of_word(unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c >= 0x80; }

word_counts count_words(const fs::path& path) {
    word_counts result;
    std::ifstream file(path, std::ios::binary);
    std::string word;
    const auto end_word = [&] {
        if (!word.empty())
            ++result.words[word];
        word.clear();
    };
    for (char c = 0; file.get(c);) {
        if (const auto byte = static_cast<unsigned char>(c); is_part_of_word(byte))
            word += static_cast<char>(byte < 0x80 ? std::tolower(byte) : byte);
        else
            end_word();
    }
    end_word();
    (file.eof() ? result.files : result.unreadable) = 1;
    return result;
}

void add(word_counts& all, const word_counts& one) {
    all.files += one.files;
    all.unreadable += one.unreadable;
    for (const auto& [word, count] : one.words)
        all.words[word] += count;
}

auto walk(const fs::path& root) {
    return fs::recursive_directory_iterator(root, fs::directory_options::skip_permission_denied);
}

word_counts count_in_parallel(bide::scheduler& workers, const fs::path& root) {
    word_counts all;
    constexpr std::size_t tokens = 64;
    bide::parallel_pipeline(
        workers, tokens, walk(root), bide::parallel_stage([](const fs::directory_entry& entry) {
            return entry.is_regular_file() ? count_words(entry.path()) : word_counts();
        }),
        bide::serial_stage([&](const word_counts& one) { add(all, one); })); // in the walk's order
    return all;
}

word_counts count_serially(const fs::path& root) {
    word_counts all;
    for (const fs::directory_entry& entry : walk(root))
        if (entry.is_regular_file())
            add(all, count_words(entry.path()));
    return all;
}

void print_top(bide::scheduler& workers, const word_counts& all) {
    std::vector<std::pair<std::size_t, std::string_view>> ranked;
    for (const auto& [word, count] : all.words)
        ranked.emplace_back(count, word);
    bide::parallel_sort(workers, ranked, [](const auto& a, const auto& b) {
        return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    ranked.resize(std::min<std::size_t>(10, ranked.size()));
    for (const auto& [count, word] : ranked)
        std::printf("%10zu  %.*s\n", count, static_cast<int>(word.size()), word.data());
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

} // namespace

int main(int argc, char** argv) {
    try {
        const fs::path root = argc > 1 ? argv[1] : ".";
        bide::scheduler workers;
        auto begin = std::chrono::steady_clock::now();
        const word_counts all = count_in_parallel(workers, root);
        const double parallel = seconds_since(begin);
        begin = std::chrono::steady_clock::now();
        const bool is_same = all == count_serially(root);
        const double serial = seconds_since(begin);

        print_top(workers, all);
        std::printf("%zu files, %zu different words, %zu files not read\n", all.files,
                    all.words.size(), all.unreadable);
        std::printf("in parallel %.3f s, serially %.3f s, with %u workers\n", parallel, serial,
                    workers.concurrency());
        if (!is_same)
            std::fputs("words: the two results differ: a file was changed meanwhile\n", stderr);
        return is_same && all.unreadable == 0 ? 0 : 1;
    } catch (const std::exception& e) { // of the walk, or of memory
        std::fprintf(stderr, "words: %s\n", e.what());
        return 2;
    }
}
