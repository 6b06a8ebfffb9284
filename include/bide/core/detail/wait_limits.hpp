// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_WAIT_LIMITS_HPP
#define BIDE_CORE_DETAIL_WAIT_LIMITS_HPP

// When a wait of a coroutine ends early: its deadline and its stop tokens.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/result.hpp>
#include <bide/core/timer.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/wait_status.hpp>
#include <bide/core/waker.hpp>

#include <optional>
#include <type_traits>

namespace bide::inline BIDE_ABI {
namespace detail {

struct wait_deadline {
    deadline until = deadline::never();
};
template <class Platform, int Stops> struct wait_limits : wait_deadline {
    typename Platform::stop_token stops[static_cast<std::size_t>(Stops)];
};
template <class Platform> struct wait_limits<Platform, 0> : wait_deadline {};
struct no_limits {};

// If the result of an operation can report a time-out and a stop, the operation has a deadline and
// stop tokens. An operation that waits for a time has only a deadline.
template <class T, class Platform, int Stops>
using wait_limits_t =
    std::conditional_t<is_result<T>, wait_limits<Platform, Stops>,
                       std::conditional_t<may_wait_for_time<T>, wait_deadline, no_limits>>;

// The limits of a wait that is queued. They call end_early() of its owner, an awaiter.
template <class Platform, class Owner, int Stops> class armed_limits {
public:
    template <class Limits> void arm(Owner& of, const Limits& limits) noexcept {
        if (!limits.until.is_never()) {
            timer& t = timeout_.emplace();
            t.when = limits.until;
            t.fire = waker(&on_timeout, &of);
            add_timer<Platform>(t);
        }
        if constexpr (Stops != 0) {
            for (int i = 0; i < Stops; ++i) {
                if (limits.stops[i].stop_possible()) {
                    stops_[i].emplace(limits.stops[i], on_stop{&of});
                }
            }
        }
    }

    // On return neither the stop callback nor the time-out runs on any thread, or will run.
    void disarm() noexcept {
        if constexpr (Stops != 0) {
            for (auto& stop : stops_) {
                stop.reset();
            }
        }
        if (timeout_) {
            cancel_timer<Platform>(*timeout_);
            timeout_.reset();
        }
    }

private:
    struct on_stop {
        Owner* of;
        void operator()() const noexcept { of->end_early(wait_status::stopped); }
    };
    static void on_timeout(void* of) noexcept {
        static_cast<Owner*>(of)->end_early(wait_status::timed_out);
    }
    using stop_callback = std::optional<typename Platform::template stop_callback<on_stop>>;
    struct no_stops {};

    [[no_unique_address]] std::conditional_t<
        Stops != 0, stop_callback[Stops != 0 ? static_cast<std::size_t>(Stops) : 1], no_stops>
        stops_;
    std::optional<timer> timeout_;
};

struct never_armed {
    template <class Owner> void arm(Owner&, const no_limits&) noexcept {}
    void disarm() noexcept {}
};

template <class Platform, class Owner, class Limits> struct armed_limits_of;
template <class Platform, class Owner, int Stops>
struct armed_limits_of<Platform, Owner, wait_limits<Platform, Stops>> {
    using type = armed_limits<Platform, Owner, Stops>;
};
template <class Platform, class Owner> struct armed_limits_of<Platform, Owner, wait_deadline> {
    using type = armed_limits<Platform, Owner, 0>;
};
template <class Platform, class Owner> struct armed_limits_of<Platform, Owner, no_limits> {
    using type = never_armed;
};
template <class Platform, class Owner, class Limits>
using armed_limits_t = typename armed_limits_of<Platform, Owner, Limits>::type;

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
