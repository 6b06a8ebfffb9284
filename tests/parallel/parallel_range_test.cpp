#include <bide/parallel/parallel_for.hpp>
#include <bide/parallel/parallel_reduce.hpp>
#include <support/forking.hpp>
#include <support/function_ref.hpp>
#include <support/narrow_iterator.hpp>
#include <support/scheduling.hpp>

// Ranges and iterators in the place of indices: the loops and the reductions.

namespace {

struct counter {
    counter() = default;
    counter(const counter&) = delete;
    counter& operator=(const counter&) = delete;
    int visits = 0;
    void visit() { ++visits; }
};

template <class Range>
concept loops_over =
    requires(bide::scheduler& s, Range& range) { bide::parallel_for(s, range, [](auto&&) {}); };

} // namespace

static_assert(loops_over<std::vector<int>>);
static_assert(loops_over<const std::vector<int>>);
static_assert(loops_over<std::deque<int>>);
static_assert(loops_over<std::array<int, 3>>);
static_assert(loops_over<int[3]>);
static_assert(loops_over<std::span<int>>);
static_assert(loops_over<const std::vector<bool>>);
static_assert(!loops_over<std::vector<bool>>, "threads would write to one word");
static_assert(!loops_over<std::list<int>>, "its parts cannot be found in constant time");
static_assert(!loops_over<std::forward_list<int>>);
#if !defined(__clang__) || __clang_major__ >= 16 // before, clang cannot compile libstdc++'s views
using indices = std::ranges::iota_view<int, int>;
static_assert(loops_over<indices>);
static_assert(loops_over<decltype(indices() | std::views::transform(std::negate<>()))>);
static_assert(loops_over<decltype(indices() | std::views::drop(1) | std::views::reverse)>);
static_assert(!loops_over<decltype(indices() | std::views::filter(std::logical_not<>()))>);
#endif
static_assert(!loops_over<int>);

TEST_CASE("parallel_for: the elements of any container, not copied, by a member function",
          "[promise.loop-visits-once]") {
    bide::scheduler s(test::with(3, true));
    std::deque<counter> counters(5'000);
    bide::parallel_for(s, counters, &counter::visit);
    bide::parallel_for({s, {.grain = 7}}, counters.rbegin(), counters.rend(), &counter::visit);
    CHECK(std::all_of(counters.begin(), counters.end(),
                      [](const counter& c) { return c.visits == 2; }));
}

TEST_CASE("parallel_for: an empty range and bounds in reverse do nothing") {
    bide::scheduler s(test::with(2, true));
    std::vector<int> some(3);
    const auto fails = [](int&) { FAIL("no element"); };
    const test::function_ref<void(int&)> never = fails;
    bide::parallel_for(s, some.end(), some.end(), never);
    bide::parallel_for(s, some.end(), some.begin(), never);
}

TEST_CASE("parallel_for: iterators whose difference has 32 bits") {
    bide::scheduler s(test::with(2, true));
    std::atomic<std::int64_t> sum{0};
    std::vector<int> numbers(3'000);
    std::iota(numbers.begin(), numbers.end(), 0);
    using narrow = test::narrow_iterator<int>;
    bide::parallel_for(s, narrow(numbers.data()), narrow(numbers.data() + 3'000),
                       [&](int i) { sum += i; });
    CHECK(sum.load() == std::int64_t{3'000} * 2'999 / 2);
}

TEST_CASE("parallel_for_chunks: the chunks are the range, and each knows where it begins",
          "[promise.loop-visits-once]") {
    test::jitter chance(test::run_seed());
    for (const unsigned workers : {1u, 2u, 5u}) {
        bide::scheduler s(test::with(workers, true));
        for (int round = 0; round < 20; ++round) {
            const std::size_t n = chance.below(1u << chance.below(13));
            const std::size_t grain = chance.below(2) == 0 ? 0 : chance.below(200);
            INFO(workers << " workers, " << n << " elements, grain " << grain);
            std::deque<std::size_t> places(n, n);
            std::atomic<int> small{0};
            bide::parallel_for_chunks({s, {.grain = grain}}, places, [&](auto chunk) {
                if (chunk.size() == 0 || (chunk.size() < grain && n >= grain)) {
                    ++small;
                }
                for (std::size_t i = 0; i < chunk.size(); ++i) {
                    chunk[i] = chunk.index() + i;
                }
            });
            REQUIRE(small.load() == 0);
            for (std::size_t i = 0; i < n; ++i) {
                REQUIRE(places[i] == i);
            }
        }
    }
}

TEST_CASE("parallel_for_chunks: contiguous elements convert to a span") {
    bide::scheduler s(test::with(2, true));
    const std::vector<int> numbers(1'000, 2);
    std::atomic<std::int64_t> sum{0};
    bide::parallel_for_chunks(s, numbers, [&](std::span<const int> chunk) {
        sum += std::accumulate(chunk.begin(), chunk.end(), std::int64_t{0});
    });
    CHECK(sum.load() == 2'000);
}

TEST_CASE("parallel_reduce: ranges give what indices give, bit by bit",
          "[promise.loop-visits-once][promise.reduce-order]") {
    test::jitter chance(test::run_seed());
    for (int round = 0; round < 40; ++round) {
        bide::scheduler s(test::with(1 + chance.below(8), true));
        const std::size_t n = chance.below(1u << chance.below(15));
        std::vector<double> numbers(n);
        std::generate(numbers.begin(), numbers.end(), [&] { return 1.0 / (1 + chance.below(99)); });
        const std::deque<double> copy(numbers.begin(), numbers.end());
        const auto number = [&](std::size_t i) { return numbers[i]; };
        const auto add = std::plus<>();
        test::chance_forks::script script(test::run_seed()); // whatever thieves take
        const double by_index =
            bide::detail::reduce(test::by_chance(script), std::size_t{0}, n, 0.5, number, add);
        CHECK(bide::parallel_reduce(s, std::size_t{0}, n, 0.5, number, add) == by_index);
        CHECK(bide::parallel_reduce(s, numbers, 0.5, std::plus<>()) == by_index);
        CHECK(bide::parallel_reduce(s, copy, 0.5, std::plus<>()) == by_index);
        CHECK(bide::parallel_reduce(s, copy.begin(), copy.end(), 0.5, std::plus<>()) == by_index);
        CHECK(bide::parallel_reduce(s, numbers, 0.5, std::identity(), std::plus<>()) == by_index);
        CHECK(bide::parallel_reduce(s, numbers.begin(), numbers.end(), 0.5, std::identity(),
                                    std::plus<>()) == by_index);
    }
}
