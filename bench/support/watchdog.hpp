#ifndef BIDE_BENCH_SUPPORT_WATCHDOG_HPP
#define BIDE_BENCH_SUPPORT_WATCHDOG_HPP

// Ends the program, naming the row, when a row does not come to its end: a lost wakeup is a failure
// and not a hang.
//
// Its thread is parked for nearly all of the run and has a second use. glibc and libstdc++ leave
// the lock prefix out of some operations while a process has one thread, which makes std::mutex
// several times faster than any program with a use for it sees. The watchdog lives from the start.

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace bench {

class watchdog {
public:
    static constexpr int exit_code = 3;

    explicit watchdog(std::chrono::seconds limit)
        : limit_(limit), deadline_(clock::now() + limit), thread_([this] { watch(); }) {}

    ~watchdog() {
        {
            const std::lock_guard lock(mutex_);
            done_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }

    // From now on `row` has the whole limit. Wakes no thread: the watchdog's thread finds a later deadline
    // when it wakes for the one it knows.
    void begin(std::string row) {
        const std::lock_guard lock(mutex_);
        row_ = std::move(row);
        deadline_ = clock::now() + limit_;
    }

private:
    using clock = std::chrono::steady_clock;

    void watch() {
        std::unique_lock lock(mutex_);
        while (!done_) {
            if (clock::now() >= deadline_) {
                std::fprintf(stderr, "bench: %s did not end within %lld s\n", row_.c_str(),
                             static_cast<long long>(limit_.count()));
                std::_Exit(exit_code);
            }
            changed_.wait_until(lock, deadline_);
        }
    }

    std::chrono::seconds limit_;
    std::mutex mutex_;
    std::condition_variable changed_;
    clock::time_point deadline_;
    std::string row_;
    bool done_ = false;
    std::thread thread_;
};

} // namespace bench

#endif
