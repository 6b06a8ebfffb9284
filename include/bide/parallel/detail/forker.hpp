#ifndef BIDE_PARALLEL_DETAIL_FORKER_HPP
#define BIDE_PARALLEL_DETAIL_FORKER_HPP

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/parallel/detail/fork_arms.hpp>
#include <bide/parallel/detail/fork_entry.hpp>
#include <bide/sched/scheduler.hpp>

#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// What the parallel algorithms need of a scheduler, and all that they need: their templates take
// any type that can be copied and has these members.
class forker {
public:
    using platform = native_platform;

    explicit forker(scheduler& on) noexcept : scheduler_(&on) {}

    // Runs both, the second by whoever is first at it. Returns when both have ended; then what the
    // first one threw is rethrown, or else what the second one threw. Where it has no memory to fork
    // it throws, and none of them has begun. In enter().
    template <class F, class G> void both(F&& f, G&& g) const {
        detail::fork_here(std::forward<F>(f), std::forward<G>(g));
    }

    // Calls f() in a fork-join. Throws: what f throws; or as join(), and f is not called.
    template <class F> void enter(F&& f) const { detail::in_fork(*scheduler_, std::forward<F>(f)); }

    // Whether others would find nothing here if they looked now. Costs next to nothing. In enter().
    bool wants_work() const noexcept { return detail::wants_work(*scheduler_); }

private:
    scheduler* scheduler_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
