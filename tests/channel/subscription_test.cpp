// What the subscribers of a broadcast and the receivers of a watch have in common: each is a reader
// of detail/versioned_value.hpp.

#include "support/contested.hpp"
#include "support/death.hpp"
#include "support/last_touch.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/stop.hpp"
#include "support/test.hpp"
#include "support/waiting.hpp"

#include <bide/channel/broadcast.hpp>
#include <bide/channel/watch.hpp>
#include <bide/task/task.hpp>

namespace {

using bide::errc;

enum class what { nothing_yet, news, closed, stopped, late };

what of(errc why) {
    switch (why) {
    case errc::closed: return what::closed;
    case errc::stopped: return what::stopped;
    case errc::timeout: return what::late;
    default: return what::nothing_yet;
    }
}

// A publisher of integers and its readers, with one interface for both kinds.
template <class Platform> struct a_broadcast {
    static constexpr const char* reader_name = "broadcast subscriber";
    using platform = Platform;
    using reader = bide::basic_broadcast_subscriber<int, Platform>;
    struct publisher : bide::basic_broadcast<int, Platform> {
        publisher() : bide::basic_broadcast<int, Platform>(2) {}
    };

    static auto async_news(reader& r) { return r.async_recv(); }
    static what wait(reader& r) { return outcome(r.recv()); }
    static what wait(reader& r, std::stop_token t) { return outcome(r.recv(std::move(t))); }
    static what wait_for(reader& r, std::chrono::nanoseconds rest) {
        return outcome(r.try_recv_for(rest));
    }
    static what wait_until(reader& r, steady_clock::time_point when) {
        return outcome(r.try_recv_until(when));
    }
    static bool look(reader& r) { return r.try_recv().has_value(); }
    static what outcome(const bide::result<int, bide::recv_error>& got) {
        return got ? what::news : of(got.error().code);
    }
    // The next that the reader gets is `value`, and nothing comes after it.
    static bool gets_only(reader& r, int value) {
        const auto got = r.try_recv();
        return got && *got == value && !r.try_recv();
    }
};
template <class Platform> struct a_watch {
    static constexpr const char* reader_name = "watch receiver";
    using platform = Platform;
    using reader = bide::basic_watch_receiver<int, Platform>;
    using publisher = bide::basic_watch<int, Platform>;

    static auto async_news(reader& r) { return r.async_changed(); }
    static what wait(reader& r) { return outcome(r.changed()); }
    static what wait(reader& r, std::stop_token t) { return outcome(r.changed(std::move(t))); }
    static what wait_for(reader& r, std::chrono::nanoseconds rest) {
        return outcome(r.changed_for(rest));
    }
    static what wait_until(reader& r, steady_clock::time_point when) {
        return outcome(r.changed_until(when));
    }
    static bool look(reader& r) { return r.has_changed(); }
    static what outcome(const bide::result<void>& got) {
        return got ? what::news : of(got.error());
    }
    static bool gets_only(reader& r, int value) {
        return r.has_changed() && r.changed() && r.get() == value && !r.has_changed();
    }
};

template <class Kind> test::held note(Kind, typename Kind::reader& r, std::atomic<what>& out) {
    const auto got = co_await Kind::async_news(r);
    out = Kind::outcome(got);
}
template <class Kind>
test::held note_on(Kind, test::manual_executor& on, typename Kind::reader& r,
                   std::atomic<what>& out) {
    const auto got = co_await Kind::async_news(r).resume_on(on);
    out = Kind::outcome(got);
}
template <class Kind>
test::detached note_until(Kind, typename Kind::reader& r, std::stop_token stop,
                          std::atomic<what>& out) {
    const auto got = co_await Kind::async_news(r).with_stop(std::move(stop));
    out = Kind::outcome(got);
}
template <class Kind>
test::detached note_for(Kind, typename Kind::reader& r, std::chrono::nanoseconds rest,
                        std::atomic<what>& out) {
    const auto got = co_await Kind::async_news(r).with_timeout(rest);
    out = Kind::outcome(got);
}

template <class Kind>
constexpr bool copies_and_moves = !std::is_copy_constructible_v<typename Kind::publisher> &&
                                  !std::is_move_constructible_v<typename Kind::publisher> &&
                                  std::is_nothrow_copy_constructible_v<typename Kind::reader> &&
                                  std::is_nothrow_move_constructible_v<typename Kind::reader> &&
                                  std::is_copy_assignable_v<typename Kind::reader>;
static_assert(copies_and_moves<a_broadcast<test::native>>);
static_assert(copies_and_moves<a_watch<test::native>>);

using watched = test::observing<test::native>;

} // namespace

TEMPLATE_TEST_CASE("broadcast and watch: waiters resume in the order in which they came", "",
                   a_broadcast<watched>, a_watch<watched>) {
    typename TestType::publisher p;
    auto first = p.subscribe();
    auto second = p.subscribe();
    auto third = first;
    test::journal turns;
    const auto wait = [&turns](typename TestType::reader& r, int name) {
        [](typename TestType::reader& from, test::journal& to, int mine) -> test::detached {
            const auto got = co_await TestType::async_news(from);
            to.add(got ? mine : -1);
        }(r, turns, name);
    };
    wait(third, 3);
    wait(first, 1);
    wait(second, 2);
    p.send(7);
    CHECK(turns.entries() == std::vector<int>{3, 1, 2});
}

TEMPLATE_TEST_CASE("broadcast and watch: a send reaches every waiter, of every form; so does the "
                   "close",
                   "", a_broadcast<watched>, a_watch<watched>) {
    const TestType kind;
    typename TestType::publisher p;
    std::vector<typename TestType::reader> readers(7, p.subscribe());
    std::stop_source never = test::new_stop();
    std::atomic<what> ends[3] = {};
    what got[4] = {};
    auto c = note(kind, readers[4], ends[0]);
    c.start();
    note_until(kind, readers[5], never.get_token(), ends[1]);
    note_for(kind, readers[6], 1h, ends[2]);
    test::team threads(4, [&](int i) {
        auto& mine = readers[static_cast<std::size_t>(i)];
        switch (i) {
        case 0: got[i] = TestType::wait(mine); break;
        case 1: got[i] = TestType::wait(mine, never.get_token()); break;
        case 2: got[i] = TestType::wait_for(mine, 1h); break;
        default: got[i] = TestType::wait_until(mine, steady_clock::now() + 1h); break;
        }
    });
    REQUIRE(test::are_asleep<test::native>(4));
    const bool sends = GENERATE(true, false);
    if (sends) {
        p.send(7);
    } else {
        CHECK(p.close());
    }
    threads.join();
    for (const what g : got) {
        CHECK(g == (sends ? what::news : what::closed));
    }
    for (const auto& e : ends) {
        CHECK(e == (sends ? what::news : what::closed));
    }
}

TEMPLATE_TEST_CASE("broadcast and watch: a time that has passed is one attempt, and ready comes "
                   "first",
                   "", a_broadcast<watched>, a_watch<watched>) {
    const TestType kind;
    typename TestType::publisher p;
    auto r = p.subscribe();
    std::stop_source stop = test::new_stop();
    stop.request_stop();
    for (const auto rest : {std::chrono::nanoseconds(-1h), 0ns, std::chrono::nanoseconds(1ms)}) {
        CHECK(TestType::wait_for(r, rest) == what::late);
    }
    CHECK(TestType::wait_until(r, steady_clock::time_point::min()) == what::late);
    CHECK(TestType::wait(r, stop.get_token()) == what::stopped);
    std::atomic<what> end{};
    note_for(kind, r, -1s, end);
    CHECK(end == what::late);
    p.send(1);
    CHECK(TestType::wait_for(r, -1h) == what::news);
    p.send(2);
    CHECK(TestType::wait(r, stop.get_token()) == what::news);
    p.send(3);
    note_until(kind, r, stop.get_token(), end);
    CHECK(end == what::news);
}

TEMPLATE_TEST_CASE("broadcast and watch: a wait that is cancelled has no effect", "",
                   a_broadcast<watched>, a_watch<watched>) {
    const TestType kind;
    typename TestType::publisher p;
    auto r = p.subscribe();
    test::manual_executor later;
    std::stop_source stop = test::new_stop();
    std::atomic<what> end{};
    SECTION("stopped") {
        note_until(kind, r, stop.get_token(), end);
        stop.request_stop();
        REQUIRE(test::eventually([&] { return end != what::nothing_yet; }));
        CHECK(end == what::stopped);
        p.send(7);
    }
    SECTION("timed out") {
        note_for(kind, r, 1ms, end);
        REQUIRE(test::eventually([&] { return end != what::nothing_yet; }));
        CHECK(end == what::late);
        p.send(7);
    }
    SECTION("destroyed while it waits") {
        auto c = note(kind, r, end);
        c.start();
        c.destroy();
        p.send(7);
        CHECK(end == what::nothing_yet);
    }
    SECTION("destroyed after the grant") {
        auto c = note_on(kind, later, r, end);
        c.start();
        p.send(7);
        CHECK(later.size() == 1);
        c.destroy();
        later.drop_all();
        CHECK(end == what::nothing_yet);
    }
    CHECK(TestType::gets_only(r, 7));
}

TEMPLATE_TEST_CASE("broadcast and watch: a wait whose choice selected another gets nothing", "",
                   a_broadcast<watched>, a_watch<watched>) {
    typename TestType::publisher p;
    typename TestType::publisher other;
    auto r = p.subscribe();
    auto s = other.subscribe();
    bide::basic_choice<watched> choice;
    test::contested first(TestType::async_news(r).as_case(), choice);
    test::contested second(TestType::async_news(s).as_case(), choice);
    CHECK_FALSE(first.start());
    SECTION("queued in both") {
        CHECK_FALSE(second.start());
        p.send(1);
        other.send(2);
        CHECK_FALSE(second.is_complete());
        CHECK_FALSE(second.cancel());
    }
    SECTION("queued in both, and taken out of one") {
        CHECK_FALSE(second.start());
        p.send(1);
        CHECK(second.cancel());
        other.send(2);
    }
    SECTION("on its way into the second") {
        other.send(2);
        p.send(1);
        CHECK_FALSE(second.start());
    }
    CHECK(first.is_complete());
    CHECK(TestType::outcome(first.collect()) == what::news);
    CHECK_FALSE(TestType::look(r));
    CHECK(TestType::gets_only(s, 2));
}

#if BIDE_TESTS_CAN_DIE

TEMPLATE_TEST_CASE("broadcast and watch: destroying a reader while it waits terminates", "",
                   a_broadcast<test::native>, a_watch<test::native>) {
    const bool one_ends = GENERATE(false, true);
    const std::string said = test::dies([one_ends] {
        const TestType kind;
        typename TestType::publisher p;
        auto other = p.subscribe();
        std::optional r(p.subscribe());
        std::atomic<what> end{};
        auto first = note(kind, *r, end);
        auto second = note(kind, *r, end);
        auto third = note(kind, other, end);
        first.start();
        second.start();
        third.start();
        if (one_ends) {
            second.destroy();
        }
        r.reset();
    });
    CHECK(test::contains(said, TestType::reader_name));
    CHECK(test::contains(said, one_ends ? "1 waiting" : "2 waiting"));
}

TEMPLATE_TEST_CASE("broadcast and watch: moving a reader, or assigning to it, while it waits "
                   "terminates",
                   "", a_broadcast<test::native>, a_watch<test::native>) {
    const bool moved = GENERATE(true, false);
    const std::string said = test::dies([moved] {
        typename TestType::publisher p;
        auto r = p.subscribe();
        std::atomic<what> end{};
        auto c = note(TestType(), r, end);
        c.start();
        auto other = moved ? std::move(r) : p.subscribe();
        r = other;
    });
    CHECK(test::contains(said, TestType::reader_name));
    CHECK(test::contains(said, moved ? "moved from" : "1 waiting"));
}

TEMPLATE_TEST_CASE("broadcast and watch: a reader whose waits are over can be destroyed", "",
                   a_broadcast<test::native>, a_watch<test::native>) {
    CHECK(test::contains(test::dies([] {
                             const TestType kind;
                             typename TestType::publisher p;
                             std::optional r(p.subscribe());
                             std::atomic<what> end{};
                             auto c = note(kind, *r, end);
                             c.start();
                             c.destroy();
                             auto d = note(kind, *r, end);
                             d.start();
                             p.send(1);
                             static_cast<void>(TestType::wait_for(*r, 1ms));
                             r.reset();
                         }),
                         "[it lives on]"));
}

#endif

TEMPLATE_TEST_CASE("broadcast and watch: a reader that got a value may destroy all before the send "
                   "returns",
                   "", a_broadcast<test::native>, a_watch<test::native>) {
    struct all {
        typename TestType::publisher p;
        typename TestType::reader r = p.subscribe();
    };
    const auto make = [](void* at, int) { return ::new (at) all; };
    const auto send = [](all& a) { a.p.send(1); };
    const auto wait = [](all& a, int round) {
        switch (round % 4) {
        case 0: static_cast<void>(TestType::wait(a.r)); break;
        case 1: static_cast<void>(TestType::wait(a.r, std::stop_token())); break;
        case 2:
            while (!TestType::look(a.r)) {
                bide::native_platform::pause();
            }
            break;
        default:
            bide::sync_wait([](all& of) -> bide::task<void> {
                const auto got = co_await TestType::async_news(of.r);
                static_cast<void>(got);
            }(a));
        }
    };
    CHECK(test::late_touches<all>(1, 2'000, make, send, wait) == 0);
}
