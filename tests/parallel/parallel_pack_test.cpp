#include <bide/parallel/parallel_pack.hpp>
#include <bide/sched/scheduler.hpp>
#include <support/catch.hpp>
#include <support/counted.hpp>
#include <support/forking.hpp>
#include <support/jitter.hpp>
#include <support/parallel_rounds.hpp>
#include <support/scheduling.hpp>
#include <support/two_threads.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <new>
#include <ranges>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace {

struct failure {
    int at;
};

// A number without a default constructor, and with an address and a comma of its own.
struct hostile {
    explicit hostile(int n) : number(n) {}
    hostile* operator&() const = delete;
    template <class T> void operator,(T&&) const = delete;
    friend bool operator==(const hostile& a, const hostile& b) { return a.number == b.number; }
    int number;
};

template <class Out>
concept copies_to = requires(bide::scheduler& s, std::vector<int>& in, Out out) {
    bide::parallel_copy_if(s, in, out, [](int) { return true; });
};

// The serial algorithms, and the parallel ones on some scheduler, for numbers of any type.
template <class T, class Make>
void compare_all(const bide::fork_policy& on, test::jitter& chance, std::size_t n, Make make) {
    const std::uint32_t rarity = 1 + chance.below(1u << chance.below(10));
    std::vector<T> in;
    for (std::size_t i = 0; i < n; ++i) {
        in.push_back(make(chance.below(rarity) == 0 ? 1 : static_cast<int>(chance.below(3))));
    }
    const T one = make(1);
    const T none = make(-1);
    std::vector<T> wanted(n, none);
    std::vector<T> out(n, none);
    const auto is_one = [&](const T& element) { return element == one; };
    const auto is_right = [&](auto wanted_end, auto end) {
        const bool same = end - out.begin() == wanted_end - wanted.begin() && out == wanted;
        std::fill(out.begin(), out.end(), none);
        std::fill(wanted.begin(), wanted.end(), none);
        return same; // the places behind the last one are untouched
    };
    auto end = std::copy_if(in.begin(), in.end(), wanted.begin(), is_one);
    REQUIRE(is_right(end, bide::parallel_copy_if(on, in, out.begin(), is_one)));
    end = std::copy_if(in.begin(), in.end(), wanted.begin(), std::not_fn(is_one));
    REQUIRE(is_right(
        end, bide::parallel_copy_if(on, in.begin(), in.end(), out.begin(), std::not_fn(is_one))));
    const std::deque<T> copy(in.begin(), in.end());
    end = std::copy_if(in.begin(), in.end(), wanted.begin(), is_one);
    REQUIRE(is_right(end, bide::parallel_copy_if(on, copy, out.begin(), is_one)));
    end = std::unique_copy(in.begin(), in.end(), wanted.begin());
    REQUIRE(is_right(end, bide::parallel_unique_copy(on, in, out.begin())));
    end = std::unique_copy(in.begin(), in.end(), wanted.begin());
    REQUIRE(is_right(
        end, bide::parallel_unique_copy(on, in.begin(), in.end(), out.begin(), std::equal_to<>())));
    std::vector<T> others(n, none);
    std::vector<T> wanted_others(n, none);
    const auto ends =
        std::partition_copy(in.begin(), in.end(), wanted.begin(), wanted_others.begin(), is_one);
    auto [matches, rest] =
        bide::parallel_partition_copy(on, in, out.begin(), others.begin(), is_one);
    REQUIRE(is_right(ends.first, matches));
    REQUIRE(rest - others.begin() == ends.second - wanted_others.begin());
    REQUIRE(others == wanted_others);
    std::partition_copy(in.begin(), in.end(), wanted.begin(), wanted_others.begin(), is_one);
    matches =
        bide::parallel_partition_copy(on, in.begin(), in.end(), out.begin(), others.begin(), is_one)
            .first;
    REQUIRE(is_right(ends.first, matches));
    REQUIRE(others == wanted_others);
}

} // namespace

static_assert(copies_to<int*>);
static_assert(copies_to<std::deque<long>::iterator>);
static_assert(!copies_to<std::vector<bool>::iterator>);
static_assert(!copies_to<std::back_insert_iterator<std::vector<int>>>);

TEST_CASE("parallel_pack: copies what std's algorithms copy, whatever the size and the workers",
          "[promise.filter-as-std]") {
    test::jitter chance(test::run_seed());
    test::on_all_workers(chance, 4, 15, [&](const bide::fork_policy& on, std::size_t n) {
        compare_all<int>(on, chance, n, std::identity());
        compare_all<std::string>(on, chance, n, [](int i) { return std::to_string(i); });
        compare_all<hostile>(on, chance, n, [](int i) { return hostile(i); });
    });
}

TEST_CASE("parallel_pack: a part that a thief asks is copied behind the part before it",
          "[promise.filter-as-std]") {
    for (const unsigned workers : {2u, 4u, 16u}) {
        bide::scheduler s(test::with(workers, true));
        std::vector<int> in(20'000);
        for (std::size_t i = 0; i < in.size(); ++i) {
            in[i] = static_cast<int>(i);
        }
        std::vector<int> out(10'000, -1);
        test::two_threads both;
        const auto is_odd = [&](int i) {
            both.come();
            return i % 2 != 0;
        };
        CHECK(bide::parallel_copy_if(s, in, out.begin(), is_odd) == out.end());
        CHECK(both.met());
        for (std::size_t i = 0; i < out.size(); ++i) {
            REQUIRE(out[i] == 2 * static_cast<int>(i) + 1);
        }
    }
}

TEST_CASE("parallel_pack: each element is asked once, and the exception is that of a serial run",
          "[promise.filter-as-std]") {
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    test::jitter chance(test::run_seed());
    test::tally tally;
    for (int round = 0; round < 600; ++round) {
        test::chance_run given(chance, round);
        given.may_lack_memory(chance);
        INFO("round " << round << ", " << given.n << " elements, thrown at " << given.first);
        std::vector<test::counted> in;
        for (int i = 0; i < given.n; ++i) {
            in.emplace_back(tally, i);
        }
        std::vector<test::counted> out(in.size(), test::counted(tally, -1));
        std::vector<int> numbers(in.size());
        std::vector<int> copied(in.size(), -1);
        std::vector<int> wanted;
        for (int i = 0; i < given.n; ++i) {
            numbers[static_cast<std::size_t>(i)] = i;
            if (i < given.first && i % 3 == 0) {
                wanted.push_back(i);
            }
        }
        const int alive = tally.alive();
        std::vector<int> asked(in.size());
        auto predicate = [&](int number) {
            ++asked[static_cast<std::size_t>(number)];
            if (number == given.first || number == given.second) {
                throw failure{number};
            }
            return number % 3 == 0;
        };
        const auto run = [&](auto* from, auto* to, auto projection) {
            const bide::detail::elements<decltype(from)> all{from, in.size()};
            try {
                bide::detail::copy_if_on(test::chance_forks(given.script), given.options, all, to,
                                         predicate, projection);
                return -1;
            } catch (const failure& failed) {
                return failed.at;
            } catch (const std::bad_alloc&) {
                return -2;
            }
        };
        const int expected = given.first < given.n ? given.first : -1;
        int thrown = run(in.data(), out.data(), &test::counted::number);
        REQUIRE((thrown == expected || (given.is_out_of_memory && thrown == -2)));
        REQUIRE(tally.alive() == alive);
        REQUIRE(std::all_of(asked.begin(), asked.end(), [](int times) { return times <= 1; }));
        if (thrown != -2) {
            REQUIRE(std::equal(wanted.begin(), wanted.end(), out.begin(),
                               [](int i, const test::counted& c) { return c.number() == i; }));
            REQUIRE(std::count_if(out.begin(), out.end(), [](const test::counted& c) {
                        return c.number() != -1;
                    }) == std::ssize(wanted));
        }
        thrown = run(numbers.data(), copied.data(), std::identity());
        REQUIRE((thrown == expected || (given.is_out_of_memory && thrown == -2)));
        if (thrown != -2) {
            REQUIRE(std::equal(wanted.begin(), wanted.end(), copied.begin()));
            REQUIRE(std::count(copied.begin(), copied.end(), -1) == given.n - std::ssize(wanted));
        }
    }
}

TEST_CASE("parallel_pack: a stop ends it early, and its progress counts each element once") {
    bide::scheduler s(test::with(3, true));
    std::vector<int> in(10'000, 1);
    std::vector<int> out(10'000);
    for (const std::size_t grain : {0u, 10u}) {
        bide::fork_progress progress;
        test::two_threads both;
        const auto yes = [&](int) {
            both.come();
            return true;
        };
        bide::parallel_copy_if({s, {.grain = grain, .progress = &progress}}, in, out.begin(), yes);
        CHECK(progress.done() == 10'000);
        std::stop_source stop;
        const auto stops = [&](int) { return stop.request_stop(); };
        CHECK_THROWS_AS(bide::parallel_copy_if({s, {.grain = grain, .stop = stop.get_token()}}, in,
                                               out.begin(), stops),
                        bide::stopped_error);
    }
}

TEST_CASE("parallel_pack: a grain of more than all elements is one of all") {
    bide::scheduler s(test::with(2, true));
    constexpr std::size_t most = ~std::size_t{0};
    const std::vector<int> in(1'000, 3);
    for (const std::size_t grain :
         {std::size_t{1'000}, most / 2, most / 2 + 1, most / 2 + 9, most}) {
        std::vector<int> out(in.size());
        CHECK(bide::parallel_copy_if({s, {.grain = grain}}, in, out.begin(),
                                     [](int) { return true; }) == out.end());
        CHECK(out == in);
    }
}

TEST_CASE("parallel_pack: projections, arrays and views") {
    bide::scheduler s(test::with(2, true));
    const std::vector<std::string> words = {"a", "bb", "cc", "d", "ee"};
    std::vector<std::string> out(5);
    CHECK(bide::parallel_copy_if(
              s, words, out.begin(), [](std::size_t n) { return n == 2; }, &std::string::size) ==
          out.begin() + 3);
    CHECK(out == std::vector<std::string>{"bb", "cc", "ee", "", ""});
    CHECK(bide::parallel_unique_copy(s, words, out.begin(), std::equal_to<>(),
                                     &std::string::size) == out.begin() + 4);
    CHECK(out == std::vector<std::string>{"a", "bb", "d", "ee", ""});
    const int numbers[] = {1, 2, 3, 4};
    int odd[4] = {};
    int even[4] = {};
    const auto is_odd = [](int i) { return i % 2 == 1; };
    CHECK(bide::parallel_partition_copy(s, numbers, odd, even, is_odd) ==
          std::pair(odd + 2, even + 2));
    CHECK(bide::parallel_copy_if(s, numbers, numbers + 3, odd, is_odd) == odd + 2);
#if !defined(__clang__) || __clang_major__ >= 16 // before, clang cannot compile libstdc++'s views
    CHECK(bide::parallel_copy_if(s, std::views::iota(0, 4), odd, is_odd) == odd + 2);
#endif
    CHECK(odd[1] == 3);
}
