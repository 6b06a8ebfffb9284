#ifndef BIDE_CHANNEL_DETAIL_SELECT_CORE_HPP
#define BIDE_CHANNEL_DETAIL_SELECT_CORE_HPP

// A select below its types: several waits, each in a queue of its own primitive, of which one is to
// happen.
//
//   try      each case as if it were alone, from some case on: what can happen at once does
//   begin    a node for each case is queued, all hanging on one choice (core/choice.hpp)
//   decide   whoever can grant a case claims the choice under the primitive's lock, moves, commits:
//            from there on the case has happened. So does what ends the wait: a time-out, a stop,
//            or, in a try_select, that nobody came before all were queued
//   publish  on the node of that case, whose waker tells the select
//   end      the owner takes the other nodes out, and collects
//
// A select that must not wait queues its cases all the same: to look at one after the other would
// miss an item that goes from one that was looked at too early to one that was looked at too late.
//
// While the cases are being queued one of them may happen already. A coroutine must not go on
// before the last is queued, so both ends announce themselves in `progress_`, and who comes second
// lets the owner go on [X1].
//
//   progress_          begun: all are queued       told: a case has happened, or the wait was ended

#include <bide/core/choice.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/futex.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/spin.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/waiter.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace bide::inline BIDE_ABI {
namespace detail {

// When a time-out comes: a time from the beginning of the wait, or a point in time.
class select_timeout {
public:
    select_timeout() noexcept = default;
    explicit select_timeout(deadline at) noexcept : at_(at) {}
    template <class R, class P>
    explicit select_timeout(const std::chrono::duration<R, P>& rest)
        : rest_(rest > rest.zero() ? deadline::saturated_ns(rest) : 0), is_rest_(true) {}

    deadline from_now() const noexcept { return is_rest_ ? deadline::after(rest_) : at_; }

private:
    deadline at_ = deadline::never();
    std::chrono::nanoseconds rest_{0};
    bool is_rest_ = false;
};

// A case's place. What ends a select, a time-out or a stop, comes after all others: it is tried
// when nothing else can happen at once.
template <class Platform> struct select_entry {
    const wait_steps<Platform>* how = nullptr; // nullptr: disabled
    wait_target target;
    const select_timeout* timeout = nullptr; // a case that is one
    deadline until = deadline::never();      // and when it comes
    bool ends = false;
    bool queued = false;
    basic_waiter<Platform> node;
};

template <class Platform> class basic_select_core : private basic_choice<Platform> {
public:
    using node = basic_waiter<Platform>;
    using entry = select_entry<Platform>;

    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    // Where a fair select begins: at a random one of the cases that do not end it.
    template <class At> static std::size_t any_start(At at, std::size_t count) noexcept;

    // `at(i)` gives the i-th of `count` entries; `start` is the first to be looked at.
    template <class At> bool try_all(At at, std::size_t count, std::size_t start) noexcept;

    // True: complete, `main` will not be published. `timers`: time-outs are queued, too, with the
    // service.
    template <class At>
    bool begin(At at, std::size_t count, std::size_t start, node& main, bool timers) noexcept;

    // For an owner who wants nothing else to happen any more. False: something has.
    bool end_by_owner() noexcept {
        if (!this->claim()) {
            return false;
        }
        this->commit();
        return true;
    }
    bool end_by_owner(entry& e) noexcept {
        const bool ended = end_by_owner();
        if (ended) {
            e.node.settle(fate::granted);
        }
        return ended;
    }

    // A stop or a time-out from outside, of the whole select. False: too early or too late.
    bool cancel(fate why) noexcept;

    // Takes out what is queued still. Returns the case that has happened; none: it was ended.
    template <class At> std::size_t finish(At at, std::size_t count) noexcept;

private:
    static constexpr futex_word begun = 1;
    static constexpr futex_word told = 2;

    struct dice {
        std::uint32_t state = 0;
    };

    static void on_case(void* choice) noexcept {
        auto& self = *static_cast<basic_select_core*>(static_cast<basic_choice<Platform>*>(choice));
        node* const main = self.main_;
        // Order: acq_rel [X1]; the case that has happened is seen by who queued the last, or all
        // that was queued by whom this lets go on.
        if ((self.progress_.fetch_or(told, std::memory_order_acq_rel) & begun) != 0) {
            main->publish(fate::granted); // the last touch
        }
    }

    node* main_ = nullptr;
    fate ended_ = fate::granted; // why, where it was from outside
    typename Platform::template atomic<futex_word> progress_{0};
};

template <class Platform>
template <class At>
std::size_t basic_select_core<Platform>::any_start(At at, std::size_t count) noexcept {
    if constexpr (Platform::model) {
        return 0;
    } else {
        const auto counts = [&at](std::size_t i) noexcept {
            return at(i).how != nullptr && !at(i).ends;
        };
        std::uint32_t eligible = 0;
        for (std::size_t i = 0; i < count; ++i) {
            eligible += counts(i) ? 1 : 0;
        }
        if (eligible < 2) {
            return 0;
        }
        // Marsaglia, "Xorshift RNGs", 2003. From where it lies, so that threads differ.
        std::uint32_t& x = Platform::template local<dice>().state;
        if (x == 0) {
            x = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(&x) >> 4) | 1;
        }
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        std::uint64_t skip = (std::uint64_t{x} * eligible) >> 32;
        std::size_t start = 0;
        while (!counts(start) || skip-- != 0) {
            ++start;
        }
        return start;
    }
}

template <class Platform>
template <class At>
bool basic_select_core<Platform>::try_all(At at, std::size_t count, std::size_t start) noexcept {
    for (std::size_t n = 0, i = start; n < count; ++n, i = i + 1 < count ? i + 1 : 0) {
        entry& e = at(i);
        if (e.how != nullptr && !e.ends) {
            if (const fate what = e.how->try_now(e.target); what != fate::waiting) {
                e.node.settle(what);
                return true;
            }
        }
    }
    return false;
}

template <class Platform>
template <class At>
bool basic_select_core<Platform>::begin(At at, std::size_t count, std::size_t start, node& main,
                                        bool timers) noexcept {
    main_ = &main;
    for (const bool ends : {false, true}) {
        for (std::size_t n = 0, i = start; n < count && !this->is_decided();
             ++n, i = i + 1 < count ? i + 1 : 0) {
            entry& e = at(i);
            if (e.how == nullptr || e.ends != ends) {
                continue;
            }
            if (e.timeout != nullptr && !timers) { // the owner looks at the clock himself
                e.until = e.timeout->from_now();
                if (e.until.is_poll() && end_by_owner(e)) {
                    return true;
                }
                continue;
            }
            e.node.reset(e.target.amount);
            e.node.contest(&on_case, *this);
            e.queued = true;
            if (e.how->enqueue(e.target, e.node)) {
                return true;
            }
        }
    }
    if (const fate forbidden = main.forbidden(); forbidden != fate::waiting && end_by_owner()) {
        main.settle(forbidden);
        return true;
    }
    // Order: acq_rel [X1]; see on_case.
    if ((progress_.fetch_or(begun, std::memory_order_acq_rel) & told) == 0) {
        return false;
    }
    main.settle(ended_);
    return true;
}

template <class Platform> bool basic_select_core<Platform>::cancel(fate why) noexcept {
    if (!this->claim()) {
        return false;
    }
    this->commit();
    ended_ = why;
    // Order: acq_rel [X1]; see on_case.
    return (progress_.fetch_or(told, std::memory_order_acq_rel) & begun) != 0;
}

template <class Platform>
template <class At>
std::size_t basic_select_core<Platform>::finish(At at, std::size_t count) noexcept {
    std::size_t happened = none;
    for (std::size_t i = 0; i < count; ++i) {
        entry& e = at(i);
        if (e.node.is_complete()) {
            happened = i; // its primitive may be gone
        } else if (e.queued) {
            e.how->cancel(e.target, e.node, fate::stopped);
        }
    }
    return happened;
}

// A thread's wait for a select, after try_all() found nothing.
template <class Platform> struct thread_select {
    using core = basic_select_core<Platform>;
    using node = basic_waiter<Platform>;

    // Afterwards it has happened, or was ended.
    template <class At>
    static void wait(core& c, At at, std::size_t count, std::size_t start, bool may_wait) noexcept {
        node main;
        if (c.begin(at, count, start, main, false)) {
            return;
        }
        if (may_wait ? park(c, at, count, main) : !c.end_by_owner()) {
            main.sleep_through(deadline::never()); // it is complete, or being published
        }
    }

private:
    // Until a case has happened, or (false) a time-out has ended it. Time-outs may be on several
    // clocks: the next to come is slept for, no longer than any of them may be relied on
    // (core/deadline.hpp), and then all are looked at.
    template <class At> static bool park(core& c, At at, std::size_t count, node& main) noexcept {
        basic_spin<Platform>::patiently([&main]() noexcept { return main.is_complete(); },
                                        patience_ns);
        for (;;) {
            std::size_t first = core::none;
            std::int64_t when = std::numeric_limits<std::int64_t>::max();
            std::int64_t look = when;
            for (std::size_t i = 0; i < count; ++i) {
                if (at(i).timeout == nullptr) {
                    continue;
                }
                const std::int64_t its = at(i).until.steady_ns();
                look = std::min(look, at(i).until.look_ns(its));
                if (its < when) {
                    first = i;
                    when = its;
                }
            }
            if (main.sleep_through(deadline::at_ns(look))) {
                return true;
            }
            if (look == when && !at(first).until.is_early()) {
                return !c.end_by_owner(at(first));
            }
        }
    }

    static constexpr std::int64_t patience_ns = 10'000;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
