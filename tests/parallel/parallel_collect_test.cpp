#include <bide/parallel/parallel_collect.hpp>
#include <support/counted.hpp>
#include <support/parallel_rounds.hpp>

// The results and exceptions on workers: algorithms_test.cpp.

namespace {

struct failure {
    int at;
};

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
