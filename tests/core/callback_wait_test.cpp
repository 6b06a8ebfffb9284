#include <bide/core/callback_wait.hpp>

#include <bide/channel/channel.hpp>
#include <bide/channel/select.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/notify.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>
#include <support/alloc.hpp>
#include <support/calling.hpp>
#include <support/coroutines.hpp>
#include <support/death.hpp>
#include <support/service.hpp>
#include <support/test.hpp>

using namespace bide;

static_assert(!std::is_copy_constructible_v<callback_wait<bide::permit>>);
static_assert(std::is_same_v<callback_wait<bide::permit>::result_type, bide::result<bide::permit>>);

namespace {

// Counts its wakes.
struct bell {
    std::atomic<int> rings{0};
    bide::waker waker() noexcept {
        return {[](void* self) noexcept { ++static_cast<bell*>(self)->rings; }, this};
    }
    bool rang(int n = 1) const {
        return test::eventually([this, n] { return rings.load() >= n; });
    }
};

// Begins many waits. The waker of each lets the next one through. Returns how many wakers have run.
template <class Op, class Next> int run_chain(Op begin, Next next) {
    using wait = callback_wait<typename decltype(begin(0))::value_type>;
    int ran = 0;
    auto goes_on = [&] { next(++ran); };
    std::deque<wait> all;
    for (int i = 0; i < 100'000; ++i) {
        if (all.emplace_back(test::waker_of(goes_on)).begin(begin(i))) {
            return -1;
        }
    }
    next(0);
    return std::all_of(all.begin(), all.end(), [](wait& w) { return w.is_complete(); }) ? ran : -1;
}

// An operation that ends only if it is cancelled.
struct endless {
    bool& asked_to_end;
    wait_status try_now() const noexcept { return wait_status::waiting; }
    wait_status enqueue(basic_waiter<native_platform>&) const noexcept {
        return wait_status::waiting;
    }
    bool cancel(basic_waiter<native_platform>&, wait_status) const noexcept { return true; }
    bide::result<void> collect(wait_status what) const noexcept { return result_of(what); }
    void on_cancel() const noexcept { asked_to_end = true; }
};

} // namespace

TEST_CASE("callback_wait: each operation of channels, a select and a sleep ring once") {
    bell b;
    SECTION("channel, received") {
        bide::channel<std::unique_ptr<int>> c(1);
        callback_wait<decltype(c.async_recv())::value_type> w(b.waker());
        REQUIRE_FALSE(w.begin(c.async_recv()));
        REQUIRE(c.send(std::make_unique<int>(7)));
        REQUIRE(b.rings == 1);
        REQUIRE(**w.take().value() == 7);
        REQUIRE_FALSE(w.begin(c.async_recv()));
        c.close();
        REQUIRE(b.rings == 2);
        REQUIRE(w.is_complete());
        REQUIRE_FALSE(w.take().value().has_value());
    }
    SECTION("channel, sent") {
        bide::channel<std::unique_ptr<int>> c(0);
        callback_wait<decltype(c.async_send(nullptr))::value_type> w(b.waker());
        REQUIRE_FALSE(w.begin(c.async_send(std::make_unique<int>(8))));
        REQUIRE(**c.recv() == 8);
        REQUIRE(b.rings == 1);
        REQUIRE(w.take().has_value());
    }
    SECTION("select") {
        bide::channel<int> c(1);
        bide::event quit;
        auto both = [&] { return bide::async_select(bide::on_recv(c), bide::on_event(quit)); };
        callback_wait<decltype(both())::value_type> w(b.waker());
        REQUIRE_FALSE(w.begin(both()));
        REQUIRE(c.send(3));
        REQUIRE(b.rings == 1);
        auto chosen = w.take();
        REQUIRE(chosen->index() == 0);
        REQUIRE(*chosen->get<0>() == 3);
        REQUIRE_FALSE(w.begin(both()));
        quit.set();
        REQUIRE(b.rings == 2);
        REQUIRE(w.take()->index() == 1);
    }
    SECTION("sleep") {
        callback_wait<void> w(b.waker());
        const bool over = w.begin(bide::this_task::sleep_for(1ms)); // on a busy machine
        REQUIRE((over || b.rang()));
        REQUIRE(w.take().has_value());
    }
}

TEST_CASE("callback_wait: a time-out and a stop end it, and ring") {
    bide::semaphore s(0);
    bell b;
    callback_wait<bide::permit> w(b.waker());
    SECTION("time-out") {
        const bool over = w.begin(s.async_acquire().with_timeout(1ms)); // on a busy machine
        REQUIRE((over || b.rang()));
        REQUIRE(w.is_complete());
        REQUIRE(w.take().error() == errc::timeout);
    }
    SECTION("stop") {
        std::stop_source stop;
        REQUIRE_FALSE(w.begin(s.async_acquire().with_timeout(1h).with_stop(stop.get_token())));
        stop.request_stop();
        REQUIRE(w.is_complete());
        REQUIRE(b.rings == 1);
        REQUIRE(w.take().error() == errc::stopped);
    }
    SECTION("second of two stops") {
        std::stop_source one;
        std::stop_source two;
        REQUIRE_FALSE(
            w.begin(s.async_acquire().with_stop(one.get_token()).with_stop(two.get_token())));
        two.request_stop();
        REQUIRE(w.take().error() == errc::stopped);
        one.request_stop();
        REQUIRE(b.rings == 1);
    }
    SECTION("stopped before") {
        std::stop_source stop;
        stop.request_stop();
        REQUIRE(w.begin(s.async_acquire().with_stop(stop.get_token())));
        REQUIRE(w.take().error() == errc::stopped);
        REQUIRE(b.rings == 0);
    }
    SECTION("one attempt") {
        REQUIRE(w.begin(s.async_acquire().with_timeout(0ms)));
        REQUIRE(w.take().error() == errc::timeout);
        REQUIRE(b.rings == 0);
    }
    SECTION("granted before the stop") {
        std::stop_source stop;
        REQUIRE_FALSE(w.begin(s.async_acquire().with_stop(stop.get_token())));
        s.release();
        stop.request_stop();
        REQUIRE(w.take().has_value());
        REQUIRE(b.rings == 1);
    }
    SECTION("a waker that destroys the wait that a stop ends") {
        std::stop_source stop;
        std::optional<callback_wait<bide::permit>> mine;
        auto destroy = [&] { mine.reset(); };
        mine.emplace(test::waker_of(destroy));
        REQUIRE_FALSE(mine->begin(s.async_acquire().with_stop(stop.get_token())));
        stop.request_stop();
        REQUIRE_FALSE(mine);
    }
    REQUIRE(s.waiters() == 0);
}

TEST_CASE("callback_wait: the time-out of a cancelled wait does not end the next one") {
    bide::semaphore s(0);
    bell b;
    callback_wait<bide::permit> w(b.waker());
    w.begin(s.async_acquire().with_timeout(20ms));
    w.cancel(); // on a busy machine the time is over already
    const int rings = b.rings;
    REQUIRE_FALSE(w.begin(s.async_acquire()));
    bell later;
    callback_wait<void> time(later.waker());
    const bool over = time.begin(bide::this_task::sleep_for(25ms));
    REQUIRE((over || later.rang()));
    REQUIRE_FALSE(w.is_complete());
    REQUIRE(b.rings == rings);
}

TEST_CASE("callback_wait: a cancel after the grant changes nothing") {
    bide::semaphore s(0);
    bell b;
    callback_wait<bide::permit> w(b.waker());
    REQUIRE_FALSE(w.begin(s.async_acquire()));
    s.release();
    REQUIRE_FALSE(w.cancel());
    REQUIRE(w.take().has_value());
    REQUIRE(s.available() == 1);
}

TEST_CASE("callback_wait: a cancelled send gives its item back") {
    bide::channel<std::unique_ptr<int>> c(0);
    bell b;
    callback_wait<decltype(c.async_send(nullptr))::value_type> w(b.waker());
    REQUIRE_FALSE(w.begin(c.async_send(std::make_unique<int>(5))));
    REQUIRE(w.cancel());
    auto sent = w.take();
    REQUIRE_FALSE(sent.has_value());
    REQUIRE(sent.error().code == errc::stopped);
    REQUIRE(*sent.error().value == 5);
    REQUIRE_FALSE(c.try_recv().has_value());
}

TEST_CASE("callback_wait: what was granted and not taken goes back", "[promise.callback-grants]") {
    bell b;
    SECTION("a permit, at the next begin") {
        bide::semaphore s(1);
        callback_wait<bide::permit> w(b.waker());
        REQUIRE(w.begin(s.async_acquire()));
        REQUIRE(w.begin(s.async_acquire()));
        REQUIRE(s.available() == 0);
        static_cast<void>(w.take());
        REQUIRE(s.available() == 1);
    }
    SECTION("an item, to the next receiver") {
        bide::channel<int> c(1);
        callback_wait<decltype(c.async_recv())::value_type> next(b.waker());
        {
            callback_wait<decltype(c.async_recv())::value_type> w(b.waker());
            REQUIRE_FALSE(w.begin(c.async_recv()));
            REQUIRE_FALSE(next.begin(c.async_recv()));
            REQUIRE(c.send(4));
            REQUIRE_FALSE(next.is_complete());
        }
        REQUIRE(next.is_complete());
        REQUIRE(next.take().value() == 4);
    }
    SECTION("a wait that is destroyed") {
        bide::semaphore s(0);
        {
            callback_wait<bide::permit> w(b.waker());
            REQUIRE_FALSE(w.begin(s.async_acquire(2)));
            s.release();
        }
        REQUIRE(s.available() == 1);
        REQUIRE(s.waiters() == 0);
        REQUIRE(b.rings == 0);
    }
}

TEST_CASE("callback_wait: the waker of one wait may cancel another wait of the same release") {
    bide::semaphore s(0);
    bell b;
    callback_wait<bide::permit> other(b.waker());
    bool ended = true;
    auto cancelling = [&] { ended = other.cancel(); };
    callback_wait<bide::permit> first(test::waker_of(cancelling));
    REQUIRE_FALSE(first.begin(s.async_acquire()));
    REQUIRE_FALSE(other.begin(s.async_acquire()));
    s.release(2);
    REQUIRE_FALSE(ended); // it was granted by the same release
    REQUIRE(other.take().has_value());
    REQUIRE(b.rings == 0);
    static_cast<void>(first.take());
    REQUIRE(s.available() == 2);
}

TEST_CASE("callback_wait: wakers that let each other through need little stack",
          "[promise.waker-stack]") {
    bide::semaphore s(0);
    const auto last = [](int i) { return i == 100'000; };
    SECTION("semaphore") {
        REQUIRE(run_chain([&](int) { return s.async_acquire(); }, [&](int) { s.release(); }) ==
                100'000);
    }
    SECTION("notify") {
        bide::notify n;
        REQUIRE(run_chain([&](int) { return n.async_wait(); }, [&](int) { n.notify_one(); }) ==
                100'000);
    }
    SECTION("event") {
        std::deque<bide::event> events(100'001);
        const auto at = [&](int i) -> auto& { return events[static_cast<std::size_t>(i)]; };
        REQUIRE(run_chain([&](int i) { return at(i).async_wait(); }, [&](int i) { at(i).set(); }) ==
                100'000);
    }
    SECTION("channel") {
        bide::channel<int> c(1);
        REQUIRE(run_chain([&](int) { return c.async_recv(); },
                          [&](int i) { static_cast<void>(c.try_send(i)); }) == 100'000);
    }
    SECTION("stop") {
        std::deque<std::stop_source> stops(100'001);
        const auto at = [&](int i) -> auto& { return stops[static_cast<std::size_t>(i)]; };
        REQUIRE(run_chain([&](int i) { return s.async_acquire().with_stop(at(i).get_token()); },
                          [&](int i) { last(i) || at(i).request_stop(); }) == 100'000);
    }
    SECTION("stop of a select") {
        std::deque<std::stop_source> stops(100'001);
        const auto at = [&](int i) -> auto& { return stops[static_cast<std::size_t>(i)]; };
        REQUIRE(run_chain(
                    [&](int i) {
                        return bide::async_select(bide::on_acquire(s),
                                                  bide::on_stop(at(i).get_token()));
                    },
                    [&](int i) { at(i).request_stop(); }) == 100'000);
    }
}

TEST_CASE("callback_wait: a waker that requests a stop resumes no coroutine on its thread") {
    bide::semaphore s(1);
    bide::event begin;
    std::stop_source stop;
    bell b;
    callback_wait<bide::permit> large(b.waker());
    REQUIRE_FALSE(large.begin(s.async_acquire(2).with_stop(stop.get_token())));
    bool on_resumer = false;
    auto behind = [](bide::semaphore& from, bool& there) -> test::held {
        const auto got = co_await from.async_acquire();
        there = test::is_resumer();
    }(s, on_resumer);
    behind.start();
    auto stopping = [&] { stop.request_stop(); };
    callback_wait<void> first(test::waker_of(stopping));
    REQUIRE_FALSE(first.begin(begin.async_wait()));
    begin.set();
    test::service_thread(); // it has resumed the coroutine
    REQUIRE(b.rings == 1);
    REQUIRE(behind.done());
    REQUIRE(on_resumer);
}

TEST_CASE("callback_wait: a cancel asks what is waited for to end") {
    bool asked = false;
    bell b;
    callback_wait<void> w(b.waker());
    REQUIRE_FALSE(w.begin(basic_async_op<void, native_platform>(endless{asked})));
    REQUIRE(w.cancel());
    REQUIRE(asked);
    REQUIRE(w.take().error() == errc::stopped);
}

TEST_CASE("callback_wait: allocates nothing") {
    bide::semaphore s(0);
    bide::channel<int> c(1);
    bell b;
    callback_wait<bide::permit> w(b.waker());
    callback_wait<decltype(c.async_recv())::value_type> r(b.waker());
    const auto before = test::allocations_here();
    for (int i = 0; i < 3; ++i) {
        w.begin(s.async_acquire());
        s.release();
        w.take()->forget();
        r.begin(c.async_recv());
        static_cast<void>(c.send(i));
        static_cast<void>(r.take());
        w.begin(s.async_acquire());
        w.cancel();
    }
    REQUIRE(test::allocations_here() == before);
}

#if BIDE_TESTS_CAN_DIE

TEST_CASE("callback_wait: misuse terminates with a message", "[death]") {
    bide::semaphore s(0);
    const auto twice = test::run_child([&] {
        callback_wait<bide::permit> w({});
        w.begin(s.async_acquire());
        w.begin(s.async_acquire());
    });
    INFO(twice.text());
    REQUIRE(twice.has_aborted());
    REQUIRE(test::contains(twice.said, "begun while it waits"));
    const auto early = test::run_child([&] {
        callback_wait<bide::permit> w({});
        w.begin(s.async_acquire());
        static_cast<void>(w.take());
    });
    INFO(early.text());
    REQUIRE(early.has_aborted());
    REQUIRE(test::contains(early.said, "taken before it was complete"));
}

#endif
