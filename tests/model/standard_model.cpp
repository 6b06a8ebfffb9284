// The standard library's locks and condition variables, as bodies use them.

#include <bide/model/standard.hpp>
#include <model/check.hpp>
#include <support/test.hpp>

using model::failure;
using model::platform;
using model::var;

namespace {

// A box for one value, as it is written on the standard library.
struct box {
    model::mutex mutex;
    model::condition_variable filled;
    var<bool> full{false};

    void put(bool notifies) {
        {
            const std::lock_guard lock(mutex);
            full = true;
        }
        if (notifies) {
            filled.notify_one();
        }
    }
};

} // namespace

TEST_CASE("standard: a mutex excludes, and orders what it guards") {
    model::check("mutex, three threads", [] {
        model::mutex mutex;
        var<int> sum{0};
        const auto add = [&] {
            const std::lock_guard lock(mutex);
            sum = sum + 1;
        };
        model::thread first(add);
        model::thread second(add);
        if (mutex.try_lock()) {
            sum = sum + 1;
            mutex.unlock();
        }
    });
    model::find("two mutexes in two orders", failure::deadlock, [] {
        model::mutex a;
        model::mutex b;
        model::thread other([&] {
            const std::scoped_lock both(b);
            const std::scoped_lock one(a);
        });
        const std::scoped_lock one(a);
        const std::scoped_lock both(b);
    });
}

TEST_CASE("standard: a condition variable wakes what waits, and nothing else does") {
    const auto wait = [](bool notifies) {
        box b;
        model::thread putter([&] { b.put(notifies); });
        std::unique_lock lock(b.mutex);
        b.filled.wait(lock, [&] { return b.full; });
    };
    model::check("notified", {.spurious = 1}, [&] { wait(true); });
    model::find("not notified", failure::lost_wakeup, [&] { wait(false); });
    const auto believes = [] {
        box b;
        model::thread putter([&] { b.put(true); });
        std::unique_lock lock(b.mutex);
        if (!b.full) {
            b.filled.wait(lock); // once
        }
        MODEL_REQUIRE(b.full);
    };
    model::check("a wait without a loop", believes);
    model::find("a wait without a loop, for no reason", failure::assertion, {.spurious = 1},
                believes);
    model::check("a wait that times out", {.timeouts = 1}, [] {
        box b;
        model::thread putter([&] { b.put(true); });
        std::unique_lock lock(b.mutex);
        const bool full = b.filled.wait_for(lock, 1ms, [&] { return b.full; });
        MODEL_REQUIRE(full == b.full);
    });
}

TEST_CASE("standard: a wait for no time ends, one for ever does not") {
    model::check("no time", [] {
        box b;
        std::unique_lock lock(b.mutex);
        MODEL_REQUIRE(b.filled.wait_for(lock, 0s) == std::cv_status::timeout);
        MODEL_REQUIRE(!b.filled.wait_for(lock, -1ms, [&] { return b.full; }));
    });
    const auto as_long = [](auto rest) {
        return [rest] {
            box b;
            std::unique_lock lock(b.mutex);
            b.filled.wait_for(lock, rest);
        };
    };
    model::find("all nanoseconds", failure::lost_wakeup, {.timeouts = 1},
                as_long(std::chrono::nanoseconds::max()));
    model::find("all hours", failure::lost_wakeup, {.timeouts = 1},
                as_long(std::chrono::hours::max()));
}
