#ifndef BIDE_BENCH_DURABLE_CREW_HPP
#define BIDE_BENCH_DURABLE_CREW_HPP

// Processes, or the threads of one, that work together and leave their results in memory that they
// share with their parent. None outlives it, nor a minute and a half. A program that is interrupted
// learns that where it waits for them.
//
// The parent has one thread besides, the watchdog, which sleeps with no lock held that a child
// would take.

#include "durable/meter.hpp"

#include <support/children.hpp>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

namespace bench {

using test::shared_with_children;

enum class members { processes, threads };

// Turns requests to end into exceptions, so that servers and files are cleared away; the second one
// ends the program at once.
class interruption {
public:
    static void begin_to_notice() {
        struct sigaction what{};
        what.sa_handler = [](int) { was_requested() = 1; };
        what.sa_flags = static_cast<int>(SA_RESETHAND);
        for (const int number : requests) {
            ::sigaction(number, &what, nullptr);
        }
    }
    static void leave_to_system() {
        for (const int number : requests) {
            ::signal(number, SIG_DFL);
        }
    }
    static bool is_requested() noexcept { return was_requested() != 0; }
    static void check() {
        if (is_requested()) {
            throw std::runtime_error("interrupted");
        }
    }

private:
    static constexpr int requests[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};

    static volatile std::sig_atomic_t& was_requested() noexcept {
        static volatile std::sig_atomic_t it = 0;
        return it;
    }
};

class crew {
public:
    // What each member gets; wait() returns when the parent says so.
    class gate {
    public:
        void wait() const {
            ++*ready_;
            char none = 0;
            while (::read(opens_, &none, 1) < 0 && errno == EINTR) {
            }
        }

    private:
        friend crew;
        gate(std::atomic<std::size_t>* ready, int opens) : ready_(ready), opens_(opens) {}
        std::atomic<std::size_t>* ready_;
        int opens_;
    };

    // Runs f(i, gate) for i in [0, size).
    template <class F> crew(members as, std::size_t size, F f) : size_(size) {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0) {
            throw std::system_error(errno, std::generic_category(), "pipe2");
        }
        opener_ = ends[1];
        const gate before(&*ready_, ends[0]);
        const std::size_t processes = as == members::processes ? size : 1;
        std::fflush(nullptr);
        for (std::size_t i = 0; i < processes; ++i) {
            const pid_t parent = ::getpid();
            const pid_t id = ::fork();
            if (id == 0) {
                ::close(ends[1]);
                begin_child(parent);
                if (as == members::processes) {
                    run(f, i, before);
                } else {
                    std::vector<std::thread> all;
                    for (std::size_t t = 0; t < size; ++t) {
                        all.emplace_back([&f, &before, t] { run(f, t, before); });
                    }
                    for (std::thread& t : all) {
                        t.join();
                    }
                }
                ::_exit(0);
            }
            if (id > 0) {
                started_.push_back(id);
            }
        }
        ::close(ends[0]);
        if (started_.size() != processes) {
            stop();
            throw std::runtime_error("too many processes");
        }
    }
    crew(const crew&) = delete;
    crew& operator=(const crew&) = delete;
    ~crew() { stop(); }

    // Once all are at their gates, opens these.
    void start(std::chrono::seconds limit = std::chrono::seconds(30)) {
        await([this] { return *ready_ == size_; }, limit);
        ::close(opener_);
        opener_ = -1;
    }

    // Asks until the answer is yes. Throws when one has failed meanwhile, or it takes too long.
    template <class Question>
    void await(Question question, std::chrono::milliseconds limit = std::chrono::seconds(30)) {
        const std::int64_t end = now_ns() + limit.count() * 1'000'000;
        while (!question()) {
            interruption::check();
            reap();
            if (failed_ || (started_.empty() && !question())) {
                throw std::runtime_error("a process of a row failed");
            }
            if (now_ns() >= end) {
                throw std::runtime_error("the processes of a row did not come to it in time");
            }
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
    }

    // Until all have ended.
    void finish(std::chrono::seconds limit = std::chrono::seconds(30)) {
        await(
            [this] {
                reap();
                return started_.empty() && !failed_;
            },
            limit);
    }

    // As a crash would. The time of the signal.
    std::int64_t kill() {
        const std::int64_t when = now_ns();
        for (const pid_t id : started_) {
            ::kill(id, SIGKILL);
        }
        for (const pid_t id : started_) {
            while (::waitpid(id, nullptr, 0) < 0 && errno == EINTR) {
            }
        }
        started_.clear();
        return when;
    }

private:
    static constexpr unsigned longest_life = 85; // seconds

    static void begin_child(pid_t parent) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) {
            ::_exit(1);
        }
        interruption::leave_to_system();
        ::signal(SIGALRM, SIG_DFL);
        ::alarm(longest_life);
    }

    template <class F> static void run(F& f, std::size_t i, const gate& before) {
        try {
            f(i, before);
        } catch (const std::exception& wrong) {
            std::fprintf(stderr, "bench: member %zu: %s\n", i, wrong.what());
            ::_exit(1);
        }
    }

    void reap() {
        for (std::size_t i = 0; i < started_.size();) {
            int status = 0;
            if (::waitpid(started_[i], &status, WNOHANG) == started_[i]) {
                failed_ = failed_ || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
                started_[i] = started_.back();
                started_.pop_back();
            } else {
                ++i;
            }
        }
    }

    void stop() {
        kill();
        if (opener_ >= 0) {
            ::close(opener_);
            opener_ = -1;
        }
    }

    const std::size_t size_;
    shared_with_children<std::atomic<std::size_t>> ready_;
    int opener_ = -1;
    std::vector<pid_t> started_;
    bool failed_ = false;
};

} // namespace bench

#endif
