#ifndef BIDE_TESTS_EXAMPLES_DUPES_OPTIONS_HPP
#define BIDE_TESTS_EXAMPLES_DUPES_OPTIONS_HPP

// What dupes is told on its command line.

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

namespace dupes_parts {

inline const char* const usage =
    "usage: dupes [options] [directory...]\n"
    "Finds files with the same content (default: below /usr/include, else below .).\n"
    "  --workers N     threads that run tasks (default: one for each processor)\n"
    "  --coroutines N  hashing tasks (default: one for each processor)\n"
    "  --threads N     hashing threads beside them (default: 1)\n"
    "  --permits N     files open at once, 2 or more (default: one for each processor)\n"
    "  --stdin         also what is named on stdin, each name ended by a NUL (find -print0)\n"
    "  --summary       print only the summary\n"
    "  --select        print progress on stderr also where that is no terminal\n"
    "  --trace FILE    what each worker did, for ui.perfetto.dev\n"
    "A group lists its files (-) and, below a file, its other names (=), which waste nothing.\n"
    "Status: 0 done, even when single files could not be read; 2 bad usage, or a trace that "
    "cannot\n"
    "be written; 130 Ctrl-C.\n";

struct options {
    unsigned workers = 0; // as the scheduler thinks best
    unsigned coroutines = std::max(1U, std::thread::hardware_concurrency());
    unsigned threads = 1;
    unsigned permits = std::max(2U, std::thread::hardware_concurrency());
    const char* trace = nullptr;
    bool from_stdin = false, list = true, progress = false, help = false;
    std::vector<std::filesystem::path> roots;
};

inline std::optional<options> parse(std::span<char*> args) {
    options o;
    const auto operand = [&args]() -> const char* { // "": there is none
        if (args.size() < 2)
            return "";
        args = args.subspan(1);
        return args[0];
    };
    const auto number = [&](unsigned& value, unsigned least) {
        const std::string_view text = operand();
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        return error == std::errc{} && end == text.data() + text.size() && least <= value &&
               value <= 1000;
    };
    for (bool names_only = false; !args.empty(); args = args.subspan(1)) {
        const std::string_view arg = args[0];
        bool good = true;
        if (names_only || !arg.starts_with('-'))
            o.roots.emplace_back(arg);
        else if (arg == "--")
            names_only = true;
        else if (arg == "--workers")
            good = number(o.workers, 1);
        else if (arg == "--coroutines")
            good = number(o.coroutines, 0);
        else if (arg == "--threads")
            good = number(o.threads, 0);
        else if (arg == "--permits")
            good = number(o.permits, 2);
        else if (arg == "--stdin")
            o.from_stdin = true;
        else if (arg == "--summary")
            o.list = false;
        else if (arg == "--select")
            o.progress = true;
        else if (arg == "--trace")
            good = *(o.trace = operand()) != '\0';
        else if (arg == "--help")
            o.help = true;
        else
            good = false;
        if (!good) {
            std::fprintf(stderr, "dupes: %s: no such option, or a bad value for it\n", arg.data());
            return std::nullopt;
        }
    }
    if (o.threads + o.coroutines == 0)
        return std::nullopt;
    if (o.roots.empty() && !o.from_stdin)
        o.roots.emplace_back(std::filesystem::is_directory("/usr/include") ? "/usr/include" : ".");
    return o;
}

} // namespace dupes_parts

#endif
