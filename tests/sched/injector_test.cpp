#include <bide/sched/injector.hpp>
#include <support/sched.hpp>

using namespace bide;
using bide::detail::run_list;

namespace {

struct job : runnable {
    int number = 0; // plain data: a push publishes it
};

int number_of(const runnable* r) { return r != nullptr ? static_cast<const job*>(r)->number : -1; }

std::vector<job> numbered(std::size_t n) {
    std::vector<job> all(n);
    for (std::size_t i = 0; i < n; ++i) {
        all[i].number = static_cast<int>(i);
    }
    return all;
}

using injector = basic_injector<native_platform>;

} // namespace

TEST_CASE("injector: does in random steps what a list would do, and allocates nothing") {
    test::jitter chance(test::run_seed());
    injector q;
    std::vector<job> all = numbered(100);
    std::deque<int> free;
    std::deque<int> expected;
    for (int i = 0; i < 100; ++i) {
        free.push_back(i);
    }
    const auto move_one = [](std::deque<int>& from, std::deque<int>& to) {
        to.push_back(from.front());
        from.pop_front();
        return static_cast<std::size_t>(to.back());
    };
    const auto counted = [](auto step) {
        const std::size_t before = test::allocations();
        step();
        return test::allocations() == before;
    };
    for (int step = 0; step < 10'000; ++step) {
        CAPTURE(step);
        const std::size_t n = chance.below(step / 500 % 2 == 0 ? 8 : 4);
        run_list list;
        if (chance.below(2) == 0 && free.size() > n) {
            for (std::size_t i = 0; i < n; ++i) {
                job& one = all[move_one(free, expected)];
                REQUIRE(counted([&] { q.push(one); }));
            }
        } else { // a batch: at least one, the oldest first
            const std::size_t got = std::min(std::max<std::size_t>(n, 1), expected.size());
            const bool behind = !free.empty() && chance.below(2) == 0; // what the list has
            if (behind) {
                list.push(all[static_cast<std::size_t>(free.back())]);
            }
            std::size_t had = 0;
            REQUIRE(counted([&] { had = q.pop(list, n); }));
            REQUIRE(had == got);
            REQUIRE((!behind || number_of(list.pop()) == free.back()));
            for (std::size_t i = 0; i < got; ++i) {
                const int number = number_of(list.pop());
                REQUIRE(number == static_cast<int>(move_one(expected, free)));
            }
            REQUIRE(list.pop() == nullptr);
            if (n == 1 && expected.empty()) {
                REQUIRE(q.pop() == nullptr);
            }
        }
        REQUIRE(q.size() == expected.size());
        REQUIRE(q.empty() == expected.empty());
    }
}

TEST_CASE("injector: a fair share is the length divided by the workers, at least 4, at most 64") {
    CHECK(injector::share(0, 8) == 0);
    CHECK(injector::share(3, 8) == 3);
    CHECK(injector::share(8, 8) == 4);
    CHECK(injector::share(80, 8) == 10);
    CHECK(injector::share(511, 8) == 63);
    CHECK(injector::share(100'000, 8) == 64);
    CHECK(injector::share(40, 1) == 40);
    CHECK(injector::share(65, 1) == 64);
    CHECK(injector::share(5, 200) == 4);
}
