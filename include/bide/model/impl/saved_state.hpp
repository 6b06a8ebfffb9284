// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_SAVED_STATE_HPP
#define BIDE_MODEL_IMPL_SAVED_STATE_HPP

// Saves an unfinished exploration, so that another run of the program can continue it. The
// environment variable BIDE_MODEL_STATE names a folder. The folder has a file for each unfinished
// exploration. A file that another build of the program has saved is ignored.

#include <bide/core/config.hpp>
#include <bide/model/check.hpp>
#include <bide/model/impl/exhaustive.hpp>

#include <cctype>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <typeinfo>

namespace bide { inline namespace BIDE_ABI { namespace model::detail { namespace {

class saved_state {
    using clock = std::chrono::steady_clock;

public:
    saved_state(std::string_view name, const options& how, [[maybe_unused]] const body& run) {
        const char* const folder = std::getenv("BIDE_MODEL_STATE");
        if (folder == nullptr || *folder == '\0') {
            return;
        }
        std::string file;
        for (const char c : name) {
            file += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
        }
        path_ = std::filesystem::path(folder) / (file + ".state");
        static std::map<std::string, int, std::less<>> uses; // a program may use a name twice
        const int use = uses.try_emplace(std::string(name), 0).first->second++;
        if (use != 0) {
            path_.replace_filename(file + "." + std::to_string(use) + ".state");
        }
        what_ = std::string(name) + '\n';
#if defined(__cpp_rtti)
        what_ += std::string(run.target_type().name()) + '\n';
#endif
        for (const int of :
             {how.spurious, how.timeouts, how.weak_failures, how.clock_jumps, how.max_steps}) {
            what_ += std::to_string(of) + '\n';
        }
    }

    bool is_wanted() const noexcept { return !path_.empty(); }

    // Sets the counts, the names and the branches from the file, if there is a complete one.
    void load(exhaustive& to, verdict& counts, thread_names& names) const {
        std::ifstream in(path_, std::ios::binary);
        const std::string all{std::istreambuf_iterator<char>(in), {}};
        std::string_view rest = all;
        const std::string begin = head();
        if (rest.substr(0, begin.size()) != begin) {
            return;
        }
        rest.remove_prefix(begin.size());
        verdict found;
        exhaustive saved(false);
        saved.begin_empty();
        if (!extract(rest, found.executions) || !extract(rest, found.pruned)) {
            return;
        }
        const std::size_t line = rest.find('\n');
        const std::string_view threads = rest.substr(0, line);
        rest.remove_prefix(line == rest.npos ? rest.size() : line + 1);
        if (saved.add_branches(rest) && (threads.empty() || names.read(threads))) {
            counts.executions = found.executions;
            counts.pruned = found.pruned;
            to.begin_empty();
            to.add_branches(rest);
        }
    }

    // Counts an execution, and saves the state from time to time.
    void look(const exhaustive& s, const verdict& counts, const thread_names& names) {
        constexpr std::uint64_t between = 1'024;
        constexpr std::chrono::seconds every{30};
        if (++looks_ % between == 0 && clock::now() - last_ > every) {
            save(s, counts, names);
            last_ = clock::now();
        }
    }

    void save(const exhaustive& s, const verdict& counts, const thread_names& names) const {
        std::string all = head();
        append(all, counts.executions);
        append(all, counts.pruned);
        all += names.text(max_threads) + '\n';
        all += s.branch_text(s.branches());
        std::error_code error;
        std::filesystem::create_directories(path_.parent_path(), error);
        const std::filesystem::path next = path_.string() + ".new";
        const bool is_written =
            static_cast<bool>(std::ofstream(next, std::ios::binary)
                                  .write(all.data(), static_cast<std::streamsize>(all.size()))
                                  .flush());
        error.clear();
        if (is_written) {
            std::filesystem::rename(next, path_, error);
        }
        if (!is_written || error) {
            std::fprintf(stderr, "BIDE_MODEL_STATE: %s cannot be written\n", path_.c_str());
        }
    }

    void remove() const noexcept {
        std::error_code error;
        std::filesystem::remove(path_, error);
    }

private:
    // Returns the first lines of a file. They identify the program and the body, because saved
    // branches are valid only for the same program and the same body.
    std::string head() const {
        std::error_code error;
        const std::filesystem::path self = "/proc/self/exe";
        const auto size = std::filesystem::file_size(self, error);
        const auto time = std::filesystem::last_write_time(self, error);
        std::string out = "bide model 2\n" + what_;
        append(out, static_cast<std::uint64_t>(size));
        append(out, static_cast<std::int64_t>(time.time_since_epoch().count()));
        return out;
    }

    std::filesystem::path path_;
    std::string what_;
    std::uint64_t looks_ = 0;
    clock::time_point last_ = clock::now();
};

}}}} // namespace bide::BIDE_ABI::model::detail

#endif
