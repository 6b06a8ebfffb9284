#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/parallel_count.hpp>
#include <bide/parallel/parallel_find.hpp>
#include <bide/parallel/parallel_for.hpp>
#include <bide/parallel/parallel_reduce.hpp>
#include <bide/parallel/parallel_transform.hpp>
#include <bide/sched/scheduler.hpp>
#include <support/catch.hpp>
#include <support/scheduling.hpp>

#include <functional>
#include <span>
#include <stop_token>
#include <type_traits>
#include <vector>

static_assert(std::is_convertible_v<bide::scheduler&, bide::fork_policy>);
static_assert(!std::is_convertible_v<bide::scheduler, bide::fork_policy>, "it would dangle");

TEST_CASE("fork_policy: its options reach loops over indices and over elements") {
    bide::scheduler s(test::with(2, true));
    std::vector<int> numbers(1'000);
    bide::fork_progress progress;
    bide::parallel_for({s, {.grain = 10, .progress = &progress}}, numbers, [](int&) {});
    CHECK(progress.done() == 1'000);
    bide::parallel_for({s, {.progress = &progress}}, 0, 500, [](int) {});
    CHECK(progress.done() == 1'500);
    std::stop_source stop;
    stop.request_stop();
    CHECK_THROWS_AS(bide::parallel_for({s, {.stop = stop.get_token()}}, numbers, [](int&) {}),
                    bide::stopped_error);
}

TEST_CASE("fork_policy: every algorithm takes a stop token") {
    bide::scheduler s(test::with(2, true));
    std::vector<int> numbers(1'000);
    std::stop_source stop;
    stop.request_stop();
    const bide::fork_policy on(s, {.stop = stop.get_token()});
    const auto is_one = [](int i) { return i == 1; };
    CHECK_THROWS_AS(bide::parallel_for_chunks(on, numbers, [](auto) {}), bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_reduce(on, numbers, 0, std::plus<>()), bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_find_if(on, numbers, is_one), bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_any_of(on, numbers, is_one), bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_count_if(on, numbers, is_one), bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_min_element(on, numbers), bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_transform(on, numbers, numbers.begin(), std::negate<>()),
                    bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_copy(on, std::span(numbers).first(10), numbers.begin() + 10),
                    bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_fill(on, numbers, 1), bide::stopped_error);
}
