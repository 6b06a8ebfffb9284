// Coroutines that are destroyed while they wait, or with what they were granted.

#include "support/channel_waits.hpp"
#include "support/coroutines.hpp"
#include "support/counted.hpp"
#include "support/test.hpp"

#include <bide/channel/channel.hpp>

using namespace test::channel_waits;

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

TEST_CASE(
    "channel: an item of a destroyed coroutine goes back while there is room, behind all items",
    "[promise.item-of-destroyed-coroutine]") {
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
