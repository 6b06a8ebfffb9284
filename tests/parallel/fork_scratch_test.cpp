#include <bide/parallel/fork_join.hpp>
#include <bide/parallel/fork_scratch.hpp>
#include <bide/parallel/parallel_for.hpp>
#include <bide/parallel/parallel_reduce.hpp>
#include <bide/parallel/parallel_transform.hpp>
#include <support/counted.hpp>
#include <support/scheduling.hpp>

using namespace bide;
using test::with;

namespace {

// Says whether two arms have it at the same time. It can be neither moved nor copied.
struct buffer {
    explicit buffer(test::tally& in) : alive(in, 1) {}
    buffer(const buffer&) = delete;
    buffer& operator=(const buffer&) = delete;

    template <class F> void use(F f) {
        shared = shared || busy.exchange(true);
        f();
        busy = false;
    }
    test::counted alive;
    std::atomic<bool> busy{false};
    std::atomic<bool> shared{false};
    long sum = 0; // plain data
};

} // namespace

TEST_CASE("fork_scratch: no two arms have an object at the same time, not even on one thread",
          "[promise.fork-scratch]") {
    const unsigned workers = GENERATE(1U, 2U, 4U);
    scheduler s(with(workers, workers != 4));
    test::tally made;
    {
        fork_scratch scratch([&made] { return buffer(made); });
        std::vector<int> outer(40, 1);
        std::vector<int> inner(40, 1);
        const auto all = [&] {
            parallel_for({s, {.grain = 1}}, outer, scratch, [&](buffer& mine, int one) {
                mine.use([&] { // what runs here on top gets another one
                    mine.sum += one;
                    parallel_for({s, {.grain = 1}}, inner, scratch, [](buffer& other, int two) {
                        other.use([&] { other.sum += two; });
                    });
                });
            });
        };
        test::team callers(3, [&](int) { all(); });
        callers.join();
        s.spawn(all).join();
        long sum = 0;
        bool shared = false;
        int objects = 0;
        scratch.for_each([&](buffer& one) {
            sum += one.sum;
            shared = shared || one.shared;
            ++objects;
        });
        CHECK(sum == 4 * (40 + 40 * 40));
        CHECK_FALSE(shared);
        CHECK(objects == made.alive());
        CHECK(objects >= 2);
    }
    CHECK(made.alive() == 0);
}

TEST_CASE("fork_scratch: on one thread, one object serves all, also of the next loop") {
    scheduler s(test::with_serial_forks());
    test::tally made;
    fork_scratch scratch([&made] { return buffer(made); });
    std::vector<int> items(10'000, 1);
    const auto add = [](buffer& mine, int one) { mine.sum += one; };
    parallel_for(s, items, scratch, add);
    parallel_for(s, items, scratch, add);
    CHECK(made.made == 1);
    scratch.for_each([](buffer& one) { CHECK(one.sum == 20'000); });
}

TEST_CASE("fork_scratch: nothing is made before it is needed") {
    scheduler s(with(2, true));
    test::tally made;
    std::vector<int> items;
    std::atomic<long> sum{0};
    const auto add = [&sum](buffer&, int one) { sum += one; };
    {
        fork_scratch scratch([&made] { return buffer(made); });
        parallel_for(s, items, scratch, add);
        CHECK(made.made == 0);
        items.assign(10'000, 1);
        parallel_for(s, items, scratch, add);
        CHECK(made.made > 0);
    }
    CHECK(made.alive() == 0);
    CHECK(sum == 10'000);
}

TEST_CASE("fork_scratch: with() gives each call of any algorithm an object") {
    scheduler s(with(2, true));
    test::tally made;
    fork_scratch scratch([&made] { return buffer(made); });
    std::vector<int> items(10'000);
    std::iota(items.begin(), items.end(), 0);
    const auto count = scratch.with([](buffer& mine, int one) {
        mine.use([&] { ++mine.sum; });
        return 2L * one;
    });
    CHECK(bide::parallel_reduce(s, items, 0L, count, std::plus<>()) == 99'990'000);
    std::vector<long> doubled(items.size());
    bide::parallel_transform(s, items, doubled.begin(), count);
    CHECK(std::accumulate(doubled.begin(), doubled.end(), 0L) == 99'990'000);
    long calls = 0;
    scratch.for_each([&calls](buffer& one) { calls += one.shared ? -1'000'000 : one.sum; });
    CHECK(calls == 20'000);
}

TEST_CASE("fork_scratch: what make() throws leaves the loop, and nothing is lost",
          "[promise.fork-scratch]") {
    scheduler s(with(GENERATE(1U, 2U), true));
    test::tally made;
    std::atomic<int> tries{0};
    fork_scratch scratch([&] {
        if (tries++ % 2 == 0) {
            throw std::runtime_error("make");
        }
        return buffer(made);
    });
    std::vector<int> items(1'000, 1);
    const auto none = [](buffer&, int) {};
    CHECK_THROWS_AS(parallel_for(s, items, scratch, none), std::runtime_error);
    const auto throws = [](buffer&, int) { throw std::logic_error("body"); };
    bool logic = false;
    for (int i = 0; i < 10 && !logic; ++i) {
        try {
            parallel_for(s, items, scratch, throws);
        } catch (const std::logic_error&) {
            logic = true;
        } catch (const std::runtime_error&) { // its worker could make none
        }
    }
    CHECK(logic);
    int objects = 0;
    scratch.for_each([&objects](buffer&) { ++objects; });
    CHECK(objects == made.alive());
}
