// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_EXECUTOR_HPP
#define BIDE_CORE_EXECUTOR_HPP

/// \file
/// Defines how a wait or a job becomes runnable. A waker is a function with its context. A runnable
/// is a job that contains its own queue link. An executor runs jobs.

#include <bide/core/config.hpp>

#include <concepts>
#include <type_traits>

namespace bide { inline namespace BIDE_ABI {

/// Makes a waiter runnable. A waker is a function and its context: two words, trivially copyable.
/// Event loops of other libraries use wakers to connect to bide.
class waker {
public:
    /// Is called with the context.
    using function = void (*)(void*) noexcept;

    /// Makes an empty waker: wake() does nothing.
    constexpr waker() noexcept = default;

    /// Makes a waker: wake() calls `call(context)`. A releaser calls wake() at most once for each
    /// wait, while it holds no lock of the library. The releaser waits until `call` returns, so
    /// `call` should only make the waiter runnable. A thread that ends the wait because of a stop
    /// or a time-out is a releaser, too. Outside a scheduler, one thread fires the time-outs of the
    /// whole process (core/timer.hpp).
    ///
    /// If `call` releases other waiters, their outcomes are decided at once. Their wakers run after
    /// `call` has returned, in the order in which the waiters were released. So the stack does not
    /// grow with a chain of wakers. If `call` blocks in bide (core/futex.hpp), these wakers run
    /// before it sleeps. If `call` blocks elsewhere, these wakers run only after it has returned,
    /// so `call` must not wait for their effects.
    constexpr waker(function call, void* context) noexcept : call_(call), context_(context) {}

    /// Calls the function, if there is one.
    void wake() const noexcept {
        if (call_ != nullptr) {
            call_(context_);
        }
    }

    /// Returns whether there is a function.
    explicit operator bool() const noexcept { return call_ != nullptr; }

    /// Returns the context.
    void* context() const noexcept { return context_; }

private:
    function call_ = nullptr;
    void* context_ = nullptr;
};

/// Is a job that contains its own queue link, so that a post needs no memory.
struct runnable {
    runnable* next = nullptr; ///< Belongs to the queue that holds the job.
    waker run;                ///< Runs the job.
    runnable* back = nullptr; ///< Belongs to the wake_scope that holds the job.
};

namespace detail {

class executor_users; // core/resume.hpp

} // namespace detail

/// Is an executor that takes a runnable by reference. Such a post cannot fail for lack of memory,
/// so the library prefers it. The caller keeps the runnable alive until it is run.
template <class S>
concept intrusive_executor = requires(S& s, runnable& r) {
    { s.post(r) } noexcept;
};

/// Is an executor: post(w) calls w.wake() once, on a thread that the executor chooses, possibly
/// before post() returns. The library posts while it holds no lock.
template <class S>
concept executor = intrusive_executor<S> || requires(S& s, waker w) {
    { s.post(w) } noexcept;
};

/// Refers to an executor of any type, or to none.
class executor_ref {
public:
    /// Refers to no executor.
    constexpr executor_ref() noexcept = default;

    /// Refers to `of`. But if `of` has a member executor(), which returns an executor_ref, refers
    /// to the executor of that reference.
    template <executor S>
        requires(!std::is_same_v<std::remove_cv_t<S>, executor_ref>)
    executor_ref(S& of) noexcept {
        if constexpr (refers_to_another<S>) {
            *this = of.executor();
        } else {
            *this = to(of);
        }
    }

    /// Returns a reference to `s` itself, even if `s` has a member executor().
    template <class S> static executor_ref to(S& s) noexcept {
        executor_ref r;
        r.object_ = &s;
        r.how_ = &how_of<S>;
        return r;
    }

    /// Returns whether it refers to an executor.
    explicit operator bool() const noexcept { return how_ != nullptr; }

    /// Posts `r`. Does not access `r` after the post, because `r` may have run.
    /// Requires: this object refers to an executor; `r` exists until it is run.
    void post(runnable& r) const noexcept { how_->post(object_, r); }

    /// Returns the counter of the executor's users (core/resume.hpp), for the library.
    /// Returns nullptr if the executor has no counter, or if this object refers to no executor.
    detail::executor_users* users() const noexcept {
        return how_ != nullptr && how_->users != nullptr ? how_->users(object_) : nullptr;
    }

    /// Compares the executors by address.
    friend bool operator==(const executor_ref& a, const executor_ref& b) noexcept {
        return a.object_ == b.object_;
    }

private:
    template <class S>
    static constexpr bool refers_to_another = requires(S& s) {
        { s.executor() } -> std::same_as<executor_ref>;
    };

    template <class S> static void post_to(void* object, runnable& r) noexcept {
        S& s = *static_cast<S*>(object);
        if constexpr (intrusive_executor<S>) {
            s.post(r);
        } else {
            s.post(r.run);
        }
    }

    struct operations {
        void (*post)(void*, runnable&) noexcept;
        detail::executor_users* (*users)(void*) noexcept; // nullptr: the executor counts no users
    };
    template <class S> static constexpr auto users_of() noexcept {
        detail::executor_users* (*get)(void*) noexcept = nullptr;
        if constexpr (std::is_base_of_v<detail::executor_users, S>) {
            get = [](void* object) noexcept -> detail::executor_users* {
                return static_cast<S*>(object);
            };
        }
        return get;
    }
    template <class S> static constexpr operations how_of{&post_to<S>, users_of<S>()};

    void* object_ = nullptr;
    const operations* how_ = nullptr;
};

}} // namespace bide::BIDE_ABI

#endif
