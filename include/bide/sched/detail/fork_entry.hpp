#ifndef BIDE_SCHED_DETAIL_FORK_ENTRY_HPP
#define BIDE_SCHED_DETAIL_FORK_ENTRY_HPP

// How a fork-join begins: on a thread of the scheduler's, or with a visit to one.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/sched/detail/fork_arms.hpp>
#include <bide/sched/detail/fork_place.hpp>
#include <bide/sched/detail/nonvoid.hpp>
#include <bide/sched/detail/scheduler_core.hpp>
#include <bide/sched/scheduler.hpp>

#include <exception>
#include <new>
#include <optional>
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

// A call from another thread, on a worker.
template <class F> class fork_visit final : public guest {
    using value = nonvoid_t<std::invoke_result_t<F>>;

public:
    fork_visit(scheduler& s, std::remove_reference_t<F>& f) noexcept : scheduler_(s), f_(f) {}

    value take() {
#if BIDE_EXCEPTIONS
        if (error_) {
            std::rethrow_exception(std::move(error_));
        }
#endif
        return static_cast<value&&>(*value_);
    }

private:
    void serve() noexcept override;

    scheduler& scheduler_;
    std::remove_reference_t<F>& f_;
    std::optional<value> value_;
    std::exception_ptr error_;
};

// Calls it on a thread of the scheduler's: this one, if it is.
template <class F> BIDE_NOINLINE nonvoid_t<std::invoke_result_t<F>> on_worker(scheduler& s, F&& f) {
    scheduler_core& core = fork_entry::core(s);
    if (detail::forks_here(s)) {
        return detail::call_arm<F>(std::forward<F>(f));
    }
    if (!core.is_here()) {
        fork_visit<F> visit(s, f);
        if (!core.receive(visit)) {
            throw_error(errc::stopped);
        }
        return visit.take();
    }
    if (!core.pool().steals()) {
        const basic_fork_session<native_platform> session(&s);
        return detail::call_arm<F>(std::forward<F>(f));
    }
    static constinit basic_fork_site<native_platform> site;
    auto* const lane = core.pool().lane_here();
    if (lane == nullptr) {
        BIDE_THROW(std::bad_alloc());
    }
    const basic_fork_session<native_platform> session(*lane, site);
    return detail::call_arm<F>(std::forward<F>(f));
}

template <class F> void fork_visit<F>::serve() noexcept {
#if BIDE_EXCEPTIONS
    try {
        value_.emplace(detail::on_worker<F>(scheduler_, static_cast<F&&>(f_)));
    } catch (...) {
        error_ = std::current_exception();
    }
#else
    value_.emplace(detail::on_worker<F>(scheduler_, static_cast<F&&>(f_)));
#endif
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
