// mutex: one owner at a time, in the order in which they came. The last owner may destroy it.

#include <bide/sync/mutex.hpp>
#include <model/sync_support.hpp>
#include <support/test.hpp>

using namespace sync_model;

namespace {

using mutex = bide::basic_mutex<platform>;
using permit_queue = bide::detail::basic_permit_queue<platform>;

// Threads that lock it so many times each, the last one in the body.
auto threads(std::initializer_list<int> times) {
    return [all = std::vector<int>(times)] {
        mutex m;
        var<int> data{0};
        const auto work = [&](int n) {
            for (int i = 0; i < n; ++i) {
                const std::scoped_lock held(m);
                increment(data);
            }
        };
        {
            std::vector<model::thread> others;
            for (std::size_t i = 0; i + 1 < all.size(); ++i) {
                others.emplace_back([&, i] { work(all[i]); });
            }
            work(all.back());
        }
        MODEL_REQUIRE(data == std::accumulate(all.begin(), all.end(), 0));
    };
}

TEST_CASE("mutex: two threads are never inside together") {
    model::check("mutex: two threads", threads({1, 1}));
    model::check("mutex: two threads, steps that fail for no reason",
                 {.spurious = 1, .weak_failures = 1}, threads({1, 1}));
    model::check("mutex: two threads, one of them twice", threads({1, 2}));
}

TEST_CASE("mutex: try_lock takes a free one, and only a free one") {
    model::check("mutex: two that try", &two_try_it<mutex>);
    model::check("mutex: one that tries, one that locks", &one_tries_one_locks_it<mutex>);
}

TEST_CASE("mutex: three threads are never inside together", "[long]") {
    model::check("mutex: one in the queue, one that comes", [] {
        permit_queue q(0); // a mutex that is locked
        var<int> data{0};
        queued first(q);
        model::thread second([&] {
            node mine(1);
            if (q.enqueue(mine) == wait_status::waiting) {
                mine.park(deadline::never());
            }
            increment(data);
            MODEL_REQUIRE(q.give(1, 1));
        });
        increment(data);
        MODEL_REQUIRE(q.give(1, 1));
        await(first);
        increment(data);
        MODEL_REQUIRE(q.give(1, 1));
        second.join();
        MODEL_REQUIRE(data == 3);
    });
    model::check("mutex: three threads", random_or_long(10'000), threads({1, 1, 1}));
    if (model::is_long()) {
        model::check("mutex: three threads, bounded", bounded(1), threads({1, 1, 1}));
    }
}

TEST_CASE("mutex: the last owner may destroy it", "[long]") {
    model::check("mutex: destroyed by the last of two", [] { last_one_destroys_it<mutex>(2); });
    model::check("mutex: destroyed by the last of three", random_or_long(10'000),
                 [] { last_one_destroys_it<mutex>(3); });
}

TEST_CASE("mutex: a lock that times out is not held, and one that is in time is") {
    model::check("mutex: time-out against unlock", {.timeouts = 1},
                 &one_times_out_or_locks_it<mutex>);
}

TEST_CASE("mutex: a stop that comes with the unlock leaves it to one of the two") {
    model::check("mutex: stop against unlock", [] {
        permit_queue q(0);
        var<int> data{0};
        queued first(q);
        queued second(q);
        model::thread stopping([&] { stop(q, first); });
        model::thread unlocking([&] {
            increment(data);
            MODEL_REQUIRE(q.give(1, 1));
        });
        await(first);
        if (first.outcome() == wait_status::granted) {
            increment(data);
            MODEL_REQUIRE(q.give(1, 1));
        }
        await(second);
        increment(data);
        stopping.join();
        unlocking.join();
        MODEL_REQUIRE(q.available() == 0);
        MODEL_REQUIRE(data == (first.outcome() == wait_status::granted ? 3 : 2));
    });
}

} // namespace
