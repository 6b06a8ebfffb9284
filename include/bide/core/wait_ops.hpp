#ifndef BIDE_CORE_WAIT_OPS_HPP
#define BIDE_CORE_WAIT_OPS_HPP

// How a wait of a primitive is tried, queued, ended and made a value: what a primitive supplies so
// that coroutines (core/async_op.hpp) and selects (channel/select.hpp) can wait on it.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/core/waiter.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {

// The result of an operation whose value is a T. An empty T of a primitive's own may stand for a
// result<void, E>.
template <class T> struct as_result {
    using type = result<T>;
};
template <class U, class E> struct as_result<result<U, E>> {
    using type = result<U, E>;
};
template <class T> using as_result_t = typename as_result<T>::type;

namespace detail {

struct no_payload {};

} // namespace detail

// What a wait for an R carries along until it is over: the item that is to be sent, the place for
// one that is to be received. Nothing, unless specialised. Nothrow-movable while the wait has not
// begun.
template <class R> struct wait_payload {
    using type = detail::no_payload;
};
template <class R> using wait_payload_t = typename wait_payload<R>::type;

// Operations without errors of their own that may wait for a time: their waits have a timer.
template <class T> inline constexpr bool may_wait_for_time = std::is_void_v<T>;
template <> inline constexpr bool may_wait_for_time<std::uint64_t> = true;

// What is waited for.
struct wait_target {
    void* queue = nullptr; // the object that has the queue
    void* owner = nullptr; // what the result refers to
    std::ptrdiff_t amount = 1;
    void* payload = nullptr; // the wait_payload, where there is any

    // From here on the payload stays where it is.
    template <class Cargo> void carry(Cargo& c) noexcept {
        if constexpr (!std::is_same_v<Cargo, detail::no_payload>) {
            payload = &c;
        }
    }
};

// What can be done with a wait, whatever it is for.
template <class Platform> struct wait_steps {
    using waiter = basic_waiter<Platform>;

    wait_status (*try_now)(const wait_target&) noexcept;   // waiting: it would have to
    bool (*enqueue)(const wait_target&, waiter&) noexcept; // true: complete, not queued
    bool (*cancel)(const wait_target&, waiter&,
                   wait_status why) noexcept; // true: decided by this call
    bool gives_way = false;                   // also where it need not wait, others run first
    bool stands_alone = false; // it cannot be a case of a select: deciding it claims no choice
    // Where the waiting task is cancelled: nullptr: its wait ends, stopped. Else this is called, which
    // is to make what is waited for come soon; the wait goes on until then, and is stopped then.
    void (*on_cancel)(const wait_target&) noexcept = nullptr;
};

// The same with its outcome as a value; R is a result<...>.
template <class R, class Platform> struct wait_ops : wait_steps<Platform> {
    using typename wait_steps<Platform>::waiter;
    using steps = wait_steps<Platform>;
    using collector = R (*)(const wait_target&, wait_status what);
    using returner = void (*)(const wait_target&, wait_status what) noexcept;

    // `returns`: undoes an outcome, whichever, that nobody is there to collect; to collect it and
    // let it go suffices for most.
    constexpr wait_ops(decltype(steps::try_now) tries, decltype(steps::enqueue) enqueues,
                       decltype(steps::cancel) cancels, collector collects,
                       returner returns = nullptr, bool lets_others = false) noexcept
        : steps{tries, enqueues, cancels, lets_others}, collect(collects), returns_(returns) {}

    // The same for a wait that stands alone.
    constexpr wait_ops standing_alone() const noexcept {
        wait_ops copy = *this;
        copy.stands_alone = true;
        return copy;
    }

    // The same for a wait that a cancelled task does not leave early.
    constexpr wait_ops outlasting_cancel(decltype(steps::on_cancel) cancels) const noexcept {
        wait_ops copy = *this;
        copy.on_cancel = cancels;
        return copy;
    }

    collector collect; // throws only where the primitive says so

    void give_back(const wait_target& t, wait_status what) const noexcept {
        if (returns_ != nullptr) {
            returns_(t, what);
        } else {
            static_cast<void>(collect(t, what));
        }
    }

private:
    returner returns_;
};

// A wait that has not begun.
template <class R, class Platform> struct basic_wait {
    const wait_ops<R, Platform>* ops;
    wait_target target;
    [[no_unique_address]] wait_payload_t<R> payload;

    basic_wait(const wait_ops<R, Platform>& how, wait_target what,
               wait_payload_t<R> carried = {}) noexcept
        : ops(&how), target(what), payload(std::move(carried)) {}
};

// errc of a status that is not `granted`.
inline errc errc_of(wait_status what) noexcept {
    switch (what) {
    case wait_status::stopped: return errc::stopped;
    case wait_status::timed_out: return errc::timeout;
    default: return errc::closed;
    }
}

// What a wait without a value came to.
inline result<void> result_of(wait_status what) noexcept {
    return what == wait_status::granted ? result<void>() : unexpected{errc_of(what)};
}

} // namespace bide::inline BIDE_ABI

#endif
