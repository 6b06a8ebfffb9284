#ifndef BIDE_TESTS_EXAMPLES_LOCK_KEEPER_HPP
#define BIDE_TESTS_EXAMPLES_LOCK_KEEPER_HPP

// The keeper: a small process between bide-lock and the command. It is the command's parent, and on
// Linux the subreaper of every process that the command starts. So it finds and ends all of them:
// when bide-lock tells it to, when bide-lock was stopped for longer than its lease, and when
// bide-lock was killed. It has one thread, and does not use the lock.
//
// A program with threads forks it: so it neither allocates nor takes a lock.

#include "lock_descendants.hpp"
#include "lock_signals.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/signalfd.h>
#endif

namespace lock_parts {

// A note between bide-lock and the keeper.
struct note {
    enum class kind : std::int32_t {
        // from bide-lock
        forward,  // send this signal to every process of the command
        finish,   // send SIGTERM, and SIGKILL after this many milliseconds
        good_for, // the lease lasts this many milliseconds more
        leave,    // end, and let the command's processes go on
        // from the keeper
        started,
        not_executable, // errno
        ended,          // the command's first process has ended; its status
        expired,        // the time of good_for has passed
        killing,        // the keeper sends SIGKILL
        refused,        // this many processes belong to another user and cannot be signalled
        gone            // no process is left
    };
    kind what;
    std::int32_t value = 0;
};
inline constexpr std::int32_t longest_note_ms = 2'000'000'000; // 23 days

inline bool tell(int socket, note::kind what, std::int32_t value = 0) {
    const note n{what, value};
    int flags = MSG_DONTWAIT;
#if defined(MSG_NOSIGNAL)
    flags |= MSG_NOSIGNAL;
#endif
    return ::send(socket, &n, sizeof n, flags) == static_cast<ssize_t>(sizeof n);
}

// A socket that keeps the size of a message, or at least does not split one this small.
enum class heard { note, nothing, end };
inline heard hear(int socket, note& n) {
    ssize_t size = 0;
    while ((size = ::recv(socket, &n, sizeof n, MSG_DONTWAIT)) < 0 && errno == EINTR) {
    }
    if (size == static_cast<ssize_t>(sizeof n))
        return heard::note;
    return size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? heard::nothing : heard::end;
}

class keeper {
public:
    // socket: to bide-lock; -1: it has ended. group: the command's process group; 0: none.
    keeper(int socket, pid_t first, pid_t group, std::int64_t grace_ms)
        : socket_(socket), first_(first), group_(group), grace_ms_(grace_ms) {
#if defined(__linux__)
        if (socket >= 0) { // all signals are blocked here
            sigset_t child;
            ::sigemptyset(&child);
            ::sigaddset(&child, SIGCHLD);
            children_ = ::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
        }
#endif
        if (socket < 0)
            finish(grace_ms);
    }

    // Runs until no process of the command is left, or until bide-lock says to leave.
    void run() {
        for (;;) {
            const bool reaped = reap();
            if (is_empty_)
                return say(note::kind::gone);
            if (killing_) {
                const descendant_list::result r = all_descendants.send(group(), SIGKILL);
                if (r.reached == 0 && r.refused != 0) { // all belong to another user
                    if (pause_ms_ != 100)
                        say(note::kind::refused, r.refused);
                    pause_ms_ = 100;
                    if (first_ended_)
                        return say(note::kind::gone);
                }
            } else if (kill_at_ != 0 && now() >= kill_at_) {
                killing_ = true;
                say(note::kind::killing);
                continue;
            }
            if (good_until_ != 0 && now() >= good_until_ && kill_at_ == 0) {
                say(note::kind::expired);
                finish(grace_ms_);
            }
            if (!(killing_ && reaped) && !listen())
                return;
        }
    }

private:
    static std::int64_t now() { // milliseconds, on a clock that advances while the machine sleeps
        timespec t{};
#if defined(CLOCK_BOOTTIME)
        ::clock_gettime(CLOCK_BOOTTIME, &t);
#else
        ::clock_gettime(CLOCK_MONOTONIC, &t);
#endif
        return std::int64_t{t.tv_sec} * 1000 + t.tv_nsec / 1'000'000;
    }

    void say(note::kind what, std::int32_t value = 0) {
        if (socket_ >= 0)
            tell(socket_, what, value);
    }

    // The group has the first process's number. After that process was reaped, the number may
    // belong to another group. On Linux the descendants are found without the group.
    pid_t group() const {
#if defined(__linux__)
        return first_ended_ ? 0 : group_;
#else
        return group_;
#endif
    }

    // True: a process has ended.
    bool reap() {
        bool reaped = false;
        int status = 0;
        pid_t found = 0;
        while ((found = ::waitpid(-1, &status, WNOHANG)) > 0 || (found < 0 && errno == EINTR)) {
            reaped = reaped || found > 0;
            if (found == first_) {
                first_ended_ = true;
                say(note::kind::ended, status);
            }
        }
        is_empty_ = found < 0;
#if !defined(__linux__)
        if (is_empty_ && group_ > 0 && ::kill(-group_, 0) == 0)
            is_empty_ = false;
#endif
        return reaped;
    }

    void finish(std::int64_t grace_ms) {
        if (kill_at_ != 0)
            return;
        kill_at_ = now() + grace_ms;
        send(SIGTERM);
    }
    void send(int signal) { // every signal that bide-lock passes on asks to end
        all_descendants.send(group(), signal);
        all_descendants.send(group(), SIGCONT); // a stopped process must continue to end
    }

    // Waits for an event and executes bide-lock's notes. False: bide-lock said to leave.
    bool listen() {
        std::int64_t left = -1;
        const auto until = [&left](std::int64_t time) {
            const std::int64_t rest = std::clamp<std::int64_t>(time - now(), 0, 60'000);
            left = left < 0 ? rest : std::min(left, rest);
        };
        if (killing_)
            left = pause_ms_;
        else if (kill_at_ != 0)
            until(kill_at_);
        else if (good_until_ != 0)
            until(good_until_);
        if (children_ < 0) // no descriptor reports the end of a process
            left = left < 0 ? 20 : std::min<std::int64_t>(left, 20);
        pollfd both[] = {{socket_, POLLIN, 0}, {children_, POLLIN, 0}};
        ::poll(both, 2, static_cast<int>(left));
#if defined(__linux__)
        signalfd_siginfo info;
        while (children_ >= 0 && ::read(children_, &info, sizeof info) > 0) {
        }
#endif
        note n{};
        while (socket_ >= 0) {
            switch (hear(socket_, n)) {
            case heard::nothing: return true;
            case heard::end:
                ::close(socket_);
                socket_ = -1;
                finish(grace_ms_);
                return true;
            case heard::note: break;
            }
            if (n.what == note::kind::leave)
                return false;
            if (n.what == note::kind::forward)
                send(n.value);
            else if (n.what == note::kind::finish)
                finish(n.value);
            else if (n.what == note::kind::good_for)
                good_until_ = now() + n.value;
        }
        return true;
    }

    int socket_, children_ = -1;
    const pid_t first_, group_;
    const std::int64_t grace_ms_;
    std::int64_t kill_at_ = 0, good_until_ = 0; // 0: none
    std::int64_t pause_ms_ = 5;                 // between two searches for processes after SIGKILL
    bool first_ended_ = false, is_empty_ = false, killing_ = false;
};

} // namespace lock_parts

#endif
