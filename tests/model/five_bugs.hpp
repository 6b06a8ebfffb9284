#ifndef BIDE_TESTS_MODEL_FIVE_BUGS_HPP
#define BIDE_TESTS_MODEL_FIVE_BUGS_HPP

// Five programs that are right with the orders of the algorithm, and each of which has one well-known
// mistake. check_model.cpp tests what is said of them; the README.md of the room model compares that with
// what other checkers say of the same programs.

#include <model/check.hpp>

#include <support/standard.hpp>

namespace five_bugs {

using model::platform;
using model::var;
using order = std::memory_order;
using word = model::atomic<std::uint32_t>;

// 1. A lock whose release publishes nothing.
template <order Unlock> void spinlock() {
    word locked{0};
    var<int> count{0};
    const auto add = [&] {
        std::uint32_t free = 0;
        while (!locked.compare_exchange_strong(free, 1, order::acquire, order::relaxed)) {
            free = 0;
            platform::pause();
        }
        count = count + 1;
        locked.store(0, Unlock);
    };
    model::thread other(add);
    add();
}

// 2. A ring for one sender and one receiver, whose tail is published too early.
template <order Publish> void ring() {
    std::array<var<int>, 2> slots{};
    word head{0};
    word tail{0};
    model::thread sender([&] {
        for (std::uint32_t sent = 0; sent < 2; ++sent) {
            slots[sent % 2] = 7;
            tail.store(sent + 1, Publish);
        }
    });
    for (std::uint32_t taken = 0; taken < 2; ++taken) {
        while (tail.load(order::acquire) == taken) {
            platform::pause();
        }
        MODEL_REQUIRE(slots[taken % 2] == 7);
        head.store(taken + 1, order::release);
    }
}

// 3. Dekker's entry: each announces itself, then looks for the other.
template <order Announce, order Look> void dekker() {
    word mine{0};
    word yours{0};
    bool other_enters = false;
    model::thread other([&] {
        yours.store(1, Announce);
        other_enters = mine.load(Look) == 0;
    });
    mine.store(1, order::seq_cst);
    const bool enters = yours.load(order::seq_cst) == 0;
    other.join();
    MODEL_REQUIRE(!(enters && other_enters));
}

// 4. An event count: the epoch must be read before the condition, or a change in between goes unseen.
template <bool EpochFirst> void event_count() {
    word ready{0};
    word epoch{0};
    model::thread notifier([&] {
        ready.store(1, order::seq_cst);
        epoch.fetch_add(1, order::seq_cst);
        platform::futex_wake(&epoch, 1);
    });
    std::uint32_t seen = EpochFirst ? epoch.load(order::seq_cst) : 0;
    while (ready.load(order::seq_cst) == 0) {
        seen = EpochFirst ? seen : epoch.load(order::seq_cst);
        platform::futex_wait(epoch, seen, INT64_MAX);
        seen = epoch.load(order::seq_cst);
    }
}

// 5. A counted object: the last release destroys what an earlier owner has used.
template <order Release> void last_reference() {
    struct object {
        word references{2};
        var<int> value{0};
    };
    auto* const shared = new object;
    const auto release = [shared](int value) {
        if (value != 0) {
            shared->value = value;
        }
        if (shared->references.fetch_sub(1, Release) == 1) {
            delete shared;
        }
    };
    model::thread other([&] { release(42); });
    release(0);
}

} // namespace five_bugs

#endif
