// Publishers whose readers come and go.

#include <bide/channel/broadcast.hpp>
#include <bide/channel/watch.hpp>
#include <support/sched.hpp>

using namespace bide;
using namespace test;
using bide::this_task::yield;

namespace {

struct press {
    test::tally copies;
    broadcast<test::counted> news{4};
    watch<std::uint64_t> latest{0};
    std::atomic<int> wrong{0};
    std::atomic<bool> over{false};

    // Whether `r` comes right after `last`, which is 0 before the first; moves `last` on.
    template <class Result> bool follows(const Result& r, int& last) {
        if (!r) {
            if (r.error().code == errc::lagged && last != 0) {
                last += static_cast<int>(r.error().missed);
            }
            return r.error().code != errc::closed;
        }
        wrong += last == 0 || r->number() == last + 1 ? 0 : 1;
        last = r->number();
        return true;
    }
};

// Comes, reads some, and goes; a time-out or the end of its task may come between.
task<> read_news(press& in, std::uint32_t seed) {
    test::jitter chance(seed);
    for (bool open = true; open && !in.over;) {
        auto mine = in.news.subscribe();
        int last = 0;
        for (auto n = chance.below(20); open && n != 0; --n) {
            const auto got = co_await mine.async_recv();
            open = in.follows(got, last);
        }
        auto second = mine; // has read as much
        const auto more = second.try_recv();
        open = open && in.follows(more, last);
        co_await yield();
    }
}

task<> watch_latest(press& in, std::uint32_t seed) {
    test::jitter chance(seed);
    for (bool open = true; open;) {
        auto mine = in.latest.subscribe();
        std::uint64_t last = mine.see();
        for (auto n = chance.below(20); open && n != 0; --n) {
            const auto changed = co_await mine.async_changed();
            open = changed.has_value();
            const std::uint64_t now = mine.see();
            in.wrong += open ? now > last ? 0 : 1 : now >= last ? 0 : 1;
            last = now;
        }
        co_await yield();
    }
}

void read_from_thread(press& in, test::jitter& chance) {
    for (bool open = true; open && !in.over;) {
        auto mine = in.news.subscribe();
        auto number = in.latest.subscribe();
        int last = 0;
        for (auto n = chance.below(20); open && n != 0; --n) {
            const auto got = mine.try_recv_for(microseconds(chance.below(100)));
            open = in.follows(got, last);
        }
        static_cast<void>(number.changed_for(microseconds(chance.below(50))));
    }
}

} // namespace

TEST_CASE("broadcast, watch: readers that come and go miss nothing that they are not told of") {
    rounds([](std::uint32_t round) {
        constexpr int items = 200;
        constexpr int writers = 2;
        auto in = std::make_unique<press>();
        std::mutex order;
        int next = 0;
        std::atomic<int> writing{writers};
        scheduler s(with(1 + round % 3, round % 2 == 0));
        std::vector<join_handle<>> readers;
        for (std::uint32_t i = 0; i < 6; ++i) {
            readers.push_back(i % 2 == 0 ? s.spawn(read_news(*in, seed_of(64 * round + i)))
                                         : s.spawn(watch_latest(*in, seed_of(64 * round + i))));
        }
        test::players(
            writers + 2,
            [&](int me, test::jitter& chance) {
                if (me < writers) {
                    for (int i = 0; i < items; ++i) {
                        {
                            const std::lock_guard lock(order);
                            in->news.send(test::counted(in->copies, ++next));
                        }
                        in->latest.modify([](std::uint64_t& n) { ++n; });
                        chance();
                    }
                    if (--writing == 0) {
                        in->over = true;
                        in->news.close();
                        in->latest.close();
                    }
                } else if (me == writers) {
                    read_from_thread(*in, chance);
                } else {
                    chance.dawdle(18);
                    readers[0].cancel();
                    readers[1].cancel();
                }
            },
            round);
        for (auto& h : readers) {
            static_cast<void>(ended_by_stop(std::move(h)));
        }
        REQUIRE(in->wrong == 0);
        REQUIRE(next == writers * items);
        REQUIRE(in->latest.get() == writers * items);
        REQUIRE(in->news.subscribers() == 0);
        REQUIRE(in->latest.receivers() == 0);
        s.shutdown();
        test::tally& copies = in->copies;
        REQUIRE(copies.alive() <= static_cast<int>(in->news.capacity()));
    });
}
