#ifndef BIDE_TESTS_SUPPORT_CHILDREN_HPP
#define BIDE_TESTS_SUPPORT_CHILDREN_HPP

// Processes that start together, each with a report to its parent: what run_threads() is to
// threads. One that does not come to its end is killed by an alarm, and reports that.

#if defined(__unix__) || defined(__APPLE__)
#define BIDE_TESTS_CAN_FORK 1

#include <support/standard.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace test {

// A T that parent and children share; made before they are.
template <class T> class shared_with_children {
public:
    shared_with_children() {
        void* const at =
            ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) {
            std::abort();
        }
        it_ = ::new (at) T();
    }
    shared_with_children(const shared_with_children&) = delete;
    shared_with_children& operator=(const shared_with_children&) = delete;
    ~shared_with_children() {
        it_->~T();
        ::munmap(it_, sizeof(T));
    }

    T& operator*() const noexcept { return *it_; }
    T* operator->() const noexcept { return it_; }

private:
    T* it_;
};

// Returns what f() returns in a child of fork(), which has none of its parent's threads; -1 if a
// signal ended the child.
template <class F> int in_child(F f) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::_exit(f());
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class children {
public:
    static constexpr unsigned longest_life = 60; // seconds

    // Forks n processes that run f(0, gate) ... f(n - 1, gate), each to a std::string. gate() waits
    // until go(); it may be left out. No other thread may be running.
    template <class F> children(int n, F f) {
        int gate[2];
        if (::pipe(gate) != 0) {
            std::abort();
        }
        go_ = gate[1];
        for (int i = 0; i < n; ++i) {
            int report[2];
            if (::pipe(report) != 0) {
                std::abort();
            }
            const pid_t id = ::fork();
            if (id == 0) {
                ::signal(SIGALRM, SIG_DFL);
                ::alarm(longest_life);
                ::close(gate[1]);
                ::close(report[0]);
                const int wait_on = gate[0];
                const int to = report[1];
                bool is_ready = false;
                const auto ready = [&] {
                    if (!std::exchange(is_ready, true)) {
                        send(to, "r");
                    }
                };
                const std::string said = f(i, [&] {
                    ready();
                    char none = 0;
                    while (::read(wait_on, &none, 1) < 0) {
                    }
                });
                ready();
                send(to, said);
                ::_exit(0);
            }
            ::close(report[1]);
            if (id < 0) {
                ::close(report[0]);
                continue;
            }
            started_.push_back({id, report[0]});
        }
        ::close(gate[0]);
        failed_to_start_ = static_cast<std::size_t>(n) - started_.size();
    }
    children(const children&) = delete;
    children& operator=(const children&) = delete;
    ~children() {
        go();
        static_cast<void>(reports());
    }

    // Waits until all are at their gates or beyond, and opens these.
    void go() {
        if (go_ < 0) {
            return;
        }
        for (const child& c : started_) {
            char ready = 0;
            static_cast<void>(receive(c.report, &ready, 1)); // 0: it has died
        }
        ::close(go_);
        go_ = -1;
    }

    // What each said, when all have ended; "! ..." of one that ended in another way.
    std::vector<std::string> reports() {
        go();
        std::vector<std::string> all;
        for (const child& c : started_) {
            std::string said;
            char some[4096];
            for (ssize_t n; (n = receive(c.report, some, sizeof some)) > 0;) {
                said.append(some, static_cast<std::size_t>(n));
            }
            ::close(c.report);
            int status = 0;
            ::waitpid(c.id, &status, 0);
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
                said += "\n! the process ended with status " + std::to_string(status) + "\n";
            }
            all.push_back(std::move(said));
        }
        all.insert(all.end(), failed_to_start_, "! the process was not started\n");
        started_.clear();
        failed_to_start_ = 0;
        return all;
    }

private:
    struct child {
        pid_t id;
        int report;
    };

    static void send(int to, const std::string& text) {
        for (std::size_t sent = 0; sent < text.size();) {
            const ssize_t n = ::write(to, text.data() + sent, text.size() - sent);
            if (n < 0 && errno != EINTR) {
                ::_exit(9);
            }
            sent += n < 0 ? 0 : static_cast<std::size_t>(n);
        }
    }

    static ssize_t receive(int from, void* to, std::size_t most) {
        ssize_t n = 0;
        do {
            n = ::read(from, to, most);
        } while (n < 0 && errno == EINTR);
        return n;
    }

    std::vector<child> started_;
    std::size_t failed_to_start_ = 0;
    int go_ = -1;
};

// A child of fork() that runs f(stay). stay(text) tells its parent this text, and returns when the parent ends the
// child, which then goes on to its end.
class companion {
public:
    template <class F> explicit companion(F f) : companion(f, [] { return ::fork(); }) {}
    template <class F, class Fork> companion(F f, Fork fork) {
        int said[2];
        int end[2];
        if (::pipe(said) != 0 || ::pipe(end) != 0) {
            std::abort();
        }
        for (const int fd : {said[0], said[1], end[0], end[1]}) {
            ::fcntl(fd, F_SETFD, FD_CLOEXEC);
        }
        pid_ = fork();
        if (pid_ == 0) {
            ::signal(SIGALRM, SIG_DFL);
            ::alarm(2 * children::longest_life);
            ::close(said[0]);
            ::close(end[1]);
            f([&](const std::string& text) {
                static_cast<void>(!::write(said[1], text.data(), text.size()));
                ::close(said[1]);
                for (char none = 0; ::read(end[0], &none, 1) < 0;) {
                }
            });
            ::_exit(0);
        }
        ::close(said[1]);
        ::close(end[0]);
        char some[200];
        for (ssize_t n; (n = ::read(said[0], some, sizeof some)) > 0;) {
            said_.append(some, static_cast<std::size_t>(n));
        }
        ::close(said[0]);
        end_ = end[1];
    }
    companion(const companion&) = delete;
    companion& operator=(const companion&) = delete;
    ~companion() { kill(); }

    pid_t pid() const noexcept { return pid_; }
    const std::string& said() const noexcept { return said_; }

    // Ends the child, which remains as a zombie.
    void end() noexcept {
        if (end_ >= 0) {
            ::close(std::exchange(end_, -1));
        }
    }
    void reap() noexcept {
        end();
        if (pid_ > 0) {
            ::waitpid(std::exchange(pid_, -1), nullptr, 0);
        }
    }
    void kill() noexcept {
        if (pid_ > 0) {
            ::kill(pid_, SIGKILL);
        }
        reap();
    }

private:
    pid_t pid_ = -1;
    int end_ = -1;
    std::string said_;
};

// Returns what f() returns in a child that may read and write only what every user may; nothing if this process may
// not change its user, with a word on stderr.
template <class F> std::optional<std::string> as_nobody(F f) {
    constexpr uid_t nobody = 65'534;
    children child(1, [&](int, auto) {
        const bool is_nobody =
            ::geteuid() == nobody || (::setegid(nobody) == 0 && ::seteuid(nobody) == 0);
        return is_nobody ? "said " + f() : std::string();
    });
    const std::string report = child.reports()[0];
    if (report.empty()) {
        std::fprintf(stderr, "skipped: only root can change its user\n");
        return std::nullopt;
    }
    return report.substr(0, 5) == "said " ? report.substr(5) : report;
}

} // namespace test

#else
#define BIDE_TESTS_CAN_FORK 0
#endif

#endif
