#include <bide/parallel/async_fork.hpp>
#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/fork_scope.hpp>
#include <bide/parallel/parallel_adjacent_difference.hpp>
#include <bide/parallel/parallel_collect.hpp>
#include <bide/parallel/parallel_compact.hpp>
#include <bide/parallel/parallel_count.hpp>
#include <bide/parallel/parallel_find.hpp>
#include <bide/parallel/parallel_for.hpp>
#include <bide/parallel/parallel_inplace_merge.hpp>
#include <bide/parallel/parallel_invoke.hpp>
#include <bide/parallel/parallel_merge.hpp>
#include <bide/parallel/parallel_nth_element.hpp>
#include <bide/parallel/parallel_pack.hpp>
#include <bide/parallel/parallel_pipeline.hpp>
#include <bide/parallel/parallel_radix_sort.hpp>
#include <bide/parallel/parallel_reduce.hpp>
#include <bide/parallel/parallel_scan.hpp>
#include <bide/parallel/parallel_sort.hpp>
#include <bide/parallel/parallel_sort_by_cached_key.hpp>
#include <bide/parallel/parallel_transform.hpp>
#include <bide/parallel/static_partition.hpp>
#include <bide/sched/scheduler.hpp>
#include <support/catch.hpp>
#include <support/scheduling.hpp>

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <type_traits>
#include <vector>

static_assert(std::is_convertible_v<bide::scheduler&, bide::fork_policy>);
static_assert(!std::is_convertible_v<bide::scheduler, bide::fork_policy>, "it would dangle");

template <class Body>
concept takes_braces = requires(bide::scheduler& s, std::vector<int>& range, Body body) {
    bide::parallel_for_chunks({s, {.grain = 10}}, range, body);
    bide::async_parallel_for({s, {.grain = 10}}, range, [](int&) {});
    bide::async_parallel_for({s, {.grain = 10}}, 0, 10, [](int) {});
};
static_assert(takes_braces<void (*)(bide::parallel_chunk<std::vector<int>::iterator>)>,
              "beside a static_partition, too");

TEST_CASE("fork_policy: its options reach loops over indices and over elements",
          "[promise.loop-visits-once]") {
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

TEST_CASE("fork_policy: every algorithm takes a stop token",
          "[promise.loop-stops][promise.loop-visits-once]") {
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

    std::vector<int> out(numbers.size());
    std::vector<int> rest(numbers.size());
    const auto to = out.begin();
    const auto maybe = [](int i) { return std::optional(i); };
    CHECK_THROWS_AS(bide::parallel_inclusive_scan(on, numbers, to), bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_exclusive_scan(on, numbers, to, 0), bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_adjacent_difference(on, numbers, to), bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_copy_if(on, numbers, to, is_one), bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_unique_copy(on, numbers, to), bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_partition_copy(on, numbers, to, rest.begin(), is_one),
                    bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_remove_if(on, numbers, is_one), bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_unique(on, numbers), bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_stable_partition(on, numbers, is_one), bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_collect(on, numbers, is_one), bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_collect_if(on, numbers, is_one), bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_collect_some(on, numbers, maybe), bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_histogram(on, numbers, 1), bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_group_by(on, numbers, is_one), bide::stopped_error);

    // Longer than any range that one thread sorts without a look at the token.
    std::vector<int> many(100'000);
    for (std::size_t i = 0; i < many.size(); ++i) {
        many[i] = static_cast<int>(i * 7'919 % 100'003);
    }
    std::vector<int> merged(many.size());
    const auto middle = many.begin() + 50'000;
    const std::span left(many.begin(), middle);
    const std::span right(middle, many.end());
    CHECK_THROWS_AS(bide::parallel_sort(on, many), bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_stable_sort(on, many), bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_sort_by_cached_key(on, many, std::negate<>()),
                    bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_radix_sort(on, many), bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_nth_element(on, many, middle), bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_partial_sort(on, many, middle), bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_merge(on, left, right, merged.begin()), bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_inplace_merge(on, many, middle), bide::stopped_error);

    const std::vector<void (*)()> functions(3, [] {});
    const auto stage = bide::parallel_stage(is_one);
    CHECK_THROWS_AS(bide::parallel_invoke(on, functions), bide::stopped_error);
    CHECK_THROWS_AS(bide::fork_scope(on, [](bide::spawn_scope& in) { in.spawn([] {}); }),
                    bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_pipeline(on, 4, numbers, stage), bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_for(bide::static_partition(s, on.options()), numbers, is_one),
                    bide::stopped_error);
}
