#include <bide/parallel/parallel_partition.hpp>
#include <bide/sched/scheduler.hpp>
#include <support/catch.hpp>
#include <support/counted.hpp>
#include <support/forking.hpp>
#include <support/jitter.hpp>
#include <support/narrow_iterator.hpp>
#include <support/scheduling.hpp>
#include <support/two_threads.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <memory>
#include <new>
#include <numeric>
#include <ranges>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace {

struct failure {
    int at;
};

std::vector<int> numbered(std::size_t n, test::jitter& chance, std::uint32_t rarity) {
    std::vector<int> made(n);
    for (std::size_t i = 0; i != n; ++i) {
        made[i] = static_cast<int>(2 * i) + (chance.below(rarity) == 0 ? 0 : 1);
    }
    return made;
}

bool is_even(int i) { return i % 2 == 0; }

// Expects that the even numbers stand before `middle`, and that none was lost.
void expect_divided(const std::vector<int>& given, std::vector<int> out, std::ptrdiff_t middle) {
    REQUIRE(middle == std::count_if(given.begin(), given.end(), is_even));
    REQUIRE(std::all_of(out.begin(), out.begin() + middle, is_even));
    REQUIRE(std::none_of(out.begin() + middle, out.end(), is_even));
    std::sort(out.begin(), out.end());
    REQUIRE(out == given);
}

template <class T> std::vector<int> order_of(const std::vector<T>& elements) {
    std::vector<int> order;
    for (const T& element : elements) {
        order.push_back(*element.number);
    }
    return order;
}

} // namespace

TEST_CASE("parallel_partition: divides as std's does, in the same order on any number of workers",
          "[promise.partition-order]") {
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    test::jitter chance(test::run_seed());
    bide::scheduler_options lonely = test::with(2, true);
    lonely.enable_stealing = false;
    for (const std::size_t n : {0u, 1u, 2u, 3u, 97u, 8'191u, 8'192u, 10'007u, 300'007u}) {
        for (const std::uint32_t rarity : {1u, 2u, 1'000'000u}) {
            for (const std::size_t grain : {0u, 7u, 100'000u}) {
                if (n > 20'000 && (rarity != 2 || grain == 7)) {
                    continue; // random ones are enough
                }
                INFO(n << " elements, 1 of " << rarity << ", grain " << grain);
                const std::vector<int> given = numbered(n, chance, rarity);
                std::vector<int> first_out;
                std::vector<int> first_order;
                for (const unsigned workers : {0u, 1u, 2u, 4u, 16u}) {
                    bide::scheduler s(workers == 0 ? lonely : test::with(workers, true));
                    const bide::fork_policy on(s, {.grain = grain});
                    std::vector<int> out = given;
                    const auto middle = bide::parallel_partition(on, out, is_even);
                    expect_divided(given, out, middle - out.begin());
                    std::vector<test::hostile_number> values;
                    for (const int number : given) {
                        values.emplace_back(number);
                    }
                    const auto border = bide::parallel_partition(
                        on, values.begin(), values.end(),
                        [](const test::hostile_number& h) { return is_even(*h.number); });
                    const std::vector<int> order = order_of(values);
                    expect_divided(given, order, border - values.begin());
                    if (workers == 0) {
                        first_out = out;
                        first_order = order;
                    }
                    REQUIRE(out == first_out);
                    REQUIRE(order == first_order);
                }
            }
        }
    }
}

TEST_CASE("parallel_partition: several threads ask at the same time", "[promise.partition-order]") {
    bide::scheduler s(test::with(2, true));
    for (const std::size_t grain : {0u, 1u}) {
        std::vector<int> in(grain == 0 ? 8'192 : 2);
        test::two_threads both;
        bide::parallel_partition({s, {.grain = grain}}, in, [&](int) {
            both.come();
            return true;
        });
        CHECK(both.met());
    }
}

TEST_CASE(
    "parallel_partition: asks each element once, reports the first part that throws, loses none",
    "[promise.partition-order]") {
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    test::jitter chance(test::run_seed());
    test::tally tally;
    for (int round = 0; round != 400; ++round) {
        const int n = static_cast<int>(chance.below(1u << chance.below(12)));
        test::chance_forks::script script(test::run_seed() + static_cast<unsigned>(round));
        script.thieves = chance.below(5);
        const std::size_t grain = 1 + chance.below(200);
        const int first = static_cast<int>(chance.below(2 * static_cast<unsigned>(n) + 1));
        const int second = first + static_cast<int>(chance.below(1'000));
        script.last_fork = round % 4 == 0 ? static_cast<int>(chance.below(70)) : script.last_fork;
        INFO("round " << round << ", " << n << " elements, grain " << grain << ", thrown at "
                      << first << " and " << second);
        std::vector<test::counted> in;
        std::vector<int> plain(static_cast<std::size_t>(n));
        std::iota(plain.begin(), plain.end(), 0);
        for (int i = 0; i != n; ++i) {
            in.emplace_back(tally, i);
        }
        const int alive = tally.alive();
        const bide::fork_options options{.grain = grain};
        std::vector<int> asked(in.size());
        auto predicate = [&](int number) {
            ++asked[static_cast<std::size_t>(number)];
            if (number == first || number == second) {
                throw failure{number};
            }
            return number % 3 == 0;
        };
        // The part of a number: the parts differ by at most one element.
        const auto parts = std::clamp<std::size_t>(in.size() / grain, 1, 64);
        const auto part_of = [&](int number) {
            std::size_t part = 0;
            while (in.size() * (part + 1) / parts <= static_cast<std::size_t>(number)) {
                ++part;
            }
            return part;
        };
        const auto check = [&](auto partition, auto left) {
            std::fill(asked.begin(), asked.end(), 0);
            script.forks = 0;
            int thrown = -1;
            bool lacked_memory = false;
            std::ptrdiff_t middle = -1;
            try {
                middle = partition();
            } catch (const failure& failed) {
                thrown = failed.at;
            } catch (const std::bad_alloc&) {
                lacked_memory = true;
            }
            if (lacked_memory) {
                REQUIRE(script.forks > script.last_fork);
            } else if (first < n) {
                REQUIRE(thrown != -1);
                REQUIRE((script.last_fork < 70 || part_of(thrown) == part_of(first)));
            } else {
                REQUIRE(middle == (n + 2) / 3);
                REQUIRE(
                    std::all_of(asked.begin(), asked.end(), [](int times) { return times == 1; }));
            }
            REQUIRE(std::all_of(asked.begin(), asked.end(), [](int times) { return times <= 1; }));
            std::vector<int> numbers = left();
            if (middle != -1) {
                REQUIRE(std::all_of(numbers.begin(), numbers.begin() + middle,
                                    [](int i) { return i % 3 == 0; }));
            }
            std::sort(numbers.begin(), numbers.end());
            for (int i = 0; i != n; ++i) {
                REQUIRE(numbers[static_cast<std::size_t>(i)] == i);
            }
        };
        auto projection = &test::counted::number;
        std::identity same;
        check(
            [&] {
                return bide::detail::partition_on(test::chance_forks(script), in.data(),
                                                  in.data() + n, options, predicate, projection) -
                       in.data();
            },
            [&] {
                std::vector<int> left;
                for (const test::counted& element : in) {
                    left.push_back(element.number());
                }
                return left;
            });
        REQUIRE(tally.alive() == alive);
        check(
            [&] {
                return bide::detail::partition_on(test::chance_forks(script), plain.data(),
                                                  plain.data() + n, options, predicate, same) -
                       plain.data();
            },
            [&] { return plain; });
    }
}

TEST_CASE("parallel_partition: a stop ends it early and loses nothing, and its progress ends",
          "[promise.partition-order]") {
    bide::scheduler s(test::with(3, true));
    std::vector<std::string> given;
    for (int i = 0; i != 50'000; ++i) {
        given.push_back(std::to_string(i));
    }
    const auto sorted = [](std::vector<std::string> v) {
        std::sort(v.begin(), v.end());
        return v;
    };
    std::vector<std::string> in = given;
    std::atomic<int> calls{0};
    std::stop_source stop;
    const auto stops = [&](const std::string& element) {
        calls.fetch_add(1, std::memory_order_relaxed);
        stop.request_stop();
        return element.back() == '1';
    };
    bide::fork_progress progress;
    const bide::fork_policy on(s, {.stop = stop.get_token(), .progress = &progress});
    CHECK_THROWS_AS(bide::parallel_partition(on, in, stops), bide::stopped_error);
    CHECK(calls < 50'000);
    CHECK(progress.done() < 50'000);
    CHECK(sorted(in) == sorted(given));
    in = given;
    CHECK_THROWS_AS(bide::parallel_partition(on, in, stops), bide::stopped_error);
    CHECK(in == given);
    bide::fork_progress all;
    bide::parallel_partition({s, {.progress = &all}}, in,
                             [](const std::string& e) { return e.size() == 4; });
    CHECK(all.done() == 50'000);
    CHECK(all.total() == 50'000);
}

TEST_CASE(
    "parallel_partition: projections, arrays, deques, spans, reversed views, narrow iterators") {
    bide::scheduler s(test::with(2, true));
    std::vector<std::string> words = {"a", "bb", "cc", "d", "ee"};
    const auto is_two = [](std::size_t n) { return n == 2; };
    CHECK(bide::parallel_partition(s, words, is_two, &std::string::size) == words.begin() + 3);
    CHECK(words[2].size() == 2);
    int numbers[] = {1, 2, 3, 4};
    CHECK(bide::parallel_partition(s, numbers, is_even) == numbers + 2);
    CHECK(is_even(numbers[1]));
    const bide::fork_policy on(s, {.grain = 3});
    std::vector<int> given(1'000);
    std::iota(given.begin(), given.end(), 0);
    std::deque<int> queue(given.begin(), given.end());
    const auto border = bide::parallel_partition(on, queue, is_even);
    CHECK(border - queue.begin() == 500);
    CHECK(std::all_of(queue.begin(), border, is_even));
    std::vector<int> v = given;
    CHECK(bide::parallel_partition(on, std::span(v), is_even) - std::span(v).begin() == 500);
    CHECK(std::is_partitioned(v.begin(), v.end(), is_even));
    auto reversed = std::views::reverse(v);
    CHECK(bide::parallel_partition(on, reversed, is_even) - reversed.begin() == 500);
    CHECK(std::is_partitioned(v.rbegin(), v.rend(), is_even));
    v = given;
    using narrow = test::narrow_iterator<int>;
    CHECK(bide::parallel_partition(on, narrow(v.data()), narrow(v.data() + v.size()), is_even) -
              narrow(v.data()) ==
          500);
    CHECK(std::is_partitioned(v.begin(), v.end(), is_even));
}
