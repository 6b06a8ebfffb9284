// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_FORK_ARMS_HPP
#define BIDE_PARALLEL_DETAIL_FORK_ARMS_HPP

// The two arms of a join, on a lane. The owner pushes the second arm where thieves find it, and
// runs the first arm. If no thief has taken the second arm by then, the owner runs it, too. All
// state is in the frame of the join, and the path without a thief is inlined. If the thread has no
// lane, it calls one arm after the other.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/sched/detail/fork_lane.hpp>
#include <bide/task/detail/nonvoid.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// Calls f(). Returns std::monostate for void.
template <class F> BIDE_INLINE nonvoid_t<std::invoke_result_t<F>> call_arm(F&& f) {
    if constexpr (std::is_void_v<std::invoke_result_t<F>>) {
        std::forward<F>(f)();
        return {};
    } else {
        return std::forward<F>(f)();
    }
}

// The second arm, and its value or exception if a thief has run it.
template <class Platform, class G> class fork_arm final : public basic_fork_job<Platform> {
    using job = basic_fork_job<Platform>;
    using value = nonvoid_t<std::invoke_result_t<G>>;
    using kept = std::conditional_t<std::is_reference_v<value>, std::add_pointer_t<value>,
                                    std::remove_const_t<value>>;

public:
    using end = typename job::end;

    explicit fork_arm(std::remove_reference_t<G>& arm) noexcept : job(&run_stolen), call_(arm) {}
    ~fork_arm() {}

    // Returns the value, or throws the exception, of an arm that a thief has run.
    value take(end how) {
        if (how == end::failed) {
            rethrow();
        }
        if constexpr (std::is_reference_v<value>) {
            return static_cast<value>(*value_);
        } else {
            const drop_value later{*this};
            return std::move(value_);
        }
    }
    // Destroys the value or the exception.
    void drop(end how) noexcept {
        if (how == end::failed) {
            error_.~exception_ptr();
        } else {
            value_.~kept();
        }
    }

private:
    struct drop_value {
        fork_arm& arm;
        ~drop_value() { arm.value_.~kept(); }
    };

    static bool run_stolen(job& j) noexcept {
        auto& mine = static_cast<fork_arm&>(j);
#if BIDE_EXCEPTIONS
        try {
            mine.keep();
            return false;
        } catch (...) {
            ::new (static_cast<void*>(&mine.error_)) std::exception_ptr(std::current_exception());
            return true;
        }
#else
        mine.keep();
        return false;
#endif
    }
    void keep() {
        if constexpr (std::is_reference_v<value>) {
            auto&& result = detail::call_arm<G>(static_cast<G&&>(call_));
            value_ = std::addressof(result);
        } else {
            ::new (const_cast<void*>(static_cast<const volatile void*>(std::addressof(value_))))
                kept(detail::call_arm<G>(static_cast<G&&>(call_)));
        }
    }
    [[noreturn]] BIDE_COLD void rethrow() {
#if BIDE_EXCEPTIONS
        const std::exception_ptr error = std::move(error_);
        error_.~exception_ptr();
        std::rethrow_exception(error);
#else
        std::terminate();
#endif
    }

    std::remove_reference_t<G>& call_;
    union {
        kept value_;
        std::exception_ptr error_;
    };
};

#if BIDE_EXCEPTIONS
// The first arm threw: the second one runs to its end, and its value or exception is dropped.
template <class Platform, class G>
BIDE_COLD void drop_second(basic_fork_lane<Platform>* lane, std::uint32_t at,
                           fork_arm<Platform, G>& arm, std::remove_reference_t<G>& g) noexcept {
    using end = typename fork_arm<Platform, G>::end;
    if (lane != nullptr && !lane->pop(at)) {
        if (const end how = lane->wait(arm, at); how != end::returned) {
            arm.drop(how);
            return;
        }
    }
    try {
        static_cast<void>(detail::call_arm<G>(static_cast<G&&>(g)));
    } catch (...) { // the first arm's exception has priority
    }
}
#endif

template <class Platform, class F, class G>
BIDE_INLINE nonvoid_t<std::invoke_result_t<F>>
call_first([[maybe_unused]] basic_fork_lane<Platform>* lane, [[maybe_unused]] std::uint32_t at,
           [[maybe_unused]] fork_arm<Platform, G>& second, F&& f,
           [[maybe_unused]] std::remove_reference_t<G>& g) {
#if BIDE_EXCEPTIONS
    if constexpr (!std::is_nothrow_invocable_v<F>) {
        try {
            return detail::call_arm<F>(std::forward<F>(f));
        } catch (...) {
            detail::drop_second<Platform, G>(lane, at, second, g);
            throw;
        }
    }
#endif
    return detail::call_arm<F>(std::forward<F>(f));
}

template <class F, class G>
using fork_result =
    std::pair<nonvoid_t<std::invoke_result_t<F>>, nonvoid_t<std::invoke_result_t<G>>>;

// Storage for the second arm, which is made only if there is a lane.
template <class Platform, class G> union arm_storage {
    arm_storage() noexcept {}
    ~arm_storage() {}
    fork_arm<Platform, G> arm;
};

// Runs both arms on the lane of the calling thread. If `lane` is nullptr, runs one after the other.
// `is_brief`: g takes less time than a wake.
template <class Platform, class F, class G>
BIDE_INLINE fork_result<F, G> fork(basic_fork_lane<Platform>* lane, F&& f, G&& g,
                                   bool is_brief = false) {
    using first_type = nonvoid_t<std::invoke_result_t<F>>;
    using end = typename fork_arm<Platform, G>::end;
    arm_storage<Platform, G> storage;
    fork_arm<Platform, G>& second = storage.arm;
    std::uint32_t at = 0;
    if (lane != nullptr) [[likely]] {
        ::new (static_cast<void*>(std::addressof(second))) fork_arm<Platform, G>(g);
        at = lane->depth();
        lane->push(second, is_brief);
    }
    first_type first = detail::call_first<Platform, F, G>(lane, at, second, std::forward<F>(f), g);
    if (lane != nullptr && !lane->pop(at)) [[unlikely]] {
        if (const end how = lane->wait(second, at); how != end::returned) {
            return {static_cast<first_type&&>(first), second.take(how)};
        }
    }
    return {static_cast<first_type&&>(first), detail::call_arm<G>(std::forward<G>(g))};
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
