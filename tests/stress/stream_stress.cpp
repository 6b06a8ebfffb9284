// Streams whose consumers are stopped, cancelled, timed out and destroyed at any time.

#include <bide/stream/buffered.hpp>
#include <bide/stream/stream.hpp>
#include <support/sched.hpp>
#include <support/streaming.hpp>

using namespace bide;

namespace {

constexpr int senders = 2;
constexpr int of_each = 300;
constexpr int consumers = 2;

// Consumes in one of several ways. Returns true if the channel has ended.
task<bool> consume_some(channel<int>& from, std::vector<int>& to, std::uint32_t kind,
                        std::stop_token stop, std::chrono::nanoseconds rest) {
    switch (kind) {
    case 0: {
        auto items = take_until(&from, stop);
        while (auto item = co_await items.next()) {
            to.push_back(*item);
        }
        co_return from.is_closed() && from.empty() && !stop.stop_requested();
    }
    case 1: {
        auto items = chunks(&from, 3, rest);
        while (auto chunk = co_await items.next()) {
            to.insert(to.end(), chunk->begin(), chunk->end());
        }
        co_return true;
    }
    case 2: {
        auto same = map(&from, [](int n) { return n; });
        auto items = chunks(filter(std::move(same), [](int) { return true; }), 2);
        while (auto chunk = co_await items.next()) {
            to.insert(to.end(), chunk->begin(), chunk->end());
        }
        co_return true;
    }
    default: {
        auto items = timeout(&from, rest);
        while (auto item = co_await items.next()) {
            if (!*item) {
                co_return false;
            }
            to.push_back(**item);
        }
        co_return true;
    }
    }
}

// Returns true if each number comes once, and those of each sender in order in each part.
bool each_once(const std::vector<std::vector<int>>& parts) {
    std::vector<int> all;
    for (const auto& part : parts) {
        int last[senders];
        std::fill(std::begin(last), std::end(last), -1);
        for (const int n : part) {
            if (n <= std::exchange(last[n / of_each], n)) {
                return false;
            }
        }
        all.insert(all.end(), part.begin(), part.end());
    }
    std::sort(all.begin(), all.end());
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i] != static_cast<int>(i)) {
            return false;
        }
    }
    return all.size() == senders * of_each;
}

async_generator<test::counted_once> counted_items(test::tally& t, int of, int n) {
    for (int i = 0; i < n; ++i) {
        if (i % 5 == 0) {
            co_await this_task::yield();
        }
        co_yield test::counted_once(t, of * of_each + i);
    }
}
task<int> late(int n) {
    for (int i = n % 3; i > 0; --i) {
        co_await this_task::yield();
    }
    co_return n;
}

// Takes up to `most` items, and returns their number.
template <class Next> task<> take_some(Next next, std::vector<int>& to, std::size_t most) {
    while (to.size() < most) {
        auto item = co_await next();
        if (!item) {
            break;
        }
        to.push_back(*item);
    }
}

// Runs a task, and maybe cancels it.
void run_some(scheduler& on, test::jitter& chance, task<> t) {
    auto some = on.spawn(std::move(t));
    if (chance.below(3) == 0) {
        chance.dawdle(15);
        some.cancel();
    }
    try {
        std::move(some).join();
    } catch (const stopped_error&) {
    }
}

} // namespace

TEST_CASE("stream: operators lose and double nothing when their consumers are interrupted",
          "[promise.stream-keeps-items]") {
    const test::stress_time time;
    scheduler on(test::workers(2));
    std::uint32_t round = 0;
    do {
        ++round;
        channel<int> items(round % 4);
        std::vector<std::vector<int>> got(consumers);
        std::atomic<int> sending{senders};
        test::players(
            senders + consumers,
            [&](int me, test::jitter& chance) {
                if (me < senders) {
                    for (int i = 0; i < of_each; ++i) {
                        chance();
                        static_cast<void>(items.send(me * of_each + i));
                    }
                    if (--sending == 0) {
                        items.close();
                    }
                    return;
                }
                auto& mine = got[static_cast<std::size_t>(me - senders)];
                for (bool over = false; !over;) {
                    std::stop_source stop;
                    const std::uint32_t kind = chance.below(4);
                    auto some = on.spawn(
                        consume_some(items, mine, kind, stop.get_token(), chance.rest(16)));
                    chance.dawdle(15);
                    if (kind == 0) {
                        stop.request_stop();
                    } else if (chance.below(2) == 0) {
                        some.cancel();
                    }
                    try {
                        over = std::move(some).join();
                    } catch (const stopped_error&) {
                    }
                }
            },
            round);
        REQUIRE(each_once(got));
    } while (time.is_left());
}

TEST_CASE("stream: merged and buffered streams are in order and leak nothing, wherever they end") {
    const test::stress_time time;
    scheduler on(test::workers(2));
    test::jitter chance(test::run_seed());
    test::tally t;
    do {
        const auto most = chance.below(3) == 0 ? 10'000 : chance.below(100);
        std::vector<int> got;
        {
            auto all = merge(on, counted_items(t, 0, of_each), counted_items(t, 1, of_each));
            auto numbers = map(std::move(all), [](test::counted_once c) { return c.number(); });
            run_some(on, chance, take_some([&numbers] { return numbers.next(); }, got, most));
        }
        REQUIRE(t.alive() == 0);
        int next[2] = {0, of_each};
        bool in_order = true;
        for (const int n : got) {
            in_order = in_order && n == next[n / of_each]++;
        }
        REQUIRE(in_order);

        got.clear();
        const bool ordered = chance.below(2) == 0;
        {
            auto tasks = map(test::numbers(0, of_each), [](int n) { return late(n); });
            const std::size_t n = 1 + chance.below(5);
            auto all = ordered ? buffered(on, std::move(tasks), n)
                               : buffer_unordered(on, std::move(tasks), n);
            run_some(on, chance, take_some([&all] { return all.next(); }, got, most));
        }
        if (!ordered) {
            std::sort(got.begin(), got.end());
            in_order = std::adjacent_find(got.begin(), got.end()) == got.end();
        }
        for (std::size_t i = 0; ordered && i < got.size(); ++i) {
            in_order = in_order && got[i] == static_cast<int>(i);
        }
        REQUIRE(in_order);
    } while (time.is_left());
}
