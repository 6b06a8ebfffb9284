#ifndef BIDE_TESTS_SUPPORT_DEATH_HPP
#define BIDE_TESTS_SUPPORT_DEATH_HPP

// What a precondition that the program breaks is answered with: a message, and the end.

#include <support/standard.hpp>

#if defined(__unix__) || defined(__APPLE__)
#define BIDE_TESTS_CAN_DIE 1
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <utility>

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

// How a child process ended.
struct child_end {
    int status = -1;  // as waitpid() tells it
    std::string said; // on stderr

    bool has_exited(int code) const noexcept {
        return WIFEXITED(status) && WEXITSTATUS(status) == code;
    }
    bool has_aborted() const noexcept { return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT; }

    // For people to read.
    std::string text() const {
        const int code = WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status);
        return (WIFEXITED(status) ? "[exit " : "[signal ") + std::to_string(code) + "] " + said;
    }
};

// Runs f in a child process, which exits with 0 when f returns.
template <class F> child_end run_child(F f) {
    child_end end;
    int ends[2];
    if (::pipe(ends) != 0) {
        end.said = "no pipe";
        return end;
    }
    const pid_t child = ::fork();
    if (child < 0) {
        end.said = "no child";
        return end;
    }
    if (child == 0) {
        ::dup2(ends[1], STDERR_FILENO);
        ::close(ends[0]);
        const rlimit none{0, 0};
        ::setrlimit(RLIMIT_CORE, &none);
        std::signal(SIGABRT, SIG_DFL);
        std::set_terminate([] { std::abort(); });
        ::alarm(120); // it may wait for ever; on a busy machine a child of many steps takes a while
        f();
        ::_exit(0);
    }
    ::close(ends[1]);
    char some[256];
    for (ssize_t n; (n = ::read(ends[0], some, sizeof some)) > 0;) {
        end.said.append(some, static_cast<std::size_t>(n));
    }
    ::close(ends[0]);
    if (const auto at = end.said.find("qemu: uncaught target signal"); at != end.said.npos) {
        end.said.erase(at, end.said.find('\n', at) + 1 - at); // an emulator's remark on the end
    }
    ::waitpid(child, &end.status, 0);
    return end;
}

// Runs f in a child process, which must abort; returns what that wrote to stderr, or how it ended
// instead, in brackets. f starts no threads, and waits for none: the child has none.
template <class F> std::string dies(F f) {
    const child_end end = run_child(std::move(f));
    if (end.has_aborted()) {
        return end.said;
    }
    return (WIFSIGNALED(end.status) ? "[it was killed] " : "[it lives on] ") + end.said;
}

#endif

} // namespace test

#endif
