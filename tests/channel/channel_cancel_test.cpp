// Waiters that leave the queue, and coroutines that are destroyed while they wait.

#include "support/alloc.hpp"
#include "support/catch.hpp"
#include "support/channel_waits.hpp"
#include "support/coroutines.hpp"
#include "support/counted.hpp"
#include "support/gate.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/stop.hpp"

#include <bide/channel/channel.hpp>

#include <cstddef>
#include <new>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using namespace test::channel_waits;

TEST_CASE(
    "channel: the item of a sender that leaves the queue is not received, all other items are") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 2u);
    const int leaves = GENERATE(0, 1, 2);
    const bool by_stop = GENERATE(false, true);
    channel ch(capacity);
    fill(ch);
    std::stop_source stop = test::new_stop();
    test::manual_executor later;
    send_ending ends[3];
    std::vector<test::held> waiting;
    for (int i = 0; i < 3; ++i) {
        auto op = ch.async_send(100 + i).resume_on(later);
        waiting.push_back(i == leaves && by_stop
                              ? hold(std::move(op).with_stop(stop.get_token()), ends[i])
                              : hold(std::move(op), ends[i]));
        waiting.back().start();
    }
    if (by_stop) {
        stop.request_stop();
        CHECK(later.run_all() == 1);
        CHECK(is_back(ends[leaves], errc::stopped, 100 + leaves));
    } else {
        waiting[static_cast<std::size_t>(leaves)].destroy();
    }
    ints expected = numbers(0, static_cast<int>(capacity));
    for (int i = 0; i < 3; ++i) {
        if (i != leaves) {
            expected.push_back(100 + i);
        }
    }
    CHECK(take_all(ch) == expected);
    CHECK(later.run_all() == 2);
    for (int i = 0; i < 3; ++i) {
        CHECK(is_sent(ends[i]) == (i != leaves));
    }
}

TEST_CASE(
    "channel: a receiver that leaves the queue takes nothing, all other receivers do, in order") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 2u);
    const int leaves = GENERATE(0, 1, 2);
    const bool by_stop = GENERATE(false, true);
    channel ch(capacity);
    std::stop_source stop = test::new_stop();
    test::manual_executor later;
    limited_ending ends[3];
    std::vector<test::held> waiting;
    for (int i = 0; i < 3; ++i) {
        auto op = ch.async_recv().resume_on(later);
        waiting.push_back(i == leaves && by_stop
                              ? hold(std::move(op).with_stop(stop.get_token()), ends[i])
                              : hold(std::move(op).as_result(), ends[i]));
        waiting.back().start();
    }
    if (by_stop) {
        stop.request_stop();
        CHECK(later.run_all() == 1);
        CHECK(is(*ends[leaves].out, errc::stopped));
    } else {
        waiting[static_cast<std::size_t>(leaves)].destroy();
    }
    CHECK(ch.try_send(0));
    CHECK(ch.try_send(1));
    CHECK(ch.try_send(2).has_value() == (capacity > 0)); // there are no waiters any more
    CHECK(later.run_all() == 2);
    int next = 0;
    for (int i = 0; i < 3; ++i) {
        if (i != leaves) {
            REQUIRE(ends[i].done);
            CHECK(ends[i].out->value() == next++);
        }
    }
}

TEST_CASE("channel: after its last waiter has left, it is as it was before") {
    const std::size_t capacity = GENERATE(0u, 1u);
    channel ch(capacity);
    recv_ending none;
    auto receiver = hold(ch.async_recv(), none);
    receiver.start();
    receiver.destroy();
    CHECK(ch.try_send(1).has_value() == (capacity > 0));
    CHECK(ch.size() == capacity);
    send_ending no_room;
    auto sender = hold(ch.async_send(2), no_room);
    sender.start();
    sender.destroy();
    CHECK(take_all(ch).size() == capacity);
    CHECK(is(ch.try_recv(), errc::empty));
}

// ---- Coroutines that are destroyed

namespace {

ints numbers_of(const std::vector<test::counted_once>& items) {
    ints out;
    for (const test::counted_once& item : items) {
        out.push_back(item.number());
    }
    return out;
}
ints numbers_inside(bide::channel<test::counted_once>& ch) {
    ints out;
    while (const auto got = ch.try_recv()) {
        out.push_back(got->number());
    }
    return out;
}

// A coroutine that waits for an item, or for many, and does not resume when it is granted one.
class granted_receiver {
public:
    granted_receiver(bide::channel<test::counted_once>& ch, std::vector<test::counted_once>& out,
                     bool many)
        : frame_(many ? hold(ch.async_recv_n(out, 5).resume_on(later_), many_)
                      : hold(ch.async_recv().resume_on(later_), one_)) {
        frame_.start();
    }
    void destroy() {
        REQUIRE(later_.size() == 1);
        later_.drop_all();
        frame_.destroy();
        CHECK_FALSE(one_.done);
        CHECK_FALSE(many_.done);
    }

private:
    test::manual_executor later_;
    ending<std::optional<test::counted_once>> one_;
    ending<std::size_t> many_;
    test::held frame_;
};

} // namespace

TEST_CASE("channel: an item granted to a coroutine that is destroyed goes to the next waiter") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 3u);
    test::tally in;
    {
        bide::channel<test::counted_once> ch(capacity);
        test::manual_executor later;
        ending<std::optional<test::counted_once>> ends[3];
        std::vector<test::held> waiting;
        for (auto& e : ends) {
            waiting.push_back(hold(ch.async_recv().resume_on(later), e));
            waiting.back().start();
        }
        REQUIRE(ch.try_send(test::counted_once(in, 1)));
        REQUIRE(later.size() == 1);
        later.drop_all();
        waiting[0].destroy();
        REQUIRE(later.size() == 1); // now it is the second's
        CHECK(in.alive() == 1);
        SECTION("which takes it") {
            CHECK(later.run_all() == 1);
            REQUIRE(ends[1].done);
            CHECK(ends[1].out->value().number() == 1);
            REQUIRE(ch.try_send(test::counted_once(in, 2)));
            CHECK(later.run_all() == 1);
            REQUIRE(ends[2].done);
            CHECK(ends[2].out->value().number() == 2);
        }
        SECTION("and so on; without a receiver it goes back into the channel") {
            later.drop_all();
            waiting[1].destroy();
            CHECK(later.size() == 1);
            CHECK(in.alive() == 1);
            later.drop_all();
            waiting[2].destroy();
            CHECK(later.size() == 0);
            CHECK(in.alive() == (capacity == 0 ? 0 : 1));
            CHECK(numbers_inside(ch) == (capacity == 0 ? ints{} : ints{1}));
            CHECK(ch.try_send(test::counted_once(in, 3)).has_value() == (capacity > 0));
        }
    }
    CHECK(in.alive() == 0);
    CHECK(in.copied == 0);
}

TEST_CASE(
    "channel: an item of a destroyed coroutine goes back while there is room, behind all items",
    "[promise.item-of-destroyed-coroutine]") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 2u, 3u);
    const bool many = GENERATE(false, true); // async_recv_n()
    CAPTURE(capacity, many);
    const int room = static_cast<int>(capacity);
    test::tally in;
    for (int inside = 0; inside <= room; ++inside) {
        bide::channel<test::counted_once> ch(capacity);
        std::vector<test::counted_once> out;
        out.emplace_back(in, 90);
        granted_receiver one(ch, out, many);
        REQUIRE(ch.try_send(test::counted_once(in, 50)));
        REQUIRE(ch.empty());
        for (int i = 0; i < inside; ++i) {
            REQUIRE(ch.try_send(test::counted_once(in, i)));
        }
        const bool fits = inside < room;
        one.destroy();
        CHECK(ch.size() == static_cast<std::size_t>(inside + (fits ? 1 : 0)));
        // It stays in the vector where it cannot go back.
        CHECK(in.alive() == 1 + inside + (fits || many ? 1 : 0));
        CHECK(numbers_of(out) == (!fits && many ? ints{90, 50} : ints{90}));
        ints expected = numbers(0, inside);
        if (fits) {
            expected.push_back(50);
        }
        CHECK(numbers_inside(ch) == expected);
        // Every place is free again.
        for (int i = 0; i < room; ++i) {
            CHECK(ch.try_send(test::counted_once(in, i)));
        }
        CHECK(ch.size() == capacity);
    }
    CHECK(in.alive() == 0);
    CHECK(in.copied == 0);
}

TEST_CASE("channel: an item that goes back while senders wait does not overtake them") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(1u, 2u);
    const bool many = GENERATE(false, true);
    test::tally in;
    {
        bide::channel<test::counted_once> ch(capacity);
        std::vector<test::counted_once> out;
        granted_receiver one(ch, out, many);
        REQUIRE(ch.try_send(test::counted_once(in, 50)));
        for (int i = 0; i < static_cast<int>(capacity); ++i) {
            REQUIRE(ch.try_send(test::counted_once(in, i)));
        }
        ending<sent<test::counted_once>> went;
        auto sender = hold(ch.async_send(test::counted_once(in, 60)), went);
        sender.start();
        one.destroy();
        out.clear();
        CHECK_FALSE(went.done);
        CHECK(in.alive() == static_cast<int>(capacity) + 1);
        ints expected = numbers(0, static_cast<int>(capacity));
        expected.push_back(60);
        CHECK(numbers_inside(ch) == expected);
        CHECK(went.done);
    }
    CHECK(in.alive() == 0);
}

TEST_CASE("channel: no item goes back into a closed channel",
          "[promise.item-of-destroyed-coroutine]") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 3u);
    const bool many = GENERATE(false, true);
    test::tally in;
    {
        bide::channel<test::counted_once> ch(capacity);
        std::vector<test::counted_once> out;
        granted_receiver one(ch, out, many);
        REQUIRE(ch.try_send(test::counted_once(in, 50)));
        ch.close();
        REQUIRE(is(ch.try_recv(), errc::closed));
        one.destroy();
        CHECK(numbers_of(out) == (many ? ints{50} : ints{}));
        CHECK(in.alive() == (many ? 1 : 0));
        CHECK(ch.empty());
        CHECK(is(ch.try_recv(), errc::closed));
    }
    CHECK(in.alive() == 0);
}

TEST_CASE("channel: of a coroutine that received many items, only the first is passed on") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 3u);
    test::tally in;
    {
        bide::channel<test::counted_once> ch(capacity);
        std::vector<test::counted_once> out;
        out.emplace_back(in, 90);
        out.emplace_back(in, 91);
        granted_receiver one(ch, out, true);
        ending<std::optional<test::counted_once>> ends[2];
        std::vector<test::held> waiting;
        for (auto& e : ends) {
            waiting.push_back(hold(ch.async_recv(), e));
            waiting.back().start();
        }
        REQUIRE(ch.try_send(test::counted_once(in, 50)));
        REQUIRE(numbers_of(out) == ints{90, 91, 50});
        one.destroy();
        CHECK(numbers_of(out) == ints{90, 91});
        REQUIRE(ends[0].done);
        REQUIRE(ends[0].out->has_value());
        CHECK((*ends[0].out)->number() == 50);
        CHECK_FALSE(ends[1].done);
        CHECK(in.alive() == 3);
        CHECK(ch.empty());
    }
    CHECK(in.alive() == 0);
    CHECK(in.copied == 0);
}

TEST_CASE("channel: a coroutine that is destroyed without an item leaves its vector alone") {
    channel ch(2);
    ints out{7, 8};
    SECTION("while it waits") {
        ending<std::size_t> none;
        auto waits = hold(ch.async_recv_n(out, 5), none);
        waits.start();
        waits.destroy();
    }
    SECTION("closed, before it goes on") {
        test::manual_executor later;
        ending<std::size_t> none;
        auto told = hold(ch.async_recv_n(out, 5).resume_on(later), none);
        told.start();
        ch.close();
        later.drop_all();
        told.destroy();
    }
    SECTION("none asked for, before it goes on") {
        const auto wait = ch.async_recv_n(out, 0).as_case();
        REQUIRE(wait.ops->try_now(wait.target) == bide::wait_status::granted);
        wait.ops->give_back(wait.target, bide::wait_status::granted);
    }
    CHECK(out == ints{7, 8});
    CHECK(ch.empty());
}

namespace {

template <class Channel>
test::held recv_many(Channel& ch, ints& out, std::size_t most, bool& failed) {
    try {
        static_cast<void>(co_await ch.async_recv_n(out, most));
    } catch (const std::bad_alloc&) {
        failed = true;
    }
}

} // namespace

TEST_CASE("channel: if memory runs out, each item is in the vector or in the channel, in order") {
    if (!test::counts_allocations()) {
        return;
    }
    const test::watchdog guard;
    const bool by_coroutine = GENERATE(false, true);
    const std::size_t room = GENERATE(0u, 1u, 2u);
    channel ch(4);
    fill(ch);
    ints out;
    out.reserve(room);
    bool failed = false;
    auto receiver = recv_many(ch, out, 9, failed);
    {
        const test::out_of_memory now;
        try {
            if (by_coroutine) {
                receiver.start();
            } else {
                static_cast<void>(ch.recv_n(out, 9));
            }
        } catch (const std::bad_alloc&) {
            failed = true;
        }
    }
    CHECK(failed);
    CHECK(out.size() == (room == 0 ? 0u : 1u)); // room for all or for the first alone
    ints all = out;
    for (const int n : take_all(ch)) {
        all.push_back(n);
    }
    CHECK(all == numbers(0, 4));
}

TEMPLATE_TEST_CASE("channel: an item that a destroyed coroutine leaves behind wakes a thread",
                   "[promise.item-of-destroyed-coroutine]", test::native) {
    using platform = test::observing<TestType>;
    const test::watchdog guard;
    bide::basic_channel<int, platform> ch(1);
    test::manual_executor later;
    recv_ending lost;
    auto first = hold(ch.async_recv().resume_on(later), lost);
    first.start();
    std::optional<int> got;
    test::team second(1, [&](int) { got = ch.recv(); });
    REQUIRE(test::are_asleep<TestType>(1));
    REQUIRE(ch.try_send(5));
    later.drop_all();
    first.destroy();
    second.join();
    CHECK(got == 5);
}

TEST_CASE("channel: what a coroutine sent, or put in its vector, outlives it") {
    const std::size_t capacity = GENERATE(0u, 1u);
    channel ch(capacity);
    test::manual_executor later;
    fill(ch);
    send_ending went;
    auto sender = hold(ch.async_send(9).resume_on(later), went);
    sender.start();
    REQUIRE(ch.try_recv()); // its own, where there is no capacity
    later.drop_all();
    sender.destroy();
    CHECK(take_all(ch) == (capacity == 0 ? ints{} : ints{9}));

    ints out{7};
    ending<std::size_t> came;
    auto receiver = hold(ch.async_recv_n(out, 3).resume_on(later), came);
    receiver.start();
    REQUIRE(ch.try_send(8));
    fill(ch); // so that it cannot go back
    later.drop_all();
    receiver.destroy();
    CHECK(out == ints{7, 8});
}

TEST_CASE("channel: a value that was not sent is destroyed with its coroutine") {
    test::tally in;
    bide::channel<test::counted_once> ch(0);
    ending<sent<test::counted_once>> none;
    auto waits = hold(ch.async_send(test::counted_once(in, 1)), none);
    auto never_started = hold(ch.async_send(test::counted_once(in, 2)), none);
    waits.start();
    CHECK(in.alive() == 2);
    waits.destroy();
    CHECK(in.alive() == 1);
    never_started.destroy();
    CHECK(in.alive() == 0);
    CHECK(is(ch.try_recv(), errc::empty));
}

TEST_CASE("channel: a counted value in a co_await is constructed and destroyed once each") {
    test::tally in;
    const std::size_t capacity = GENERATE(0u, 1u, 2u);
    {
        bide::channel<test::counted_once> ch(capacity);
        int went = 0;
        ints back;
        [](bide::channel<test::counted_once>& to, test::tally& t, int& ok,
           ints& n) -> test::detached {
            for (int i = 0; i < 4; ++i) {
                const auto got = co_await to.async_send(test::counted_once(t, i));
                ok += got ? 1 : 0;
                if (!got) {
                    n.push_back(got.error().value.number());
                }
            }
        }(ch, in, went, back);
        ints came;
        [](bide::channel<test::counted_once>& from, ints& out) -> test::detached {
            std::optional<test::counted_once> got = co_await from.async_recv();
            out.push_back(got->number());
            out.push_back((co_await from.async_recv())->number());
        }(ch, came);
        CHECK(came == ints{0, 1});
        ch.close();
        CHECK(went + static_cast<int>(back.size()) == 4);
        CHECK(in.alive() == static_cast<int>(ch.size()));
    }
    CHECK(in.alive() == 0);
    CHECK(in.copied == 0);
}

namespace {

// Uses the channel in its destructor.
class meddler {
public:
    meddler(bide::channel<meddler>& ch, int& died) noexcept : home_(&ch), died_(&died) {}
    meddler(meddler&& other) noexcept
        : home_(std::exchange(other.home_, nullptr)), died_(other.died_) {}
    ~meddler() {
        if (home_ != nullptr) {
            ++*died_;
            static_cast<void>(home_->size());
            static_cast<void>(home_->try_recv());
            home_->close();
        }
    }

private:
    bide::channel<meddler>* home_;
    int* died_;
};

} // namespace

TEST_CASE("channel: the destructor of an item that a coroutine leaves behind may use the channel") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 2u);
    const bool full = GENERATE(false, true);
    int died = 0;
    bide::channel<meddler> ch(capacity);
    test::manual_executor later;
    ending<std::optional<meddler>> none;
    auto receiver = hold(ch.async_recv().resume_on(later), none);
    receiver.start();
    REQUIRE(ch.try_send(meddler(ch, died)));
    if (full) {
        for (std::size_t i = 0; i < capacity; ++i) {
            REQUIRE(ch.try_send(meddler(ch, died)));
        }
    } else {
        ch.close();
    }
    later.drop_all();
    receiver.destroy();
    CHECK(died == (full ? 1 + static_cast<int>(capacity) : 1)); // each takes one out
    CHECK(ch.is_closed());
    CHECK(ch.empty());
}
