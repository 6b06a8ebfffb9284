// words counts the words of all files below a directory, and shows a pipeline at work:
//
//   walk the tree  -->  count the words of a file  -->  add up, file by file
//   one thread          all workers                     one thread at a time
//
// The walk is an input range of std: parallel_pipeline() reads it on one thread at a time, and runs no
// further ahead than `tokens` files. So memory has a bound, however large the tree is. Then a plain loop
// does the same, and the program compares the two results.
//
// Ctrl-C requests a stop. After a stop, the pipeline reads no further file. A stage that may take long
// looks at the token itself, here between two blocks of a file.
#include <bide/core/result.hpp>
#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/fork_progress.hpp>
#include <bide/parallel/parallel_pipeline.hpp>
#include <bide/parallel/parallel_sort.hpp>
#include <bide/sched/scheduler.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <signal.h>

namespace {

namespace fs = std::filesystem;
using timer = std::chrono::steady_clock;

// ---- What there is to do with a file

struct file_words {
    fs::path path;
    std::vector<char> text;                                         // in lower case
    std::vector<std::pair<std::string_view, std::uint64_t>> counts; // of its different words
    std::string trouble;                                            // why it could not be read
};

// A word has letters, digits, underscores, and any bytes that are not ASCII.
bool is_part_of_word(unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c >= 0x80; }

void read_file(file_words& to, const std::stop_token& stop) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(to.path.c_str(), "rb"),
                                                               &std::fclose);
    std::array<char, 16 * 1024> block;
    while (file != nullptr) {
        if (stop.stop_requested())
            throw bide::stopped_error(make_error_code(bide::errc::stopped));
        const auto n = std::fread(block.data(), 1, block.size(), file.get());
        to.text.insert(to.text.end(), block.data(), block.data() + n);
        if (n == 0)
            break;
    }
    if (file == nullptr || std::ferror(file.get()) != 0)
        to.trouble = std::strerror(errno);
}

file_words count_words(fs::path path, const std::stop_token& stop) {
    file_words result;
    result.path = std::move(path);
    read_file(result, stop);
    std::unordered_map<std::string_view, std::uint64_t> counts;
    const char* word = nullptr;
    const auto end_word = [&](const char* end) {
        if (word != nullptr)
            ++counts[std::string_view(word, static_cast<std::size_t>(end - word))];
        word = nullptr;
    };
    for (char& c : result.text)
        if (const auto byte = static_cast<unsigned char>(c); !is_part_of_word(byte)) {
            end_word(&c);
        } else {
            c = static_cast<char>(byte < 0x80 ? std::tolower(byte) : byte);
            word = word != nullptr ? word : &c;
        }
    end_word(result.text.data() + result.text.size());
    result.counts.assign(counts.begin(), counts.end());
    return result;
}

struct word_hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view word) const {
        return std::hash<std::string_view>()(word);
    }
};
using word_counts = std::unordered_map<std::string, std::uint64_t, word_hash, std::equal_to<>>;

struct totals {
    word_counts counts;
    std::uint64_t files = 0;
    std::uint64_t bytes = 0;
    std::vector<std::string> trouble;

    void add(const file_words& one) {
        if (!one.trouble.empty()) {
            trouble.push_back(one.path.string() + ": " + one.trouble);
            return;
        }
        ++files;
        bytes += one.text.size();
        for (const auto& [word, count] : one.counts)
            if (const auto known = counts.find(word); known != counts.end())
                known->second += count;
            else
                counts.emplace(word, count);
    }

    bool operator==(const totals&) const = default;
};

// ---- The two ways to do it

auto walk(const fs::path& root) {
    return fs::recursive_directory_iterator(root, fs::directory_options::skip_permission_denied);
}

totals count_in_parallel(bide::scheduler& workers, const fs::path& root, std::stop_token stop,
                         bide::fork_progress& progress) {
    totals all;
    constexpr std::size_t tokens = 64;
    bide::parallel_pipeline(
        {workers, {.stop = stop, .progress = &progress}}, tokens, walk(root),
        bide::parallel_stage([&](const fs::directory_entry& entry) {
            return entry.is_regular_file() ? count_words(entry.path(), stop) : file_words();
        }),
        bide::serial_stage([&](const file_words& one) { // in the order of the walk
            if (!one.path.empty())
                all.add(one);
        }));
    return all;
}

totals count_serially(const fs::path& root, const std::stop_token& stop) {
    totals all;
    for (const fs::directory_entry& entry : walk(root))
        if (entry.is_regular_file())
            all.add(count_words(entry.path(), stop));
    return all;
}

// ---- Progress and Ctrl-C

// Blocks SIGINT, so that it stays pending.
void block_interrupts() {
    sigset_t interrupt;
    ::sigemptyset(&interrupt);
    ::sigaddset(&interrupt, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &interrupt, nullptr);
    ::signal(SIGINT, SIG_DFL); // shells let background jobs ignore it
}

bool is_interrupted() {
    sigset_t pending;
    return ::sigpending(&pending) == 0 && ::sigismember(&pending, SIGINT) == 1;
}

// Requests a stop after Ctrl-C, and shows the progress on stderr. Looks ten times a second.
class watcher {
public:
    watcher(const bide::fork_progress& progress, bool shows) : progress_(progress), shows_(shows) {
        look();
        thread_ = std::jthread([this](const std::stop_token& over) {
            while (!over.stop_requested()) {
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
                look();
            }
        });
    }

    std::stop_token token() const { return stop_.get_token(); }

private:
    void look() {
        if (is_interrupted())
            stop_.request_stop();
        if (shows_)
            std::fprintf(stderr, "%ju entries done, %ju read\n",
                         static_cast<std::uintmax_t>(progress_.done()),
                         static_cast<std::uintmax_t>(progress_.total()));
    }

    const bide::fork_progress& progress_;
    std::stop_source stop_;
    const bool shows_;
    std::jthread thread_;
};

// ---- The program

constexpr const char* usage = "usage: words [--workers N] [--top N] [--progress] [DIRECTORY]\n"
                              "Counts the words of all files below DIRECTORY, or below the "
                              "current one.\n"
                              "Exits with 0; 1 if a file cannot be read; 2 for wrong arguments; "
                              "130 after Ctrl-C.\n";

struct options {
    fs::path root = ".";
    unsigned workers = 0; // one for each processor
    unsigned top = 10;
    bool progress = false;
};

bool parse_number(std::string_view text, unsigned& to) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
    return error == std::errc() && end == text.data() + text.size() && to <= 10'000;
}

bool parse(std::span<char*> arguments, options& to) {
    bool has_root = false;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        const std::string_view argument = arguments[i];
        if (argument == "--progress")
            to.progress = true;
        else if (argument == "--workers" || argument == "--top") {
            unsigned& number = argument == "--top" ? to.top : to.workers;
            if (++i == arguments.size() || !parse_number(arguments[i], number))
                return false;
        } else if (argument.starts_with('-') || has_root)
            return false;
        else
            to.root = argument, has_root = true;
    }
    return true;
}

void print_top(bide::scheduler& workers, const word_counts& counts, std::size_t most) {
    std::vector<std::pair<std::uint64_t, std::string_view>> ranked;
    for (const auto& [word, count] : counts)
        ranked.emplace_back(count, word);
    bide::parallel_sort(workers, ranked, [](const auto& a, const auto& b) {
        return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    for (const auto& [count, word] : std::span(ranked).first(std::min(most, ranked.size())))
        std::printf("%10ju  %.*s\n", static_cast<std::uintmax_t>(count),
                    static_cast<int>(word.size()), word.data());
}

int run(const options& wanted) {
    bide::scheduler_options pool;
    pool.num_workers = wanted.workers;
    bide::scheduler workers(pool);
    bide::fork_progress progress;
    const watcher watching(progress, wanted.progress);

    const auto seconds_since = [](timer::time_point begin) {
        return std::chrono::duration<double>(timer::now() - begin).count();
    };
    auto begin = timer::now();
    const totals all = count_in_parallel(workers, wanted.root, watching.token(), progress);
    const double parallel = seconds_since(begin);
    begin = timer::now();
    const totals expected = count_serially(wanted.root, watching.token());
    const double serial = seconds_since(begin);

    print_top(workers, all.counts, wanted.top);
    for (const std::string& line : all.trouble)
        std::fprintf(stderr, "words: %s\n", line.c_str());
    std::printf("%ju files, %.1f MB, %zu different words\n", static_cast<std::uintmax_t>(all.files),
                static_cast<double>(all.bytes) / 1e6, all.counts.size());
    std::printf("in parallel %.3f s, serially %.3f s: %.2f times as fast, with %u workers\n",
                parallel, serial, serial / parallel, workers.concurrency());
    if (all != expected) {
        std::fputs("words: the two results differ: a file was changed meanwhile\n", stderr);
        return 1;
    }
    return all.trouble.empty() ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
    options wanted;
    if (!parse(std::span(argv, static_cast<std::size_t>(argc)).subspan(1), wanted)) {
        std::fputs(usage, stderr);
        return 2;
    }
    if (std::error_code error; !fs::is_directory(wanted.root, error)) {
        std::fprintf(stderr, "words: %s: %s\n", wanted.root.string().c_str(),
                     error ? error.message().c_str() : "not a directory");
        return 2;
    }
    block_interrupts(); // before threads start: they inherit it
    try {
        return run(wanted);
    } catch (const bide::stopped_error&) {
        std::fputs("words: interrupted\n", stderr);
        return 130;
    } catch (const std::exception& e) { // of the walk, or of memory
        std::fprintf(stderr, "words: %s\n", e.what());
        return 1;
    }
}
