#include <bide/core/parker.hpp>
#include <model/check.hpp>
#include <support/test.hpp>

// The token of one thread: no token is lost or doubled, each publishes the notifier's writes, and
// the exchange is the last access of unpark().

namespace {

using bide::deadline;
using model::platform;
using parker = bide::basic_parker<platform>;
template <class T> using var = platform::var<T>;
template <class T> using atomic = platform::atomic<T>;

constexpr deadline soon = deadline::at_ns(1'000'000);

constexpr auto relaxed = std::memory_order_relaxed;

// There is at most one park for each item. If two tokens become one, the park that takes them must see the items of
// both notifiers.
auto two_unparkers(bool times_out) {
    return [times_out] {
        parker p;
        atomic<int> left{0};
        atomic<int> right{0};
        model::thread first([&] {
            left.store(1, relaxed);
            p.unpark();
        });
        model::thread second([&] {
            right.store(1, relaxed);
            p.unpark();
        });
        if (times_out) {
            p.park_until(soon);
        }
        while (left.load(relaxed) == 0 || right.load(relaxed) == 0) {
            p.park();
        }
    };
}

} // namespace

TEST_CASE("parker: an unpark before or during the park ends it") {
    model::check("one unpark", {.spurious = 3}, [] {
        parker p;
        var<int> done{0};
        model::thread notifier(model::after_writing(done, [&] { p.unpark(); }));
        p.park();
        MODEL_REQUIRE(done == 1);
    });
}

TEST_CASE("parker: the writes of each unpark are seen, also if a token was there already") {
    model::check("two unparkers", two_unparkers(false));
    model::check("two unparkers, spurious returns", {.spurious = 1}, two_unparkers(false));
    model::check("two unparkers, time-outs", {.timeouts = 1}, two_unparkers(true));
}

TEST_CASE("parker: a token on top of another publishes the writes between them") {
    model::check("two unparks of one notifier", {.spurious = 1}, [] {
        parker p;
        var<int> first{0};
        atomic<int> second{0};
        model::thread notifier([&] {
            first = 1;
            p.unpark();
            second.store(1, relaxed);
            p.unpark();
        });
        p.park();
        MODEL_REQUIRE(first == 1);
        while (second.load(relaxed) == 0) {
            p.park();
        }
    });
}

TEST_CASE("parker: several tokens count as one") {
    model::check("two unparks, then three polls", [] {
        parker p;
        var<int> left{0};
        var<int> right{0};
        model::thread first(model::after_writing(left, [&] { p.unpark(); }));
        model::thread second(model::after_writing(right, [&] { p.unpark(); }));
        const bool early = p.park_until(deadline::poll());
        if (early) {
            p.park_until(deadline::poll());
        }
        first.join();
        second.join();
        MODEL_REQUIRE(left + right == 2);
        const bool late = p.park_until(deadline::poll());
        MODEL_REQUIRE(early || late);
        MODEL_REQUIRE(!p.park_until(deadline::poll()));
    });
}

TEST_CASE("parker: a token that arrives with the time-out is taken or stays") {
    model::check("time-out against unpark", {.spurious = 1, .timeouts = 1}, [] {
        parker p;
        var<int> done{0};
        model::thread notifier(model::after_writing(done, [&] { p.unpark(); }));
        if (!p.park_until(soon)) {
            p.park();
        }
        MODEL_REQUIRE(done == 1);
        MODEL_REQUIRE(!p.park_until(deadline::poll()));
    });
    CHECK(model::outcomes({.timeouts = 1}, [] {
              parker p;
              model::thread notifier([&] { p.unpark(); });
              const bool first = p.park_until(deadline::poll());
              const bool second = p.park_until(soon);
              const bool third = p.park_until(soon);
              model::record(std::to_string(first) + std::to_string(second) + std::to_string(third));
          }) == "000 001 010 100");
}

TEST_CASE("parker: the owner may destroy it as soon as it has the token") {
    const auto body = [] {
        auto p = std::make_unique<parker>();
        var<int> done{0};
        model::thread notifier(model::after_writing(done, [mine = p.get()] { mine->unpark(); }));
        if (!p->park_until(soon)) {
            p->park();
        }
        p.reset();
        MODEL_REQUIRE(done == 1);
    };
    model::check("destroyed after park", body);
    model::check("destroyed after a park that timed out", {.spurious = 1, .timeouts = 1}, body);
    // Not after a time-out: the unpark may still follow.
    model::find("destroyed without a token", model::failure::lifetime, {.timeouts = 1}, [] {
        auto p = std::make_unique<parker>();
        model::thread notifier([mine = p.get()] { mine->unpark(); });
        p->park_until(soon);
        p.reset();
    });
}

TEST_CASE("parker: two threads pass a token to and fro") {
    const auto body = [] {
        parker mine;
        parker theirs;
        var<int> ball{0};
        model::thread partner([&] {
            for (int i = 0; i < 2; ++i) {
                theirs.park();
                ball = ball + 1;
                mine.unpark();
            }
        });
        for (int i = 0; i < 2; ++i) {
            ball = ball + 1;
            theirs.unpark();
            mine.park();
        }
        MODEL_REQUIRE(ball == 4);
    };
    model::check("two parkers, two rounds", body);
    model::check("two parkers, two rounds, spurious returns", {.spurious = 1}, body);
}
