// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_ARM_SOURCE_HPP
#define BIDE_SCHED_DETAIL_ARM_SOURCE_HPP

// The source of the arms of fork-joins. An idle worker asks it when the queues of the pool are
// empty. A pool without fork-joins has no such source, and does not need fork_lane.hpp.

#include <bide/core/config.hpp>

namespace bide { inline namespace BIDE_ABI { namespace detail {

template <class Platform> struct basic_worker;

template <class Platform> class basic_arm_source {
public:
    virtual ~basic_arm_source() = default;

    // Takes the oldest arm, which is then run as `w.arm`. Returns false if there is none. Sets
    // `left` to true if arms were left that are worth another worker.
    virtual bool take_arm(basic_worker<Platform>& w, bool& left) noexcept = 0;
    // Returns true if there is an arm. Called by a worker in its last look before it sleeps
    // [idle.announce].
    virtual bool has_work() const noexcept = 0;
    // Called when the calling thread leaves the pool.
    virtual void drop_thread_lane() noexcept = 0;
};

}}} // namespace bide::BIDE_ABI::detail

#endif
