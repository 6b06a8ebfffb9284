#include <bide/parallel/async_fork.hpp>
#include <bide/parallel/fork_join.hpp>
#include <bide/parallel/parallel_for.hpp>
#include <bide/parallel/parallel_reduce.hpp>
#include <bide/sched/run_loop.hpp>
#include <bide/task/this_task.hpp>
#include <support/alloc.hpp>
#include <support/coroutines.hpp>
#include <support/scheduling.hpp>

// Functions with captures have names: see BIDE_BRACED_AWAIT_BUG.

using namespace bide;
using test::eventually;
using test::spin_until;
using test::with;

namespace {

constexpr std::int64_t endless = 1'000'000'000'000'000;

std::vector<int> numbers(int n) {
    std::vector<int> all(static_cast<std::size_t>(n));
    std::iota(all.begin(), all.end(), 0);
    return all;
}

template <class Body> auto async_loop(const fork_policy& on, std::int64_t last, const Body& body) {
    return async_fork(on, [last, body](const fork_policy& here) {
        bide::parallel_for(here, std::int64_t{0}, last, body);
    });
}

// Iterations that begin, and end when they are told.
struct lingering {
    std::atomic<std::int64_t> began{0};
    std::atomic<std::int64_t> ended{0};
    std::atomic<bool> leaves{false};

    template <class Coroutine> static Coroutine loop(scheduler& on, lingering& in) {
        const auto body = [&in](std::int64_t) {
            ++in.began;
            spin_until(in.leaves);
            ++in.ended;
        };
        co_await async_loop(on, endless, body);
    }
    bool begins() const {
        return eventually([this] { return began != 0; });
    }
};

// 3 times the sum, if each element is visited once by each loop.
task<long> sums(scheduler& s, std::vector<int>& all) {
    std::atomic<long> sum{0};
    const auto add = [&sum](int one) { sum += one; };
    const auto loops = [&](const fork_policy& on) {
        bide::parallel_for(on, all, add);
        bide::parallel_for(on, std::size_t{0}, all.size(), [&](std::size_t i) { sum += all[i]; });
    };
    co_await async_fork(s, loops);
    const auto reduce = [&all](const fork_policy& on) {
        return bide::parallel_reduce(on, all, 0L, [](int one) { return long{one}; }, std::plus<>());
    };
    const long third = co_await async_fork(s, reduce);
    co_return sum + third;
}

} // namespace

TEST_CASE("async_fork: loops run from tasks, run loops and threads, and give their values",
          "[promise.async-fork]") {
    const unsigned workers = GENERATE(1U, 2U, 4U);
    scheduler s(with(workers, workers != 4));
    scheduler other(with(1, true));
    auto all = numbers(1'001);
    constexpr long expected = 3L * 1'000 * 1'001 / 2;
    CHECK(s.spawn(sums(s, all)).join() == expected);
    CHECK(other.spawn(sums(s, all)).join() == expected);
    CHECK(bide::sync_wait(sums(s, all)) == expected);
    bide::run_loop loop;
    CHECK(loop.run_until(sums(s, all)) == expected);
    std::vector<bide::join_handle<long>> many;
    for (int i = 0; i < 20; ++i) {
        many.push_back(s.spawn(sums(s, all)));
    }
    int right = 0;
    for (auto& one : many) {
        right += std::move(one).join() == expected ? 1 : 0;
    }
    CHECK(right == 20);
}

TEST_CASE(
    "async_fork: the coroutine resumes on its own executor, and the function runs on a worker",
    "[promise.async-fork]") {
    scheduler s(with(2, true));
    bide::run_loop loop;
    const auto where = [](scheduler& on, std::thread::id mine) -> task<int> {
        const auto check = [&on] {
            return scheduler::current() == &on && bide::this_task::name() == nullptr
                       ? std::this_thread::get_id()
                       : std::thread::id();
        };
        const std::thread::id there = co_await async_fork(on, check);
        co_return (there != std::thread::id() && there != mine ? 1 : 0) +
            (std::this_thread::get_id() == mine ? 10 : 0);
    };
    CHECK(loop.run_until(where(s, std::this_thread::get_id())) == 11);
}

TEST_CASE("async_fork: returns values that are moved only, references, or nothing") {
    scheduler s(with(2, true));
    const auto all = [](scheduler& on) -> task<bool> {
        int n = 1;
        const auto refer = [&n]() -> int& { return n; };
        const auto make = [] { return std::make_unique<int>(5); };
        const auto change = [&n] { n = 2; };
        int& same = co_await async_fork(on, refer);
        const auto made = co_await async_fork(on, make);
        co_await async_fork(on, change);
        co_return &same == &n && *made == 5 && n == 2;
    };
    CHECK(bide::sync_wait(s, all(s)));
}

TEST_CASE("async_fork: throws what the function throws, the first exception of a loop") {
    scheduler s(with(2, true));
    const auto fails = [](scheduler& on) -> task<std::string> {
        const auto body = [](std::int64_t i) {
            if (i % 10 == 7) {
                throw std::runtime_error(std::to_string(i));
            }
        };
        try {
            co_await async_loop(on, 1'000, body);
        } catch (const std::runtime_error& e) {
            co_return std::string(e.what());
        }
        co_return std::string();
    };
    CHECK(bide::sync_wait(s, fails(s)) == "7");
    CHECK(bide::sync_wait(fails(s)) == "7");
}

TEST_CASE("async_fork: a cancelled task stops the loop, and waits for what has begun",
          "[promise.async-fork]") {
    const bool on_same = GENERATE(false, true);
    scheduler s(with(2, true));
    scheduler other(with(1, true));
    lingering all;
    auto handle = (on_same ? s : other).spawn(lingering::loop<task<>>(s, all));
    CHECK(all.begins());
    handle.cancel();
    CHECK_FALSE(handle.done());
    all.leaves = true;
    CHECK_THROWS_AS(std::move(handle).join(), bide::stopped_error);
    CHECK(all.began == all.ended);
}

TEST_CASE("async_fork: a function that has not begun when its task is cancelled is not called") {
    scheduler s(with(1, true));
    scheduler other(with(1, true));
    std::atomic<bool> busy{false};
    std::atomic<bool> leaves{false};
    std::atomic<bool> called{false};
    std::atomic<bool> awaits{false};
    std::atomic<bool> goes_on{false};
    const auto fork = [&] {
        const auto f = [](scheduler& on, std::atomic<bool>& ran, std::atomic<bool>& about,
                          std::atomic<bool>& go) -> task<> {
            const auto mark = [&ran] { ran = true; };
            about = true;
            spin_until(go);
            co_await async_fork(on, mark);
        };
        auto handle = other.spawn(f(s, called, awaits, goes_on));
        CHECK(spin_until(awaits));
        return handle;
    };
    SECTION("its worker is busy") {
        auto blocker = s.spawn([&] {
            busy = true;
            spin_until(leaves);
        });
        CHECK(spin_until(busy));
        goes_on = true;
        auto handle = fork();
        handle.cancel();
        leaves = true;
        CHECK_THROWS_AS(std::move(handle).join(), bide::stopped_error);
        std::move(blocker).join();
    }
    SECTION("the task was cancelled before it awaited") {
        auto handle = fork();
        handle.cancel();
        goes_on = true;
        CHECK_THROWS_AS(std::move(handle).join(), bide::stopped_error);
    }
    CHECK_FALSE(called);
}

TEST_CASE("async_fork: the stop token and the progress of the policy reach the loop") {
    scheduler s(with(2, true));
    std::stop_source source;
    bide::fork_progress progress;
    const auto loop = [](scheduler& on, std::stop_source& stop,
                         bide::fork_progress& to) -> task<bool> {
        const auto body = [&stop](std::int64_t i) {
            if (i == 500) {
                stop.request_stop();
            } else if (i > 500) { // otherwise thieves may have done all the rest by then
                eventually([&stop] { return stop.stop_requested(); });
            }
        };
        const fork_policy how(on, {.grain = 1, .stop = stop.get_token(), .progress = &to});
        try {
            co_await async_loop(how, 1'000'000, body);
        } catch (const bide::stopped_error&) {
            co_return true;
        }
        co_return false;
    };
    CHECK(bide::sync_wait(s, loop(s, source, progress)));
    CHECK(progress.total() == 1'000'000);
    CHECK(progress.done() < 1'000'000);
}

TEST_CASE("async_fork: a coroutine that is destroyed while it waits stops the loop and waits",
          "[promise.async-fork]") {
    scheduler s(with(2, true));
    lingering all;
    auto waiting = lingering::loop<test::held>(s, all);
    waiting.start();
    CHECK(all.begins());
    std::thread releases([&] {
        std::this_thread::yield();
        all.leaves = true;
    });
    waiting.destroy();
    releases.join();
    CHECK(all.began == all.ended);
}

TEST_CASE("async_fork: a shutdown answers stopped, or the function has run",
          "[promise.async-fork]") {
    scheduler mine(with(1, true));
    for (int round = 0; round < 50; ++round) {
        std::optional<scheduler> s(with(2, true));
        std::atomic<bool> called{false};
        const auto fork = [](scheduler& on, std::atomic<bool>& ran) -> task<bool> {
            const auto f = [&ran] { ran = true; };
            try {
                co_await async_fork(on, f);
            } catch (const bide::stopped_error&) {
                co_return false;
            }
            co_return true;
        };
        auto handle = mine.spawn(fork(*s, called));
        if (round % 2 == 0) {
            std::this_thread::yield();
        }
        s->shutdown();
        const bool ran = std::move(handle).join();
        CHECK(ran == called);
        CHECK_FALSE(bide::sync_wait(mine, fork(*s, called)));
    }
}

TEST_CASE("async_fork: a wait allocates nothing but the state of its stop") {
    if (!test::counts_allocations()) {
        return;
    }
    scheduler s(with(2, true));
    const auto count = [](scheduler& on) -> task<std::size_t> {
        const auto nothing = [] {};
        co_await async_fork(on, nothing);
        const std::size_t before = test::allocations();
        for (int i = 0; i < 100; ++i) {
            co_await async_fork(on, nothing);
        }
        co_return test::allocations() - before;
    };
    CHECK(bide::sync_wait(s, count(s)) <= 110);
}
