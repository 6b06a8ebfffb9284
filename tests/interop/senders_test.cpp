#define BIDE_RECYCLE_FRAMES 0 // so that each frame is an allocation

#include "support/counted.hpp"
#include "support/senders.hpp"
#include "support/shortage.hpp"

#include <bide/bide.hpp>
#include <bide/interop/senders.hpp>

namespace ex = test::ex;
using with = bide::senders<ex::names>;

namespace {

using acquiring = decltype(with::as_sender(std::declval<bide::semaphore&>().async_acquire()));
static_assert(ex::sender_to<acquiring, ex::receiver<bide::permit>>);
static_assert(
    std::is_same_v<
        acquiring::completion_signatures,
        ex::completion_signatures<ex::set_value_t(bide::permit), ex::set_error_t(std::error_code),
                                  ex::set_error_t(std::exception_ptr), ex::set_stopped_t()>>);
static_assert(ex::scheduler<with::scheduler>);

// A copy of the receiver is left while `alive` has more than one owner.
struct ending : ex::outcome<> {
    std::shared_ptr<int> alive = std::make_shared<int>();
};

class tracked : public ex::receiver<> {
public:
    explicit tracked(ending& to) noexcept : receiver(to), alive_(to.alive) {}
    template <class... V> void set_value(V&&...) && noexcept {
        static_cast<receiver&&>(*this).set_value();
    }

private:
    std::shared_ptr<int> alive_;
};

// Connects a sender, starts it and does the rest. What finds no memory throws from connect(), and
// then the receiver is destroyed and was told nothing. Returns whether it was started.
template <class Sender, class Rest>
bool connects(test::trial& t, ending& to, Sender sender, Rest rest) {
    bool is_connected = false;
    const bool done = t.attempt([&] {
        auto state = std::move(sender).connect(tracked(to));
        is_connected = true;
        state.start();
        rest();
    });
    t.expect(done == is_connected);
    t.expect(to.calls == (done ? 1 : 0));
    t.expect(to.alive.use_count() == 1);
    return done;
}

using item = test::counted_once;

const test::scenario shortages[] = {
    {"a permit that is free",
     [](test::trial& t) {
         bide::semaphore s(1);
         ending e;
         const bool done = connects(t, e, with::as_sender(s.async_acquire()), [] {});
         t.expect(e.value.has_value() == done &&
                  done != t.has_failed()); // only connect() allocates
         t.expect(s.available() == 1 && s.waiters() == 0);
     }},
    {"a permit that is waited for",
     [](test::trial& t) {
         bide::semaphore s(0);
         ending e;
         const bool done = connects(t, e, with::as_sender(s.async_acquire()), [&] { s.release(); });
         t.expect(e.value.has_value() == done && done != t.has_failed());
         t.expect(s.available() == done && s.waiters() == 0);
     }},
    {"a wait that is stopped",
     [](test::trial& t) {
         bide::semaphore s(1);
         ending e;
         const bool done = connects(t, e, with::as_sender(s.async_acquire(2)), [&] {
             e.stop.request_stop();
             static_cast<void>(e.over.wait_for(test::patience));
         });
         t.expect(e.stopped == done && done != t.has_failed());
         t.expect(s.available() == 1 && s.waiters() == 0);
     },
     true},
    {"an item that the operation owns",
     [](test::trial& t) {
         test::tally all;
         bide::channel<item> c(1);
         ending e;
         const bool done = connects(t, e, with::as_sender(c.async_send(item(all, 0))), [] {});
         t.expect(c.size() == (done ? 1u : 0u) && all.alive() == done);
     }},
    {"an item that stays with its sender",
     [](test::trial& t) {
         test::tally all;
         bide::channel<item> c(1);
         item mine(all, 7);
         ending e;
         const bool done = connects(t, e, with::as_sender(c.async_send_from(mine)), [] {});
         t.expect(mine.number() == (done ? -1 : 7) && c.size() == (done ? 1u : 0u));
     }},
    {"an item that is received",
     [](test::trial& t) {
         test::tally all;
         bide::channel<item> c(1);
         t.expect(c.try_send(item(all, 0)).has_value());
         ending e;
         const bool done = connects(t, e, with::as_sender(c.async_recv()), [] {});
         t.expect(c.size() == (done ? 0u : 1u) && all.alive() == !done);
     }},
    {"items into a vector that finds no memory: set_error",
     [](test::trial& t) {
         test::tally all;
         bide::channel<item> c(8);
         for (int i = 0; i < 8; ++i) {
             t.expect(c.try_send(item(all, i)).has_value());
         }
         std::vector<item> out;
         ending e;
         const bool done = connects(t, e, with::as_sender(c.async_recv_n(out, 8)), [] {});
         if (e.error) {
             try {
                 std::rethrow_exception(std::exchange(e.error, nullptr));
             } catch (const std::bad_alloc&) {
                 t.expect(t.has_failed());
             }
         }
         t.expect(e.value.has_value() == (done && !t.has_failed()) && !e.stopped && !e.code);
         t.expect(out.size() + c.size() == 8 && all.alive() == 8);
     }},
    {"a scheduler",
     [](test::trial& t) {
         bide::run_loop loop;
         ending e;
         const bool done = connects(t, e, with::scheduler(loop).schedule(), [&] { loop.run(); });
         t.expect(done && e.value && !t.has_failed()); // nothing allocates
     }},
};

} // namespace

TEST_CASE("senders: an operation begins in start(), and sends its value where it is released") {
    bide::semaphore none(0);
    ex::outcome<bide::permit> got;
    auto state = with::as_sender(none.async_acquire()).connect(ex::receiver(got));
    CHECK(none.waiters() == 0);
    state.start();
    CHECK(none.waiters() == 1);
    std::thread::id releaser;
    std::thread([&] {
        releaser = std::this_thread::get_id();
        none.release();
    }).join();
    CHECK(got.calls == 1);
    REQUIRE(got.value);
    CHECK(std::get<0>(*got.value).count() == 1);
    CHECK(got.on == releaser);
}

TEST_CASE("senders: a value, a result, an error and nothing are sent as what they are") {
    bide::channel<std::unique_ptr<int>> items(1);
    ex::outcome<std::optional<std::unique_ptr<int>>> item;
    auto receives = with::as_sender(items.async_recv()).connect(ex::receiver(item));
    receives.start();
    using sent = bide::result<void, bide::send_error<std::unique_ptr<int>>>;
    ex::outcome<sent> done;
    auto sends =
        with::as_sender(items.async_send(std::make_unique<int>(3))).connect(ex::receiver(done));
    sends.start();
    items.close();
    ex::outcome<sent> refused;
    auto late =
        with::as_sender(items.async_send(std::make_unique<int>(4))).connect(ex::receiver(refused));
    late.start();
    bide::event set(true);
    ex::outcome<> nothing;
    auto waits = with::as_sender(set.async_wait()).connect(ex::receiver(nothing));
    waits.start();
    bide::semaphore closed(0);
    closed.close();
    ex::outcome<bide::permit> error;
    auto acquires = with::as_sender(closed.async_acquire()).connect(ex::receiver(error));
    acquires.start();
    REQUIRE(item.value);
    CHECK(**std::get<0>(*item.value) == 3);
    REQUIRE(done.value);
    CHECK(std::get<0>(*done.value).has_value());
    REQUIRE(refused.value);
    CHECK(*std::get<0>(*refused.value).error().value == 4);
    CHECK(nothing.value);
    REQUIRE(error.code);
    CHECK(*error.code == bide::errc::closed);
}

TEST_CASE("senders: a stop ends a wait, which passes on what it was granted in part",
          "[promise.senders-stop]") {
    bide::semaphore two(2);
    ex::outcome<bide::permit> large;
    ex::outcome<bide::permit> small;
    auto first = with::as_sender(two.async_acquire(5)).connect(ex::receiver(large));
    auto second = with::as_sender(two.async_acquire(1)).connect(ex::receiver(small));
    first.start();
    second.start();
    CHECK(two.waiters() == 2);
    large.stop.request_stop();
    REQUIRE(large.over.wait_for(test::patience));
    REQUIRE(small.over.wait_for(test::patience));
    CHECK(large.stopped);
    CHECK(small.value);
    small.value.reset();
    CHECK(two.available() == 2);
    ex::outcome<bide::permit> never;
    never.stop.request_stop();
    auto third = with::as_sender(two.async_acquire(1)).connect(ex::receiver(never));
    third.start();
    CHECK(never.stopped);
    CHECK(two.available() == 2);
}

TEST_CASE("senders: a state that was not started is destroyed, and waits for nothing") {
    bide::semaphore one(1);
    ex::outcome<bide::permit> got;
    {
        auto state = with::as_sender(one.async_acquire()).connect(ex::receiver(got));
        static_cast<void>(state);
    }
    CHECK(got.calls == 0);
    CHECK(one.available() == 1);
}

TEST_CASE("senders: stops and releases on many threads lose no permit", "[promise.senders-stop]") {
    constexpr std::size_t count = 500;
    bide::semaphore permits(0);
    struct wait {
        explicit wait(bide::semaphore& s)
            : state(with::as_sender(s.async_acquire()).connect(ex::receiver(got))) {}
        ex::outcome<bide::permit> got;
        decltype(std::declval<acquiring>().connect(
            std::declval<ex::receiver<bide::permit>>())) state;
    };
    std::vector<std::unique_ptr<wait>> waits;
    for (std::size_t i = 0; i < count; ++i) {
        waits.push_back(std::make_unique<wait>(permits));
        waits.back()->state.start();
    }
    test::run_threads(3, [&](int which) {
        for (std::size_t i = 0; i < count; ++i) {
            if (which == 0) {
                permits.release();
            } else {
                waits[which == 1 ? i : count - 1 - i]->got.stop.request_stop();
            }
        }
    });
    std::ptrdiff_t sent = 0;
    for (const auto& w : waits) {
        REQUIRE(w->got.over.wait_for(test::patience));
        REQUIRE(w->got.calls == 1);
        REQUIRE(w->got.stopped != w->got.value.has_value());
        if (w->got.value) {
            std::get<0>(*w->got.value).forget();
            ++sent;
        }
    }
    CHECK(sent + permits.available() == static_cast<std::ptrdiff_t>(count));
    CHECK(permits.waiters() == 0);
}

TEST_CASE("senders: an executor of bide is a scheduler") {
    bide::run_loop loop;
    bide::strand serial(loop);
    const with::scheduler on_loop(loop);
    const with::scheduler on_strand(serial);
    CHECK(on_loop == with::scheduler(loop));
    CHECK(on_loop != on_strand);
    ex::outcome<> ran;
    ex::outcome<> stopped;
    auto runs = on_strand.schedule().connect(ex::receiver(ran));
    auto stops = on_loop.schedule().connect(ex::receiver(stopped));
    runs.start();
    stops.start();
    CHECK(ran.calls == 0);
    stopped.stop.request_stop();
    loop.run();
    CHECK(ran.value);
    CHECK(stopped.stopped);
}

TEST_CASE("senders: where an allocation fails, connect() throws or the receiver is told",
          "[promise.out-of-memory]") {
    test::for_each_allocation_failure(shortages);
}
