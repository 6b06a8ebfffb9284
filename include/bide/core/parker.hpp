#ifndef BIDE_CORE_PARKER_HPP
#define BIDE_CORE_PARKER_HPP

// One thread's token. The state is one word:
//
//   empty      no token; the owner is awake or on its way to sleep
//   parked     no token; the owner sleeps, or has said that it is about to
//   notified   a token waits for the owner
//   (anything else: never)
//
// Both sides decide by what their read-modify-write returned. unpark() is always an exchange, also
// when a token is there already: it is what orders the notifier's writes before this park() and not
// only before the one that an earlier token ended [P1]. Every way out of park() takes the token by
// an exchange as well: a plain store could overwrite a token that arrives with the time-out, and
// whoever unparked would believe it delivered.
//
//   owner:    CAS empty -> parked   sleep while parked   exchange -> empty
//   notifier: exchange -> notified  wake if it was parked
//
// The notifier before the CAS: the CAS fails, no sleep. After it: the exchange returns parked, and
// the sleeper either sees the changed word before it sleeps or is woken. The exchange is unpark's
// last touch, the wake uses the address alone: the owner may destroy the parker as soon as park()
// returned.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/futex.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/spin.hpp>

#include <chrono>

namespace bide::inline BIDE_ABI {

template <class Platform> class basic_parker {
public:
    constexpr basic_parker() noexcept = default;
    basic_parker(const basic_parker&) = delete;
    basic_parker& operator=(const basic_parker&) = delete;

    // Takes the token, waiting for it where there is none. Only the owner parks.
    // Blocks: until unpark(); never returns without a token.
    // Order: what was done before the unpark() happens-before the return.
    void park() noexcept { park_until(deadline::never()); }

    // As park(), for at most that long; false: timed out. One attempt where the time is not
    // positive.
    template <class R, class P> bool park_for(const std::chrono::duration<R, P>& rest) noexcept {
        return park_until(deadline::after(rest));
    }

    template <class C, class D>
    bool park_until(const std::chrono::time_point<C, D>& when) noexcept {
        return park_until(deadline::at(when));
    }

    bool park_until(deadline until) noexcept;

    // Leaves a token; several count once. Any thread.
    void unpark() noexcept;

private:
    static constexpr futex_word empty = 0;
    static constexpr futex_word parked = 1;
    static constexpr futex_word notified = 2;

    // Order: acquire [P1]; what the notifier did before unpark() is seen by the one who parked.
    bool take() noexcept { return state_.exchange(empty, std::memory_order_acquire) == notified; }

    typename Platform::template atomic<futex_word> state_{empty};
};

template <class Platform> bool basic_parker<Platform>::park_until(deadline until) noexcept {
    // Order: relaxed; only a reason to look, take() decides.
    if (state_.load(std::memory_order_relaxed) == notified || until.is_poll()) {
        return take();
    }
    futex_word seen = empty;
    // Order: relaxed; it announces and publishes nothing; a failure is followed by take().
    while (state_.compare_exchange_strong(seen, parked, std::memory_order_relaxed,
                                          std::memory_order_relaxed)) {
        const bool in_time = futex_wait<Platform>(state_, parked, until);
        if (take()) {
            return true;
        }
        if (!in_time) {
            return false;
        }
        seen = empty; // woken for no reason
    }
    return take();
}

template <class Platform> void basic_parker<Platform>::unpark() noexcept {
    const auto* const word = &state_;
    // Order: release [P1]; pairs with the exchange that takes the token.
    if (state_.exchange(notified, std::memory_order_release) == parked) {
        basic_spin<Platform>::measured_wake([word]() noexcept { futex_wake<Platform>(word, 1); });
    }
}

using parker = basic_parker<native_platform>;

} // namespace bide::inline BIDE_ABI

#endif
