#include "support/alloc.hpp"
#include "support/counted.hpp"
#include "support/selecting.hpp"
#include "support/service.hpp"
#include "support/test.hpp"

#include <bide/channel/broadcast.hpp>
#include <bide/channel/handles.hpp>
#include <bide/channel/selector.hpp>

namespace {

using namespace bide;
using ints = std::vector<int>;
using int_channel = bide::channel<int>;
using test::is_left_alone;
using test::waiting;

static_assert(!std::is_copy_constructible_v<bide::selector>);
static_assert(!std::is_move_constructible_v<bide::selector>);
static_assert(std::is_same_v<decltype(std::declval<bide::selector&>().select()), std::size_t>);
static_assert(std::is_same_v<decltype(std::declval<bide::selector&>().try_select()),
                             std::optional<std::size_t>>);
static_assert(noexcept(std::declval<bide::selector&>().remove(0)));

template <class R> bool is(const R& got, errc why) { return !got && got.error() == why; }

} // namespace

TEST_CASE("selector: without a case nothing can happen") {
    bide::selector any;
    CHECK(any.size() == 0);
    CHECK_FALSE(any.try_select().has_value());
    CHECK_FALSE(any.remove(0));
    waiting w(any.async_select().with_timeout(1ms));
    REQUIRE(test::eventually([&] { return w.is_over(); }));
    test::service_thread();
    CHECK(is(w.got(), errc::timeout));
}

TEST_CASE("selector: it calls the handler of the case that happened, with what came of it, and of "
          "no other") {
    int_channel in(3);
    int_channel out(1);
    bide::semaphore permits(0);
    bide::event set;
    int value = 5;
    ints calls(6);
    std::optional<int> last;
    bide::selector any;
    CHECK(any.add(on_recv(in), [&](std::optional<int> got) {
        ++calls[0];
        last = got;
    }) == 0);
    CHECK(any.add(on_send(out, value), [&](bide::result<void> got) { calls[1] += got ? 1 : 0; }) ==
          1);
    CHECK(any.add(on_acquire(permits, 2), [&](bide::result<bide::permit> got) {
        calls[2] += got && got->count() == 2 ? 1 : 0;
    }) == 2);
    CHECK(any.add(on_event(set), [&] { ++calls[3]; }) == 3);
    CHECK(any.add(on_timeout(1h), [&] { ++calls[4]; }) == 4);
    CHECK(any.size() == 5);

    CHECK(any.select() == 1); // there is room
    CHECK(out.size() == 1);
    CHECK_FALSE(any.try_select().has_value());
    for (int round = 1; round <= 3; ++round) { // again and again
        REQUIRE(in.try_send(round));
        CHECK(any.select() == 0);
        CHECK(last == round);
        CHECK_FALSE(any.try_select().has_value());
        permits.release(2);
        CHECK(any.try_select() == std::optional<std::size_t>(2));
        CHECK(permits.available() == 2); // the handler's permit is gone
        permits.acquire(2);
        value = round;
        CHECK(out.try_recv());
        CHECK(any.select() == 1);
        CHECK(out.size() == 1);
        set.set();
        CHECK(any.select() == 3);
        set.reset();
    }
    CHECK(calls == ints{3, 4, 3, 3, 0, 0});
    CHECK(any.add(on_timeout(0s), [&] { ++calls[5]; }) == 5);
    CHECK(any.select() == 5);
    CHECK(calls == ints{3, 4, 3, 3, 0, 1});
}

TEST_CASE("selector: an index is a case's own until that is removed") {
    std::deque<int_channel> inboxes;
    bide::selector any;
    int from = -1;
    for (int i = 0; i < 4; ++i) {
        inboxes.emplace_back(1);
        REQUIRE(any.add(on_recv(inboxes.back()), [&from, i](std::optional<int>) { from = i; }) ==
                static_cast<std::size_t>(i));
    }
    CHECK(any.remove(1));
    CHECK_FALSE(any.remove(1));
    CHECK_FALSE(any.remove(4));
    CHECK(any.size() == 3);
    REQUIRE(inboxes[1].try_send(1));
    CHECK_FALSE(any.try_select().has_value()); // no receiver asks for it
    REQUIRE(inboxes[3].try_send(1));
    CHECK(any.select() == 3);
    CHECK(from == 3);
    const std::size_t again =
        any.add(on_recv(inboxes[1]), [&from](std::optional<int>) { from = 11; });
    CHECK(again != 0);
    CHECK(again != 2);
    CHECK(again != 3);
    CHECK(any.size() == 4);
    CHECK(any.select() == again);
    CHECK(from == 11);
    for (std::size_t i = 0; i < 5; ++i) {
        any.remove(i);
    }
    CHECK(any.size() == 0);
    CHECK_FALSE(any.try_select().has_value());
}

TEST_CASE("selector: a handler may add and remove cases, its own too") {
    int_channel a(8);
    int_channel b(8);
    for (int i = 0; i < 4; ++i) {
        REQUIRE(a.try_send(i));
        REQUIRE(b.try_send(10 + i));
    }
    ints seen;
    bide::selector any;
    std::size_t mine = 0;
    std::string alive(100, 'x'); // the handler's own, read after it was removed
    mine = any.add(on_recv(a), [&, alive](std::optional<int> got) {
        seen.push_back(*got);
        any.remove(mine);
        for (int i = 0; i < 50; ++i) { // wherever the other cases lie
            any.add(on_recv(b), [&](std::optional<int> item) { seen.push_back(*item); });
        }
        seen.push_back(static_cast<int>(alive.size()));
    });
    CHECK(any.select() == mine);
    CHECK(any.size() == 50);
    while (any.try_select()) {
    }
    CHECK(seen == ints{0, 100, 10, 11, 12, 13});
    CHECK(a.size() == 3);
}

TEST_CASE("selector: an exception of a handler leaves it usable, and its item is gone") {
    int_channel in(2);
    bide::semaphore permits(0);
    int got = 0;
    bide::selector any;
    any.add(on_recv(in), [&](std::optional<int> item) {
        if (*item < 0) {
            throw std::runtime_error("handled");
        }
        got += *item;
    });
    any.add(on_acquire(permits), [](const auto&) {});
    REQUIRE(in.try_send(-1));
    REQUIRE(in.try_send(2));
    CHECK_THROWS_AS(any.select(), std::runtime_error);
    CHECK(permits.waiters() == 0);
    CHECK(any.select() == 0);
    CHECK(got == 2);
    REQUIRE(in.try_send(-1));
    CHECK_THROWS_AS(any.try_select(), std::runtime_error);
    CHECK_FALSE(any.try_select().has_value());
}

TEST_CASE("selector: the ready cases have equal shares, wherever quiet and removed ones stand") {
    constexpr std::size_t cases = 7;
    constexpr unsigned ready = 0b1100101;
    std::array<bide::event, cases> events;
    bide::selector any;
    for (std::size_t i = 0; i < cases; ++i) {
        any.add(on_event(events[i]), [] {});
        if ((ready >> i & 1) != 0) {
            events[i].set();
        }
    }
    any.remove(1);
    any.remove(3);
    ints blocking(cases);
    ints trying(cases);
    ints awaiting(cases);
    for (int round = 0; round < 5'000; ++round) {
        ++blocking[any.select()];
        ++trying[*any.try_select()];
        waiting w(any.async_select());
        ++awaiting[w.got().index];
    }
    CHECK(test::is_uniform(blocking, ready));
    CHECK(test::is_uniform(trying, ready));
    CHECK(test::is_uniform(awaiting, ready));
}

TEST_CASE("selector: a temporary handle is its case's, in each select, until that is removed") {
    auto [tx, rx] = bide::make_channel<int>(1);
    bide::broadcast<int> news(4);
    int sum = 0;
    {
        bide::selector any;
        const auto add = [&](const auto& got) { sum += *got; };
        CHECK(any.add(on_recv(std::move(rx)), add) == 0);
        CHECK(any.add(on_recv(news.subscribe()), add) == 1);
        for (int round = 0; round < 3; ++round) {
            REQUIRE(tx.try_send(1));
            CHECK(any.select() == 0);
            news.send(10);
            waiting w(any.async_select());
            REQUIRE(w.is_over());
            CHECK(w.got().index == 1);
            CHECK_FALSE(any.try_select().has_value());
        }
        CHECK(sum == 33);
        CHECK(any.remove(1));
        CHECK_FALSE(any.try_select().has_value());
        CHECK(news.subscribers() == 0);
        CHECK_FALSE(tx.is_closed());
    }
    CHECK(tx.is_closed());
}

TEST_CASE("selector: one that must not wait, or was destroyed, leaves no trace") {
    int_channel hand(0);
    bide::semaphore permits(1);
    int value = 1;
    {
        bide::selector any;
        any.add(on_recv(hand), [](const auto&) {});
        any.add(on_send(hand, value), [](const auto&) {});
        any.add(on_acquire(permits, 2), [](const auto&) {});
        any.add(on_timeout(1h), [] {});
        for (int round = 0; round < 10; ++round) {
            REQUIRE_FALSE(any.try_select().has_value());
            REQUIRE(is_left_alone(hand));
            REQUIRE(permits.available() == 1);
        }
    }
    CHECK(is_left_alone(hand));
    CHECK(permits.waiters() == 0);
    CHECK(value == 1);
}

TEST_CASE("selector: a time-out counts from the beginning of each select") {
    int_channel in(1);
    int late = 0;
    bide::selector any;
    any.add(on_recv(in), [](const auto&) {});
    any.add(on_timeout(10ms), [&] { ++late; });
    for (int round = 1; round <= 3; ++round) {
        auto start = steady_clock::now();
        CHECK(any.select() == 1);
        CHECK(steady_clock::now() >= start + 10ms);
        start = steady_clock::now();
        waiting w(any.async_select());
        REQUIRE(test::eventually([&] { return w.is_over(); }));
        CHECK(steady_clock::now() >= start + 10ms);
        test::service_thread();
        CHECK(w.got().index == 1);
        CHECK(late == 2 * round);
        REQUIRE(in.try_send(1));
        CHECK(any.select() == 0);
    }
}

TEST_CASE("selector: a thread and a coroutine wait until one of the cases happens") {
    int_channel in(0);
    bide::semaphore permits(0);
    bide::event set;
    std::stop_source stop = test::new_stop();
    ints calls(4);
    bide::selector any;
    any.add(on_recv(in), [&](std::optional<int> got) { calls[0] += got.value_or(100); });
    any.add(on_event(set), [&] { ++calls[1]; });
    any.add(on_acquire(permits, 2), [&](const auto&) { ++calls[2]; });
    any.add(on_stop(stop.get_token()), [&] { ++calls[3]; });
    std::size_t chosen = 99;
    auto each = [&](auto make_happen) {
        {
            waiting w(any.async_select());
            REQUIRE_FALSE(w.is_over());
            make_happen();
            REQUIRE(test::eventually([&] { return w.is_over(); }));
            test::service_thread();
            chosen = w.got().index;
        }
        set.reset();
        test::team thread(1, [&](int) { chosen = chosen == any.select() ? chosen : 99; });
        REQUIRE(test::has_waiters(permits, 1));
        make_happen();
        thread.join();
        set.reset();
        return chosen;
    };
    CHECK(each([&] { static_cast<void>(in.send(1)); }) == 0);
    CHECK(calls == ints{2, 0, 0, 0});
    CHECK(each([&] { set.set(); }) == 1);
    CHECK(calls == ints{2, 2, 0, 0});
    CHECK(each([&] {
              permits.release(2);
              permits.acquire(2);
          }) == 2);
    CHECK(calls == ints{2, 2, 2, 0});
    {
        waiting w(any.async_select());
        stop.request_stop();
        REQUIRE(test::eventually([&] { return w.is_over(); }));
        test::service_thread();
        CHECK(w.on() != test::this_thread());
        CHECK(w.got().index == 3);
    }
    CHECK(any.select() == 3); // it stays requested
    CHECK(calls == ints{2, 2, 2, 2});
}

TEST_CASE("selector: an awaited one takes limits, and may be destroyed, before and after it was "
          "chosen for") {
    test::tally tally;
    {
        bide::channel<test::counted_once> in(1);
        bide::channel<test::counted_once> other(0);
        bide::semaphore permits(0);
        test::manual_executor on;
        int calls = 0;
        bide::selector any;
        any.add(on_recv(in), [&](const auto&) { ++calls; });
        any.add(on_acquire(permits, 2), [&](const auto&) { ++calls; });
        any.add(on_recv(other), [&](const auto&) { ++calls; });
        {
            waiting w(any.async_select().with_timeout(1ms));
            REQUIRE(test::eventually([&] { return w.is_over(); }));
            test::service_thread();
            CHECK(is(w.got(), errc::timeout));
        }
        {
            waiting w(any.async_select());
            CHECK(permits.waiters() == 1);
            w.destroy();
            CHECK(permits.waiters() == 0);
            CHECK_FALSE(other.try_send(test::counted_once(tally, 1)));
        }
        { // an item goes to the next
            waiting w(any.async_select().resume_on(on));
            waiting next(in.async_recv());
            REQUIRE(in.try_send(test::counted_once(tally, 2)));
            on.drop_all();
            w.destroy();
            REQUIRE(next.is_over());
            CHECK(next.got()->number() == 2);
        }
        { // permits go back
            waiting w(any.async_select().resume_on(on));
            permits.release(2);
            on.drop_all();
            w.destroy();
            CHECK(permits.available() == 2);
        }
        CHECK(calls == 0);
        CHECK(any.select() == 1); // and it is of use still
        CHECK(calls == 1);
    }
    CHECK(tally.alive() == 0);
    CHECK(tally.copied == 0);
}

TEST_CASE("selector: a select allocates nothing; to add a case does") {
    int_channel in(1);
    bide::semaphore permits(0);
    int got = 0;
    bide::selector any;
    any.add(on_recv(in), [&](std::optional<int> item) { got += *item; });
    for (int i = 0; i < 20; ++i) {
        any.add(on_acquire(permits), [](const auto&) {});
    }
    const std::size_t before = test::allocations_here();
    bool right = true;
    for (int round = 0; round < 10; ++round) {
        right = right && in.try_send(1) && any.select() == 0 && !any.try_select();
    }
    right = right && any.remove(7);
    const std::size_t used = test::allocations_here() - before;
    CHECK(used == 0);
    CHECK(right);
    CHECK(got == 10);
}

TEST_CASE("selector: threads with selectors over many channels take each item once") {
    constexpr int inboxes = 8;
    constexpr int each = 300;
    std::deque<int_channel> all;
    for (int i = 0; i < inboxes; ++i) {
        all.emplace_back(static_cast<std::size_t>(i % 3));
    }
    std::atomic<int> sending{2};
    int sent[2] = {};
    const auto end = std::chrono::steady_clock::now() + 3s; // beside busy processes, fewer are sent
    std::vector<ints> got(2);
    test::run_threads(4, [&](int t) {
        if (t < 2) {
            int& n = sent[t];
            for (; n < each * inboxes && std::chrono::steady_clock::now() < end; ++n) {
                static_cast<void>(
                    all[static_cast<std::size_t>((n + t) % inboxes)].send(t * each * inboxes + n));
            }
            if (--sending == 0) {
                for (int_channel& inbox : all) {
                    inbox.close();
                }
            }
            return;
        }
        bide::selector any;
        ints& mine = got[static_cast<std::size_t>(t - 2)];
        bool ended = false;
        for (int_channel& inbox : all) {
            any.add(on_recv(inbox), [&](std::optional<int> item) {
                ended = !item;
                if (item) {
                    mine.push_back(*item);
                }
            });
        }
        while (any.size() != 0) {
            const std::size_t index = any.select();
            if (ended) {
                any.remove(index);
            }
        }
    });
    ints times(2 * each * inboxes);
    for (const ints& of : got) {
        for (const int item : of) {
            ++times[static_cast<std::size_t>(item)];
        }
    }
    ints once(2 * each * inboxes);
    for (const int t : {0, 1}) {
        CHECK(sent[t] != 0);
        std::fill_n(once.begin() + t * each * inboxes, sent[t], 1);
    }
    CHECK(times == once);
}

TEST_CASE("selector: a case that is removed lets go of its handle, by itself and by its handler") {
    auto [to, from] = bide::make_channel<int>(1);
    auto [to_other, from_other] = bide::make_channel<int>(1);
    bide::selector any;
    const std::size_t first = any.add(on_recv(std::move(from)), [](std::optional<int>) {});
    CHECK_FALSE(to.is_closed());
    CHECK(any.remove(first));
    CHECK(to.is_closed());
    std::size_t second = 0;
    bool kept = false;
    second = any.add(on_recv(std::move(from_other)), [&](std::optional<int>) {
        any.remove(second);
        kept = !to_other.is_closed(); // the handler belongs to the case
    });
    REQUIRE(to_other.try_send(1));
    CHECK(any.select() == second);
    CHECK(kept);
    CHECK(to_other.is_closed());
}
