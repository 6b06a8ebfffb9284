#include <support/alloc.hpp>
#include <support/narrow_iterator.hpp>
#include <support/scheduling.hpp>
#include <support/std_algorithms.hpp>
#include <support/test.hpp>

#include <latch>

#include <bide/interop/std_execution.hpp>
#include <bide/sched/scheduler.hpp>

TEST_CASE("std_execution: parallel algorithms return and leave what serial ones do") {
    CHECK(test::differ<std::vector<int>>(std::execution::par, {0, 1, 2, 17, 1'500, 20'000}) == "");
}

TEST_CASE("std_execution: so do algorithms on lists, which are serial") {
    CHECK(test::differ<std::list<int>>(std::execution::par, {0, 1, 2, 17, 300}) == "");
    CHECK(test::differ<std::forward_list<int>>(std::execution::par, {0, 1, 2, 17, 300}) == "");
}

TEST_CASE("std_execution: iterators and elements of any kind") {
    std::vector<int> numbers(5'000);
    std::iota(numbers.rbegin(), numbers.rend(), 0);
    const test::narrow_iterator first(numbers.data());
    std::sort(std::execution::par, first, first + 5'000);
    CHECK(std::is_sorted(numbers.begin(), numbers.end()));
    CHECK(std::reduce(std::execution::par, first, first + 5'000) == 12'497'500);

    std::vector<std::unique_ptr<int>> owned; // move-only
    for (int i = 0; i != 5'000; ++i) {
        owned.push_back(std::make_unique<int>(i * 7 % 5'000));
    }
    const auto less = [](const auto& x, const auto& y) { return *x < *y; };
    std::sort(std::execution::par, owned.begin(), owned.end(), less);
    CHECK(std::is_sorted(owned.begin(), owned.end(), less));
    std::stable_partition(std::execution::par, owned.begin(), owned.end(),
                          [](const auto& x) { return *x % 2 == 0; });
    CHECK(*owned[2'499] == 4'998);
    CHECK(*owned[2'500] == 1);
    std::inplace_merge(std::execution::par, owned.begin(), owned.begin() + 2'500, owned.end(),
                       less);
    CHECK(std::is_sorted(owned.begin(), owned.end(), less));
    owned.erase(std::remove_if(std::execution::par, owned.begin(), owned.end(),
                               [](const auto& x) { return *x % 5 != 0; }),
                owned.end());
    CHECK(owned.size() == 1'000);
    CHECK(*owned[999] == 4'995);

    // Neighbours share a word: TSan would find two threads that write to them.
    std::vector<bool> bits(5'000);
    std::transform(std::execution::par, numbers.begin(), numbers.end(), bits.begin(),
                   test::is_even);
    CHECK(std::count(std::execution::par, bits.begin(), bits.end(), true) == 2'500);
    std::sort(std::execution::par, bits.begin(), bits.end());
    CHECK((!bits[2'499] && bits[2'500]));
}

TEST_CASE("std_execution: a scan of floating-point numbers by any operation") {
    // With the backends of libstdc++, each product is zero.
    std::vector<double> halves(40, 0.5);
    std::inclusive_scan(std::execution::par, halves.begin(), halves.end(), halves.begin(),
                        std::multiplies<>());
    CHECK(halves[0] == 0.5);
    CHECK(halves[39] == std::ldexp(1.0, -40));
    std::vector<float> twos(20, 2.0f);
    std::vector<double> powers(20);
    std::exclusive_scan(std::execution::par, twos.begin(), twos.end(), powers.begin(), 1.0,
                        std::multiplies<>());
    CHECK(powers[19] == std::ldexp(1.0, 19));
}

TEST_CASE("std_execution: elements are visited by several threads at once") {
    bide::scheduler workers(2);
    bide::scheduler* const before = bide::set_std_execution_scheduler(&workers);
    std::latch both(2); // ends only if two threads wait for it
    std::vector<bide::scheduler*> on(2);
    std::for_each(std::execution::par, on.begin(), on.end(), [&](bide::scheduler*& mine) {
        mine = bide::scheduler::current();
        both.arrive_and_wait();
    });
    CHECK(on == std::vector(2, &workers));
    CHECK(bide::set_std_execution_scheduler(before) == &workers);

    // An algorithm that a task calls runs on the scheduler of the task.
    std::latch both_again(2);
    workers
        .spawn([&] {
            std::for_each(std::execution::par, on.begin(), on.end(), [&](bide::scheduler*& mine) {
                mine = bide::scheduler::current();
                both_again.arrive_and_wait();
            });
        })
        .join();
    CHECK(on == std::vector(2, &workers));
}

TEST_CASE("std_execution: algorithms within algorithms, on every worker at once") {
    bide::scheduler workers(2);
    std::vector<bide::join_handle<long>> tasks;
    for (int task = 0; task != 6; ++task) {
        tasks.push_back(workers.spawn([] {
            std::vector<std::vector<int>> rows(40, std::vector<int>(1'500, 1));
            std::for_each(std::execution::par, rows.begin(), rows.end(), [](std::vector<int>& row) {
                std::inclusive_scan(std::execution::par, row.begin(), row.end(), row.begin());
                std::sort(std::execution::par, row.begin(), row.end(), std::greater<>());
            });
            return std::transform_reduce(std::execution::par, rows.begin(), rows.end(), 0L,
                                         std::plus(), [](const std::vector<int>& row) {
                                             return std::reduce(std::execution::par, row.begin(),
                                                                row.end(), 0L);
                                         });
        }));
    }
    for (bide::join_handle<long>& task : tasks) {
        CHECK(std::move(task).join() == 40L * 1'500 * 1'501 / 2);
    }
}

TEST_CASE("std_execution: without workers the caller runs the algorithm alone") {
    bide::scheduler workers(2);
    workers.shutdown();
    bide::scheduler* const before = bide::set_std_execution_scheduler(&workers);
    const std::thread::id me = std::this_thread::get_id();
    std::vector<std::thread::id> by(5'000);
    std::for_each(std::execution::par, by.begin(), by.end(),
                  [](std::thread::id& id) { id = std::this_thread::get_id(); });
    std::vector<int> numbers(5'000);
    std::iota(numbers.rbegin(), numbers.rend(), 0);
    std::stable_sort(std::execution::par, numbers.begin(), numbers.end());
    const int sum = std::reduce(std::execution::par, numbers.begin(), numbers.end());
    bide::set_std_execution_scheduler(before);
    CHECK(std::count(by.begin(), by.end(), me) == 5'000);
    CHECK(std::is_sorted(numbers.begin(), numbers.end()));
    CHECK(sum == 12'497'500);
}

TEST_CASE("std_execution: without memory an algorithm runs alone, or throws std::bad_alloc") {
    std::vector<int> numbers(5'000);
    std::iota(numbers.rbegin(), numbers.rend(), 0);
    std::vector<int> others = numbers;
    std::swap(others[0], others[3'000]);
    bool has_thrown = false;
    {
        const test::out_of_memory none;
        std::sort(std::execution::par, numbers.begin(), numbers.end());
        try { // needs a buffer
            std::stable_sort(std::execution::par, others.begin(), others.end());
        } catch (const std::bad_alloc&) {
            has_thrown = true;
        }
    }
    CHECK(std::is_sorted(numbers.begin(), numbers.end()));
    CHECK(has_thrown == test::counts_allocations());
}

#if BIDE_TESTS_CAN_DIE_AT_WORK
TEST_CASE("std_execution: any other exception terminates the program") {
    const auto dies = [](auto f) { return test::run_child(f).has_aborted(); };
    CHECK(dies([] {
        std::vector<int> numbers(5'000);
        std::for_each(std::execution::par, numbers.begin(), numbers.end(),
                      [](int&) { throw std::runtime_error("a body"); });
    }));
    CHECK(dies([] { // a loop that is expected to be too short for a fork-join
        std::vector<int> numbers(100);
        for (int round = 0; round != 200; ++round) {
            std::for_each(std::execution::par, numbers.begin(), numbers.end(), [round](int&) {
                if (round == 199) {
                    throw std::runtime_error("a body");
                }
            });
        }
    }));
    CHECK(dies([] {
        std::vector<int> numbers(5'000);
        std::sort(std::execution::par, numbers.begin(), numbers.end(),
                  [](int, int) -> bool { throw std::runtime_error("a comparison"); });
    }));
    CHECK(dies([] {
        std::vector<int> numbers(5'000);
        std::inclusive_scan(std::execution::par, numbers.begin(), numbers.end(), numbers.begin(),
                            [](int, int) -> int { throw std::runtime_error("an operation"); });
    }));
}
#endif
