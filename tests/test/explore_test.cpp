#define BIDE_DEADLOCK_CHECK

#include <bide/channel/channel.hpp>
#include <bide/channel/select.hpp>
#include <bide/core/deadlock_check.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/task/this_task.hpp>
#include <bide/test/explore.hpp>
#include <bide/test/scheduler.hpp>
#include <support/death.hpp>
#include <support/test.hpp>

// Many seeds, and what a task waits for: with BIDE_DEADLOCK_CHECK, which names the primitives.

using bide::task;

namespace {

task<> lock_both(bide::mutex& first, bide::mutex& second) {
    auto one = co_await first.async_lock();
    co_await bide::this_task::yield();
    auto two = co_await second.async_lock();
}

// Two tasks lock two mutexes in different orders.
void dine(std::uint64_t seed) {
    bide::mutex left("left");
    bide::mutex right("right");
    bide::test::scheduler s({.seed = seed});
    s.spawn(lock_both(left, right).named("first")).detach();
    s.spawn(lock_both(right, left).named("second")).detach();
    const auto end = s.run();
    if (!end.all_ended()) {
        throw std::runtime_error(end.text());
    }
}

} // namespace

TEST_CASE("explore: the report of a run names what each task waits for, and the holder") {
    const auto before = bide::set_deadlock_handler([](const char*) {});
    const auto found = bide::test::find_failure(1, 100, dine);
    bide::set_deadlock_handler(before);
    REQUIRE(found);
    INFO(found->what);
    REQUIRE(found->what.find("task 1 'first' waits for mutex 'right', held by task 'second'") !=
            std::string::npos);
    REQUIRE(found->what.find("task 2 'second' waits for mutex 'left', held by task 'first'") !=
            std::string::npos);
    REQUIRE(found->journal.find("seed " + std::to_string(found->seed) + "\n") == 0);
    REQUIRE(found->journal.find("spawn task 2 second\n") != std::string::npos);
}

TEST_CASE("explore: the report says of a select that it is one") {
    bide::channel<int> requests(1);
    bide::event quit;
    bide::test::scheduler s;
    const auto choose = [](bide::channel<int>& from, bide::event& end) -> task<> {
        static_cast<void>(co_await bide::async_select(bide::on_recv(from), bide::on_event(end)));
    };
    s.spawn(choose(requests, quit)).detach();
    const std::string text = s.run().text();
    INFO(text);
    REQUIRE(text.ends_with("task 1 waits for a select"));
}

TEST_CASE("explore: each seed is tried, up to the first that fails") {
    std::vector<std::uint64_t> tried;
    const auto f = [&](std::uint64_t seed) {
        tried.push_back(seed);
        if (seed == 12) {
            throw std::runtime_error("twelve");
        }
        if (seed == 30) {
            throw 30;
        }
    };
    REQUIRE_FALSE(bide::test::find_failure(1, 3, f));
    REQUIRE(tried == std::vector<std::uint64_t>{1, 2, 3});
    const auto found = bide::test::find_failure(10, 10, f);
    REQUIRE(found);
    REQUIRE(found->seed == 12);
    REQUIRE(found->what == "twelve");
    REQUIRE(tried.back() == 12);
    const auto other = bide::test::find_failure(30, 1, f);
    REQUIRE(other);
    REQUIRE(other->what.empty());
    REQUIRE_THROWS_AS(std::rethrow_exception(other->error), int);
}

#if BIDE_TESTS_CAN_DIE

TEST_CASE("explore: a failure is printed with its seed, and the environment repeats it") {
    const auto run = [](const char* variable, const char* value, std::uint64_t first) {
        return test::run_child([=] {
            ::unsetenv("BIDE_TEST_SEED");
            ::unsetenv("BIDE_TEST_SEEDS");
            ::unsetenv("BIDE_TEST_TRACE");
            if (variable != nullptr) {
                ::setenv(variable, value, 1);
            }
            int runs = 0;
            const auto f = [&](std::uint64_t seed) {
                ++runs;
                bide::test::scheduler s({.seed = seed});
                const auto fail = []() -> task<> {
                    bide::test::note("the note");
                    co_return;
                };
                s.run_until(fail());
                if (seed == 12) {
                    throw std::runtime_error("twelve");
                }
            };
            try {
                bide::test::for_each_seed(first, 5, f);
            } catch (const std::runtime_error&) {
                ::_exit(100 + runs);
            }
            ::_exit(runs);
        });
    };
    REQUIRE(run(nullptr, "", 1).has_exited(5));
    REQUIRE(run("BIDE_TEST_SEEDS", "8", 1).has_exited(8));
    REQUIRE(run("BIDE_TEST_SEED", "7", 10).has_exited(1));
    const auto ignored = run("BIDE_TEST_SEED", "0x7", 1);
    REQUIRE(ignored.has_exited(5));
    REQUIRE(test::contains(ignored.said, "BIDE_TEST_SEED=0x7 is ignored, it is not a number\n"));
    const auto traced = run("BIDE_TEST_TRACE", "1", 1);
    REQUIRE(traced.has_exited(5));
    REQUIRE(test::contains(traced.said, "bide::test: seed 4\nbide::test: seed 5\n"));
    const auto failed = run(nullptr, "", 10);
    INFO(failed.text());
    REQUIRE(failed.has_exited(103));
    REQUIRE(test::contains(failed.said, "bide::test: seed 12 failed: twelve\n"));
    REQUIRE(test::contains(failed.said, "BIDE_TEST_SEED=12"));
    REQUIRE(test::contains(failed.said, "1 note the note\n"));
    REQUIRE(run("BIDE_TEST_SEED", "12", 1).has_exited(101));
}

#endif
