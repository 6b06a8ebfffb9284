// One thread acquires and releases, without contenders.

#include "support/batch_timer.hpp"
#include "support/cpus.hpp"
#include "support/isolated.hpp"
#include "sync/peers.hpp"
#include "sync/workloads.hpp"

#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

namespace bench {
namespace {

template <class Call> sample timed(const setting& with, Call call) {
    const scoped_affinity pinned({with.cpus.front()});
    return {ns_per_call(with.duration, call)};
}

template <class Lock> sample exclusive(const setting& with) {
    isolated<Lock> lock;
    return timed(with, [&] { lock.subject.locked([] {}); });
}

template <class Lock> sample shared(const setting& with) {
    isolated<Lock> lock;
    return timed(with, [&] { lock.subject.shared([] {}); });
}

template <class Semaphore> sample one_permit(const setting& with) {
    isolated<Semaphore> semaphore(1u);
    return timed(with, [&] {
        semaphore.subject.acquire();
        semaphore.subject.release();
    });
}

template <class Semaphore> sample three_permits(const setting& with) {
    isolated<Semaphore> semaphore(3u);
    return timed(with, [&] {
        semaphore.subject.acquire(3);
        semaphore.subject.release(3);
    });
}

table pairs_table(std::string name, std::string note) {
    return {std::move(name), std::move(note), {{"pair", "ns", 2, true}}, {}};
}

void add_exclusive(harness& h, const setting& with) {
    table t = pairs_table("uncontended/lock", "lock and unlock, one thread");
    const auto add = [&]<class Lock>(std::type_identity<Lock>, const char* name) {
        t.add(name, [with] { return exclusive<Lock>(with); });
    };
    for_each_lock(add);
    add(std::type_identity<two_known_cas>(), "floor: two known-value CAS");
    h.add(std::move(t));
}

void add_shared(harness& h, const setting& with) {
    table reading = pairs_table("uncontended/shared", "lock_shared and unlock_shared, one thread");
    table writing = pairs_table("uncontended/shared-exclusive",
                                "lock and unlock of a shared mutex, one thread");
    for_each_shared_lock([&]<class Lock>(std::type_identity<Lock>, const char* name) {
        reading.add(name, [with] { return shared<Lock>(with); });
        writing.add(name, [with] { return exclusive<Lock>(with); });
    });
    h.add(std::move(reading));
    h.add(std::move(writing));
}

void add_semaphores(harness& h, const setting& with) {
    table t = pairs_table("uncontended/semaphore", "acquire and release, one thread");
    t.add("std::counting_semaphore", [with] { return one_permit<std_semaphore>(with); });
    t.add("std::mutex", [with] { return exclusive<lock_of<std::mutex>>(with); });
    t.add("sem_t", [with] { return one_permit<posix_semaphore>(with); });
    t.add("std::mutex + condition_variable",
          [with] { return one_permit<condition_semaphore>(with); });
    t.add("std::mutex + condition_variable, n = 3",
          [with] { return three_permits<condition_semaphore>(with); });
    t.add("bide::semaphore", [with] { return one_permit<bide::semaphore>(with); });
    t.add("bide::semaphore, n = 3", [with] { return three_permits<bide::semaphore>(with); });
    h.add(std::move(t));
}

} // namespace

void add_uncontended(harness& h) {
    const setting with = h.make_setting(50, 15);
    add_exclusive(h, with);
    add_semaphores(h, with);
    add_shared(h, with);
}

} // namespace bench
