#include <bide/parallel/parallel_compact.hpp>
#include <bide/sched/scheduler.hpp>
#include <support/catch.hpp>
#include <support/counted.hpp>
#include <support/forking.hpp>
#include <support/jitter.hpp>
#include <support/parallel_rounds.hpp>
#include <support/scheduling.hpp>
#include <support/two_threads.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <numeric>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace {

struct failure {
    int at;
};

// A number whose moves throw, from one on.
struct tired {
    explicit tired(int n) noexcept : number(n) { ++tally.made; }
    tired(tired&& other) : number(other.number) {
        move();
        ++tally.made;
    }
    tired& operator=(tired&& other) {
        move();
        number = other.number;
        return *this;
    }
    ~tired() { ++tally.gone; }
    static void move() {
        if (--moves_left <= 0) {
            throw failure{0};
        }
    }
    static inline int moves_left = 0;
    static inline test::tally tally;
    int number;
};

template <class T, class Make>
void compare_all(const bide::fork_policy& on, const std::vector<int>& numbers, Make make) {
    const auto values = [&] {
        std::vector<T> all;
        for (const int number : numbers) {
            all.push_back(make(number));
        }
        return all;
    };
    const T one = make(1);
    const auto is_one = [&](const T& element) { return element == one; };
    const auto is_right = [](auto& wanted, auto wanted_end, auto& out, auto end) {
        return end - out.begin() == wanted_end - wanted.begin() &&
               std::equal(wanted.begin(), wanted_end, out.begin());
    };
    for (const bool by_range : {true, false}) {
        std::vector<T> wanted = values();
        std::vector<T> out = values();
        auto wanted_end = std::remove_if(wanted.begin(), wanted.end(), is_one);
        auto end = by_range ? bide::parallel_remove_if(on, out, is_one)
                            : bide::parallel_remove_if(on, out.begin(), out.end(), is_one);
        REQUIRE(is_right(wanted, wanted_end, out, end));
        wanted = values();
        out = values();
        wanted_end = std::unique(wanted.begin(), wanted.end());
        end = by_range ? bide::parallel_unique(on, out)
                       : bide::parallel_unique(on, out.begin(), out.end(), std::equal_to<>());
        REQUIRE(is_right(wanted, wanted_end, out, end));
        wanted = values();
        out = values();
        wanted_end = std::stable_partition(wanted.begin(), wanted.end(), is_one);
        end = by_range ? bide::parallel_stable_partition(on, out, is_one)
                       : bide::parallel_stable_partition(on, out.begin(), out.end(), is_one);
        REQUIRE(is_right(wanted, wanted_end, out, end));
        REQUIRE(out == wanted);
    }
    std::vector<T> source = values();
    std::deque<T> out(std::make_move_iterator(source.begin()),
                      std::make_move_iterator(source.end()));
    std::vector<T> wanted = values();
    const auto wanted_end = std::remove_if(wanted.begin(), wanted.end(), is_one);
    REQUIRE(is_right(wanted, wanted_end, out, bide::parallel_remove_if(on, out, is_one)));
}

} // namespace

TEST_CASE("parallel_compact: leaves what std's algorithms leave, whatever the size and the workers",
          "[promise.filter-as-std]") {
    test::jitter chance(test::run_seed());
    test::on_all_workers(chance, 4, 15, [&](const bide::fork_policy& on, std::size_t n) {
        const std::uint32_t rarity = 1 + chance.below(1u << chance.below(10));
        std::vector<int> numbers(n);
        for (int& number : numbers) {
            number = chance.below(rarity) == 0 ? 1 : static_cast<int>(chance.below(3));
        }
        compare_all<int>(on, numbers, std::identity());
        compare_all<std::string>(on, numbers, [](int i) { return std::to_string(i); });
        compare_all<test::hostile_number>(on, numbers,
                                          [](int i) { return test::hostile_number(i); });
    });
}

TEST_CASE("parallel_compact: a thief's part is moved behind what is kept before it") {
    for (const std::size_t rarity :
         {2u, 3u, 1'000u}) { // the less are removed, the less is the room
        bide::scheduler s(test::with(3, true));
        std::vector<std::size_t> in(200'000);
        std::iota(in.begin(), in.end(), std::size_t{0});
        std::vector<std::size_t> wanted = in;
        const auto is_rare = [&](std::size_t i) { return i % rarity == 0; };
        wanted.erase(std::remove_if(wanted.begin(), wanted.end(), is_rare), wanted.end());
        test::two_threads both;
        in.erase(bide::parallel_remove_if(s, in,
                                          [&](std::size_t i) {
                                              both.come();
                                              return is_rare(i);
                                          }),
                 in.end());
        CHECK(both.met());
        CHECK(in == wanted);
    }
}

TEST_CASE("parallel_compact: whatever thieves take, each element is asked once and none is lost",
          "[promise.filter-as-std]") {
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    test::jitter chance(test::run_seed());
    test::tally tally;
    for (int round = 0; round < 600; ++round) {
        test::chance_run given(chance, round);
        INFO("round " << round << ", " << given.n << " elements, thrown at " << given.first);
        std::vector<test::counted> in;
        for (int i = 0; i < given.n; ++i) {
            in.emplace_back(tally, i);
        }
        const int alive = tally.alive();
        const bide::detail::elements<test::counted*> all{in.data(), in.size()};
        std::vector<int> asked(in.size());
        auto predicate = [&](int number) {
            ++asked[static_cast<std::size_t>(number)];
            if (number == given.first || number == given.second) {
                throw failure{number};
            }
            return number % 3 == 0;
        };
        auto projection = &test::counted::number;
        int thrown = -1;
        test::counted* end = nullptr;
        try {
            end = bide::detail::stable_partition_on(test::chance_forks(given.script), given.options,
                                                    all, predicate, projection);
        } catch (const failure& failed) {
            thrown = failed.at;
        }
        REQUIRE(thrown == (given.first < given.n ? given.first : -1));
        REQUIRE(tally.alive() == alive);
        REQUIRE(std::all_of(asked.begin(), asked.end(), [](int times) { return times <= 1; }));
        std::vector<int> left;
        for (const test::counted& element : in) {
            left.push_back(element.number());
        }
        if (thrown == -1) {
            REQUIRE(end - in.data() == (given.n + 2) / 3);
            REQUIRE(std::is_sorted(left.begin(), left.begin() + (given.n + 2) / 3));
            REQUIRE(std::is_sorted(left.begin() + (given.n + 2) / 3, left.end()));
        }
        std::sort(left.begin(), left.end());
        for (int i = 0; i < given.n; ++i) {
            REQUIRE(left[static_cast<std::size_t>(i)] == i);
        }

        std::vector<int> numbers(in.size());
        std::iota(numbers.begin(), numbers.end(), 0);
        std::fill(asked.begin(), asked.end(), 0);
        std::identity same;
        thrown = -1;
        try {
            int* const behind = bide::detail::remove_if_on(
                test::chance_forks(given.script), given.options,
                bide::detail::elements<int*>{numbers.data(), numbers.size()}, predicate, same);
            numbers.erase(numbers.begin() + (behind - numbers.data()), numbers.end());
        } catch (const failure& failed) {
            thrown = failed.at;
        }
        REQUIRE(thrown == (given.first < given.n ? given.first : -1));
        REQUIRE(std::all_of(asked.begin(), asked.end(), [](int times) { return times <= 1; }));
        if (thrown == -1) {
            REQUIRE(std::ssize(numbers) == given.n - (given.n + 2) / 3);
            for (std::size_t i = 0; i < numbers.size(); ++i) {
                REQUIRE(numbers[i] == static_cast<int>(i / 2 * 3 + i % 2 + 1));
            }
        }
        // Groups of up to five equal neighbours, cut anywhere.
        std::vector<int> groups(static_cast<std::size_t>(given.n));
        for (std::size_t i = 0; i < groups.size(); ++i) {
            groups[i] = static_cast<int>(i / 5);
        }
        int calls = 0;
        auto equal = [&](int a, int b) {
            ++calls;
            return a == b;
        };
        int* const behind = bide::detail::unique_on(
            test::chance_forks(given.script), given.options,
            bide::detail::elements<int*>{groups.data(), groups.size()}, equal, same);
        REQUIRE(behind - groups.data() == (given.n + 4) / 5);
        REQUIRE(calls == std::max(given.n - 1, 0));
        for (std::ptrdiff_t i = 0; i < behind - groups.data(); ++i) {
            REQUIRE(groups[static_cast<std::size_t>(i)] == i);
        }
    }
}

TEST_CASE("parallel_compact: a partition loses no element if there is no memory to fork",
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
            bide::detail::stable_partition_on(test::chance_forks(script), {.grain = n / 4}, all,
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
    for (int last = 0; last < plenty.forks; last += 1 + plenty.forks / 40) {
        INFO("no memory after " << last << " of " << plenty.forks << " forks");
        test::chance_forks::script script(1);
        script.last_fork = last;
        shortages += partition(script) ? 0 : 1;
    }
    CHECK(shortages > 0);
}

TEST_CASE(
    "parallel_compact: if moves throw, the exception leaves the partition, and all are alive") {
    bide::scheduler s(test::with(2, true));
    for (int throws_from = 1; throws_from < 400; throws_from += 7) {
        tired::tally.made = 0;
        tired::tally.gone = 0;
        tired::moves_left = 1 << 30;
        {
            std::vector<tired> in;
            in.reserve(100);
            for (int i = 0; i != 100; ++i) {
                in.emplace_back(i);
            }
            tired::moves_left = throws_from;
            bool thrown = false;
            try {
                bide::parallel_stable_partition({s, {.grain = 200}}, in,
                                                [](const tired& t) { return t.number % 2 == 0; });
            } catch (const failure&) {
                thrown = true;
            }
            CHECK(thrown == (tired::moves_left <= 0));
            CHECK(tired::tally.alive() == 100);
        }
        CHECK(tired::tally.alive() == 0);
    }
}

TEST_CASE("parallel_compact: a grain of more than all elements is one of all") {
    bide::scheduler s(test::with(2, true));
    constexpr std::size_t most = ~std::size_t{0};
    for (const std::size_t grain :
         {std::size_t{1'000}, most / 2, most / 2 + 1, most / 2 + 9, most}) {
        std::vector<int> in(1'000);
        std::iota(in.begin(), in.end(), 0);
        const bide::fork_policy on(s, {.grain = grain});
        CHECK(bide::parallel_remove_if(on, in, [](int i) { return i % 4 == 0; }) - in.begin() ==
              750);
        CHECK(in[749] == 999);
    }
}

TEST_CASE("parallel_compact: a stop ends it early, and a stopped partition keeps all elements",
          "[promise.filter-as-std]") {
    bide::scheduler s(test::with(3, true));
    for (const std::size_t grain : {0u, 10u}) {
        std::vector<std::string> in;
        for (int i = 0; i < 5'000; ++i) {
            in.push_back(std::to_string(i));
        }
        std::vector<std::string> wanted = in;
        std::stop_source stop;
        const bide::fork_policy on(s, {.grain = grain, .stop = stop.get_token()});
        const auto stops = [&](const std::string& element) {
            if (element == "321") {
                stop.request_stop();
            }
            return element.back() == '1';
        };
        CHECK_THROWS_AS(bide::parallel_stable_partition(on, in, stops), bide::stopped_error);
        std::sort(in.begin(), in.end());
        std::sort(wanted.begin(), wanted.end());
        CHECK(in == wanted);
        CHECK_THROWS_AS(bide::parallel_remove_if(on, in, stops), bide::stopped_error);
        CHECK_THROWS_AS(bide::parallel_unique(on, in), bide::stopped_error);
        bide::fork_progress progress;
        bide::parallel_unique({s, {.grain = grain, .progress = &progress}}, wanted);
        CHECK(progress.done() == 5'000);
    }
}

TEST_CASE("parallel_compact: projections and arrays") {
    bide::scheduler s(test::with(2, true));
    std::vector<std::string> words = {"a", "bb", "cc", "d", "ee"};
    CHECK(bide::parallel_stable_partition(
              s, words, [](std::size_t n) { return n == 2; }, &std::string::size) ==
          words.begin() + 3);
    CHECK(words == std::vector<std::string>{"bb", "cc", "ee", "a", "d"});
    CHECK(bide::parallel_unique(s, words, std::equal_to<>(), &std::string::size) ==
          words.begin() + 2);
    int numbers[] = {1, 2, 3, 4};
    CHECK(bide::parallel_remove_if(s, numbers, [](int i) { return i % 2 == 1; }) == numbers + 2);
    CHECK(numbers[1] == 4);
}
