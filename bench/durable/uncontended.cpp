// A lock without contenders: two changes of the record, and so, on a disk, two syncs.

#include "durable/job.hpp"
#include "durable/workloads.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace {

sample acquire_and_release(const lock_kind& kind, std::chrono::nanoseconds duration) {
    const std::string place = begin_place(kind);
    const shared_with_children<numbers> found;
    const shared_with_children<slot_meter> meter;
    crew one(members::processes, 1, [&](std::size_t, const crew::gate&) {
        const std::unique_ptr<contender> lock = kind.join(place, *meter, {});
        std::vector<std::int64_t> acquires;
        std::vector<std::int64_t> both;
        lock->acquire();
        lock->release();
        const std::uint64_t stores = meter->stores;
        const std::int64_t end = now_ns() + duration.count();
        for (std::int64_t began = now_ns(); began < end; began = now_ns()) {
            lock->acquire();
            acquires.push_back(now_ns() - began);
            lock->release();
            both.push_back(now_ns() - began);
        }
        found->of[0] = percentile_us(both, 0.5);
        found->of[1] = percentile_us(both, 0.99);
        found->of[2] = percentile_us(acquires, 0.5);
        if (kind.is_ours) {
            found->of[3] =
                static_cast<double>(meter->stores - stores) / static_cast<double>(both.size());
        }
    });
    one.finish();
    return {std::begin(found->of), std::end(found->of)};
}

} // namespace

void add_uncontended(harness& h) {
    const std::chrono::nanoseconds duration = h.make_setting(250, 40).duration;
    table t{"uncontended",
            "acquire and release by one process; flock(2) and pg_advisory_lock keep no record: no "
            "lease, no token, no place in a queue that a crash leaves as it was",
            {{"both p50", "us", 1}, {"p99", "us", 0}, {"acquire p50", "us", 1}, {"writes", "", 2}},
            {}};
    for (const auto* const kinds : {&other_locks(), &our_locks()}) {
        for (const lock_kind& kind : *kinds) {
            if (!kind.is_variant) {
                add_row(t, kind.name,
                        [&kind, duration] { return acquire_and_release(kind, duration); });
            }
        }
    }
    h.add(std::move(t));
}

} // namespace bench
