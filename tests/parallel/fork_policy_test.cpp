#include <bide/parallel/async_fork.hpp>
#include <bide/parallel/fork_scope.hpp>
#include <bide/parallel/parallel_for.hpp>
#include <bide/parallel/parallel_pipeline.hpp>
#include <support/scheduling.hpp>

static_assert(std::is_convertible_v<bide::scheduler&, bide::fork_policy>);
static_assert(!std::is_convertible_v<bide::scheduler, bide::fork_policy>, "it would dangle");

template <class Body>
concept takes_braces = requires(bide::scheduler& s, std::vector<int>& range, Body body) {
    bide::parallel_for_chunks({s, {.grain = 10}}, range, body);
    bide::async_fork({s, {.grain = 10}}, [] {});
};
static_assert(takes_braces<void (*)(bide::parallel_chunk<std::vector<int>::iterator>)>);

TEST_CASE("fork_policy: what has no elements takes a stop token, too", "[promise.loop-stops]") {
    bide::scheduler s(test::with(2, true));
    std::stop_source stop;
    stop.request_stop();
    const bide::fork_policy on(s, {.stop = stop.get_token()});
    std::vector<int> numbers(1'000);
    const auto stage = bide::parallel_stage([](int) {});
    CHECK_THROWS_AS(bide::fork_scope(on, [](bide::spawn_scope& in) { in.spawn([] {}); }),
                    bide::stopped_error);
    CHECK_THROWS_AS(bide::parallel_pipeline(on, 4, numbers, stage), bide::stopped_error);
}
