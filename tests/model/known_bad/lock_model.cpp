// A lock that sleeps: one bit says that it is held, another that a thread sleeps. Every step of
// such a word is a read-modify-write, and a waiter only reads.

#include <model/known_bad/parts.hpp>

using namespace known_bad;

namespace {

constexpr std::uint32_t held = 1;
constexpr std::uint32_t parked = 2;

struct sleeping_lock {
    word state{0};

    // After a sleep, others may still sleep: the bit is taken over.
    void lock() noexcept {
        std::uint32_t seen = 0;
        if (state.compare_exchange_strong(seen, held, order::acquire, order::relaxed)) {
            return;
        }
        while (state.exchange(held | parked, order::acquire) != 0) {
            bide::futex_wait<platform>(state, held | parked);
        }
    }
};

// A bit that is set between the test and the store is swallowed, and with it the sleeper.
struct unlock_by_a_store : sleeping_lock {
    void unlock() noexcept {
        const bool wake = (state.load(order::relaxed) & parked) != 0;
        state.store(0, order::release);
        if (wake) {
            bide::futex_wake<platform>(&state, 1);
        }
    }
};

// Repaired: what the exchange returned says whether to wake.
struct unlock_by_an_exchange : sleeping_lock {
    void unlock() noexcept {
        word* const address = &state;
        if ((state.exchange(0, order::release) & parked) != 0) {
            bide::futex_wake<platform>(address, 1);
        }
    }
};

template <class Lock> void count(Lock& lock, var<int>& counted) {
    lock.lock();
    counted = counted + 1;
    lock.unlock();
}

template <class Lock> void two_threads() {
    Lock lock;
    var<int> counted{0};
    model::thread other([&] { count(lock, counted); });
    count(lock, counted);
    other.join();
    MODEL_REQUIRE(counted == 2);
}

template <class Lock> void three_threads() {
    Lock lock;
    var<int> counted{0};
    model::thread second([&] { count(lock, counted); });
    model::thread third([&] { count(lock, counted); });
    count(lock, counted);
    second.join();
    third.join();
    MODEL_REQUIRE(counted == 3);
}

} // namespace

TEST_CASE("known bad: an unlock by a plain store swallows the parked bit", "[known_bad]") {
    model::find("unlock by a store", failure::lost_wakeup, {}, two_threads<unlock_by_a_store>);
    model::check("unlock by an exchange, 2 threads", {}, two_threads<unlock_by_an_exchange>);
    model::check("unlock by an exchange, 3 threads", {}, three_threads<unlock_by_an_exchange>);
}
