#include <bide/parallel/fork_join.hpp>
#include <support/scheduling.hpp>
#include <support/thrown_by.hpp>

using namespace bide;
using test::thrown_by;
using test::with;

namespace {

template <class T>
concept invocable_range = requires(scheduler& s, T functions) { parallel_invoke(s, functions); };

} // namespace

TEST_CASE("parallel_invoke: each function of a range is called once, whatever their number",
          "[promise.invoke-range]") {
    const unsigned workers = GENERATE(1U, 2U, 4U);
    const bool outside = GENERATE(false, true);
    scheduler s(with(workers, workers != 4));
    for (const std::size_t n : {0U, 1U, 2U, 3U, 7U, 64U, 65U, 1'009U}) {
        std::vector<std::atomic<int>> calls(n);
        std::deque<std::function<int()>> functions;
        for (std::atomic<int>& one : calls) {
            functions.emplace_back([&one] { return ++one; });
        }
        const auto all = [&] { parallel_invoke(s, functions); };
        outside ? all() : s.spawn(all).join();
        std::size_t wrong = 0;
        for (const std::atomic<int>& one : calls) {
            wrong += one == 1 ? 0U : 1U;
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("parallel_invoke: throws the first exception in order of the range, when all have run",
          "[promise.invoke-range]") {
    scheduler s(with(GENERATE(1U, 2U, 4U), true));
    for (int round = 0; round < 50; ++round) {
        std::atomic<int> ran{0};
        std::vector<std::function<void()>> functions;
        for (int i = 0; i < 100; ++i) {
            functions.emplace_back([&ran, i] {
                ++ran;
                if (i % 9 == 4) {
                    throw std::runtime_error(std::to_string(i));
                }
            });
        }
        CHECK(thrown_by([&] { parallel_invoke(s, functions); }) == "4");
        CHECK(ran == 100);
    }
}

TEST_CASE("parallel_invoke: a stop leaves out what has not begun, and progress counts functions") {
    scheduler s(test::with_serial_forks());
    bide::fork_progress progress;
    std::stop_source source;
    int ran = 0;
    const std::function<void()> stops = [&] {
        ++ran;
        if (ran == 3) {
            source.request_stop();
        }
    };
    const std::vector<std::function<void()>> functions(10, stops);
    CHECK_THROWS_AS(
        parallel_invoke({s, {.stop = source.get_token(), .progress = &progress}}, functions),
        bide::stopped_error);
    CHECK(ran == 3);
    CHECK(progress.total() == 10);
    CHECK(progress.done() == 3);
}

TEST_CASE("parallel_invoke: takes arrays and functions that are moved only, and no list") {
    scheduler s(with(2, true));
    struct once {
        std::unique_ptr<std::atomic<int>> calls = std::make_unique<std::atomic<int>>(0);
        void operator()() & { ++*calls; }
    };
    std::array<once, 3> few;
    parallel_invoke(s, few);
    CHECK((*few[0].calls == 1 && *few[1].calls == 1 && *few[2].calls == 1));
    CHECK(invocable_range<std::vector<std::function<void()>>>);
    CHECK_FALSE(invocable_range<std::list<std::function<void()>>>);
    CHECK_FALSE(invocable_range<std::vector<int>>);
}
