// What threads and tasks share: events with several that set and reset, locks around values, and
// publishers whose readers come and go.

#include <bide/channel/broadcast.hpp>
#include <bide/channel/select.hpp>
#include <bide/channel/watch.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/shared_mutex.hpp>
#include <bide/sync/synchronized_value.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>
#include <support/catch.hpp>
#include <support/counted.hpp>
#include <support/gate.hpp>
#include <support/jitter.hpp>
#include <support/rounds.hpp>
#include <support/scheduling.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <stop_token>
#include <utility>
#include <vector>

using bide::join_handle;
using bide::on_event;
using bide::on_stop;
using bide::scheduler;
using bide::task;
using bide::this_task::yield;
using std::chrono::microseconds;
using test::ended_by_stop;
using test::rounds;
using test::seed_of;
using test::with;

// ---- Events

namespace {

// What has been stored and not taken, and the event that says so.
struct store {
    std::atomic<int> items{0};
    std::atomic<int> to_take{0};
    bide::event changed;

    // Takes one item; false: there is none now.
    bool take() noexcept {
        int n = items.load();
        while (n != 0 && !items.compare_exchange_weak(n, n - 1)) {
        }
        if (n != 0 && --to_take == 0) {
            changed.set(); // the other threads are done, too
        }
        return n != 0;
    }
    bool is_over() const noexcept { return to_take == 0; }
};

task<int> take_all(store& in) {
    int taken = 0;
    while (!in.is_over()) {
        in.changed.reset();
        if (in.take()) {
            ++taken;
        } else if (!in.is_over()) {
            co_await in.changed.async_wait();
        }
    }
    in.changed.set(); // undoes a reset of this one's
    co_return taken;
}

task<int> take_all_by_select(store& in) {
    int taken = 0;
    while (!in.is_over()) {
        in.changed.reset();
        if (in.take()) {
            ++taken;
        } else if (!in.is_over()) {
            auto any = bide::async_select(on_event(in.changed), on_stop(std::stop_token()));
            static_cast<void>(co_await std::move(any));
        }
    }
    in.changed.set();
    co_return taken;
}

int take_all_by_thread(store& in, test::jitter& chance) {
    int taken = 0;
    while (!in.is_over()) {
        in.changed.reset();
        if (in.take()) {
            ++taken;
        } else if (!in.is_over()) {
            chance.below(8) == 0
                ? static_cast<void>(in.changed.wait_for(microseconds(chance.below(50))))
                : in.changed.wait();
        }
    }
    in.changed.set();
    return taken;
}

} // namespace

TEST_CASE("event: with several that set and several that reset an event no item is left") {
    rounds([](std::uint32_t round) {
        constexpr int items = 300;
        store in;
        in.to_take = 2 * items;
        scheduler s(with(1 + round % 3, round % 2 == 0));
        std::array<int, 4> taken{};
        test::run_threads(6, [&](int me) {
            test::jitter chance(seed_of(8 * round + static_cast<std::uint32_t>(me)));
            switch (me) {
            case 0: taken[0] = take_all_by_thread(in, chance); break;
            case 1: taken[1] = bide::sync_wait(take_all(in)); break;
            case 2: taken[2] = s.spawn(take_all(in)).join(); break;
            case 3: taken[3] = s.spawn(take_all_by_select(in)).join(); break;
            default:
                for (int i = 0; i < items; ++i) {
                    ++in.items;
                    in.changed.set();
                    chance();
                }
            }
        });
        REQUIRE(in.items == 0);
        REQUIRE(taken[0] + taken[1] + taken[2] + taken[3] == 2 * items);
    });
}

// ---- Locks

namespace {

// Two numbers that are the same whenever no writer is at them.
struct twins {
    std::uint64_t first = 0;
    std::uint64_t second = 0;
    void add() noexcept {
        ++first;
        ++second;
    }
    bool are_same() const noexcept { return first == second; }
};

struct registry {
    bide::shared_mutex lock;
    twins under_lock;
    bide::synchronized_value<twins> value;
    std::atomic<std::uint64_t> added_under_lock{0};
    std::atomic<std::uint64_t> added_to_value{0};
    std::atomic<int> torn{0};
};

task<> use(registry& in, int times, std::uint32_t seed) {
    test::jitter chance(seed);
    for (int i = 0; i < times; ++i) {
        const auto rest = microseconds(chance.below(100));
        switch (chance.below(4)) {
        case 0: {
            const auto writes = co_await in.lock.async_lock().with_timeout(rest);
            if (writes) {
                in.under_lock.add();
                ++in.added_under_lock;
            }
            break;
        }
        case 1: {
            const auto reads = co_await in.lock.async_lock_shared().with_timeout(rest);
            in.torn += !reads || in.under_lock.are_same() ? 0 : 1;
            break;
        }
        case 2: {
            const auto both = co_await in.lock.async_lock_shared();
            const auto value = co_await in.value.async_lock().with_timeout(rest);
            if (value) {
                (*value)->add();
                ++in.added_to_value;
            }
            break;
        }
        default: {
            const auto value = co_await in.value.async_lock();
            in.torn += value->are_same() ? 0 : 1;
            co_await yield();
            value->add();
            ++in.added_to_value;
        }
        }
    }
}

void use_from_thread(registry& in, int times, test::jitter& chance) {
    for (int i = 0; i < times; ++i) {
        const auto rest = microseconds(chance.below(100));
        switch (chance.below(4)) {
        case 0:
            if (in.lock.try_lock_for(rest)) {
                in.under_lock.add();
                ++in.added_under_lock;
                in.lock.unlock_and_lock_shared();
                in.torn += in.under_lock.are_same() ? 0 : 1;
                in.lock.unlock_shared();
            }
            break;
        case 1: {
            const std::shared_lock reads(in.lock);
            in.torn += in.under_lock.are_same() ? 0 : 1;
            break;
        }
        case 2:
            in.value.with([&in](twins& both) {
                both.add();
                ++in.added_to_value;
            });
            break;
        default: {
            const auto value = in.value.try_lock();
            in.torn += !value || value->are_same() ? 0 : 1;
        }
        }
    }
}

} // namespace

TEST_CASE("synchronized_value, shared_mutex: what locks guard is never torn, and each change under "
          "them is counted") {
    rounds([](std::uint32_t round) {
        constexpr int times = 60;
        registry in;
        scheduler s(with(1 + round % 3, round % 2 == 0));
        auto other = s.spawn(use(in, times, seed_of(round)));
        test::run_threads(4, [&](int me) {
            test::jitter chance(seed_of(8 * round + static_cast<std::uint32_t>(me)));
            switch (me) {
            case 0: bide::sync_wait(use(in, times, chance.below(1u << 30))); break;
            case 1: s.spawn(use(in, times, chance.below(1u << 30))).join(); break;
            default: use_from_thread(in, times, chance);
            }
        });
        std::move(other).join();
        REQUIRE(in.torn == 0);
        REQUIRE(in.under_lock.first == in.added_under_lock);
        REQUIRE(in.under_lock.are_same());
        REQUIRE(in.value.lock()->first == in.added_to_value);
        REQUIRE(in.value.lock()->are_same());
    });
}

// ---- Publishers

namespace {

struct press {
    test::tally copies;
    bide::broadcast<test::counted> news{4};
    bide::watch<std::uint64_t> latest{0};
    std::atomic<int> wrong{0};
    std::atomic<bool> over{false};

    // Whether `r` comes right after `last`, which is 0 before the first; moves `last` on.
    template <class Result> bool follows(const Result& r, int& last) {
        if (!r) {
            if (r.error().code == bide::errc::lagged && last != 0) {
                last += static_cast<int>(r.error().missed);
            }
            return r.error().code != bide::errc::closed;
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
        test::run_threads(writers + 2, [&](int me) {
            test::jitter chance(seed_of(8 * round + static_cast<std::uint32_t>(me)));
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
        });
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
