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
    "  --threads N     hashing threads (default: one for each processor)\n"
    "  --coroutines N  hashing coroutines beside them (default: 2)\n"
    "  --permits N     files open at once, 2 or more (default: one for each processor)\n"
    "  --stdin         also what is named on stdin, each name ended by a NUL (find -print0)\n"
    "  --summary       print only the summary\n"
    "  --select        print progress on stderr also where that is no terminal\n"
    "A group lists its files (-) and, below a file, its other names (=), which waste nothing.\n"
    "Status: 0 done, even when single files could not be read; 2 bad usage; 130 Ctrl-C.\n";

struct options {
    unsigned threads = std::max(1U, std::thread::hardware_concurrency());
    unsigned coroutines = 2;
    unsigned permits = std::max(2U, threads);
    bool from_stdin = false, list = true, progress = false, help = false;
    std::vector<std::filesystem::path> roots;
};

inline std::optional<options> parse(std::span<char*> args) {
    options o;
    const auto number = [&](unsigned& value, unsigned least) {
        const std::string_view text = args.size() < 2 ? "" : args[1];
        args = args.subspan(args.size() < 2 ? 0 : 1);
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        return error == std::errc{} && end == text.data() + text.size() && least <= value &&
               value <= 1000;
    };
    for (bool names_only = false; !args.empty(); args = args.subspan(1)) {
        const std::string_view arg = args[0];
        bool good = true;
        if (names_only || !arg.starts_with('-')) o.roots.emplace_back(arg);
        else if (arg == "--") names_only = true;
        else if (arg == "--threads") good = number(o.threads, 0);
        else if (arg == "--coroutines") good = number(o.coroutines, 0);
        else if (arg == "--permits") good = number(o.permits, 2);
        else if (arg == "--stdin") o.from_stdin = true;
        else if (arg == "--summary") o.list = false;
        else if (arg == "--select") o.progress = true;
        else if (arg == "--help") o.help = true;
        else good = false;
        if (!good) {
            std::fprintf(stderr, "dupes: %s: no such option, or a bad value for it\n", arg.data());
            return std::nullopt;
        }
    }
    if (o.threads + o.coroutines == 0) return std::nullopt;
    if (o.roots.empty() && !o.from_stdin)
        o.roots.emplace_back(std::filesystem::is_directory("/usr/include") ? "/usr/include" : ".");
    return o;
}

} // namespace dupes_parts

#endif
