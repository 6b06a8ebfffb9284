#ifndef BIDE_CORE_DEADLINE_HPP
#define BIDE_CORE_DEADLINE_HPP

// A point in time up to which something may wait, in absolute nanoseconds. Conversions saturate: a
// duration of years is never(), a negative one poll(). Waits sleep on the steady clock. Another
// clock may be set, back and forward: a wait for a deadline on one sleeps for at most a second at a
// time (look_again_ns) and then reads that clock again. So it ends within a second after that clock
// was set past its deadline, and never before its deadline.

#include <bide/core/config.hpp>
#include <bide/core/detail/nanoseconds.hpp>
#include <bide/core/platform.hpp>

#include <chrono>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace bide::inline BIDE_ABI {

class deadline {
public:
    // The one that never comes.
    static constexpr deadline never() noexcept { return deadline(forever, nullptr); }

    // The one that has always passed: one attempt, no waiting.
    static constexpr deadline poll() noexcept { return deadline(past, nullptr); }

    // `steady` nanoseconds on the steady clock.
    static constexpr deadline at_ns(std::int64_t steady) noexcept {
        return deadline(steady, nullptr);
    }

    // `rest` from now; poll() when it is zero, negative or not a number.
    template <class R, class P> static deadline after(const std::chrono::duration<R, P>& rest) {
        if (!(rest > std::chrono::duration<R, P>::zero())) {
            return poll();
        }
        const std::int64_t ns = saturated_ns(rest);
        const std::int64_t now = native_platform::now();
        return deadline(ns > forever - now ? forever : now + ns, nullptr);
    }

    // `when` on its own clock; poll() when it has passed already.
    template <class C, class D> static deadline at(const std::chrono::time_point<C, D>& when) {
        const std::int64_t ns = saturated_ns(when.time_since_epoch());
        if (ns == forever) {
            return never();
        }
        if (ns <= clock_now_ns<C>()) {
            return poll();
        }
        const bool steady = std::is_same_v<C, std::chrono::steady_clock>;
        return deadline(ns, steady ? nullptr : &clock_now_ns<C>);
    }

    constexpr bool is_never() const noexcept { return ns_ == forever; }
    constexpr bool is_poll() const noexcept { return ns_ == past; }

    // How long a wait relies on another clock's not being set.
    static constexpr std::int64_t look_again_ns = 1'000'000'000;

    // The steady time at which it comes, as its own clock stands now.
    std::int64_t steady_ns() const noexcept {
        if (other_clock_ == nullptr) {
            return ns_ < 0 ? 0 : ns_;
        }
        const std::int64_t rest = other_rest();
        const std::int64_t now = native_platform::now();
        return rest > forever - now ? forever : now + rest;
    }

    // Whether it has come, by its own clock.
    bool has_passed() const noexcept {
        return other_clock_ != nullptr ? other_rest() == 0 : ns_ <= native_platform::now();
    }

    // The steady time until which to sleep before looking again, for a caller to whom steady_ns()
    // has said `at`.
    std::int64_t look_ns(std::int64_t at) const noexcept {
        if (other_clock_ == nullptr) {
            return at;
        }
        const std::int64_t latest = native_platform::now() + look_again_ns;
        return at < latest ? at : latest;
    }
    std::int64_t look_ns() const noexcept { return look_ns(steady_ns()); }

    // True when look_ns() has passed but the deadline's own clock says not yet.
    bool is_early() const noexcept { return other_clock_ != nullptr && other_rest() > 0; }

    // A duration in nanoseconds: rounded up, so that no wait is shorter than asked for, and never
    // beyond what never() and poll() are made of; NaN is poll()'s. Integers of up to
    // 64 bits are exact in every period; other counts are rounded as double, or their type, rounds.
    template <class R, class P>
    static std::int64_t saturated_ns(const std::chrono::duration<R, P>& d) {
        return detail::saturated_ns(d);
    }

    // What reads its own clock, and its time there; nullptr: the steady clock.
    using clock_function = std::int64_t (*)();
    constexpr clock_function other_clock() const noexcept { return other_clock_; }
    constexpr std::int64_t own_ns() const noexcept { return ns_; }

private:
    static constexpr std::int64_t forever = std::numeric_limits<std::int64_t>::max();
    static constexpr std::int64_t past = std::numeric_limits<std::int64_t>::min();

    constexpr deadline(std::int64_t ns, clock_function clock) noexcept
        : ns_(ns), other_clock_(clock) {}

    template <class C> static std::int64_t clock_now_ns() {
        return saturated_ns(C::now().time_since_epoch());
    }

    // What is left on the deadline's own clock; zero when it has passed.
    std::int64_t other_rest() const noexcept {
        const std::int64_t now = other_clock_();
        if (now >= ns_) {
            return 0;
        }
        return now < 0 && ns_ > forever + now ? forever : ns_ - now;
    }

    std::int64_t ns_;
    clock_function other_clock_; // nullptr: the steady clock
};

} // namespace bide::inline BIDE_ABI

#endif
