#include <bide/durable/options.hpp>

#include <bide/durable/locks.hpp>
#include <bide/durable/slots/memory.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/task/task.hpp>

#include <support/durable_locks.hpp>

using namespace bide;

namespace {

// Keeps what it is told, one word an event.
class diary final : public durable_observer {
public:
    std::string text() const {
        const std::lock_guard held(lock_);
        return text_;
    }
    bool has(std::string_view event) const { return text().find(event) != std::string::npos; }

    void waits(const durable_ticket& t, std::int64_t ahead) noexcept override {
        add(t.nonce.empty() ? "nameless " : "waits:" + std::to_string(ahead) + " ");
    }
    void acquired(const durable_ticket& t, std::chrono::milliseconds waited) noexcept override {
        add(t.fence > 0 && waited >= 0ms ? "acquired " : "wrong ");
    }
    void gave_up(const std::error_code& why, std::chrono::milliseconds) noexcept override {
        add("gave_up:" +
            std::string(why == errc::timeout   ? "timeout"
                        : why == errc::stopped ? "stopped"
                                               : "error") +
            " ");
    }
    void renewed_late(const durable_ticket&, std::chrono::milliseconds left) noexcept override {
        add(left >= 0ms ? "renewed_late " : "wrong ");
    }
    void at_risk(const durable_ticket&, std::chrono::milliseconds left) noexcept override {
        add(left > 0ms ? "at_risk " : "wrong ");
    }
    void lost(const durable_ticket&, durable_loss why) noexcept override {
        add(why == durable_loss::expired ? "lost:expired " : "lost:removed ");
    }
    void released(const durable_ticket&, std::chrono::milliseconds held) noexcept override {
        add(held >= 0ms ? "released " : "wrong ");
    }
    void store_failed(const std::error_code& why) noexcept override {
        add(why ? "store_failed " : "wrong ");
    }

private:
    void add(const std::string& event) {
        const std::lock_guard held(lock_);
        text_ += event;
    }

    mutable mutex lock_;
    std::string text_;
};

durable_options observed_by(const std::shared_ptr<diary>& told) {
    durable_options o{.observer = told};
    return o;
}

} // namespace

TEST_CASE("observer: is told of an acquisition and of its release") {
    const auto told = std::make_shared<diary>();
    durable_mutex m(memory_slot(), observed_by(told));
    auto held = test::acquired(m);
    REQUIRE(held->release().has_value());
    REQUIRE(told->text() == "acquired released ");
    {
        const auto again = sync_wait(m.async_acquire());
        REQUIRE(again.has_value());
    }
    REQUIRE(told->text() == "acquired released acquired released ");
}

TEST_CASE("observer: is told of the place in the queue, and so is the request") {
    const memory_slot slot;
    const auto told = std::make_shared<diary>();
    durable_mutex first(slot);
    durable_mutex m(slot, observed_by(told));
    auto held = first.acquire();
    auto middle = first.ticket("between");
    REQUIRE_FALSE(first.try_acquire(middle)->acquired);
    std::vector<std::int64_t> places;
    std::atomic<int> count{0};
    std::thread waiter([&] {
        acquire_request request;
        request.on_position = [&](std::int64_t ahead) {
            places.push_back(ahead);
            ++count;
        };
        auto mine = m.acquire(request);
        static_cast<void>(mine && mine->release());
    });
    const bool was_queued = test::eventually([&] { return count == 1; });
    const bool left = first.release(middle).value_or(false);
    const bool moved = test::eventually([&] { return count == 2; });
    REQUIRE(held->release().has_value());
    waiter.join();
    REQUIRE(was_queued);
    REQUIRE(left);
    REQUIRE(moved);
    REQUIRE(places == std::vector<std::int64_t>{1, 0});
    REQUIRE(told->text() == "waits:1 waits:0 acquired released ");
}

TEST_CASE("observer: is told why a contender gave up") {
    const memory_slot slot;
    const auto told = std::make_shared<diary>();
    durable_mutex first(slot);
    durable_mutex m(slot, observed_by(told));
    const auto held = first.acquire();
    REQUIRE_FALSE(m.try_acquire().has_value());
    std::stop_source stop;
    stop.request_stop();
    acquire_request request;
    request.stop = stop.get_token();
    REQUIRE_FALSE(m.acquire(request).has_value());
    REQUIRE_FALSE(sync_wait(m.async_acquire(request)).has_value());
    REQUIRE(told->has("gave_up:timeout "));
    REQUIRE(told->has("gave_up:stopped "));
    REQUIRE_FALSE(told->has("acquired"));
}

TEST_CASE("observer: a position callback that throws ends the acquisition, which leaves no entry") {
    durable_mutex m(memory_slot{});
    auto held = m.acquire();
    acquire_request request;
    request.on_position = [](std::int64_t) { throw 7; };
    REQUIRE_THROWS_AS(m.acquire(request), int);
    request.timeout = 10s;
    REQUIRE_THROWS_AS(m.acquire(request), int);
    REQUIRE_THROWS_AS(sync_wait(m.async_acquire(request)), int);
    REQUIRE(test::eventually([&] { return (*m.inspect())->live.waiters.empty(); }));
}

TEST_CASE("observer: a holder is warned before the lease ends, and then told why the lock is lost",
          "[promise.durable-warning]") {
    const auto is_warned_in = [](std::chrono::milliseconds lease) {
        const auto told = std::make_shared<diary>();
        durable_options o = observed_by(told);
        o.lease = lease; // the warning comes when three tenths are left
        o.auto_renew = false;
        durable_mutex m(memory_slot(), o);
        const auto held = test::acquired(m);
        std::atomic<bool> was_warned_first{false};
        const std::stop_callback lost(held->lost(),
                                      [&]() noexcept { was_warned_first = told->has("at_risk"); });
        REQUIRE(test::eventually([&] { return told->has("lost:"); }));
        REQUIRE(held->loss() == durable_loss::expired);
        if (!told->has("at_risk")) {
            return false; // the machine was busy all that time
        }
        REQUIRE(test::eventually([&] { return was_warned_first.load(); }));
        REQUIRE(told->text() == "acquired at_risk lost:expired ");
        return true;
    };
    REQUIRE(test::in_some_time(900ms, is_warned_in));
}

TEST_CASE("observer: a renewal after the warning keeps the lock, and is reported as late") {
    const auto told = std::make_shared<diary>();
    const auto store = std::make_shared<test::valve>();
    durable_options o = observed_by(told);
    o.lease = 6s;
    durable_mutex m(test::valved_slot(memory_slot(), store), o);
    auto held = test::acquired(m);
    REQUIRE(held->loss() == durable_loss::none);
    store->fails = true;
    REQUIRE(test::eventually([&] { return told->has("store_failed"); }));
    REQUIRE(test::eventually([&] { return told->has("at_risk"); }));
    store->fails = false;
    if (held->renew()) { // unless this thread was suspended past the lease
        REQUIRE(held->loss() == durable_loss::none);
        REQUIRE(test::eventually([&] { return told->has("renewed_late"); }));
    } else {
        REQUIRE(held->loss() == durable_loss::expired);
    }
}

TEST_CASE("observer: a grant that an administrator takes away is lost as removed",
          "[promise.durable-warning]") {
    const auto told = std::make_shared<diary>();
    durable_mutex m(memory_slot(), observed_by(told));
    auto held = m.acquire();
    REQUIRE(m.admin("ops").force_release(held->fence(), "a test").value_or(false));
    REQUIRE(held->loss() == durable_loss::none); // it is not known yet
    REQUIRE_FALSE(held->renew().has_value());
    REQUIRE(held->loss() == durable_loss::removed);
    REQUIRE(told->text() == "acquired lost:removed ");
}
