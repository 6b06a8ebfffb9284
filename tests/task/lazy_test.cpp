#include "support/platforms.hpp"
#include "support/test.hpp"

#include <bide/sched/scheduler.hpp>
#include <bide/sync/event.hpp>
#include <bide/task/lazy.hpp>

namespace {

bide::task<int> add_to(std::atomic<int>& made, bide::event& go) {
    co_await go.async_wait();
    co_return 10 + made++;
}

bide::task<int> get_from(bide::once_cell<int>& cell, std::atomic<int>& made, bide::event& go) {
    auto make = [&made, &go] { return add_to(made, go); };
    int& value = co_await bide::async_get_or_init(cell, make);
    co_return value;
}

bide::task<void> call(bide::once_flag& flag, int& calls, bool throws) {
    auto function = [&calls, throws] {
        ++calls;
        if (throws) {
            throw std::runtime_error("no");
        }
    };
    co_await bide::async_call_once(flag, function);
}

struct immovable {
    explicit immovable(int n) noexcept : value(n) {}
    immovable(const immovable&) = delete;
    immovable& operator=(const immovable&) = delete;
    int value;
};
bide::task<int> get_immovable(bide::lazy<immovable, immovable (*)()>& of) {
    immovable& got = co_await of.async_get();
    co_return got.value;
}

template <class Lazy> bide::task<int> get_value(Lazy& of) { co_return co_await of.async_get(); }

int three() { return 3; }
bide::task<int> four() { co_return 4; }

} // namespace

TEST_CASE("lazy: the function runs when the value is first needed, and once") {
    int calls = 0;
    bide::lazy value([&calls] { return ++calls; });
    CHECK(value.get_if() == nullptr);
    CHECK(calls == 0);
    CHECK(value.get() == 1);
    CHECK(bide::sync_wait(get_value(value)) == 1);
    CHECK(value.get_if() == &value.get());
    CHECK(*std::as_const(value).get_if() == 1);
    CHECK(calls == 1);
}

TEST_CASE("lazy: a function or a coroutine makes the value, for threads and for coroutines") {
    bide::lazy<int> a(&three);
    CHECK(a.get() == 3);
    bide::lazy b(&four);
    CHECK(b.get() == 4);
    bide::lazy c(&three);
    CHECK(bide::sync_wait(get_value(c)) == 3);
    bide::lazy d(&four);
    CHECK(bide::sync_wait(get_value(d)) == 4);
    CHECK(d.get() == 4);
}

TEST_CASE("lazy: a function may make a value that cannot be moved, for a coroutine too") {
    bide::lazy<immovable, immovable (*)()> value(+[] { return immovable(6); });
    CHECK(bide::sync_wait(get_immovable(value)) == 6);
    CHECK(value.get().value == 6);
}

TEST_CASE("lazy: if the function throws, the next caller calls it again") {
    int calls = 0;
    bide::lazy value([&calls]() -> bide::task<int> {
        if (++calls < 3) {
            throw std::runtime_error("no");
        }
        co_return calls;
    });
    CHECK_THROWS_AS(value.get(), std::runtime_error);
    CHECK_THROWS_AS(bide::sync_wait(get_value(value)), std::runtime_error);
    CHECK(value.get() == 3);
}

TEST_CASE("async_call_once: calls one function that does not throw") {
    bide::once_flag flag;
    int calls = 0;
    CHECK_THROWS_AS(bide::sync_wait(call(flag, calls, true)), std::runtime_error);
    bide::sync_wait(call(flag, calls, false));
    bide::sync_wait(call(flag, calls, true));
    CHECK(calls == 2);
    CHECK(flag.is_set());
}

TEST_CASE("async_get_or_init: a cancelled initialiser hands its role to the next waiter",
          "[promise.once]") {
    bide::scheduler workers({.num_workers = 2});
    bide::once_cell<int> cell;
    bide::event never;
    bide::event go;
    std::atomic<int> made{0};
    auto first = workers.spawn(get_from(cell, made, never));
    REQUIRE(test::eventually([&] { return cell.get() == nullptr && !cell.try_begin(); }));
    auto second = workers.spawn(get_from(cell, made, go));
    auto third = workers.spawn(get_from(cell, made, go));
    first.cancel();
    CHECK_THROWS_AS(std::move(first).join(), bide::stopped_error);
    go.set();
    CHECK(std::move(second).join() == 10);
    CHECK(std::move(third).join() == 10);
    CHECK(made == 1);
}
