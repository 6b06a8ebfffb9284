// At most 64 tasks at a time, of many: permits that the tasks carry, a group with a limit, and
// for_each_concurrent(). And small functions that must not overlap, posted by a thread outside to a strand over a pool.

#include "sched/pools.hpp"

#include <bide/core/executor.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sched/task_group.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/for_each_concurrent.hpp>
#include <bide/task/strand.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#if __has_include(<boost/asio.hpp>)
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#define BIDE_BENCH_HAS_BOOST_ASIO 1
#else
#define BIDE_BENCH_HAS_BOOST_ASIO 0
#endif

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace bench {
namespace {

constexpr std::size_t limit = 64;

struct items {
    std::uint64_t left;

    std::optional<std::uint64_t> next() {
        return left != 0 ? std::optional<std::uint64_t>(--left) : std::nullopt;
    }
};

struct at_once {
    static bide::task<> work(std::uint64_t) { co_return; }
};
struct yields {
    static bide::task<> work(std::uint64_t) { co_await bide::this_task::yield(); }
};
struct sleeps {
    static bide::task<> work(std::uint64_t) {
        co_await bide::this_task::sleep_for(std::chrono::microseconds(100));
    }
};

template <class Item> bide::task<> with_permit(std::uint64_t item, bide::permit) {
    co_await Item::work(item);
}
template <class Item> bide::task<> by_permits(bide::scheduler& s, std::uint64_t count) {
    bide::semaphore room(limit);
    items all{count};
    while (const auto item = all.next()) {
        bide::permit mine = co_await room.async_acquire();
        s.spawn(with_permit<Item>(*item, std::move(mine))).detach();
    }
    const bide::permit over = co_await room.async_acquire(limit);
}

template <class Item> bide::task<> by_group(bide::scheduler& s, std::uint64_t count) {
    bide::task_group group(s, limit);
    items all{count};
    while (const auto item = all.next()) {
        co_await group.async_spawn(Item::work(*item));
    }
    co_await group.async_join();
}

template <class Item> bide::task<> by_loop(bide::scheduler&, std::uint64_t count) {
    return bide::for_each_concurrent(items{count}, limit, &Item::work);
}

template <class Item> void add(const std::string& name, const char* note, std::uint64_t count) {
    run_table t("bounded/" + name, note, count, static_cast<double>(count));
    const auto rooted = [](auto make) {
        return repeat_on_bide(
            [make](bide::scheduler& s, std::uint64_t n) { bide::sync_wait(s, make(s, n)); });
    };
    t.add("bide: permits that the tasks carry", rooted(&by_permits<Item>));
    t.add("bide::task_group, limit 64", rooted(&by_group<Item>));
    t.add("bide::for_each_concurrent", rooted(&by_loop<Item>));
}

// Counts what has run, without a lock. The last one crosses the line.
struct counter {
    std::uint64_t left = 0;
    finish_line over;

    void count() {
        if (--left == 0) {
            over.cross();
        }
    }
};

void post_to_strand(bide::scheduler& s, std::uint64_t count) {
    counter c;
    c.left = count;
    bide::strand serial(s);
    const auto all = std::make_unique<bide::runnable[]>(count);
    for (std::uint64_t i = 0; i < count; ++i) {
        all[i].run =
            bide::waker([](void* self) noexcept { static_cast<counter*>(self)->count(); }, &c);
        serial.post(all[i]);
    }
    c.over.wait();
}

#if BIDE_BENCH_HAS_BOOST_ASIO
measured post_to_asio(const job& j) {
    counter c; // outlives the threads
    boost::asio::thread_pool pool(j.workers);
    const auto serial = boost::asio::make_strand(pool);
    run_timer timer(j);
    while (timer.next()) {
        c.left = j.count;
        for (std::uint64_t i = 0; i < j.count; ++i) {
            boost::asio::post(serial, [&c] { c.count(); });
        }
        c.over.wait();
    }
    return timer.result();
}
#endif

} // namespace

void add_bounded() {
    add<at_once>("at_once", "at most 64 tasks at a time, each ends at once", 20'000);
    add<yields>("yields", "at most 64 tasks at a time, each yields once", 20'000);
    add<sleeps>("sleeps", "at most 64 tasks at a time, each sleeps for 100 us", 5'000);
}

void add_strands() {
    constexpr std::uint64_t count = 20'000;
    run_table t("strand/post", "posts by a thread outside to one strand", count,
                static_cast<double>(count));
#if BIDE_BENCH_HAS_BOOST_ASIO
    t.add("boost::asio::strand", post_to_asio);
#endif
    t.add("bide::strand", repeat_on_bide(post_to_strand));
}

} // namespace bench
