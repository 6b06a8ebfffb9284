#include <bide/core/choice.hpp>
#include <support/jitter.hpp>
#include <support/platforms.hpp>
#include <support/test.hpp>

using bide::basic_choice;

static_assert(sizeof(basic_choice<test::native>) <= 2 * sizeof(void*));
static_assert(!std::is_copy_constructible_v<basic_choice<test::native>>);
static_assert(!std::is_move_assignable_v<basic_choice<test::native>>);

#define BIDE_CHOICE_TEST_CASE(name)                                                                \
    TEMPLATE_TEST_CASE(name, "", test::native, test::portable, test::jittery)

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

BIDE_CHOICE_TEST_CASE(
    "choice: of many claims exactly one commits, even if others were abandoned before") {
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

TEMPLATE_TEST_CASE("choice: claims exclude each other, and each sees the writes of earlier claims",
                   "", test::native, test::portable) {
    constexpr int threads = 4;
    constexpr int turns = 500;
    basic_choice<TestType> c;
    std::uint64_t in_turn = 0; // plain: a sanitizer sees whether it is ordered
    test::run_threads(threads, [&](int) {
        for (int n = 0; n < turns; ++n) {
            if (c.claim()) {
                ++in_turn;
                c.abandon();
            }
        }
    });
    CHECK(in_turn == std::uint64_t{threads} * turns);
}

BIDE_CHOICE_TEST_CASE(
    "choice: a claimer waits for the claim of another thread to end, and then claims") {
    constexpr int rounds = 100;
    int passed_over = 0;
    int decided_twice = 0;
    for (int round = 0; round < rounds; ++round) {
        basic_choice<TestType> c;
        std::atomic<bool> held{false};
        const bool commits = round % 2 == 0;
        bool claimed = false;
        test::run_threads(2, [&](int i) {
            if (i == 0) {
                const bool mine = c.claim();
                held = true;
                if (mine && commits) {
                    c.commit();
                } else if (mine) {
                    c.abandon();
                }
            } else {
                test::eventually([&] { return held.load(); });
                claimed = c.claim();
                if (claimed) {
                    c.commit();
                }
            }
        });
        passed_over += !commits && !claimed ? 1 : 0;
        decided_twice += commits && claimed ? 1 : 0;
        REQUIRE(c.is_decided());
    }
    CHECK(passed_over == 0);
    CHECK(decided_twice == 0);
}

BIDE_CHOICE_TEST_CASE(
    "choice: two choices that meet are both decided or both left open, from both ends") {
    constexpr int rounds = 100;
    int together = 0;
    int torn = 0;
    for (int round = 0; round < rounds; ++round) {
        basic_choice<TestType> both[2];
        const bool swapped = std::less<const void*>()(&both[1], &both[0]);
        basic_choice<TestType>& first = both[swapped ? 1 : 0];
        basic_choice<TestType>& second = both[swapped ? 0 : 1];
        bool matched[3] = {};
        test::run_threads(3, [&](int i) {
            if (i == 2) { // a third, which wants the second alone
                if (second.claim()) {
                    second.commit();
                    matched[i] = true;
                }
            } else if (first.claim()) {
                matched[i] = second.claim();
                if (matched[i]) {
                    second.commit();
                    first.commit();
                } else {
                    first.abandon();
                }
            }
        });
        const int pairs = (matched[0] ? 1 : 0) + (matched[1] ? 1 : 0);
        together += pairs;
        torn += pairs + (matched[2] ? 1 : 0) != 1 || first.is_decided() != (pairs == 1) ||
                        !second.is_decided()
                    ? 1
                    : 0;
    }
    INFO(together << " pairs");
    CHECK(torn == 0);
}
