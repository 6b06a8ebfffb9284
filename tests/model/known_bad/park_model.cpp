// One thread's token: park() takes it and sleeps where there is none, unpark() leaves it. Both must
// decide by what a read-modify-write returned, and every one of them must synchronise.

#include <model/known_bad/parts.hpp>

using namespace known_bad;

namespace {

constexpr std::uint32_t empty = 0;
constexpr std::uint32_t parked = 1;
constexpr std::uint32_t notified = 2;

struct token {
    word state{empty};

    // Sleeps until notified or the deadline; false: out of time.
    bool sleep(deadline until) noexcept {
        std::uint32_t seen = empty;
        return !state.compare_exchange_strong(seen, parked, order::relaxed, order::relaxed) ||
               bide::futex_wait<platform>(state, parked, until);
    }
    void unpark() noexcept {
        word* const address = &state;
        if (state.exchange(notified, order::release) == parked) {
            bide::futex_wake<platform>(address, 1);
        }
    }
};

// The store acquires nothing: the owner may still not see what the notifier wrote, sleeps again,
// and the token that would prevent it is gone.
struct park_ends_with_a_store : token {
    void park() noexcept {
        sleep(deadline::never());
        state.store(empty, order::relaxed);
    }
};

// The test finds no token: it comes later, or it is there and is not seen yet (to be woken is not
// to acquire). The store swallows it. The thread that left it believes that it was delivered, the owner
// that it timed out.
struct park_tests_and_then_stores : token {
    bool park(deadline until = deadline::never()) noexcept {
        sleep(until);
        const bool taken = state.load(order::acquire) == notified;
        state.store(empty, order::relaxed);
        return taken;
    }
};

// Repaired: every way out of park() is an exchange, its result is the answer.
struct exchanged : token {
    bool park(deadline until = deadline::never()) noexcept {
        sleep(until);
        return state.exchange(empty, order::acquire) == notified;
    }
};

// "A token is there already": but the owner takes that one with what its notifier wrote, and not
// with what this one wrote.
struct unpark_skips_a_notified_one : exchanged {
    void unpark() noexcept {
        if (state.load(order::relaxed) != notified) {
            exchanged::unpark();
        }
    }
};

// The owner gets the token, but nothing with it.
struct unpark_is_relaxed : exchanged {
    void unpark() noexcept {
        if (state.exchange(notified, order::relaxed) == parked) {
            bide::futex_wake<platform>(&state, 1);
        }
    }
};

template <class Parker> void one_item() {
    Parker p;
    word item{0};
    model::thread owner([&] {
        while (item.load(order::relaxed) == 0) {
            p.park();
        }
    });
    item.store(1, order::relaxed);
    p.unpark();
}

template <class Parker> void two_items() {
    Parker p;
    word left{0};
    word right{0};
    model::thread owner([&] {
        while (left.load(order::relaxed) == 0 || right.load(order::relaxed) == 0) {
            p.park();
        }
    });
    model::thread other([&] {
        left.store(1, order::relaxed);
        p.unpark();
    });
    right.store(1, order::relaxed);
    p.unpark();
}

// A token that did not end the first wait must end the second.
template <class Parker> void second_wait() {
    Parker p;
    model::thread owner([&] {
        if (!p.park(soon)) {
            p.park();
        }
    });
    p.unpark();
}

} // namespace

TEST_CASE("known bad: a park that ends with a plain store sleeps on", "[known_bad]") {
    model::find("store after the sleep", failure::lost_wakeup, {},
                one_item<park_ends_with_a_store>);
    model::find("test, then store", failure::lost_wakeup, {.timeouts = 1},
                second_wait<park_tests_and_then_stores>);
}

TEST_CASE("known bad: an unpark that is not always a release exchange loses a wake",
          "[known_bad]") {
    model::find("skipped where a token is", failure::lost_wakeup, {},
                two_items<unpark_skips_a_notified_one>);
    model::find("relaxed", failure::lost_wakeup, {}, one_item<unpark_is_relaxed>);
}

TEST_CASE("known bad: exchanges at both ends lose no token", "[known_bad]") {
    model::check("one item", {.spurious = 1}, one_item<exchanged>);
    model::check("two items", {}, two_items<exchanged>);
    model::check("the second wait", {.timeouts = 1}, second_wait<exchanged>);
}
