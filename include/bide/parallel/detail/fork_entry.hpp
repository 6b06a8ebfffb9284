#ifndef BIDE_PARALLEL_DETAIL_FORK_ENTRY_HPP
#define BIDE_PARALLEL_DETAIL_FORK_ENTRY_HPP

// How a fork-join begins: the calling thread takes part in it, whether it is the scheduler's or not.
// A thread from elsewhere is counted as a task is, so shutdown() waits for it; it has a lane, from
// which workers steal, where workers steal at all.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/parallel/detail/fork_arms.hpp>
#include <bide/sched/detail/fork_place.hpp>
#include <bide/sched/detail/scheduler_core.hpp>
#include <bide/sched/detail/worker_threads.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/task/detail/nonvoid.hpp>

#include <new>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

class fork_entry {
public:
    static scheduler_core& core(scheduler& s) noexcept { return *s.core_; }
};

using fork_place = basic_fork_place<native_platform>;

// The calling thread is in a fork-join of `s`.
BIDE_INLINE bool forks_here(const scheduler& s) noexcept { return fork_place::here().home == &s; }

// Both arms, there.
template <class F, class G> BIDE_INLINE fork_result<F, G> fork_here(F&& f, G&& g) {
    return detail::fork(fork_place::here().lane, std::forward<F>(f), std::forward<G>(g));
}

// And nobody finds anything to take of it.
inline bool wants_work(const scheduler& s) noexcept {
    const fork_place& here = fork_place::here();
    return here.home == &s && here.lane != nullptr && here.lane->wants_work();
}

// While one lives, the scheduler is the calling thread's: it waits for the thread at its end.
class fork_caller {
public:
    // Throws: stopped_error where the thread is from elsewhere and the scheduler is closing.
    explicit fork_caller(scheduler& s)
        : core_(fork_entry::core(s)), enters_(!current_scheduler::is_of(s)) {
        if (enters_ && !core_.enter_caller()) {
            throw_error(errc::stopped);
        }
        current_scheduler& here = current_scheduler::here();
        here.face = &s;
        here.outer = &before_;
    }
    fork_caller(const fork_caller&) = delete;
    fork_caller& operator=(const fork_caller&) = delete;
    ~fork_caller() {
        current_scheduler::here() = before_;
        if (enters_) {
            core_.leave_caller();
        }
    }

private:
    scheduler_core& core_;
    const bool enters_;
    const current_scheduler before_ = current_scheduler::here();
};

// Calls it in a fork-join: in the one that this thread is in, if that is of the same scheduler.
template <class F> BIDE_NOINLINE nonvoid_t<std::invoke_result_t<F>> in_fork(scheduler& s, F&& f) {
    if (detail::forks_here(s)) {
        return detail::call_arm<F>(std::forward<F>(f));
    }
    scheduler_core& core = fork_entry::core(s);
    const fork_caller caller(s);
    if (!core.pool().steals()) {
        const basic_fork_session<native_platform> session(&s);
        return detail::call_arm<F>(std::forward<F>(f));
    }
    static constinit basic_fork_site<native_platform> site;
    const bool is_kept = core.is_here() && fork_place::here().home == nullptr;
    const basic_lane_loan<native_platform> lane(core.pool(), is_kept);
    if (lane.get() == nullptr) {
        BIDE_THROW(std::bad_alloc());
    }
    const basic_fork_session<native_platform> session(*lane.get(), site);
    return detail::call_arm<F>(std::forward<F>(f));
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
