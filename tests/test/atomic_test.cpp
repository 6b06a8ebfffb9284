#define BIDE_SWITCH_POINTS 1

#include <bide/channel/channel.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/async_generator.hpp>
#include <bide/task/strand.hpp>
#include <bide/task/this_task.hpp>
#include <bide/test/atomic.hpp>
#include <bide/test/explore.hpp>
#include <bide/test/scheduler.hpp>
#include <support/coroutines.hpp>
#include <support/test.hpp>

// Switches in the middle of tasks, without a co_await: switch_places::operations.

using bide::task;
using bide::test::scheduler;
using bide::test::simulation_options;
using bide::test::switch_places;
using bide::test::task_order;

namespace {

simulation_options switching(std::uint64_t seed, task_order order = task_order::random,
                             switch_places where = switch_places::operations) {
    simulation_options how;
    how.seed = seed;
    how.order = order;
    how.switches = where;
    how.expected_steps = 100;
    return how;
}

constexpr int actors = 3; // a side

// ---- Two bugs that need no co_await between their steps

// The number of items is counted after the unlock. So a consumer may take an item that is not counted.
struct counted_items {
    bide::mutex m;
    std::vector<int> all;
    bide::test::atomic<int> count{0};
    bool is_negative = false;
};
task<> add(counted_items& to, bool early) {
    auto lock = co_await to.m.async_lock();
    to.all.push_back(1);
    if (early) {
        lock.unlock();
    }
    ++to.count;
}
task<> take(counted_items& from, bool early) {
    auto lock = co_await from.m.async_lock();
    if (from.all.empty()) {
        co_return;
    }
    from.all.pop_back();
    if (early) {
        lock.unlock();
    }
    from.is_negative |= from.count-- == 0;
}
bool counts_wrongly(const simulation_options& how, bool early) {
    counted_items items;
    scheduler s(how);
    for (int i = 0; i < actors; ++i) {
        s.spawn(add(items, early)).detach();
        s.spawn(take(items, early)).detach();
    }
    REQUIRE(s.run().all_ended());
    return items.is_negative;
}

// A consumer that finds no item resets the event after its unlock. So it may reset the set() of an item.
struct awaited_items {
    bide::mutex m;
    int left = 0;
    bide::event ready;
};
task<> produce(awaited_items& to) {
    auto lock = co_await to.m.async_lock();
    ++to.left;
    lock.unlock();
    to.ready.set();
}
task<> consume(awaited_items& from, bool early) {
    for (;;) {
        auto lock = co_await from.m.async_lock();
        if (from.left != 0) {
            --from.left;
            co_return;
        }
        if (!early) {
            from.ready.reset();
        }
        lock.unlock();
        if (early) {
            from.ready.reset();
        }
        co_await from.ready.async_wait();
    }
}
bool loses_a_wake(const simulation_options& how, bool early) {
    awaited_items items;
    scheduler s(how);
    for (int i = 0; i < actors; ++i) {
        s.spawn(consume(items, early)).detach();
        s.spawn(produce(items)).detach();
    }
    return !s.run().all_ended();
}

// Returns the first seed that finds the bug; `seeds` if none does.
template <class Body>
std::uint64_t first_of(std::uint64_t seeds, Body&& body, task_order order, bool early,
                       switch_places where = switch_places::operations) {
    std::uint64_t seed = 0;
    while (seed < seeds && !body(switching(seed, order, where), early)) {
        ++seed;
    }
    return seed;
}

// ---- What a task may do between its waits

// Returns the number of times at which the runs of some seeds interleaved two tasks as `body` says.
template <class Body> int count_of(std::uint64_t seeds, Body&& body) {
    int count = 0;
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        count += body(switching(seed, seed % 2 == 0 ? task_order::random : task_order::priorities));
    }
    return count;
}

task<> lock_in_thread(bide::mutex& m, int& inside, int& most, bide::semaphore& ended) {
    for (int i = 0; i < 2; ++i) {
        m.lock();
        most = std::max(most, ++inside);
        bide::test::switch_point();
        --inside;
        m.unlock();
    }
    ended.release();
    co_return;
}
task<> wait_in_thread(bide::semaphore& ended, bide::semaphore& never, bool& is_late) {
    ended.acquire(actors);
    is_late = !never.try_acquire_for(1h);
    co_return;
}

struct generator_count {
    int sum = 0;
    bide::test::atomic<int> between{0};
};
bide::async_generator<int> numbers(generator_count& of) {
    for (int i = 1; i <= 3; ++i) {
        ++of.between;
        co_yield i;
    }
}
task<> add_all(generator_count& to) {
    auto all = numbers(to);
    while (auto got = co_await all.next()) {
        to.sum += *got;
    }
}

task<> count_on(bide::strand& on, int& inside, bool& was_wrong) {
    was_wrong |= !on.is_here() || ++inside != 1;
    bide::test::switch_point();
    was_wrong |= !on.is_here();
    --inside;
    co_return;
}
task<> run_on(bide::strand& on, int& inside, bool& was_wrong) {
    was_wrong |= on.is_here();
    bide::test::switch_point();
    was_wrong |= on.is_here();
    co_await on.run(count_on(on, inside, was_wrong));
}

task<> handle(int number, bool& was_wrong) {
    for (int i = 0; i < 3; ++i) {
        try {
            bide::test::switch_point();
            throw number;
        } catch (const int caught) {
            was_wrong |= std::uncaught_exceptions() != 0;
            bide::test::switch_point();
            try {
                throw;
            } catch (const int again) {
                was_wrong |= again != number || caught != number;
            }
        }
    }
    co_return;
}

task<> look_for(const char* name, bool& was_wrong) {
    was_wrong |= name != bide::this_task::name();
    bide::test::switch_point();
    co_return;
}
task<> awaits_in_turn(const char* name, bool& was_wrong) {
    for (int i = 0; i < 4; ++i) {
        bide::test::switch_point();
        co_await look_for(name, was_wrong);
    }
}

test::detached wait_without_executor(bide::event& for_, bool& is_over) {
    co_await for_.async_wait();
    bide::test::switch_point();
    is_over = true;
}
task<> set_and_look(bide::event& e, const bool& is_over, bool& was_late) {
    bide::test::switch_point();
    e.set();
    was_late |= !is_over;
    co_return;
}

std::uint64_t hash_of(const std::string& text) { // FNV-1a
    std::uint64_t h = 0xcbf29ce484222325U;
    for (const char c : text) {
        h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    }
    return h;
}
std::string journal_of(const simulation_options& how) {
    counted_items items;
    bide::channel<int> c(1);
    scheduler s(how);
    const auto send = [](bide::channel<int>& to) -> task<> {
        static_cast<void>(to.try_send(1));
        co_await bide::this_task::sleep_for(1ms);
        static_cast<void>(to.try_send(2));
    };
    const auto receive = [](bide::channel<int>& from) -> task<> {
        while (!from.try_recv()) {
            co_await bide::this_task::sleep_for(1ms);
        }
    };
    for (int i = 0; i < actors; ++i) {
        s.spawn(add(items, true).named("add")).detach();
        s.spawn(take(items, true).named("take")).detach();
        s.spawn(send(c)).detach();
    }
    s.spawn(receive(c)).detach();
    REQUIRE(s.run().all_ended());
    return s.journal();
}

} // namespace

TEST_CASE("test switches: an atomic after an early unlock is found",
          "[promise.simulation-switches]") {
    for (const task_order order : {task_order::random, task_order::priorities}) {
        REQUIRE(first_of(200, counts_wrongly, order, true) < 200);
        REQUIRE(first_of(1000, counts_wrongly, order, false) == 1000);
        REQUIRE(first_of(1000, counts_wrongly, order, true, switch_places::awaits) == 1000);
    }
}

TEST_CASE("test switches: a wake-up that is lost between an unlock and a reset is found",
          "[promise.simulation-switches]") {
    for (const task_order order : {task_order::random, task_order::priorities}) {
        REQUIRE(first_of(200, loses_a_wake, order, true) < 200);
        REQUIRE(first_of(1000, loses_a_wake, order, false) == 1000);
        REQUIRE(first_of(1000, loses_a_wake, order, true, switch_places::awaits) == 1000);
    }
}

TEST_CASE("test switches: the same seed makes the same run, with every compiler",
          "[promise.simulation-repeats]") {
    std::set<std::string> different;
    for (const task_order order : {task_order::random, task_order::priorities, task_order::fifo}) {
        for (std::uint64_t seed = 0; seed < 10; ++seed) {
            simulation_options how = switching(seed, order);
            how.faults.stall = 0.1;
            const std::string once = journal_of(how);
            REQUIRE(journal_of(how) == once);
            REQUIRE((order != task_order::fifo || once.find(" switch\n") == std::string::npos));
            different.insert(once);
        }
    }
    REQUIRE(different.size() > 20);
    REQUIRE(hash_of(journal_of(switching(2))) == 0x67418b43dd45ca94U);
    REQUIRE(hash_of(journal_of(switching(2, task_order::priorities))) == 0x35cf919d22c71886U);
}

TEST_CASE(
    "test switches: switch_places::awaits repeats the runs of a program without switch points",
    "[promise.simulation-repeats]") {
    const auto count = [](int times) -> task<> {
        for (int i = 0; i < times; ++i) {
            co_await bide::this_task::yield();
        }
    };
    scheduler s({.seed = 1});
    for (int n = 0; n < 4; ++n) {
        s.spawn(count(4)).detach();
    }
    REQUIRE(s.run().all_ended());
    REQUIRE(hash_of(s.journal()) == 0xc1e23c785b660d95U); // as in scheduler_test.cpp
}

TEST_CASE("test switches: a task may block its thread, in simulated time") {
    for (const task_order order : {task_order::random, task_order::priorities, task_order::fifo}) {
        for (std::uint64_t seed = 0; seed < 100; ++seed) {
            bide::mutex m;
            bide::semaphore ended(0);
            bide::semaphore never(0);
            int inside = 0;
            int most = 0;
            bool is_late = false;
            scheduler s(switching(seed, order));
            s.spawn(wait_in_thread(ended, never, is_late)).detach();
            for (int i = 0; i < actors; ++i) {
                s.spawn(lock_in_thread(m, inside, most, ended)).detach();
            }
            const auto end = s.run();
            REQUIRE(end.all_ended());
            REQUIRE(end.time == 1h);
            REQUIRE(most == 1);
            REQUIRE(is_late);
        }
    }
}

TEST_CASE("test switches: an awaited coroutine runs in the task that awaits it") {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        bool was_wrong = false;
        scheduler s(switching(seed));
        for (const char* const name : {"one", "two", "three"}) {
            s.spawn(awaits_in_turn(name, was_wrong).named(name)).detach();
        }
        REQUIRE(s.run().all_ended());
        REQUIRE_FALSE(was_wrong);
    }
}

TEST_CASE("test switches: a release resumes coroutines without an executor before it returns") {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        std::array<bide::event, actors> go;
        std::array<bool, actors> is_over{};
        bool was_late = false;
        for (std::size_t i = 0; i < go.size(); ++i) {
            wait_without_executor(go[i], is_over[i]);
        }
        scheduler s(switching(seed));
        for (std::size_t i = 0; i < go.size(); ++i) {
            s.spawn(set_and_look(go[i], is_over[i], was_late)).detach();
        }
        REQUIRE(s.run().all_ended());
        REQUIRE_FALSE(was_late);
    }
}

TEST_CASE("test switches: a task that blocks its thread for ever is reported") {
    bide::event go;
    scheduler s(switching(1));
    const auto wait = [](bide::event& for_) -> task<> {
        for_.wait();
        co_return;
    };
    s.spawn(wait(go).named("blocked")).detach();
    const std::string text = s.run().text();
    INFO(text);
    REQUIRE(text.ends_with("task 1 'blocked' waits"));
    go.set();
    REQUIRE(s.run().all_ended());
}

TEST_CASE("test switches: a loop that reads an atomic starves no other task") {
    const auto spin = [](bide::test::atomic<int>& on) -> task<> {
        while (on.load() < actors) {
        }
        co_return;
    };
    const auto raise = [](bide::test::atomic<int>& to) -> task<> {
        ++to;
        co_return;
    };
    for (const task_order order : {task_order::random, task_order::priorities, task_order::fifo}) {
        for (std::uint64_t seed = 0; seed < 20; ++seed) {
            bide::test::atomic<int> flag{0};
            scheduler s(switching(seed, order));
            for (int i = 0; i < actors; ++i) {
                s.spawn(spin(flag)).detach();
                s.spawn(raise(flag)).detach();
            }
            REQUIRE(s.run().all_ended());
        }
    }
}

TEST_CASE("test switches: a child may run before spawn() returns") {
    const auto found = count_of(100, [](const simulation_options& how) {
        bool has_run = false;
        bool is_first = false;
        scheduler s(how);
        const auto child = [](bool& runs) -> task<> {
            runs = true;
            co_return;
        };
        const auto parent = [&](scheduler& on) -> task<> {
            auto handle = on.spawn(child(has_run));
            is_first = has_run;
            co_await std::move(handle).async_join();
        };
        s.spawn(parent(s)).detach();
        REQUIRE(s.run().all_ended());
        return is_first;
    });
    REQUIRE(found > 0);
    REQUIRE(found < 100);
}

TEST_CASE("test switches: each task keeps its strand, its generators and its exceptions") {
    const auto found = count_of(100, [](const simulation_options& how) {
        generator_count first;
        generator_count second;
        int inside = 0;
        bool was_wrong = false;
        scheduler s(how);
        bide::strand serial(s);
        s.spawn(add_all(first)).detach();
        s.spawn(add_all(second)).detach();
        for (int i = 0; i < actors; ++i) {
            s.spawn(run_on(serial, inside, was_wrong)).detach();
            s.spawn(handle(i, was_wrong)).detach();
        }
        REQUIRE(s.run().all_ended());
        REQUIRE(first.sum == 6);
        REQUIRE(second.sum == 6);
        return was_wrong;
    });
    REQUIRE(found == 0);
}

TEST_CASE("test switches: what a task leaves behind may be destroyed while others run") {
    const auto hold = [](bide::permit mine) -> task<> {
        static_cast<void>(mine);
        co_return;
    };
    const auto cancel = [](scheduler& on, bide::semaphore& of, auto make) -> task<> {
        auto child = on.spawn(make(co_await of.async_acquire()));
        child.cancel();
        static_cast<void>(co_await of.async_acquire().with_timeout(1ms));
    };
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        bide::semaphore permits(2);
        scheduler s(switching(seed, seed % 2 == 0 ? task_order::random : task_order::priorities));
        for (int i = 0; i < actors; ++i) {
            s.spawn(cancel(s, permits, hold)).detach();
        }
        REQUIRE(s.run().all_ended());
        REQUIRE(permits.try_acquire(2));
    }
}

namespace {

// Publishes its coroutine before other tasks run.
struct published_wait {
    explicit published_wait(std::coroutine_handle<>& where) noexcept : to(where) {}
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> waiting) const noexcept {
        to = waiting;
        bide::test::switch_point();
    }
    void await_resume() const noexcept {}

    std::coroutine_handle<>& to;
};
task<> wait_for(std::coroutine_handle<>& waiting) {
    published_wait wait(waiting);
    co_await wait;
}
task<> wake(std::coroutine_handle<>& waiting) {
    while (!waiting) {
        bide::test::switch_point();
    }
    std::exchange(waiting, {}).resume();
    co_return;
}

} // namespace

TEST_CASE("test switches: a task may end elsewhere before its await_suspend() returns") {
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        std::coroutine_handle<> waiting;
        scheduler s(switching(seed, seed % 2 == 0 ? task_order::random : task_order::priorities));
        s.spawn(wait_for(waiting)).detach();
        s.spawn(wake(waiting)).detach();
        REQUIRE(s.run().all_ended());
    }
}
