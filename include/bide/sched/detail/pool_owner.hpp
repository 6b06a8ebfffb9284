#ifndef BIDE_SCHED_DETAIL_POOL_OWNER_HPP
#define BIDE_SCHED_DETAIL_POOL_OWNER_HPP

#include <bide/core/config.hpp>
#include <bide/core/executor.hpp>
#include <bide/sched/detail/worker.hpp>
#include <bide/sched/driver.hpp>
#include <bide/sched/trace.hpp>

#include <cstdint>

namespace bide::inline BIDE_ABI {
namespace detail {

// What a pool (pool.hpp) asks of the scheduler that it is in.
template <class Platform> class basic_pool_owner {
    using worker = basic_worker<Platform>;

public:
    // Has somebody else run `w`, which its thread leaves. False: there is nobody.
    virtual bool replace(worker& w) noexcept = 0;
    // There was none: the thread that is free next is to relieve() the pool. False: there will be
    // no such thread, unless one is started.
    virtual bool call_for_help() noexcept { return true; }
    // This thread runs a worker in place of another; and has a thread that is back take it over.
    // False: none is.
    virtual bool stands_in() const noexcept { return false; }
    virtual bool give_back(worker&) noexcept { return false; }
    // A worker found nothing to run, and has said so to the others by a step on a word of theirs:
    // who says so last sees what all have done before.
    virtual void found_nothing() noexcept = 0;
    // What its tasks call their executor.
    virtual executor_ref executor() noexcept = 0;
    // What its users know it by.
    virtual const void* face() const noexcept { return this; }

protected:
    ~basic_pool_owner() = default;
};

struct pool_options {
    unsigned workers;
    bool steal;
    driver* io;                  // where one of the workers sleeps, instead of on a futex
    std::int64_t longest_nap_ns; // 0: nobody naps
    trace_sink* trace = nullptr;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
