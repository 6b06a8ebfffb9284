// Event loops wait for permits and for items by callbacks, beside threads, and give up in every way. At
// the end the permits and the items are counted.

#include <bide/channel/channel.hpp>
#include <bide/core/callback_wait.hpp>
#include <bide/sync/semaphore.hpp>
#include <support/gate.hpp>
#include <support/jitter.hpp>
#include <support/rounds.hpp>
#include <support/stress.hpp>
#include <support/test.hpp>

using std::chrono::microseconds;

namespace {

constexpr int loops = 3;
constexpr int permits = 2;

// One owner's wakes: set and cleared, and freed after take() or cancel().
struct bell {
    std::atomic<int> rings{0};
    static void ring(void* self) noexcept { static_cast<bell*>(self)->rings.fetch_add(1); }
};

// Waits a while, and then gives up, or takes what it was granted. Returns whether it was granted.
bool acquire_once(bide::semaphore& s, test::jitter& chance) {
    bell b;
    std::stop_source stop;
    bide::callback_wait<bide::permit> w(bide::waker(&bell::ring, &b));
    bool at_once = false;
    switch (chance.below(4)) {
    case 0: at_once = w.begin(s.async_acquire()); break;
    case 1:
        at_once = w.begin(s.async_acquire().with_timeout(microseconds(chance.below(60))));
        break;
    default: at_once = w.begin(s.async_acquire().with_stop(stop.get_token())); break;
    }
    chance();
    switch (chance.below(4)) {
    case 0: return false; // destroyed as it is
    case 1: stop.request_stop(); break;
    case 2: break;
    default:
        for (int i = 0; i < 100 && !w.is_complete(); ++i) {
            chance();
        }
    }
    const bool ended = w.cancel();
    if (b.rings.load() > 1 || ((ended || at_once) && b.rings.load() != 0)) {
        test::give_up(test::where(), "the waker ran too often");
    }
    const auto mine = w.take();
    chance();
    return mine.has_value();
}

} // namespace

TEST_CASE("stress: callback waits conserve permits", "[stress][promise.callback-grants]") {
    bide::semaphore s(permits);
    std::atomic<std::uint64_t> granted{0};
    test::rounds([&](std::uint32_t round) {
        test::team team(loops, [&](int i) {
            test::jitter chance(test::seed_of(round * 16 + static_cast<unsigned>(i)));
            for (int n = 0; n < 50; ++n) {
                granted += acquire_once(s, chance) ? 1 : 0;
            }
        });
        team.join();
        REQUIRE(s.available() == permits);
        REQUIRE(s.waiters() == 0);
    });
    REQUIRE(granted > 0);
}

TEST_CASE("stress: callback waits lose no item", "[stress][promise.callback-grants]") {
    test::rounds([&](std::uint32_t round) {
        bide::channel<int> c(1);
        constexpr int items = 60;
        std::array<std::uint64_t, loops> sums{};
        std::array<int, loops> counts{};
        test::team team(loops + 1, [&](int i) {
            test::jitter chance(test::seed_of(round * 16 + static_cast<unsigned>(i)));
            if (i == loops) {
                for (int n = 1; n <= items; ++n) {
                    static_cast<void>(c.send(n));
                }
                c.close();
                return;
            }
            const auto own = static_cast<std::size_t>(i);
            for (;;) {
                bell b;
                bide::callback_wait<decltype(c.async_recv())::value_type> w(
                    bide::waker(&bell::ring, &b));
                w.begin(c.async_recv());
                chance();
                if (!w.is_complete() && chance.below(3) == 0 && w.cancel()) {
                    continue;
                }
                while (!w.is_complete()) {
                    chance();
                }
                const auto item = w.take().value();
                if (!item) {
                    return;
                }
                sums[own] += static_cast<std::uint64_t>(*item);
                ++counts[own];
            }
        });
        team.join();
        std::uint64_t sum = 0;
        int count = 0;
        for (std::size_t i = 0; i < loops; ++i) {
            sum += sums[i];
            count += counts[i];
        }
        REQUIRE(count == items);
        REQUIRE(sum == std::uint64_t{items} * (items + 1) / 2);
    });
}
