#ifndef BIDE_BENCH_DURABLE_CONTENDERS_HPP
#define BIDE_BENCH_DURABLE_CONTENDERS_HPP

// Locks between processes, bide's and what there is besides, in one shape.

#include "durable/crew.hpp"
#include "durable/meter.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace bench {

// One that wants the lock, in a process of its own; or a thread.
class contender {
public:
    contender() = default;
    contender(const contender&) = delete;
    contender& operator=(const contender&) = delete;
    virtual ~contender() = default;

    // The token; 0 where there are none. Throws what goes wrong, and when it takes too long.
    virtual std::int64_t acquire() = 0;
    virtual void release() = 0;
};

struct lock_terms {
    std::int64_t permits = 1;
    std::chrono::milliseconds lease{30'000};
    bool process_bound = true;
};

// A kind of lock.
struct lock_kind {
    std::string name;
    members shared_by = members::processes;
    bool is_ours = true; // else it counts nothing, and takes no terms
    bool polls = false;  // a contender that waits looks again after 100 ms
    std::function<void()> prepare;
    std::function<std::unique_ptr<contender>(const std::string& place, slot_meter&,
                                             const lock_terms&)>
        join;
};

// Those of bide, over each store.
const std::vector<lock_kind>& our_locks();

// What users of the same stores write themselves, or get with the store. flock(2), alone and with two
// writes that are synced; PostgreSQL's advisory lock, and an UPDATE of a row; Redis's SET NX; etcd's
// lock. Only etcd's has a queue and tokens. The first and the advisory lock keep nothing, so they have
// no lease either: a holder that hangs holds for ever.
const std::vector<lock_kind>& other_locks();

} // namespace bench

#endif
