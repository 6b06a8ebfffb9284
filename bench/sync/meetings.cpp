// Barriers, initialisation once, several locks at once, and locks by key.
//   barrier/...           threads meet again and again: how long one phase takes. Each row has a
//                         process of its own, as in handoff.cpp
//   once/after            a call when the work is done already
//   all/uncontended       two mutexes, one thread
//   all/saturated         one thread locks two mutexes together while three other threads each want
//                         one of them all the time: how often that thread gets both, in a second
//   keyed/uncontended     one of 16 keys, one thread
//   objects/uncontended   an object of a pool is borrowed and returned, one thread

#include "support/batch_timer.hpp"
#include "support/cpus.hpp"
#include "support/isolated.hpp"
#include "support/team.hpp"
#include "support/work.hpp"
#include "sync/peers.hpp"
#include "sync/workloads.hpp"

#include <bide/sync/barrier.hpp>
#include <bide/sync/keyed_mutex.hpp>
#include <bide/sync/object_pool.hpp>
#include <bide/sync/once.hpp>
#include <bide/sync/scoped_lock.hpp>

#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <pthread.h>

namespace bench {
namespace {

using clock = std::chrono::steady_clock;

// ---- barriers

class posix_barrier {
public:
    explicit posix_barrier(std::ptrdiff_t size) {
        ::pthread_barrier_init(&barrier_, nullptr, static_cast<unsigned>(size));
    }
    posix_barrier(const posix_barrier&) = delete;
    posix_barrier& operator=(const posix_barrier&) = delete;
    ~posix_barrier() { ::pthread_barrier_destroy(&barrier_); }

    void arrive_and_wait() { ::pthread_barrier_wait(&barrier_); }

private:
    ::pthread_barrier_t barrier_;
};

template <class Barrier> class meetings {
public:
    explicit meetings(std::size_t size)
        : size_(size), barrier_(static_cast<std::ptrdiff_t>(size)) {}

    // Nanoseconds for a phase.
    sample meet(const cpu_list& cpus, std::chrono::nanoseconds duration) {
        run_team(size_, cpus, [&](std::size_t i) { i == 0 ? lead(duration) : follow(); }, [] {});
        return {phase_ns_};
    }

private:
    static constexpr int phases = 50; // between looks at the clock

    void lead(std::chrono::nanoseconds duration) {
        rounds(duration / 10); // all threads run, and the library has learnt what it learns
        phase_ns_ = rounds(duration);
        over_.store(true, std::memory_order_relaxed);
        follow_round();
    }

    double rounds(std::chrono::nanoseconds duration) {
        const auto began = clock::now();
        for (double met = phases;; met += phases) {
            follow_round();
            const std::chrono::duration<double, std::nano> elapsed = clock::now() - began;
            if (elapsed >= duration) {
                return elapsed.count() / met;
            }
        }
    }

    // The leader says between two rounds whether the next one is the last. All know it after the
    // first phase.
    void follow() {
        while (!follow_round()) {
        }
    }
    bool follow_round() {
        barrier_.subject.arrive_and_wait();
        const bool is_last = over_.load(std::memory_order_relaxed);
        for (int i = 1; i < phases; ++i) {
            barrier_.subject.arrive_and_wait();
        }
        return is_last;
    }

    std::size_t size_;
    isolated<Barrier> barrier_;
    std::atomic<bool> over_{false};
    double phase_ns_ = 0;
};

void add_barriers(harness& h, std::size_t size, const char* name, const char* note) {
    const setting with = h.make_setting(200, 60);
    table t{name, note, {{"phase", "ns", 0, true}}, {}};
    const auto add = [&]<class Barrier>(std::type_identity<Barrier>, const char* of) {
        const auto meet = [=] { return meetings<Barrier>(size).meet(with.cpus, with.duration); };
        t.rows.push_back({of, meet, placement::own_process});
    };
    add(std::type_identity<std::barrier<>>(), "std::barrier");
    add(std::type_identity<posix_barrier>(), "pthread_barrier_t");
    add(std::type_identity<bide::barrier<>>(), "bide::barrier");
    h.add(std::move(t));
}

// ---- once

template <class Call> sample timed(const setting& with, Call call) {
    const scoped_affinity pinned({with.cpus.front()});
    return {ns_per_call(with.duration, call)};
}

// Not known to the compiler, which would keep it in a register.
template <class T> void look_at(T& value) { asm volatile("" : : "g"(&value) : "memory"); }

int& local_static(int n) {
    static int value = n;
    return value;
}

void add_once(harness& h) {
    const setting with = h.make_setting(50, 15);
    table t{"once/after", "a call when the work is done", {{"call", "ns", 2, true}}, {}};
    t.add("std::call_once", [with] {
        isolated<std::once_flag> flag;
        int value = 0;
        return timed(with, [&] {
            std::call_once(flag.subject, [&] { value = 1; });
            look_at(value);
        });
    });
    t.add("static variable", [with] { return timed(with, [] { look_at(local_static(1)); }); });
    t.add("bide::once_flag", [with] {
        isolated<bide::once_flag> flag;
        int value = 0;
        return timed(with, [&] {
            flag.subject.call([&] { value = 1; });
            look_at(value);
        });
    });
    t.add("bide::once_cell", [with] {
        isolated<bide::once_cell<int>> cell;
        return timed(with, [&] { look_at(cell.subject.get_or_init([] { return 1; })); });
    });
    h.add(std::move(t));
}

// ---- several locks

struct by_std {
    template <class M> static auto lock(M& a, M& b) { return std::scoped_lock(a, b); }
};
struct by_bide {
    template <class M> static auto lock(M& a, M& b) { return bide::scoped_lock(a, b); }
};

template <class Mutex, class How> sample lock_both(const setting& with) {
    isolated<Mutex> a;
    isolated<Mutex> b;
    return timed(with, [&] { [[maybe_unused]] const auto held = How::lock(a.subject, b.subject); });
}

// Thousands a second.
template <class Mutex, class How> sample lock_saturated(const setting& with) {
    isolated<Mutex> m[2];
    isolated<std::atomic<bool>> over{false};
    isolated<std::uint64_t> both{0u};
    const std::uint64_t inside = steps_lasting(100);
    std::chrono::duration<double, std::milli> elapsed{};
    run_team(
        7, with.cpus,
        [&](std::size_t i) {
            while (!over.subject.load(std::memory_order_relaxed)) {
                if (i == 0) {
                    [[maybe_unused]] const auto held = How::lock(m[0].subject, m[1].subject);
                    compute(inside);
                    ++both.subject;
                } else {
                    const std::lock_guard held(m[i % 2].subject);
                    compute(inside);
                }
            }
        },
        [&] {
            const auto began = clock::now();
            std::this_thread::sleep_for(with.duration);
            over.subject.store(true, std::memory_order_relaxed);
            elapsed = clock::now() - began;
        });
    return {static_cast<double>(both.subject) / elapsed.count()};
}

void add_all(harness& h) {
    const setting quick = h.make_setting(50, 15);
    const setting with = h.make_setting(500, 150);
    table alone{"all/uncontended",
                "lock and unlock of two mutexes, one thread",
                {{"pair", "ns", 2, true}},
                {}};
    table busy{"all/saturated",
               "a thread that wants both, beside three for each mutex",
               {{"both", "k/s", 2, true}},
               {}};
    const auto add = [&]<class Mutex, class How>(std::type_identity<Mutex>, How, const char* name) {
        alone.add(name, [=] { return lock_both<Mutex, How>(quick); });
        busy.add(name, [=] { return lock_saturated<Mutex, How>(with); });
    };
    add(std::type_identity<std::mutex>(), by_std(), "std::mutex, std::scoped_lock");
    add(std::type_identity<std::mutex>(), by_bide(), "std::mutex, bide::scoped_lock");
    add(std::type_identity<bide::mutex>(), by_std(), "bide::mutex, std::scoped_lock");
    add(std::type_identity<bide::mutex>(), by_bide(), "bide::mutex, bide::scoped_lock");
    add(std::type_identity<bide::adaptive_mutex>(), by_std(),
        "bide::adaptive_mutex, std::scoped_lock");
    add(std::type_identity<bide::adaptive_mutex>(), by_bide(),
        "bide::adaptive_mutex, bide::scoped_lock");
    h.add(std::move(alone));
    h.add(std::move(busy));
}

// ---- locks by key

// What programs without a keyed mutex do.
class map_of_mutexes {
public:
    template <class Section> void locked(int key, Section section) {
        std::shared_ptr<std::mutex> mine;
        {
            const std::lock_guard held(all_);
            auto& found = mutexes_[key];
            if (!found) {
                found = std::make_shared<std::mutex>();
            }
            mine = found;
        }
        {
            const std::lock_guard held(*mine);
            section();
        }
        const std::lock_guard held(all_);
        if (mine.use_count() == 2) {
            mutexes_.erase(key);
        }
    }

private:
    std::mutex all_;
    std::unordered_map<int, std::shared_ptr<std::mutex>> mutexes_;
};

class keyed {
public:
    template <class Section> void locked(int key, Section section) {
        const auto held = mutexes_.lock(key);
        section();
    }

private:
    bide::keyed_mutex<int> mutexes_;
};

template <class Keyed> sample lock_keys(const setting& with) {
    isolated<Keyed> mutexes;
    int key = 0;
    return timed(with, [&] { mutexes.subject.locked(++key % 16, [] {}); });
}

void add_keyed(harness& h) {
    const setting with = h.make_setting(50, 15);
    table t{
        "keyed/uncontended", "lock and unlock of a key, one thread", {{"pair", "ns", 2, true}}, {}};
    t.add("map of std::mutex", [with] { return lock_keys<map_of_mutexes>(with); });
    t.add("bide::keyed_mutex", [with] { return lock_keys<keyed>(with); });
    h.add(std::move(t));
}

// ---- objects

class std_pool {
public:
    template <class Use> void borrowed(Use use) {
        std::unique_ptr<int> mine;
        {
            std::unique_lock held(mutex_);
            returned_.wait(held, [this] { return !idle_.empty() || made_ < 8; });
            if (!idle_.empty()) {
                mine = std::move(idle_.back());
                idle_.pop_back();
            } else {
                ++made_;
            }
        }
        if (mine == nullptr) {
            mine = std::make_unique<int>(1);
        }
        use(*mine);
        {
            const std::lock_guard held(mutex_);
            idle_.push_back(std::move(mine));
        }
        returned_.notify_one();
    }

private:
    std::mutex mutex_;
    std::condition_variable returned_;
    std::vector<std::unique_ptr<int>> idle_;
    int made_ = 0;
};

class pool {
public:
    template <class Use> void borrowed(Use use) { use(*objects_.acquire()); }

private:
    static bide::object_pool_options up_to(std::size_t limit) {
        bide::object_pool_options options;
        options.limit = limit;
        return options;
    }
    bide::object_pool<int> objects_{up_to(8), [] { return 1; }};
};

template <class Pool> sample borrow(const setting& with) {
    isolated<Pool> objects;
    return timed(with, [&] { objects.subject.borrowed([](int& object) { ++object; }); });
}

void add_objects(harness& h) {
    const setting with = h.make_setting(50, 15);
    table t{"objects/uncontended",
            "an object of a pool is borrowed and returned, one thread",
            {{"pair", "ns", 2, true}},
            {}};
    t.add("std::mutex and a vector", [with] { return borrow<std_pool>(with); });
    t.add("bide::object_pool", [with] { return borrow<pool>(with); });
    h.add(std::move(t));
}

} // namespace

void add_meetings(harness& h) {
    add_barriers(h, 2, "barrier/two-threads", "threads meet, pinned to one processor each");
    add_barriers(h, 4, "barrier/four-threads", "threads meet, pinned to two processors");
    add_once(h);
    add_all(h);
    add_keyed(h);
    add_objects(h);
}

} // namespace bench
