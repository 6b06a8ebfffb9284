// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_FORK_ENTRY_HPP
#define BIDE_PARALLEL_DETAIL_FORK_ENTRY_HPP

// How a thread begins a fork-join: the calling thread takes part in it, whether it belongs to the
// scheduler or not. An external thread is counted as a task is, so shutdown() waits for it. It gets
// a lane, from which workers steal, unless the workers do not steal at all.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/parallel/detail/fork_arms.hpp>
#include <bide/sched/detail/fork_lane.hpp>
#include <bide/sched/detail/scheduler_core.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/task/detail/nonvoid.hpp>

#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

class fork_entry {
public:
    static scheduler_core& core(scheduler& s) noexcept { return *s.core_; }
};

using fork_context = basic_fork_context<native_platform>;

// Returns true if the calling thread is in a fork-join of `s`.
BIDE_INLINE bool forks_here(const scheduler& s) noexcept {
    return fork_context::here().scheduler_id == &s;
}

// Runs both arms in the fork-join that the calling thread is in.
template <class F, class G> BIDE_INLINE fork_result<F, G> fork_here(F&& f, G&& g) {
    return detail::fork(fork_context::here().lane, std::forward<F>(f), std::forward<G>(g));
}

// Returns true if the calling thread is in a fork-join of `s`, and thieves would find no arm of it,
// or fewer than `most` and fewer than workers sleep.
inline bool wants_work(const scheduler& s, std::uint64_t most) noexcept {
    const fork_context& here = fork_context::here();
    return here.scheduler_id == &s && here.lane != nullptr && here.lane->wants_work(most);
}

// While an object lives, `s` is the current scheduler of the calling thread, and shutdown() of `s`
// waits for the thread.
class fork_caller {
public:
    // Throws: stopped_error if the thread is external and the scheduler is closing.
    explicit fork_caller(scheduler& on)
        : core_(fork_entry::core(on)), enters_(!current_scheduler::is_of(on)) {
        if (enters_ && !core_.enter_caller()) {
            throw_error(errc::stopped);
        }
        current_scheduler& here = current_scheduler::here();
        here.instance = &on;
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

// A fork-join with no way to run in one piece.
struct not_brief {
    static constexpr std::uint64_t iterations = 1;
    static constexpr std::int64_t longest_ns = 0;
};

// The longest expected time of a fork-join that is first tried in one piece, in nanoseconds. It is
// about ten times what the entry costs.
inline constexpr std::int64_t longest_brief_ns = 2'000;

// A way to run `iterations` iterations in one piece: see forker::enter_loop().
template <std::int64_t LongestNs, class Call> struct brief_run {
    static constexpr std::int64_t longest_ns = LongestNs;
    std::int64_t run(std::int64_t now) const { return call(now); }
    std::uint64_t iterations;
    Call& call;
};

// Calls f() in a fork-join of `s`. If the calling thread is in one already, f() becomes a part of
// it. The fork-join has brief.iterations iterations. If those that began here before were brief,
// calls brief.run(now) first, outside of the fork-join. If all is done after it, it returns the time,
// and f() is not called; otherwise it returns 0.
template <class F, class Brief = not_brief>
BIDE_NOINLINE nonvoid_t<std::invoke_result_t<F>> in_fork(scheduler& s, F&& f, Brief brief = {}) {
    if (detail::forks_here(s)) {
        return detail::call_arm<F>(std::forward<F>(f));
    }
    scheduler_core& core = fork_entry::core(s);
    const fork_caller caller(s);
    if (!core.pool().steals()) {
        const basic_fork_scope<native_platform> scope(&s);
        return detail::call_arm<F>(std::forward<F>(f));
    }
    static constinit basic_fork_call_site<native_platform> site;
    std::int64_t begin = 0;
    if constexpr (!std::is_same_v<Brief, not_brief>) {
        if (site.expected_ns(brief.iterations) <= brief.longest_ns) {
            begin = native_platform::now();
            if (const std::int64_t end = brief.run(begin); end != 0) {
                site.learn(end - begin, brief.iterations);
                return {};
            }
        }
    }
    const bool is_kept = core.is_here() && fork_context::here().scheduler_id == nullptr;
    const basic_scoped_lane<native_platform> lane(core.pool(), is_kept);
    if (lane.get() == nullptr) {
        BIDE_THROW(std::bad_alloc());
    }
    const basic_fork_scope<native_platform> scope(*lane.get(), site, brief.iterations, begin);
    return detail::call_arm<F>(std::forward<F>(f));
}

// All that the parallel algorithms need of a scheduler. Their templates take any type that can be
// copied and has these members.
class forker {
public:
    using platform = native_platform;

    explicit forker(scheduler& on) noexcept : scheduler_(&on) {}

    // Runs f() on the calling thread, and g() there or on a worker. Returns when both have ended.
    // Throws: what f() threw, else what g() threw. If there is no memory to fork, throws
    // std::bad_alloc before either began.
    // Requires: the caller runs inside enter().
    template <class F, class G> void both(F&& f, G&& g) const {
        detail::fork_here(std::forward<F>(f), std::forward<G>(g));
    }

    // The same, for a second arm that takes less time than a wake.
    template <class F, class G> void both_briefly(F&& f, G&& g) const {
        detail::fork(fork_context::here().lane, std::forward<F>(f), std::forward<G>(g), true);
    }

    // Calls f() in a fork-join. Throws: what f() throws. Throws as join(), before f() is called.
    template <class F> void enter(F&& f) const { detail::in_fork(*scheduler_, std::forward<F>(f)); }

    // The same, for a loop of `iterations` iterations. If iterations that began here before were so
    // short that these take at most LongestNs, calls run_briefly(now) first, outside of the fork-join.
    // If the loop has ended after it, it returns the time, and f() is not called; otherwise 0.
    template <std::int64_t LongestNs = longest_brief_ns, class Brief, class F>
    void enter_loop(std::uint64_t iterations, Brief&& run_briefly, F&& f) const {
        detail::in_fork(
            *scheduler_, std::forward<F>(f),
            brief_run<LongestNs, std::remove_reference_t<Brief>>{iterations, run_briefly});
    }

    // Returns true if workers would find no arm of this thread, or fewer than `most` and fewer than
    // workers sleep. Costs a few loads.
    // Requires: the call is made in enter().
    bool wants_work(std::uint64_t most) const noexcept {
        return detail::wants_work(*scheduler_, most);
    }

    // What an arm compares to know whether it runs on the thread that forked it.
    // Requires: the call is made in enter().
    const void* lane() const noexcept { return fork_context::here().lane; }

    // Returns the number of workers.
    unsigned workers() const noexcept { return scheduler_->concurrency(); }

private:
    scheduler* scheduler_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
