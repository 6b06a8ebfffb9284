#include <bide/core/parker.hpp>
#include <model/check.hpp>
#include <support/test.hpp>

// Waits for a condition of another structure: a second check between prepare() and wait() is
// enough, with any memory order of the condition.

namespace {

using bide::deadline;
using model::platform;
using event_count = bide::basic_event_count<platform>;
template <class T> using var = platform::var<T>;
template <class T> using atomic = platform::atomic<T>;

constexpr deadline soon = deadline::at_ns(1'000'000);

constexpr auto relaxed = std::memory_order_relaxed;

// Sleeps until done() is true, as each user does.
template <class Done>
void await(event_count& changes, Done done, deadline until = deadline::never()) {
    while (!done()) {
        const auto epoch = changes.prepare();
        if (done()) { // the second check
            changes.cancel();
            return;
        }
        if (!changes.wait(epoch, until)) {
            until = deadline::never(); // after one time-out, waits without a deadline
        }
    }
}

// Items that are added and taken one by one.
class items {
public:
    void put() noexcept { count_.fetch_add(1, std::memory_order_release); }
    bool take() noexcept {
        int seen = count_.load(relaxed);
        while (seen > 0) {
            if (count_.compare_exchange_weak(seen, seen - 1, std::memory_order_acquire, relaxed)) {
                return true;
            }
        }
        return false;
    }

private:
    atomic<int> count_{0};
};

TEST_CASE("event_count: a notification reaches the waiter") {
    model::check("one waiter", {.spurious = 2}, [] {
        event_count changes;
        atomic<int> ready{0};
        var<int> message{0};
        model::thread notifier([&] {
            message = 42;
            ready.store(1, std::memory_order_release);
            changes.notify_one();
        });
        await(changes, [&] { return ready.load(std::memory_order_acquire) != 0; });
        MODEL_REQUIRE(message == 42);
    });
}

TEST_CASE("event_count: the epoch publishes the condition, even if that is written relaxed") {
    model::check("a relaxed condition", {.spurious = 1}, [] {
        event_count changes;
        atomic<int> ready{0};
        model::thread notifier([&] {
            ready.store(1, relaxed);
            changes.notify_one();
        });
        await(changes, [&] { return ready.load(relaxed) != 0; });
    });
    // Only the epoch orders the two accesses.
    model::check("an epoch that has changed brings plain data", [] {
        event_count changes;
        var<int> message{0};
        model::thread notifier([&] {
            message = 42;
            changes.notify_one();
        });
        if (changes.prepare() != 0) {
            MODEL_REQUIRE(message == 42);
        }
        changes.cancel();
    });
}

TEST_CASE("event_count: a waiter without a second check sleeps for ever") {
    model::find("no second look", model::failure::lost_wakeup, {}, [] {
        event_count changes;
        atomic<int> ready{0};
        model::thread notifier([&] {
            ready.store(1, std::memory_order_release);
            changes.notify_one();
        });
        while (ready.load(std::memory_order_acquire) == 0) {
            changes.wait(changes.prepare());
        }
    });
}

TEST_CASE("event_count: a withdrawn announcement does not affect a later wait") {
    const auto body = [] {
        event_count changes;
        items left;
        items right;
        model::thread notifier([&] {
            left.put();
            changes.notify_one();
            right.put();
            changes.notify_one();
        });
        static_cast<void>(changes.prepare());
        changes.cancel();
        await(changes, [&] { return left.take(); });
        await(changes, [&] { return right.take(); });
    };
    model::check("two waits of one", body);
    model::check("two waits of one, spurious returns", {.spurious = 1}, body);
}

TEST_CASE("event_count: a wait that timed out does not affect a later one") {
    model::check("time-out against notify", {.spurious = 1, .timeouts = 1}, [] {
        event_count changes;
        atomic<int> ready{0};
        model::thread notifier([&] {
            ready.store(1, relaxed);
            changes.notify_one();
        });
        await(changes, [&] { return ready.load(relaxed) != 0; }, soon);
    });
}

TEST_CASE("event_count: the items of two notifiers reach one waiter") {
    const auto body = [] {
        event_count changes;
        atomic<int> left{0};
        atomic<int> right{0};
        model::thread first([&] {
            left.store(1, relaxed);
            changes.notify_one();
        });
        model::thread second([&] {
            right.store(1, relaxed);
            changes.notify_one();
        });
        await(changes, [&] { return left.load(relaxed) != 0 && right.load(relaxed) != 0; });
    };
    model::check("two notifiers", body);
}

TEST_CASE("event_count: notify_all reaches all waiters") {
    const auto body = [](auto notify) {
        return [notify] {
            event_count changes;
            atomic<int> ready{0};
            const auto wait = [&] { await(changes, [&] { return ready.load(relaxed) != 0; }); };
            model::thread first(wait);
            model::thread second(wait);
            ready.store(1, relaxed);
            notify(changes);
        };
    };
    model::check("two waiters, one flag", body([](event_count& e) { e.notify_all(); }));
    model::find("two waiters, one flag, one wake", model::failure::lost_wakeup, {},
                body([](event_count& e) { e.notify_one(); }));
}

void two_items() {
    event_count changes;
    items all;
    model::thread first([&] { await(changes, [&] { return all.take(); }, soon); });
    model::thread second([&] { await(changes, [&] { return all.take(); }); });
    all.put();
    changes.notify_one();
    all.put();
    changes.notify_one();
}

TEST_CASE("event_count: one notification for each of two items reaches two waiters", "[long]") {
    const model::options random{.how = model::options::method::pct, .spurious = 1, .timeouts = 1};
    model::check("two waiters, two items", model::brief_or_long(random, {.timeouts = 1}),
                 two_items);
}

} // namespace
