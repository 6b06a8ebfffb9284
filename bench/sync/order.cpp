// Which thread is overtaken in a lock's queue.
//
// From outside one cannot see when a call of lock() enters the queue, so counting under free
// contention would blame a fair lock for a thread that was preempted on its way in. Here each round
// is staged so that what is counted is certain:
//   1. the referee holds the lock;
//   2. one after the other, queuers call lock(); the next is sent only when the kernel shows the
//      last one asleep (state S after it said "I am about to lock", between which and lock() it does
//      nothing that sleeps): it is in the queue;
//   3. the referee unlocks and at once wants the lock again; so does each queuer after its turn.
// Each thread writes its number into a log under the lock. An overtake is a pair: an acquisition whose
// call began after some queuer was seen asleep, and that queuer still without its first turn. A
// FIFO lock makes none; the sum is over the round's log, per 1000 acquisitions.

#include "support/bench.hpp"
#include "sync/peers.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace bench {
namespace {

using clock = std::chrono::steady_clock;

// Asks the kernel whether a thread of this process sleeps.
class sleep_probe {
public:
    sleep_probe() = default;
    sleep_probe(const sleep_probe&) = delete;
    sleep_probe& operator=(const sleep_probe&) = delete;
    ~sleep_probe() {
        if (file_ >= 0) {
            ::close(file_);
        }
    }

    // By the thread that is to be watched, before others ask.
    void watch_this_thread() {
        const std::string id = std::to_string(::syscall(SYS_gettid));
        file_ = ::open(("/proc/self/task/" + id + "/stat").c_str(), O_RDONLY | O_CLOEXEC);
    }

    // The state follows the name, which stands in parentheses.
    bool is_asleep() const {
        char text[256];
        const ssize_t count = ::pread(file_, text, sizeof text, 0);
        const std::string stat(text, count > 0 ? static_cast<std::size_t>(count) : 0);
        const auto end_of_name = stat.rfind(')');
        return end_of_name + 2 < stat.size() && stat[end_of_name + 2] == 'S';
    }

private:
    int file_ = -1;
};

// A number that one thread raises and others wait for.
class milestone {
public:
    void reach(int value) {
        {
            const std::lock_guard lock(mutex_);
            value_ = value;
        }
        changed_.notify_all();
    }

    void wait_for(int value) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return value_ >= value; });
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int value_ = 0;
};

// A thread that queues when it is sent.
struct queuer {
    sleep_probe probe;
    milestone sent;                    // rounds it was sent into
    milestone finished;                // rounds it has ended
    std::atomic<int> about_to_lock{0}; // the round in which it is, or is about to be, in lock()
};

inline constexpr std::size_t referee = 1000;
inline constexpr int no_more_rounds = 1 << 30;

// Overtakes in a round in which `queuers` queued by index and then all wanted the lock once more.
std::uint64_t count_overtakes(const std::vector<std::size_t>& log, std::size_t queuers) {
    std::vector<bool> served(queuers, false);
    std::uint64_t overtakes = 0;
    for (const std::size_t thread : log) {
        const bool first_turn = thread != referee && !served[thread];
        // On its first turn a thread may only have overtaken those that queued before it.
        const std::size_t ahead = first_turn ? thread : queuers;
        for (std::size_t i = 0; i < ahead; ++i) {
            overtakes += served[i] ? 0 : 1;
        }
        if (first_turn) {
            served[thread] = true;
        }
    }
    return overtakes;
}

template <class Lock> class queue_trial {
public:
    explicit queue_trial(std::size_t queuers) : queuers_(queuers) {}

    measured measure() {
        run_team(
            queuers_.size(), allowed_cpus(), [&](std::size_t i) { queue(i); },
            [&] { hold_rounds(); });
        const double per_thousand =
            1000 * static_cast<double>(overtakes_) / static_cast<double>(acquisitions_);
        return {0, {{"overtakes/1000", per_thousand}, {"rounds", rounds_}}};
    }

private:
    void queue(std::size_t i) {
        queuer& self = queuers_[i];
        self.probe.watch_this_thread();
        for (int round = 1;; ++round) {
            self.sent.wait_for(round);
            if (stop_.load(std::memory_order_acquire)) {
                return;
            }
            self.about_to_lock.store(round, std::memory_order_release);
            take_turn(i);
            take_turn(i);
            self.finished.reach(round);
        }
    }

    void take_turn(std::size_t thread) {
        lock_.locked([&] { log_.push_back(thread); });
    }

    void hold_rounds() {
        const auto end = clock::now() + a_round(2);
        log_.reserve(3 * queuers_.size() + 3);
        for (int round = 1; clock::now() < end; ++round) {
            log_.clear();
            lock_.locked([&] { send_all(round); });
            take_turn(referee);
            for (queuer& q : queuers_) {
                q.finished.wait_for(round);
            }
            overtakes_ += count_overtakes(log_, queuers_.size());
            acquisitions_ += log_.size();
            ++rounds_;
        }
        stop_.store(true, std::memory_order_release);
        for (queuer& q : queuers_) {
            q.sent.reach(no_more_rounds);
        }
    }

    void send_all(int round) {
        for (queuer& q : queuers_) {
            q.sent.reach(round);
            while (q.about_to_lock.load(std::memory_order_acquire) != round ||
                   !q.probe.is_asleep()) {
                std::this_thread::yield();
            }
        }
    }

    Lock lock_;
    std::vector<queuer> queuers_;
    std::vector<std::size_t> log_; // guarded by lock_
    std::atomic<bool> stop_{false};
    std::uint64_t overtakes_ = 0;
    std::uint64_t acquisitions_ = 0;
    int rounds_ = 0;
};

} // namespace

void add_order() {
    for (const std::size_t queuers : {1u, 3u, 7u}) {
        table t("order/queued=" + std::to_string(queuers),
                "overtakes of threads that were seen asleep in the queue (see order.cpp)");
        for_each_sleeping_lock([&]<class Lock>(std::type_identity<Lock>, const char* name) {
            t.add(name, [=] { return queue_trial<Lock>(queuers).measure(); });
        });
    }
}

} // namespace bench
