#include <bide/sched/run_queue.hpp>
#include <support/alloc.hpp>
#include <support/gate.hpp>
#include <support/platforms.hpp>
#include <support/test.hpp>

using bide::basic_run_queue;
using bide::runnable;

namespace {

struct job : runnable {
    int number = 0; // plain data: a push publishes it
};

int number_of(const runnable* r) { return r != nullptr ? static_cast<const job*>(r)->number : -1; }

// 0, 1, 2 and so on.
std::vector<job> numbered(std::size_t n) {
    std::vector<job> all(n);
    for (std::size_t i = 0; i < n; ++i) {
        all[i].number = static_cast<int>(i);
    }
    return all;
}

std::vector<int> range(int from, int to) {
    std::vector<int> all(static_cast<std::size_t>(to - from));
    std::iota(all.begin(), all.end(), from);
    return all;
}

// Receives overflow: the numbers, and how many came at a time.
struct spill {
    std::vector<int> numbers;
    std::vector<std::size_t> splices;

    void push(bide::detail::run_list& list, std::size_t n) {
        splices.push_back(n);
        while (runnable* const r = list.pop()) {
            numbers.push_back(number_of(r));
        }
    }
};

template <class Queue> std::vector<int> drain(Queue& q) {
    std::vector<int> all;
    while (runnable* const r = q.pop()) {
        all.push_back(number_of(r));
    }
    return all;
}

using native = bide::native_platform;

} // namespace

TEST_CASE("run_queue: the oldest job comes first, also after the ring has wrapped") {
    const std::uint32_t first = GENERATE(0U, 0xffff'fffdU, 0x7fff'fffdU);
    basic_run_queue<native, 4, 4> q(first);
    spill over;
    std::vector<job> all = numbered(30);
    int next = 0;
    for (std::size_t i = 0; i < 30; i += 3) {
        CHECK(q.empty());
        CHECK(q.pop() == nullptr);
        for (unsigned n = 0; n < 3; ++n) {
            CHECK(q.size() == n);
            CHECK(q.push(all[i + n], over) == 0);
            CHECK(!q.empty());
        }
        for (int n = 0; n < 3; ++n) {
            CHECK(number_of(q.pop()) == next++);
        }
    }
    CHECK(over.splices.empty());
}

TEST_CASE("run_queue: a ring grows, so that all jobs stay in it, in order, and shrinks again") {
    const std::uint32_t first = GENERATE(0U, 0xffff'fffeU);
    basic_run_queue<native, 4> q(first);
    spill over;
    std::vector<job> all = numbered(1'000);
    int next = 0;
    const std::size_t before = test::live_allocations();
    for (job& j : all) {
        CHECK(q.push(j, over) == 0);
        if (j.number % 3 == 0) {
            CHECK(number_of(q.pop()) == next++);
        }
    }
    CHECK(over.splices.empty());
    CHECK(q.size() == 666);
    CHECK(q.capacity() == 1'024);
    q.trim(); // too many jobs
    CHECK(q.capacity() == 1'024);
    unsigned smallest = 1'024;
    while (runnable* const r = q.pop()) {
        CHECK(number_of(r) == next++);
        q.trim();
        CHECK(q.capacity() <= smallest);
        smallest = q.capacity();
        CHECK((smallest == 4 || q.size() * 8 >= smallest));
    }
    CHECK(next == 1'000);
    CHECK(q.capacity() == 4);
    CHECK(test::live_allocations() == before);
}

TEST_CASE("run_queue: the ring of a worker holds 256 without an allocation") {
    basic_run_queue<native> q;
    spill over;
    std::vector<job> all = numbered(257);
    const std::size_t before = test::allocations();
    for (std::size_t i = 0; i < 256; ++i) {
        CHECK(q.push(all[i], over) == 0);
    }
    CHECK(test::allocations() == before);
    CHECK(q.push(all[256], over) == 0);
    CHECK(q.size() == 257);
    CHECK(drain(q) == range(0, 257));
}

TEST_CASE("run_queue: a destroyed ring frees its buffer") {
    std::vector<job> all = numbered(9);
    const std::size_t before = test::live_allocations();
    {
        basic_run_queue<native, 4> q;
        spill over;
        for (job& j : all) {
            q.push(j, over);
        }
    }
    CHECK(test::live_allocations() == before);
}

namespace {

// Eight jobs are in the ring, and ten are pushed.
template <class Queue> void overflows_by_half(Queue& q) {
    spill over;
    over.numbers.reserve(16);
    over.splices.reserve(16);
    std::vector<job> all = numbered(10);
    for (std::size_t i = 0; i < 8; ++i) {
        q.push(all[i], over);
    }
    CHECK(over.splices.empty());
    CHECK(q.push(all[8], over) == 5);
    CHECK(over.splices == std::vector<std::size_t>{5});
    CHECK(over.numbers == std::vector<int>{0, 1, 2, 3, 8});
    CHECK(q.capacity() == 8);
    CHECK(q.push(all[9], over) == 0);
    CHECK(drain(q) == std::vector<int>{4, 5, 6, 7, 9});
}

} // namespace

TEST_CASE("run_queue: a full ring that cannot grow moves its older half and the new job out, in "
          "order, in one list") {
    const std::uint32_t first = GENERATE(0U, 0xffff'fffeU);
    basic_run_queue<native, 8, 8> small(first);
    overflows_by_half(small);
}

TEST_CASE(
    "run_queue: without memory, nothing is lost: jobs overflow, and the ring keeps its size") {
    if (!test::counts_allocations()) {
        SUCCEED("the allocations are the sanitizer's");
        return;
    }
    spill over;
    over.numbers.reserve(128);
    over.splices.reserve(128);
    std::vector<job> all = numbered(100);
    basic_run_queue<native, 8> q(0xffff'fffcU);
    basic_run_queue<native, 8> mine;
    for (std::size_t i = 0; i < 50; ++i) {
        q.push(all[i], over);
    }
    CHECK(q.capacity() == 64);
    CHECK(over.splices.empty());
    std::vector<int> had;
    had.reserve(128);
    {
        const test::out_of_memory none;
        for (std::size_t i = 50; i < 100; ++i) {
            q.push(all[i], over);
        }
        unsigned taken = 0;
        had.push_back(number_of(q.steal_into(mine, taken)));
        if (taken != 9) { // what `mine` has room for, and one
            had.push_back(-1);
        }
        while (runnable* const r = q.pop()) {
            had.push_back(number_of(r));
            q.trim();
        }
        while (runnable* const r = mine.pop()) {
            had.push_back(number_of(r));
        }
    }
    CHECK(over.splices == std::vector<std::size_t>{33, 33});
    had.insert(had.end(), over.numbers.begin(), over.numbers.end());
    std::sort(had.begin(), had.end());
    CHECK(had == range(0, 100));
}

TEST_CASE("run_queue: a thief takes half, the oldest first") {
    const std::uint32_t first = GENERATE(0U, 0xffff'fffcU);
    for (int n = 1; n <= 8; ++n) {
        CAPTURE(first, n);
        basic_run_queue<native, 8> q(first);
        basic_run_queue<native, 8> mine(first + 5);
        spill over;
        std::vector<job> all = numbered(8);
        for (int i = 0; i < n; ++i) {
            q.push(all[static_cast<std::size_t>(i)], over);
        }
        unsigned taken = 0;
        CHECK(number_of(q.steal_into(mine, taken)) == 0);
        const int half = (n + 1) / 2;
        CHECK(static_cast<int>(taken) == half);
        CHECK(static_cast<int>(mine.size()) == half - 1);
        CHECK(drain(mine) == range(1, half));
        CHECK(drain(q) == range(half, n));
    }
}

TEST_CASE("run_queue: a thief finds nothing in an empty ring, and takes what it has room for") {
    basic_run_queue<native, 4, 4> q;
    basic_run_queue<native, 4, 4> mine;
    spill over;
    std::vector<job> all = numbered(7);
    unsigned taken = 7;
    CHECK(q.steal_into(mine, taken) == nullptr);
    CHECK(taken == 0);
    for (std::size_t i = 0; i < 4; ++i) {
        q.push(all[i], over);
    }
    for (std::size_t i = 4; i < 7; ++i) {
        mine.push(all[i], over);
    }
    CHECK(number_of(q.steal_into(mine, taken)) == 0);
    CHECK(taken == 2);
    CHECK(q.size() == 2);
    q.push(all[0], over);
    CHECK(number_of(q.steal_into(mine, taken)) == 2); // `mine` is full
    CHECK(taken == 1);
    CHECK(drain(mine) == std::vector<int>{4, 5, 6, 1});
    CHECK(drain(q) == std::vector<int>{3, 0});
}

TEST_CASE("run_queue: a thief takes half of any number of jobs, or as many as it asks for") {
    basic_run_queue<native, 4> q(0xffff'fffeU);
    basic_run_queue<native, 4> mine;
    spill over;
    std::vector<job> all = numbered(1'000);
    for (job& j : all) {
        q.push(j, over);
    }
    unsigned taken = 0;
    CHECK(number_of(q.steal_into(mine, taken)) == 0);
    CHECK(taken == 500);
    CHECK(number_of(q.steal_into(mine, taken, 3)) == 500);
    CHECK(taken == 3);
    std::vector<int> expected = range(1, 500);
    expected.push_back(501);
    expected.push_back(502);
    CHECK(drain(mine) == expected);
    CHECK(drain(q) == range(503, 1'000));
    CHECK(over.splices.empty());
}

TEST_CASE("run_queue: stolen jobs can be stolen again") {
    basic_run_queue<native, 8> rings[3];
    spill over;
    std::vector<job> all = numbered(8);
    for (job& j : all) {
        rings[0].push(j, over);
    }
    unsigned taken = 0;
    CHECK(number_of(rings[0].steal_into(rings[1], taken)) == 0);
    CHECK(number_of(rings[1].steal_into(rings[2], taken)) == 1);
    CHECK(taken == 2);
    CHECK(drain(rings[0]) == range(4, 8));
    CHECK(drain(rings[1]) == std::vector<int>{3});
    CHECK(drain(rings[2]) == std::vector<int>{2});
}

TEST_CASE("run_queue: nothing is allocated without growth") {
    basic_run_queue<native, 4, 4> q;
    basic_run_queue<native, 4, 4> mine;
    struct counting {
        std::size_t count = 0;
        void push(bide::detail::run_list&, std::size_t n) noexcept { count += n; }
    } over;
    std::vector<job> all = numbered(6);
    const std::size_t before = test::allocations();
    for (job& j : all) {
        q.push(j, over);
    }
    unsigned taken = 0;
    q.steal_into(mine, taken);
    while (q.pop() != nullptr) {
    }
    CHECK(test::allocations() == before);
    CHECK(over.count == 3);
}

namespace {

// An owner that pushes in bursts and pops in between, and thieves that steal from it and from each
// other. Returns how often each job was taken.
template <class P, unsigned Capacity, unsigned Max>
std::vector<int> storm(int thieves, std::size_t jobs) {
    std::vector<job> all = numbered(jobs);
    std::vector<basic_run_queue<P, Capacity, Max>> rings(static_cast<std::size_t>(thieves) + 1);
    std::vector<std::vector<int>> had(rings.size());
    spill over;
    std::atomic<bool> over_yet{false};
    for (auto& mine : had) {
        mine.reserve(jobs);
    }
    test::run_threads(thieves + 1, [&](int me) {
        const auto self = static_cast<std::size_t>(me);
        const auto take = [&](runnable* r) { had[self].push_back(number_of(r)); };
        if (me == 0) {
            for (std::size_t i = 0; i < jobs; ++i) {
                rings[0].push(all[i], over);
                if (i % 7 == 0) {
                    for (int n = 0; n < 3; ++n) {
                        if (runnable* const r = rings[0].pop()) {
                            take(r);
                        }
                    }
                    rings[0].trim();
                }
            }
            over_yet = true;
        }
        for (bool last = false; !last;) {
            last = over_yet;
            while (runnable* const r = rings[self].pop()) {
                take(r);
            }
            for (std::size_t v = 0; v < rings.size(); ++v) {
                unsigned taken = 0;
                if (v != self) {
                    if (runnable* const r = rings[v].steal_into(rings[self], taken)) {
                        take(r);
                        last = false;
                    }
                }
            }
            if (me == 0) {
                last = last && rings[0].empty();
            }
        }
        while (runnable* const r = rings[self].pop()) {
            take(r);
        }
    });
    std::vector<int> times(jobs);
    had.push_back(over.numbers);
    for (auto& ring : rings) {
        had.push_back(drain(ring));
    }
    for (const auto& some : had) {
        for (const int number : some) {
            ++times[static_cast<std::size_t>(number)];
        }
    }
    return times;
}

} // namespace

TEST_CASE("run_queue: each job comes out once, beside several thieves") {
    constexpr std::size_t jobs = 1'000;
    const std::vector<int> once(jobs, 1);
    CHECK(storm<test::jittery, 4, 4>(3, jobs) == once);
    CHECK(storm<test::jittery, 2, 4096>(3, jobs) == once);
}
