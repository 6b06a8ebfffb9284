// At most 64 tasks at a time, of many: permits that the tasks carry, a group with a limit, and
// for_each_concurrent().

#include "sched/job.hpp"
#include "sched/pools.hpp"
#include "sched/workloads.hpp"

#include <bide/sched/scheduler.hpp>
#include <bide/sched/task_group.hpp>
#include <bide/sync/permit.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/for_each_concurrent.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
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

template <class Item>
void add(harness& h, const std::string& name, const char* note, std::uint64_t count) {
    run_table t(h, "bounded/" + name, note, count, ns_each("item", count));
    const auto rooted = [](auto make) {
        return repeat_on_bide(
            [make](bide::scheduler& s, std::uint64_t n) { bide::sync_wait(s, make(s, n)); });
    };
    t.add("bide: permits that the tasks carry", rooted(&by_permits<Item>));
    t.add("bide::task_group, limit 64", rooted(&by_group<Item>));
    t.add("bide::for_each_concurrent", rooted(&by_loop<Item>));
    t.finish();
}

} // namespace

void add_bounded(harness& h) {
    add<at_once>(h, "at_once", "at most 64 tasks at a time, each ends at once", 20'000);
    add<yields>(h, "yields", "at most 64 tasks at a time, each yields once", 20'000);
    add<sleeps>(h, "sleeps", "at most 64 tasks at a time, each sleeps for 100 us", 5'000);
}

} // namespace bench
