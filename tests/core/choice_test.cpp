#include <bide/core/waiter.hpp>
#include <support/platforms.hpp>
#include <support/test.hpp>

using bide::basic_choice;

static_assert(sizeof(basic_choice<test::native>) <= 2 * sizeof(void*));
static_assert(!std::is_copy_constructible_v<basic_choice<test::native>>);
static_assert(!std::is_move_assignable_v<basic_choice<test::native>>);

TEST_CASE("choice: a claim decides when it is committed, and the decision stays") {
    basic_choice<test::native> c;
    CHECK_FALSE(c.is_decided());
    for (int again = 0; again < 3; ++again) {
        REQUIRE(c.claim());
        CHECK_FALSE(c.is_decided());
        c.abandon();
        CHECK_FALSE(c.is_decided());
    }
    REQUIRE(c.claim());
    c.commit();
    for (int again = 0; again < 3; ++again) {
        CHECK(c.is_decided());
        CHECK_FALSE(c.claim());
    }
}

TEMPLATE_TEST_CASE("choice: of many claims exactly one commits, even if others were abandoned", "",
                   test::native, test::portable, test::jittery) {
    constexpr int threads = 4;
    constexpr int rounds = 200;
    std::vector<basic_choice<TestType>> choices(rounds);
    std::vector<int> winners[threads];
    bool blind[threads] = {};
    test::rendezvous all(threads);
    test::run_threads(threads, [&](int i) {
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
        for (int round = 0; round < rounds; ++round) {
            basic_choice<TestType>& c = choices[static_cast<std::size_t>(round)];
            all.meet();
            while (c.claim()) {
                if (chance.below(3) == 0) {
                    c.commit();
                    winners[i].push_back(round);
                    break;
                }
                c.abandon();
            }
            blind[i] = blind[i] || !c.is_decided();
        }
    });
    std::vector<int> decided(rounds);
    for (int i = 0; i < threads; ++i) {
        CHECK_FALSE(blind[i]);
        for (const int round : winners[i]) {
            ++decided[static_cast<std::size_t>(round)];
        }
    }
    CHECK(decided == std::vector<int>(rounds, 1));
}
