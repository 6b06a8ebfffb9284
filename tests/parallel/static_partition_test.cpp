#include <bide/parallel/fork_join.hpp>
#include <bide/parallel/static_partition.hpp>
#include <bide/sched/run_loop.hpp>
#include <support/scheduling.hpp>

using namespace bide;
using test::with;

TEST_CASE("static_partition: each element is visited once, in order, on the worker of its part",
          "[promise.static-partition]") {
    const unsigned workers = GENERATE(1U, 2U, 3U, 7U);
    const bool steals = GENERATE(false, true);
    auto wanted = with(workers, true);
    wanted.enable_stealing = steals;
    scheduler s(wanted);
    struct element {
        std::atomic<int> visits{0};
        int worker = -1;
    };
    for (const std::size_t n : {0U, 1U, 2U, 3U, 6U, 7U, 8U, 101U, 5'003U}) {
        std::vector<element> all(n);
        const auto visit = [&s](element& one) {
            ++one.visits;
            const int here = static_cast<int>(s.this_worker().value_or(1'000));
            one.worker = one.worker == -1 || one.worker == here ? here : 2'000;
        };
        for (int round = 1; round <= 3; ++round) {
            parallel_for(static_partition(s, {.grain = 5}), all, visit);
        }
        parallel_for(static_partition(s), all.begin(), all.end(), visit);
        parallel_for(static_partition(s), 0, static_cast<int>(n),
                     [&](int i) { visit(all[static_cast<std::size_t>(i)]); });
        std::atomic<unsigned> chunks{0};
        bide::parallel_for_chunks(static_partition(s), all, [&](const auto& chunk) {
            ++chunks;
            for (element& one : chunk) {
                visit(one);
            }
        });
        CHECK(chunks == (n < workers ? n : workers));
        std::size_t wrong = 0;
        int before = 0;
        for (const element& one : all) {
            wrong += one.visits == 6 && one.worker >= before && one.worker < 1'000 ? 0U : 1U;
            before = one.worker;
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("static_partition: throws the first exception in index order, and all before it has run",
          "[promise.static-partition]") {
    scheduler s(with(GENERATE(1U, 2U, 4U), true));
    for (const std::size_t first : {0U, 3U, 777U, 4'999U}) {
        std::vector<std::atomic<int>> visits(5'000);
        std::string what;
        try {
            parallel_for(static_partition(s), std::size_t{0}, visits.size(), [&](std::size_t i) {
                if (i == first || (i > first && i % 11 == 0)) {
                    throw std::runtime_error(std::to_string(i));
                }
                ++visits[i];
            });
        } catch (const std::runtime_error& e) {
            what = e.what();
        }
        CHECK(what == std::to_string(first));
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < first; ++i) {
            wrong += visits[i] == 1 ? 0U : 1U;
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("static_partition: options in braces are still those of a fork_policy",
          "[promise.static-partition-braces]") {
    scheduler s(with(2, true));
    std::vector<int> all(100, 1);
    std::atomic<int> sum{0};
    const auto add = [&sum](int one) { sum += one; };
    parallel_for({s, {.grain = 8}}, all, add);
    parallel_for({s, {.grain = 8}}, all.begin(), all.end(), add);
    parallel_for({s, {.grain = 8}}, 0, 100, [&sum](int) { ++sum; });
    bide::parallel_for_chunks({s, {.grain = 8}}, all,
                              [&sum](const auto& chunk) { sum += static_cast<int>(chunk.size()); });
    CHECK(sum == 400);
}

TEST_CASE("static_partition: a stop ends a loop early") {
    scheduler s(with(2, true));
    std::stop_source source;
    std::atomic<int> visits{0};
    CHECK_THROWS_AS(parallel_for(static_partition(s, {.grain = 1, .stop = source.get_token()}), 0,
                                 100'000'000,
                                 [&](int) {
                                     ++visits;
                                     source.request_stop();
                                 }),
                    bide::stopped_error);
    CHECK((visits >= 1 && visits <= 2));
}

TEST_CASE("static_partition: a worker's thread is refused, and a coroutine on it is not") {
    scheduler s(with(2, true));
    std::vector<int> all(1'000, 1);
    const auto add = [](int& one) { ++one; };
    CHECK_THROWS_AS(s.spawn([&] { parallel_for(static_partition(s), all, add); }).join(),
                    std::system_error);
    bide::sync_wait(s, bide::async_parallel_for(static_partition(s), all, add));
    bide::run_loop loop;
    loop.run_until(bide::async_parallel_for(static_partition(s), all, add));
    int wrong = 0;
    for (const int one : all) {
        wrong += one == 3 ? 0 : 1;
    }
    CHECK(wrong == 0);
}
