#ifndef BIDE_TESTS_SUPPORT_DEATH_HPP
#define BIDE_TESTS_SUPPORT_DEATH_HPP

// What a precondition that the program breaks is answered with: a message, and the end.

#include <string>
#include <string_view>

#if defined(__unix__) || defined(__APPLE__)
#define BIDE_TESTS_CAN_DIE 1
#include <csignal>
#include <cstdlib>
#include <exception>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#else
#define BIDE_TESTS_CAN_DIE 0
#endif

namespace test {

inline bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

#if BIDE_TESTS_CAN_DIE

// Runs f in a child process, which must abort; returns what that wrote to stderr, or how it ended
// instead, in brackets. f starts no threads, and waits for none: the child has none.
template <class F> std::string dies(F f) {
    int ends[2];
    if (::pipe(ends) != 0) {
        return "[no pipe]";
    }
    const pid_t child = ::fork();
    if (child < 0) {
        return "[no child]";
    }
    if (child == 0) {
        ::dup2(ends[1], STDERR_FILENO);
        ::close(ends[0]);
        const rlimit none{0, 0};
        ::setrlimit(RLIMIT_CORE, &none);
        std::signal(SIGABRT, SIG_DFL);
        std::set_terminate([] { std::abort(); });
        ::alarm(20); // it may wait for ever
        f();
        ::_exit(0);
    }
    ::close(ends[1]);
    std::string said;
    char some[256];
    for (ssize_t n; (n = ::read(ends[0], some, sizeof some)) > 0;) {
        said.append(some, static_cast<std::size_t>(n));
    }
    ::close(ends[0]);
    if (const auto at = said.find("qemu: uncaught target signal"); at != said.npos) {
        said.erase(at, said.find('\n', at) + 1 - at); // an emulator's remark on the end
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) {
        return said;
    }
    return (WIFSIGNALED(status) ? "[it was killed] " : "[it lives on] ") + said;
}

#endif

} // namespace test

#endif
