#include <bide/sched/injector.hpp>
#include <support/alloc.hpp>
#include <support/gate.hpp>
#include <support/platforms.hpp>
#include <support/test.hpp>

using bide::basic_injector;
using bide::runnable;
using bide::detail::run_list;

namespace {

struct job : runnable {
    int poster = 0;
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

using injector = basic_injector<bide::native_platform>;

template <class Queue> std::vector<int> drain(Queue& q) {
    std::vector<int> all;
    while (const runnable* const r = q.pop()) {
        all.push_back(number_of(r));
    }
    return all;
}

} // namespace

TEST_CASE("injector: the oldest job comes first, of single pushes and of lists") {
    injector q;
    std::vector<job> all = numbered(7);
    run_list list;
    CHECK(q.empty());
    CHECK(q.pop() == nullptr);
    q.push(all[0]);
    for (std::size_t i = 1; i < 4; ++i) {
        list.push(all[i]);
    }
    q.push(list, 3);
    CHECK(list.pop() == nullptr);
    q.push(all[4]);
    CHECK(q.size() == 5);
    CHECK(number_of(q.pop()) == 0);
    list.push(all[5]);
    q.push(list, 1);
    q.push(all[6]);
    CHECK(q.size() == 6);
    CHECK(drain(q) == std::vector<int>{1, 2, 3, 4, 5, 6});
    CHECK(q.empty());
    q.push(list, 0); // an empty list
    CHECK(q.empty());
    q.push(all[3]); // it is in order again
    CHECK(number_of(q.pop()) == 3);
    CHECK(q.pop() == nullptr);
}

TEST_CASE("injector: a batch has the oldest jobs, in order") {
    injector q;
    std::vector<job> all = numbered(6);
    run_list out;
    CHECK(q.pop(out, 3) == 0);
    for (job& j : all) {
        q.push(j);
    }
    CHECK(q.pop(out, 3) == 3);
    CHECK(drain(out) == std::vector<int>{0, 1, 2});
    CHECK(q.size() == 3);
    CHECK(q.pop(out, 0) == 1); // at least one
    CHECK(number_of(out.last()) == 3);
    CHECK(q.pop(out, 64) == 2); // behind what the list has
    CHECK(drain(out) == std::vector<int>{3, 4, 5});
    CHECK(q.empty());
    CHECK(q.pop(out, 1) == 0);
}

TEST_CASE("injector: a batch may be pushed again") {
    injector q;
    std::vector<job> all = numbered(4);
    for (job& j : all) {
        q.push(j);
    }
    run_list out;
    CHECK(q.pop(out, 3) == 3);
    while (runnable* const r = out.pop()) {
        q.push(*r);
    }
    CHECK(drain(q) == std::vector<int>{3, 0, 1, 2});
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

TEST_CASE("injector: nothing is allocated") {
    injector q;
    std::vector<job> all = numbered(100);
    const std::size_t before = test::allocations();
    for (job& j : all) {
        q.push(j);
    }
    run_list list;
    q.pop(list, 50);
    q.push(list, 50);
    while (q.pop() != nullptr) {
    }
    CHECK(test::allocations() == before);
}

TEST_CASE("injector: each job comes out once, those of each poster in order") {
    constexpr int posters = 3;
    constexpr int takers = 2;
    constexpr std::size_t jobs = 2'000;
    basic_injector<test::jittery> q;
    std::vector<std::vector<job>> all(posters);
    std::vector<std::vector<const job*>> had(takers);
    std::atomic<int> left{posters * static_cast<int>(jobs)};
    for (std::size_t i = 0; i < posters; ++i) {
        all[i] = numbered(jobs);
        for (job& j : all[i]) {
            j.poster = static_cast<int>(i);
        }
    }
    for (auto& mine : had) {
        mine.reserve(posters * jobs);
    }
    test::run_threads(posters + takers, [&](int me) {
        if (me < posters) {
            auto& mine = all[static_cast<std::size_t>(me)];
            for (std::size_t i = 0; i < jobs; i += 4) {
                q.push(mine[i]);
                run_list list;
                for (std::size_t n = 1; n < 4; ++n) {
                    list.push(mine[i + n]);
                }
                q.push(list, 3);
            }
            return;
        }
        auto& mine = had[static_cast<std::size_t>(me - posters)];
        while (left != 0) {
            run_list some;
            q.pop(some, me == posters ? 1 : 5);
            while (const runnable* const r = some.pop()) {
                mine.push_back(static_cast<const job*>(r));
                --left;
            }
        }
    });
    CHECK(q.empty());
    int disorder = 0;
    for (const auto& some : had) {
        std::vector<int> last(posters, -1);
        for (const job* j : some) {
            const auto from = static_cast<std::size_t>(j->poster);
            disorder += j->number > last[from] ? 0 : 1;
            last[from] = j->number;
        }
    }
    CHECK(disorder == 0);
    std::vector<std::vector<int>> times(posters, std::vector<int>(jobs));
    for (const auto& some : had) {
        for (const job* j : some) {
            ++times[static_cast<std::size_t>(j->poster)][static_cast<std::size_t>(j->number)];
        }
    }
    CHECK(times == std::vector<std::vector<int>>(posters, std::vector<int>(jobs, 1)));
}
