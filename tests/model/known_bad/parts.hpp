#ifndef BIDE_TESTS_MODEL_KNOWN_BAD_PARTS_HPP
#define BIDE_TESTS_MODEL_KNOWN_BAD_PARTS_HPP

// What the wrong protocols and their repaired twins are made of. Nothing in here is what is wrong
// with them. In each file, the wrong protocol stands first and its twin right below it; a test case
// finds the failure of the one and checks that the other has none.

#include <bide/core/deadline.hpp>
#include <bide/core/futex.hpp>
#include <bide/core/parker.hpp>
#include <model/check.hpp>
#include <support/test.hpp>

namespace known_bad {

using bide::deadline;
using model::failure;
using model::platform;
using order = std::memory_order;
using word = platform::atomic<std::uint32_t>;
using parker = bide::basic_parker<platform>;
template <class T> using var = platform::var<T>;

inline constexpr deadline soon = deadline::at_ns(1'000'000);

// One thread sleeps on it until another rings. The store is the last that the other touches.
class bell {
public:
    void ring() noexcept {
        word* const address = &rung_;
        rung_.store(1, order::release);
        bide::futex_wake<platform>(address, 1);
    }
    void wait() noexcept {
        while (rung_.load(order::acquire) == 0) {
            bide::futex_wait<platform>(rung_, std::uint32_t{0});
        }
        rung_.store(0, order::relaxed); // may be rung again
    }

private:
    word rung_{0};
};

class spin_lock {
public:
    void lock() noexcept {
        std::uint32_t seen = 0;
        while (!word_.compare_exchange_strong(seen, 1, order::acquire, order::relaxed)) {
            platform::pause();
            seen = 0;
        }
    }
    void unlock() noexcept { word_.store(0, order::release); }

private:
    word word_{0};
};

// A waiter, and what it was given.
struct waiter {
    bell rung;
    var<int> item{0};
};

// First come, first served. To be used under a lock.
class waiter_list {
public:
    bool empty() const noexcept { return all_.empty(); }
    void push(waiter* w) { all_.push_back(w); }

    // Null if there is no waiter.
    waiter* pop() noexcept {
        if (all_.empty()) {
            return nullptr;
        }
        waiter* const first = all_.front();
        all_.erase(all_.begin());
        return first;
    }

    // False: it was popped before.
    bool remove(const waiter* w) noexcept { return std::erase(all_, w) != 0; }

private:
    std::vector<waiter*> all_;
};

} // namespace known_bad

#endif
