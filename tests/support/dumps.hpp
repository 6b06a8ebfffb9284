#ifndef BIDE_TESTS_SUPPORT_DUMPS_HPP
#define BIDE_TESTS_SUPPORT_DUMPS_HPP

// What is written to a std::FILE.

#include <bide/sched/report.hpp>
#include <support/standard.hpp>

namespace test {

// Returns what a file has, from its beginning.
inline std::string read_all(std::FILE* from) {
    std::string text;
    std::rewind(from);
    for (int c = std::fgetc(from); c != EOF; c = std::fgetc(from)) {
        text += static_cast<char>(c);
    }
    return text;
}

// Returns what write(file) writes.
template <class Write> std::string written_by(Write write) {
    std::FILE* const to = std::tmpfile();
    if (to == nullptr) {
        return "no file";
    }
    write(to);
    std::string text = read_all(to);
    std::fclose(to);
    return text;
}

// Returns the dump of a scheduler or of a run_loop.
template <class Runner> std::string dump_of(Runner& of) {
    return written_by([&of](std::FILE* to) { dump(of, to); });
}

} // namespace test

#endif
