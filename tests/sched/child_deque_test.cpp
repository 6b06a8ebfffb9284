#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/sched/child_deque.hpp>
#include <support/catch.hpp>

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

using deque = bide::basic_child_deque<bide::native_platform, 4>;

TEST_CASE("child_deque: the owner takes the newest child, a thief the oldest") {
    deque d;
    bide::runnable r[4];
    for (bide::runnable& one : r) {
        CHECK(d.push(one));
    }
    CHECK_FALSE(d.push(r[0])); // full
    CHECK_FALSE(d.take_back(r[2]));
    CHECK(d.steal() == &r[0]);
    CHECK(d.take_back(r[3]));
    CHECK(d.pop() == &r[2]);
    CHECK(d.take_back(r[1]));
    CHECK(d.empty());
    CHECK(d.pop() == nullptr);
    CHECK(d.steal() == nullptr);
    CHECK_FALSE(d.take_back(r[1]));
}

TEST_CASE("child_deque: each child is taken once, by its owner or by a thief") {
    struct child : bide::runnable {
        std::atomic<int> taken{0};
    };
    constexpr std::size_t rounds = 20'000;
    deque d;
    std::vector<child> all(3 * rounds);
    std::atomic<bool> over{false};
    const auto take = [](bide::runnable* r) {
        if (r != nullptr) {
            ++static_cast<child*>(r)->taken;
        }
    };
    std::thread thief([&] {
        while (!over) {
            take(d.steal());
        }
    });
    for (std::size_t i = 0; i < all.size(); i += 3) {
        for (std::size_t j = i; j < i + 3; ++j) {
            if (!d.push(all[j])) {
                take(&all[j]);
            }
        }
        for (std::size_t j = i + 3; j-- > i;) {
            if (d.take_back(all[j])) {
                take(&all[j]);
            }
        }
    }
    over = true;
    thief.join();
    take(d.pop());
    std::size_t odd = 0;
    for (const child& c : all) {
        odd += c.taken == 1 ? 0 : 1;
    }
    CHECK(odd == 0);
}
