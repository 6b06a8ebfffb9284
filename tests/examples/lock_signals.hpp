#ifndef BIDE_TESTS_EXAMPLES_LOCK_SIGNALS_HPP
#define BIDE_TESTS_EXAMPLES_LOCK_SIGNALS_HPP

// Signals as events that a thread can await together with a file.

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <system_error>

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

namespace lock_parts {

using steady = std::chrono::steady_clock;

[[noreturn]] inline void throw_errno(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
}

// A pipe with close-on-exec.
struct private_pipe {
    int in = -1, out = -1;

    private_pipe() {
        int ends[2];
        if (::pipe(ends) != 0)
            throw_errno("pipe");
        in = ends[0], out = ends[1];
        ::fcntl(in, F_SETFD, FD_CLOEXEC);
        ::fcntl(out, F_SETFD, FD_CLOEXEC);
    }
    private_pipe(const private_pipe&) = delete;
    private_pipe& operator=(const private_pipe&) = delete;
    ~private_pipe() { ::close(in), close_out(); }
    void close_out() {
        if (out >= 0)
            ::close(out);
        out = -1;
    }
};

// An event: a signal arrived, wake() was called, or the file is readable.
struct event {
    int signal = 0;        // 0: wake(), or the file
    bool is_typed = false; // typed on the terminal: the whole foreground group got it
    bool is_file = false;
};

inline volatile std::sig_atomic_t inbox_end = -1; // used by the handler

// Receives the signals that ask bide-lock to stop and those about children, and returns them one by
// one. A signal that the caller ignores stays ignored, as nohup(1) requires.
class inbox {
public:
    inbox() {
        ::fcntl(pipe_.out, F_SETFL, O_NONBLOCK); // a handler must not block
        inbox_end = pipe_.out;
        sigset_t mine;
        ::sigemptyset(&mine);
        for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGCHLD}) {
            struct sigaction before{}, action{};
            ::sigaction(signal, nullptr, &before);
            if (before.sa_handler == SIG_IGN && signal != SIGCHLD)
                continue;
            action.sa_sigaction = &handle;
            action.sa_flags = SA_SIGINFO | SA_RESTART | SA_NOCLDSTOP;
            ::sigfillset(&action.sa_mask);
            ::sigaction(signal, &action, nullptr);
            ::sigaddset(&mine, signal);
        }
        ::pthread_sigmask(SIG_UNBLOCK, &mine, nullptr);
    }

    inbox(const inbox&) = delete;
    inbox& operator=(const inbox&) = delete;
    ~inbox() { inbox_end = -1; } // from here on, signals are ignored

    void wake() noexcept { post({}); } // any thread may call it

    // Waits for the next event; returns none if the time passed first. file: -1, or a descriptor.
    std::optional<event> next(std::optional<steady::time_point> until = {}, int file = -1) {
        for (;;) {
            pollfd readable[] = {{pipe_.in, POLLIN, 0}, {file, POLLIN, 0}};
            int ms = -1;
            if (until) {
                using std::chrono::milliseconds;
                const auto left = std::chrono::ceil<milliseconds>(*until - steady::now()).count();
                ms = static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000));
            }
            event e;
            if (::poll(readable, 2, ms) > 0) {
                if ((readable[0].revents & POLLIN) != 0 &&
                    ::read(pipe_.in, &e, sizeof e) == static_cast<ssize_t>(sizeof e))
                    return e;
                if (readable[1].revents != 0)
                    return event{0, false, true};
            }
            if (until && steady::now() >= *until)
                return std::nullopt;
        }
    }

private:
    static void post(const event& e) noexcept {
        const int before = errno;
        // Fails if thousands of events are unread; one more would change nothing.
        [[maybe_unused]] const auto n = ::write(inbox_end, &e, sizeof e);
        errno = before;
    }
    static void handle(int signal, siginfo_t* info, void*) {
#if defined(SI_KERNEL)
        const bool by_kernel = info->si_code == SI_KERNEL;
#else
        const bool by_kernel = info->si_pid == 0;
#endif
        // When a terminal closes, only the leader of its session gets SIGHUP.
        post({signal, by_kernel && signal != SIGHUP});
    }

    private_pipe pipe_;
};

// Ends the process by the signal itself. So a shell that waits for bide-lock sees that its script
// was interrupted, and returns 128 + signal.
[[noreturn]] inline void die_of(int signal) {
    const rlimit none{0, 0}; // no core dump: this is not a crash
    ::setrlimit(RLIMIT_CORE, &none);
    ::signal(signal, SIG_DFL);
    ::raise(signal);
    std::_Exit(128 + signal);
}

} // namespace lock_parts

#endif
