// What of the durable locks is decided between threads: who waits for a change is told of every one
// that its look has not seen; a gate admits no token behind a larger one.

#include <bide/durable/detail/change_signal.hpp>
#include <bide/durable/fence_gate.hpp>
#include <model/sync_support.hpp>
#include <support/catch.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

using namespace sync_model;

namespace {

using change_signal = bide::detail::basic_change_signal<platform>;
using fence_gate = bide::basic_fence_gate<platform>;

// A record of which the store is as weak as can be: what orders it is the signal.
struct place {
    platform::atomic<int> record{0};
    change_signal changes;
    // All of them, up to the end: how the standard counts references is not looked at here.
    std::vector<std::shared_ptr<change_signal::event>> taken;

    void change(int to) {
        record.store(to, std::memory_order_relaxed);
        changes.signal();
    }
    void await(int wanted) {
        for (;;) {
            const auto change = taken.emplace_back(changes.next());
            if (record.load(std::memory_order_relaxed) >= wanted) {
                return;
            }
            change->wait();
        }
    }
};

} // namespace

TEST_CASE("durable: who waits for a change is told of each that its look has not seen",
          "[durable]") {
    model::check("durable: one waits, one changes", {}, [] {
        place p;
        model::thread changing([&] { p.change(1); });
        p.await(1);
        changing.join();
    });
    using method = model::options::method;
    const model::options few{.how = method::bounded, .preemptions = 1};
    const model::options some{.how = method::pct, .runs = 20'000};
    model::check("durable: one waits for the second of two changes", few, [] {
        place p;
        model::thread changing([&] {
            p.change(1);
            p.change(2);
        });
        p.await(2);
        changing.join();
    });
    model::check("durable: two wait, one changes", some, [] {
        place p;
        model::thread other([&] { p.await(1); });
        model::thread changing([&] { p.change(1); });
        p.await(1);
        other.join();
        changing.join();
    });
}

TEST_CASE("durable: a gate admits no token behind a larger one", "[durable]") {
    model::check("durable: two at a gate", {.weak_failures = 1}, [] {
        fence_gate gate;
        model::thread older([&] {
            if (!gate.admit(1)) {
                MODEL_REQUIRE(gate.highest() == 2);
            }
        });
        MODEL_REQUIRE(gate.admit(2));
        MODEL_REQUIRE(gate.highest() == 2);
        MODEL_REQUIRE(!gate.admit(1));
        older.join();
        MODEL_REQUIRE(gate.highest() == 2);
    });
}

TEST_CASE("durable: whoever asks a gate sees what was done before those who were admitted",
          "[durable]") {
    model::check("durable: the next one sees it", {.weak_failures = 1}, [] {
        fence_gate gate;
        var<int> data{0};
        platform::atomic<int> was_in{0};
        model::thread older([&] {
            data = 1;
            if (gate.admit(1)) {
                was_in.store(1, std::memory_order_relaxed);
            }
        });
        gate.admit(2);
        if (was_in.load(std::memory_order_relaxed) == 1) {
            MODEL_REQUIRE(data == 1);
        }
        older.join();
    });
    model::check("durable: what was done before the same token came again, too", {}, [] {
        fence_gate gate;
        var<int> data{0};
        platform::atomic<int> was_in{0};
        model::thread older([&] {
            gate.admit(1);
            data = 1;
            if (gate.admit(1)) {
                was_in.store(1, std::memory_order_relaxed);
            }
        });
        gate.admit(2);
        if (was_in.load(std::memory_order_relaxed) == 1) {
            MODEL_REQUIRE(data == 1);
        }
        older.join();
    });
    model::check("durable: who is refused sees it", {.weak_failures = 1}, [] {
        fence_gate gate;
        var<int> data{0};
        model::thread newer([&] {
            data = 1;
            gate.admit(2);
        });
        if (!gate.admit(1)) {
            MODEL_REQUIRE(data == 1);
        }
        newer.join();
    });
    model::check("durable: who only looks sees it", {}, [] {
        fence_gate gate;
        var<int> data{0};
        model::thread newer([&] {
            data = 1;
            gate.admit(2);
        });
        if (gate.highest() == 2) {
            MODEL_REQUIRE(data == 1);
        }
        newer.join();
    });
}
