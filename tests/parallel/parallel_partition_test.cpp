#include <bide/parallel/parallel_partition.hpp>
#include <support/counted.hpp>
#include <support/forking.hpp>
#include <support/function_ref.hpp>
#include <support/jitter.hpp>
#include <support/narrow_iterator.hpp>
#include <support/scheduling.hpp>
#include <support/two_threads.hpp>

// What thieves take, exceptions, and memory that runs out: algorithms_test.cpp.

namespace {

std::vector<int> numbered(std::size_t n, test::jitter& chance, std::uint32_t rarity) {
    std::vector<int> made(n);
    for (std::size_t i = 0; i != n; ++i) {
        made[i] = static_cast<int>(2 * i) + (chance.below(rarity) == 0 ? 0 : 1);
    }
    return made;
}

bool is_even(int i) { return i % 2 == 0; }

// Expects that the even numbers stand before `middle`, and that none was lost.
void expect_divided(const std::vector<int>& given, const std::vector<int>& out,
                    std::ptrdiff_t middle) {
    REQUIRE(middle == std::count_if(given.begin(), given.end(), is_even));
    REQUIRE(std::all_of(out.begin(), out.begin() + middle, is_even));
    REQUIRE(std::none_of(out.begin() + middle, out.end(), is_even));
    std::vector<int> seen(given.size(), -1); // in the order of numbered()
    for (const int number : out) {
        seen[static_cast<std::size_t>(number / 2)] = number;
    }
    REQUIRE(seen == given);
}

template <class T> std::vector<int> order_of(const std::vector<T>& elements) {
    std::vector<int> order;
    for (const T& element : elements) {
        order.push_back(*element.number);
    }
    return order;
}

struct failure {};

// Hostile, and its moves throw, from one on.
struct tired : test::counted_once {
    using test::counted_once::counted_once;
    tired(tired&& other) : test::counted_once((move(), std::move(other))) {}
    tired& operator=(tired&& other) {
        move();
        test::counted_once::operator=(std::move(other));
        return *this;
    }
    tired* operator&() const = delete;
    template <class T> void operator,(T&&) const = delete;
    static void move() {
        if (--moves_left <= 0) {
            throw failure();
        }
    }
    static inline int moves_left = 0;
};

} // namespace

TEST_CASE("parallel_partition: divides as std's does, in the same order on any number of workers",
          "[promise.partition-order]") {
    test::jitter chance(test::run_seed());
    bide::scheduler_options lonely = test::with(2, true);
    lonely.enable_stealing = false;
    for (const std::size_t n : {0u, 1u, 3u, 97u, 8'192u, 100'007u}) {
        for (const std::uint32_t rarity : {1u, 2u, 1'000'000u}) {
            for (const std::size_t grain : {0u, 7u, 30'000u}) {
                if (n > 1'000 && (rarity != 2 || grain == 7)) {
                    continue; // random ones are enough
                }
                INFO(n << " elements, 1 of " << rarity << ", grain " << grain);
                const std::vector<int> given = numbered(n, chance, rarity);
                std::vector<int> first_out;
                std::vector<int> first_order;
                for (const unsigned workers : {0u, 2u, 16u}) {
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

TEST_CASE("parallel_partition: of larger plain elements, asks once for each, and loses none",
          "[promise.partition-order]") {
    struct record {
        int number;
        char rest[28];
    };
    test::jitter chance(test::run_seed());
    bide::scheduler s(test::with(2, true));
    for (const std::size_t n : {1u, 255u, 256u, 257u, 384u, 1'000u, 5'000u}) {
        for (const std::uint32_t rarity : {1u, 2u, 5u, 300u, 1'000'000u}) {
            for (const bool is_reversed : {false, true}) {
                INFO(n << " elements, 1 of " << rarity << ", reversed: " << is_reversed);
                const std::vector<int> given = numbered(n, chance, rarity);
                std::vector<record> out(n);
                for (std::size_t i = 0; i != n; ++i) {
                    out[i].number = given[is_reversed ? n - 1 - i : i];
                }
                std::size_t calls = 0; // of one thread: there are less than twice the grain
                const auto middle = bide::parallel_partition(
                    s, out,
                    [&](int number) {
                        ++calls;
                        return is_even(number);
                    },
                    &record::number);
                REQUIRE(calls == n);
                const auto numbers = [&out] {
                    std::vector<int> all(out.size());
                    std::ranges::transform(out, all.begin(), &record::number);
                    return all;
                };
                expect_divided(given, numbers(), middle - out.begin());
                bide::parallel_partition(s, out,
                                         [&](const record&) { return chance.below(2) == 0; });
                std::vector<int> all = numbers();
                std::ranges::sort(all);
                REQUIRE(all == given); // numbered() ascends
            }
        }
    }
}

TEST_CASE("parallel_partition: several threads ask at the same time", "[promise.partition-order]") {
    bide::scheduler s(test::with(2, true));
    for (const std::size_t grain : {0u, 1u}) {
        std::vector<int> in(grain == 0 ? 8'192 : 2);
        test::two_threads both;
        const auto come = [&](int) { return both.come(), true; };
        bide::parallel_partition({s, {.grain = grain}}, in, test::function_ref<bool(int)>(come));
        CHECK(both.met());
    }
}

TEST_CASE("parallel_partition: a stop ends it early and loses nothing",
          "[promise.partition-order]") {
    bide::scheduler s(test::with(3, true));
    std::vector<int> given(50'000);
    std::iota(given.begin(), given.end(), 0);
    std::vector<int> in = given;
    std::atomic<int> calls{0};
    std::stop_source stop;
    const auto stops = [&](int i) {
        calls.fetch_add(1, std::memory_order_relaxed);
        stop.request_stop();
        return i % 10 == 1;
    };
    const test::function_ref<bool(int)> predicate(stops);
    bide::fork_progress progress;
    const bide::fork_policy on(s, {.stop = stop.get_token(), .progress = &progress});
    CHECK_THROWS_AS(bide::parallel_partition(on, in, predicate), bide::stopped_error);
    CHECK(calls < 50'000);
    CHECK(progress.done() < 50'000);
    std::sort(in.begin(), in.end());
    CHECK(in == given);
    CHECK_THROWS_AS(bide::parallel_partition(on, in, predicate), bide::stopped_error);
    CHECK(in == given);
}

TEST_CASE("parallel_partition: projections, reversed views of deques, narrow iterators") {
    bide::scheduler s(test::with(2, true));
    const bide::fork_policy on(s, {.grain = 3});
    std::vector<std::string> words = {"a", "bb", "cc", "d", "ee"};
    const auto is_two = [](std::size_t n) { return n == 2; };
    using narrow = test::narrow_iterator<std::string>;
    CHECK(bide::parallel_partition(on, narrow(words.data()), narrow(words.data() + 5), is_two,
                                   &std::string::size) == narrow(words.data() + 3));
    CHECK(words[2].size() == 2);
    std::deque<int> queue(1'000);
    std::iota(queue.begin(), queue.end(), 0);
    auto reversed = std::views::reverse(queue);
    CHECK(bide::parallel_partition(on, reversed, is_even) - reversed.begin() == 500);
    CHECK(std::is_partitioned(queue.rbegin(), queue.rend(), is_even));
}

TEST_CASE("parallel_stable_partition: loses no element if there is no memory to fork",
          "[promise.filter-as-std]") {
    constexpr int n = 100'000; // so that thieves' parts are moved by several threads
    test::tally tally;
    const auto partition = [&](test::chance_forks::script& script) {
        script.hunger = 4;
        script.thieves = 4;
        std::vector<test::counted> in;
        for (int i = 0; i != n; ++i) {
            in.emplace_back(tally, i);
        }
        auto predicate = [](int number) { return number * 7 % 13 % 2 == 0; };
        auto projection = &test::counted::number;
        const bide::detail::elements<test::counted*> all{in.data(), in.size()};
        bool has_memory = true;
        try {
            bide::detail::stable_partition(test::by_chance(script, {.grain = n / 4}), all,
                                           predicate, projection);
        } catch (const std::bad_alloc&) {
            has_memory = false;
        }
        std::vector<char> found(n + 1);
        for (const test::counted& element : in) {
            found[static_cast<std::size_t>(element.number() + 1)] = 1; // moved from: 0
        }
        REQUIRE(found[0] == 0);
        REQUIRE(std::count(found.begin(), found.end(), 1) == n);
        return has_memory;
    };
    test::chance_forks::script plenty(1);
    REQUIRE(partition(plenty));
    int shortages = 0;
    for (int last = 0; last < plenty.forks; last += 1 + plenty.forks / 20) {
        INFO("no memory after " << last << " of " << plenty.forks << " forks");
        test::chance_forks::script script(1);
        script.last_fork = last;
        shortages += partition(script) ? 0 : 1;
    }
    CHECK(shortages > 0);
}

TEST_CASE("parallel_stable_partition: if moves throw, the exception leaves it, and all are alive") {
    bide::scheduler s(test::with(2, true));
    for (int throws_from = 1; throws_from < 400; throws_from += 7) {
        test::tally tally;
        {
            tired::moves_left = 1 << 30;
            std::vector<tired> in;
            in.reserve(100);
            for (int i = 0; i != 100; ++i) {
                in.emplace_back(tally, i);
            }
            tired::moves_left = throws_from;
            bool thrown = false;
            try {
                bide::parallel_stable_partition({s, {.grain = 200}}, in,
                                                [](const tired& t) { return t.number() % 2 == 0; });
            } catch (const failure&) {
                thrown = true;
            }
            CHECK(thrown == (tired::moves_left <= 0));
            CHECK(tally.alive() == 100);
        }
        CHECK(tally.alive() == 0);
    }
}
