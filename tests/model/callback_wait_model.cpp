// callback_wait: the owner destroys the wait, and what its waker uses, as soon as take() or cancel() has
// returned. The waker runs once if the wait is granted, and never if it is cancelled. Whatever comes
// first, the permit is taken or free.

#include <bide/core/callback_wait.hpp>
#include <bide/sync/semaphore.hpp>
#include <model/sync_support.hpp>
#include <support/test.hpp>

using namespace sync_model;

namespace {

using awake = model::platform_without_lock_sleep;
using semaphore = bide::basic_semaphore<awake>;
using wait = bide::basic_callback_wait<bide::basic_permit<awake>, awake>;

// What a waker uses. A var that is accessed after its end is a failure.
struct counter {
    var<int> rings{0};
    bide::waker waker() noexcept {
        return {[](void* self) noexcept { increment(static_cast<counter*>(self)->rings); }, this};
    }
};

void await_end(const wait& w) {
    while (!w.is_complete()) {
        awake::pause();
    }
}

TEST_CASE("callback_wait: take() comes after the waker, and after what came before the release") {
    model::check("callback_wait: taken", {.spurious = 1, .weak_failures = 1}, [] {
        semaphore s(0);
        var<int> data{0};
        model::thread releasing(model::after_writing(data, [&] { s.release(); }));
        {
            counter b;
            wait w(b.waker());
            const bool at_once = w.begin(s.async_acquire());
            await_end(w);
            w.take()->forget();
            MODEL_REQUIRE(data == 1);
            MODEL_REQUIRE(b.rings == (at_once ? 0 : 1));
        }
        releasing.join();
        MODEL_REQUIRE(s.available() == 0);
    });
}

TEST_CASE("callback_wait: a cancel beside the release") {
    model::check("callback_wait: cancelled", [] {
        semaphore s(0);
        model::thread releasing([&] { s.release(); });
        {
            counter b;
            wait w(b.waker());
            const bool at_once = w.begin(s.async_acquire());
            const bool ended = w.cancel();
            MODEL_REQUIRE(w.is_complete());
            MODEL_REQUIRE(b.rings == (at_once || ended ? 0 : 1));
            MODEL_REQUIRE(w.take().has_value() == !ended);
        }
        releasing.join();
        MODEL_REQUIRE(s.available() == 1);
        MODEL_REQUIRE(s.waiters() == 0);
    });
    model::check("callback_wait: destroyed", [] {
        auto s = std::make_unique<semaphore>(0);
        model::thread releasing([&] { s->release(); });
        {
            counter b;
            wait w(b.waker());
            w.begin(s->async_acquire());
        }
        releasing.join();
        MODEL_REQUIRE(s->available() == 1);
    });
}

// Takes, and begins again, inside of its waker; at the third call destroys the wait.
struct taker {
    semaphore& s;
    std::optional<wait> w{};
    var<int> taken{0};

    bide::waker waker() noexcept {
        return {[](void* self) noexcept { static_cast<taker*>(self)->on_call(); }, this};
    }
    void on_call() noexcept {
        increment(taken);
        w->take()->forget();
        if (taken == 2) {
            w.reset();
        } else {
            w->begin(s.async_acquire());
        }
    }
};

TEST_CASE(
    "callback_wait: a waker takes the wait and begins it again while another thread releases") {
    model::check("callback_wait: begun again", bounded(3), [] {
        semaphore s(0);
        taker t{s};
        t.w.emplace(t.waker());
        t.w->begin(s.async_acquire());
        model::thread other([&] { s.release(); });
        s.release();
        other.join();
        // If the second permit was free when the waker began again, it is in the wait.
        MODEL_REQUIRE(t.taken == 2 || (t.w.has_value() && t.w->is_complete()));
        t.w.reset();
        MODEL_REQUIRE(s.waiters() == 0);
    });
}

TEST_CASE("callback_wait: a waker cancels another wait of the same release") {
    model::check("callback_wait: two of one release", bounded(3), [] {
        semaphore s(0);
        counter b;
        std::optional<wait> second(std::in_place, b.waker());
        const auto destroy = [](void* of) noexcept {
            static_cast<std::optional<wait>*>(of)->reset();
        };
        wait first(bide::waker(destroy, &second));
        first.begin(s.async_acquire());
        second->begin(s.async_acquire());
        model::thread releasing([&] { s.release(2); });
        await_end(first);
        first.take()->forget();
        MODEL_REQUIRE(!second.has_value());
        MODEL_REQUIRE(b.rings == 0);
        releasing.join();
        MODEL_REQUIRE(s.available() == 1);
    });
}

// Its waker lets as many waits of `to` through.
struct passing {
    int waits;
    semaphore to{0};
    wait w{bide::waker(
        [](void* of) noexcept {
            auto& me = *static_cast<passing*>(of);
            me.to.release(me.waits);
        },
        this)};
};

TEST_CASE("callback_wait: a waker lets waits through whose owners cancel and destroy them") {
    const auto body = [](int owners) {
        return [owners] {
            semaphore s(0);
            passing first{owners};
            first.w.begin(s.async_acquire());
            model::thread releasing([&] { s.release(); });
            const auto cancels = [&] {
                counter b;
                wait w(b.waker());
                const bool at_once = w.begin(first.to.async_acquire());
                const bool ended = w.cancel();
                MODEL_REQUIRE(b.rings == (at_once || ended ? 0 : 1));
                MODEL_REQUIRE(w.take().has_value() == !ended);
            };
            std::optional<model::thread> other;
            if (owners == 2) {
                other.emplace(cancels);
            }
            cancels();
            if (other) {
                other->join();
            }
            releasing.join();
            first.w.take()->forget();
            MODEL_REQUIRE(first.to.available() == owners);
        };
    };
    model::check("callback_wait: let through by a waker", body(1));
    model::check("callback_wait: two let through by a waker", random(20'000), body(2));
}

} // namespace
