#ifndef BIDE_CORE_EXECUTOR_HPP
#define BIDE_CORE_EXECUTOR_HPP

#include <bide/core/config.hpp>
#include <bide/core/waker.hpp>

#include <concepts>
#include <type_traits>

namespace bide::inline BIDE_ABI {

// Something runnable that brings its own place in a queue.
struct runnable {
    runnable* next = nullptr; // the queue's that it is in
    waker run;
    runnable* back = nullptr; // a wake_scope's, while one keeps it (core/resume.hpp)
};

// An executor that takes a runnable, which stays alive until it is run: such a post cannot fail for
// want of memory, and is preferred.
template <class S>
concept intrusive_executor = requires(S& s, runnable& r) {
    { s.post(r) } noexcept;
};

// Something that can run a handle: post(w) makes w.wake() happen once, on a thread of its own
// choosing, with no lock of the poster's held. It may happen before post returns.
template <class S>
concept executor = intrusive_executor<S> || requires(S& s, waker w) {
    { s.post(w) } noexcept;
};

// An executor by reference, its type forgotten. Empty: none.
class executor_ref {
public:
    constexpr executor_ref() noexcept = default;

    template <executor S>
        requires(!std::is_same_v<std::remove_cv_t<S>, executor_ref>)
    executor_ref(S& s) noexcept {
        if constexpr (stands_for_another<S>) {
            *this = s.executor(); // it stands for another
        } else {
            *this = to(s);
        }
    }

    // `s` itself, whatever it stands for.
    template <class S> static executor_ref to(S& s) noexcept {
        executor_ref r;
        r.object_ = &s;
        r.post_ = &post_to<S>;
        return r;
    }

    explicit operator bool() const noexcept { return post_ != nullptr; }

    // Requires: not empty. Nothing of `r` is touched after it may have been run.
    void post(runnable& r) const noexcept { post_(object_, r); }

    friend bool operator==(const executor_ref& a, const executor_ref& b) noexcept {
        return a.object_ == b.object_;
    }

private:
    template <class S>
    static constexpr bool stands_for_another = requires(S& s) {
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

    void* object_ = nullptr;
    void (*post_)(void*, runnable&) noexcept = nullptr;
};

// The executor that a promise names: promise.get_scheduler(), an executor, a pointer to one
// (nullptr: none) or an executor_ref.
template <class Promise> executor_ref executor_of(Promise& promise) noexcept {
    if constexpr (requires { promise.get_scheduler(); }) {
        using named = decltype(promise.get_scheduler());
        using type = std::remove_cvref_t<named>;
        if constexpr (std::is_same_v<type, executor_ref>) {
            return promise.get_scheduler();
        } else if constexpr (std::is_pointer_v<type>) {
            auto* const s = promise.get_scheduler();
            return s != nullptr ? executor_ref(*s) : executor_ref();
        } else {
            static_assert(std::is_lvalue_reference_v<named>,
                          "get_scheduler() returns an executor by reference or by pointer");
            return executor_ref(promise.get_scheduler());
        }
    } else {
        return executor_ref();
    }
}

} // namespace bide::inline BIDE_ABI

#endif
