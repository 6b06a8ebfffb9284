// A wake without a sleeper: what every producer pays.

#include "support/batch_timer.hpp"
#include "support/cpus.hpp"
#include "support/isolated.hpp"
#include "sync/peers.hpp"
#include "sync/workloads.hpp"

#include <bide/core/event_count.hpp>
#include <bide/sync/condition_variable.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/notify.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

namespace bench {
namespace {

template <class Mutex, class Condition> class condition_flag {
public:
    void notify() {
        {
            const std::lock_guard lock(mutex_);
            flag_ = true;
        }
        changed_.notify_one();
    }

private:
    Mutex mutex_;
    Condition changed_;
    bool flag_ = false;
};

// Its permit is stored again and again.
class notify_one {
public:
    void notify() { notify_.notify_one(); }

private:
    bide::notify notify_;
};

class atomic_flag {
public:
    void notify() {
        value_.store(++next_, std::memory_order_release);
        value_.notify_one();
    }

private:
    std::atomic<std::uint32_t> value_{0};
    std::uint32_t next_ = 0;
};

class event {
public:
    void notify() { count_.notify_one(); }

private:
    bide::event_count count_;
};

// Its permits pile up: no thread takes them.
template <class Semaphore> class pile {
public:
    void notify() { semaphore_.release(); }

private:
    Semaphore semaphore_{0};
};

template <class Notifier> sample nobody_asleep(const setting& with) {
    const scoped_affinity pinned({with.cpus.front()});
    isolated<Notifier> notifier;
    return {ns_per_call(with.duration, [&] { notifier.subject.notify(); })};
}

} // namespace

void add_notify(harness& h) {
    const setting with = h.make_setting(50, 15);
    table t{"notify/no-sleeper", "one call", {{"call", "ns", 2, true}}, {}};
    t.add("std::mutex + condition_variable",
          [=] { return nobody_asleep<condition_flag<std::mutex, std::condition_variable>>(with); });
    t.add("std::atomic, notify_one", [=] { return nobody_asleep<atomic_flag>(with); });
    t.add("std::counting_semaphore, release",
          [=] { return nobody_asleep<pile<std_semaphore>>(with); });
    t.add("sem_t, post", [=] { return nobody_asleep<pile<posix_semaphore>>(with); });
    t.add("bide::event_count", [=] { return nobody_asleep<event>(with); });
    t.add("bide::mutex + condition_variable", [=] {
        return nobody_asleep<condition_flag<bide::mutex, bide::condition_variable>>(with);
    });
    t.add("bide::notify", [=] { return nobody_asleep<notify_one>(with); });
    t.add("bide::semaphore, release", [=] { return nobody_asleep<pile<bide::semaphore>>(with); });
    h.add(std::move(t));
}

} // namespace bench
