#include <bide/parallel/parallel_collect.hpp>
#include <support/counted.hpp>
#include <support/parallel_rounds.hpp>

// The results and exceptions on workers: algorithms_test.cpp.

namespace {

struct failure {
    int at;
};

template <class Range>
concept has_histogram =
    requires(bide::scheduler& s, const Range& range) { bide::parallel_histogram(s, range, 2); };

} // namespace

TEST_CASE("parallel_collect: elements may be move-only or bits, of any container",
          "[promise.collect-order]") {
    bide::scheduler s(test::with(3, true));
    std::deque<int> in(3'000);
    std::iota(in.begin(), in.end(), 0);
    const std::vector<test::hostile_number> moved =
        bide::parallel_collect(s, in, [](int i) { return test::hostile_number(i); });
    CHECK(std::equal(moved.begin(), moved.end(), in.begin(), in.end(),
                     [](const test::hostile_number& a, int b) { return *a.number == b; }));
    const std::vector<bool> bits = bide::parallel_collect(s, in, [](int i) { return i % 2 != 0; });
    CHECK(std::count(bits.begin(), bits.end(), true) == 1'500);
    CHECK((!bits[0] && bits[1] && bits[2'999]));
}

TEST_CASE("parallel_collect: after an exception no value is left, whatever thieves take",
          "[promise.collect-order]") {
    test::jitter chance(test::run_seed());
    test::tally tally;
    for (int round = 0; round < 400; ++round) {
        test::chance_run given(chance, round);
        given.may_lack_memory(chance);
        INFO("round " << round << ", " << given.n << " elements, thrown at " << given.first);
        std::vector<int> in(static_cast<std::size_t>(given.n));
        std::iota(in.begin(), in.end(), 0);
        auto make = [&](int i) {
            if (i == given.first || i == given.second) {
                throw failure{i};
            }
            return std::optional<test::counted_once>(std::in_place, tally, i);
        };
        int thrown = -1;
        try {
            const auto made = bide::detail::collect_some(
                given.policy(), bide::detail::elements<int*>{in.data(), in.size()}, make);
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
    }
}

static_assert(has_histogram<std::vector<int>> && has_histogram<std::array<bool, 3>>);
static_assert(has_histogram<std::u8string> && has_histogram<std::vector<wchar_t>>);
static_assert(!has_histogram<std::vector<double>>);

TEST_CASE("parallel_histogram: a key that is no bin is refused, whatever its type",
          "[promise.collect-order]") {
    bide::scheduler s(test::with(2, true));
    CHECK_THROWS_AS(bide::parallel_histogram(s, std::vector{0, 1, -1}, 2), std::out_of_range);
    CHECK_THROWS_AS(bide::parallel_histogram(s, std::vector{0, 1, 2}, 2), std::out_of_range);
    CHECK(bide::parallel_histogram(s, std::vector{0, 1, 2}, 3) ==
          std::vector<std::size_t>{1, 1, 1});
    CHECK(bide::parallel_histogram(s, std::vector<int>(), 2) == std::vector<std::size_t>{0, 0});
    const auto counts = bide::parallel_histogram(s, std::string("parallel"), 128);
    CHECK(counts['l'] == 3);
    CHECK(counts['z'] == 0);
    CHECK_THROWS_AS(bide::parallel_histogram(s, std::vector<signed char>{-1}, 256),
                    std::out_of_range);
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

TEST_CASE("parallel_group_by: groups have the order of their first elements, which may be moved",
          "[promise.collect-order]") {
    bide::scheduler s(test::with(2, true));
    std::vector<test::hostile_number> owners;
    for (int i = 0; i < 3'000; ++i) {
        owners.emplace_back(i);
    }
    const auto last_digits = [](const test::hostile_number& h) {
        return std::to_string(*h.number % 300);
    };
    const auto all = bide::parallel_group_by(
        s, owners, last_digits, [](test::hostile_number& h) { return std::move(h.number); });
    REQUIRE(all.size() == 300);
    for (int i = 0; i < 3'000; ++i) {
        const auto& [key, group] = all[static_cast<std::size_t>(i % 300)];
        REQUIRE(key == std::to_string(i % 300));
        REQUIRE(*group[static_cast<std::size_t>(i / 300)] == i);
    }
}
