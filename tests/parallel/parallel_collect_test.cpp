#include <bide/parallel/parallel_collect.hpp>
#include <bide/sched/scheduler.hpp>
#include <support/catch.hpp>
#include <support/counted.hpp>
#include <support/forking.hpp>
#include <support/jitter.hpp>
#include <support/parallel_rounds.hpp>
#include <support/scheduling.hpp>
#include <support/two_threads.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <ranges>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace {

struct failure {
    int at;
};

using groups = std::vector<std::pair<std::string, std::vector<int>>>;

groups group_serially(const std::vector<int>& in, int keys) {
    groups all;
    for (const int i : in) {
        const std::string key = std::to_string(i % keys);
        auto at = std::find_if(all.begin(), all.end(), [&](auto& g) { return g.first == key; });
        if (at == all.end()) {
            at = all.insert(all.end(), {key, {}});
        }
        at->second.push_back(i);
    }
    return all;
}

} // namespace

TEST_CASE("parallel_collect: gives what a serial loop gives, whatever the size and the workers",
          "[promise.collect-order]") {
    test::jitter chance(test::run_seed());
    test::on_all_workers(chance, 3, 14, [&](const bide::fork_policy& on, std::size_t n) {
        std::vector<int> in(n);
        std::generate(in.begin(), in.end(), [&] { return static_cast<int>(chance.below(1'000)); });
        const std::deque<int> copy(in.begin(), in.end());

        const std::vector<test::hostile_number> moved =
            bide::parallel_collect(on, in, [](int i) { return test::hostile_number(i); });
        REQUIRE(std::equal(moved.begin(), moved.end(), in.begin(), in.end(),
                           [](const test::hostile_number& a, int b) { return *a.number == b; }));
        REQUIRE(bide::parallel_collect(on, copy.begin(), copy.end(), std::identity()) == in);
        const auto is_odd = [](int i) { return i % 2 != 0; };
        const std::vector<bool> bits = bide::parallel_collect(on, in, is_odd);
        REQUIRE(std::equal(bits.begin(), bits.end(), in.begin(), in.end(),
                           [&](bool a, int b) { return a == is_odd(b); }));

        std::vector<int> odd;
        std::copy_if(in.begin(), in.end(), std::back_inserter(odd), is_odd);
        REQUIRE(bide::parallel_collect_if(on, copy, is_odd) == odd);
        REQUIRE(bide::parallel_collect_if(on, in.begin(), in.end(), is_odd) == odd);
        const auto odd_text = [&](int i) {
            return is_odd(i) ? std::optional(std::to_string(i)) : std::nullopt;
        };
        std::vector<std::string> texts;
        std::transform(odd.begin(), odd.end(), std::back_inserter(texts),
                       [](int i) { return std::to_string(i); });
        REQUIRE(bide::parallel_collect_some(on, in, odd_text) == texts);
        REQUIRE(bide::parallel_collect_some(on, copy.begin(), copy.end(), odd_text) == texts);

        const std::size_t bins = 1 + chance.below(1'200);
        std::vector<std::size_t> counts(bins);
        for (const int i : in) {
            ++counts[static_cast<std::size_t>(i) % bins];
        }
        const auto bin = [&](int i) { return static_cast<std::size_t>(i) % bins; };
        REQUIRE(bide::parallel_histogram(on, in, bins, bin) == counts);
        REQUIRE(bide::parallel_histogram(on, copy.begin(), copy.end(), bins, bin) == counts);

        const int keys = 1 + static_cast<int>(chance.below(300));
        const auto key = [&](int i) { return std::to_string(i % keys); };
        const groups wanted = group_serially(in, keys);
        REQUIRE(bide::parallel_group_by(on, in, key) == wanted);
        REQUIRE(bide::parallel_group_by(on, copy.begin(), copy.end(), key) == wanted);
    });
}

TEST_CASE("parallel_collect: what a thief makes stands behind what was made before it",
          "[promise.collect-order]") {
    for (const unsigned workers : {2u, 4u, 16u}) {
        bide::scheduler s(test::with(workers, true));
        std::vector<int> in(20'000);
        std::iota(in.begin(), in.end(), 0);
        test::two_threads both;
        const auto same = [&](int i) {
            both.come();
            return i;
        };
        CHECK(bide::parallel_collect(s, in, same) == in);
        CHECK(both.met());
        test::two_threads grouping;
        const auto key = [&](int i) {
            grouping.come();
            return std::to_string(i % 7);
        };
        CHECK(bide::parallel_group_by(s, in, key) == group_serially(in, 7));
        CHECK(grouping.met());
        test::two_threads counting;
        const auto bin = [&](int i) {
            counting.come();
            return i % 2;
        };
        CHECK(bide::parallel_histogram(s, in, 2, bin) == std::vector<std::size_t>{10'000, 10'000});
        CHECK(counting.met());
    }
}

TEST_CASE("parallel_collect: the exception is that of a serial run, and no value is left",
          "[promise.collect-order]") {
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    test::jitter chance(test::run_seed());
    test::tally tally;
    for (int round = 0; round < 400; ++round) {
        test::chance_run given(chance, round);
        given.may_lack_memory(chance);
        INFO("round " << round << ", " << given.n << " elements, thrown at " << given.first);
        std::vector<int> in(static_cast<std::size_t>(given.n));
        std::iota(in.begin(), in.end(), 0);
        const bide::detail::elements<int*> all{in.data(), in.size()};
        auto make = [&](int i) {
            if (i == given.first || i == given.second) {
                throw failure{i};
            }
            return std::optional<test::counted_once>(std::in_place, tally, i);
        };
        int thrown = -1;
        try {
            const auto made = bide::detail::collect_some_on(test::chance_forks(given.script),
                                                            given.options, all, make);
            REQUIRE(tally.alive() == given.n);
            for (int i = 0; i < given.n; ++i) {
                REQUIRE(made[static_cast<std::size_t>(i)].number() == i);
            }
        } catch (const failure& failed) {
            thrown = failed.at;
        } catch (const std::bad_alloc&) {
            thrown = -2;
        }
        REQUIRE((thrown == (given.first < given.n ? given.first : -1) ||
                 (given.is_out_of_memory && thrown == -2)));
        REQUIRE(tally.alive() == 0);

        auto key = [&](int i) {
            if (i == given.first || i == given.second) {
                throw failure{i};
            }
            return i % 5;
        };
        std::identity same;
        thrown = -1;
        try {
            const auto made =
                bide::detail::group_on(test::chance_forks(given.script), given.options, all, key,
                                       same, std::hash<int>(), std::equal_to<>());
            REQUIRE(std::ssize(made) == std::min(given.n, 5));
            const auto counts = bide::detail::histogram_on(test::chance_forks(given.script),
                                                           given.options, all, 5, key);
            for (std::size_t i = 0; i < made.size(); ++i) {
                REQUIRE(made[i].first == static_cast<int>(i));
                REQUIRE(made[i].second.size() == counts[i]);
                REQUIRE(std::is_sorted(made[i].second.begin(), made[i].second.end()));
            }
        } catch (const failure& failed) {
            thrown = failed.at;
        } catch (const std::bad_alloc&) {
            thrown = -2;
        }
        REQUIRE((thrown == (given.first < given.n ? given.first : -1) ||
                 (given.is_out_of_memory && thrown == -2)));
    }
}

TEST_CASE("parallel_histogram: a key that is no bin is refused, whatever its type",
          "[promise.collect-order]") {
    bide::scheduler s(test::with(2, true));
    const std::array<int, 3> numbers = {0, 1, -1};
    CHECK_THROWS_AS(bide::parallel_histogram(s, numbers, 2), std::out_of_range);
    const std::array<unsigned char, 3> few = {0, 1, 2};
    CHECK_THROWS_AS(bide::parallel_histogram(s, few, 2), std::out_of_range);
    CHECK(bide::parallel_histogram(s, few, 3) == std::vector<std::size_t>{1, 1, 1});
    CHECK(bide::parallel_histogram(s, std::array<int, 0>(), 2) == std::vector<std::size_t>{0, 0});
#if !defined(__clang__) || __clang_major__ >= 16 // before, clang cannot compile libstdc++'s views
    CHECK(bide::parallel_histogram(s, std::views::iota(0, 3), 3) ==
          std::vector<std::size_t>{1, 1, 1});
#endif
}

TEST_CASE("parallel_histogram: characters are keys, and negative ones are refused") {
    bide::scheduler s(test::with(2, true));
    const std::string text = "parallel";
    const auto counts = bide::parallel_histogram(s, text, 128);
    CHECK(counts['l'] == 3);
    CHECK(counts['z'] == 0);
    CHECK(bide::parallel_histogram(s, std::u8string(u8"aab"), 128)['a'] == 2);
    CHECK(bide::parallel_histogram(s, std::vector<wchar_t>{L'b'}, 128)['b'] == 1);
    const std::vector<signed char> negative = {-1};
    CHECK_THROWS_AS(bide::parallel_histogram(s, negative, 256), std::out_of_range);
    const std::array<bool, 3> flags = {true, false, true};
    CHECK(bide::parallel_histogram(s, flags, 2) == std::vector<std::size_t>{1, 2});
}

namespace {

struct unhashed {
    int number;
    bool operator==(const unhashed&) const = default;
};
template <class Key>
concept groups_ints_by = requires(bide::scheduler& s, std::vector<int> in, Key key) {
    bide::parallel_group_by(s, in, key);
};

} // namespace

static_assert(groups_ints_by<int (*)(int)>);
static_assert(groups_ints_by<const std::string& (*)(int)>);
static_assert(!groups_ints_by<unhashed (*)(int)>, "the key has no hash");
static_assert(!groups_ints_by<std::unique_ptr<int> (*)(int)>, "the key is copied");

TEST_CASE("parallel_group_by: what is kept of an element may be moved out of it") {
    bide::scheduler s(test::with(2, true));
    std::vector<test::hostile_number> owners;
    for (int i = 0; i < 300; ++i) {
        owners.emplace_back(i);
    }
    const auto by_last_digit = [](const test::hostile_number& h) { return *h.number % 10; };
    const auto all = bide::parallel_group_by(
        s, owners, by_last_digit, [](test::hostile_number& h) { return std::move(h.number); });
    REQUIRE(all.size() == 10);
    for (int i = 0; i < 300; ++i) {
        REQUIRE(*all[static_cast<std::size_t>(i % 10)].second[static_cast<std::size_t>(i / 10)] ==
                i);
    }
}

TEST_CASE("parallel_collect: a stop ends it early, and its progress counts each element once") {
    bide::scheduler s(test::with(3, true));
    const std::vector<int> in(10'000, 1);
    for (const std::size_t grain : {0u, 10u}) {
        bide::fork_progress progress;
        const bide::fork_policy counts(s, {.grain = grain, .progress = &progress});
        bide::parallel_collect(counts, in, std::identity());
        CHECK(progress.done() == 10'000);
        bide::parallel_group_by(counts, in, std::identity());
        CHECK(progress.done() == 20'000);
        std::stop_source stop;
        const bide::fork_policy on(s, {.grain = grain, .stop = stop.get_token()});
        const auto stops = [&](int) { return stop.request_stop(); };
        CHECK_THROWS_AS(bide::parallel_collect(on, in, stops), bide::stopped_error);
        CHECK_THROWS_AS(bide::parallel_collect_if(on, in, stops), bide::stopped_error);
        CHECK_THROWS_AS(bide::parallel_histogram(on, in, 2), bide::stopped_error);
        CHECK_THROWS_AS(bide::parallel_group_by(on, in, std::identity()), bide::stopped_error);
    }
}
