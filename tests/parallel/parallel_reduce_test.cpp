#include <bide/parallel/parallel_reduce.hpp>
#include <support/forking.hpp>
#include <support/function_ref.hpp>
#include <support/scheduling.hpp>

namespace {

// A sequence of indices that were combined in the right order, or not. It is not a number and can
// only be moved.
class stretch {
public:
    explicit stretch(int at) : first(at), last(at + 1), alone(std::make_unique<int>(at)) {}
    stretch(int from, int to) : first(from), last(to), alone(std::make_unique<int>(from)) {}

    static stretch joined(stretch&& left, stretch&& right) {
        stretch both(left.first, right.last);
        both.broken = left.broken || right.broken || left.last != right.first ||
                      *left.alone != left.first || *right.alone != right.first;
        return both;
    }

    int first;
    int last;
    bool broken = false;
    std::unique_ptr<int> alone;
};

struct failure {
    int at;
};

using maps = test::function_ref<int(int)>;
using combines = test::function_ref<int(int, int)>;
const auto itself = [](int i) { return i; };
const auto adds = [](int a, int b) { return a + b; };

// The documented tree, as text.
std::string tree(std::size_t first, std::size_t last, std::size_t grain) {
    const std::size_t n = last - first;
    if (n == 1 || n / 2 < grain) {
        const auto pair = [](const std::string& a, const std::string& b) {
            return "(" + a + " " + b + ")";
        };
        const auto two = [&](std::size_t i) {
            return pair(std::to_string(i), std::to_string(i + 1));
        };
        std::string leaf = std::to_string(first);
        std::size_t i = first + 1;
        for (; last - i >= 4; i += 4) {
            leaf = pair(leaf, pair(two(i), two(i + 2)));
        }
        for (; i < last; ++i) {
            leaf = pair(leaf, std::to_string(i));
        }
        return leaf;
    }
    const std::size_t middle = first + n / 2;
    return "(" + tree(first, middle, grain) + " " + tree(middle, last, grain) + ")";
}

template <class Index, class T, class Map, class Combine>
T by_chance_with(test::chance_forks::script& script, const bide::fork_options& options, Index first,
                 Index last, T identity, Map map, Combine combine) {
    return bide::detail::reduce(test::by_chance(script, options), first, last, std::move(identity),
                                map, combine);
}

template <class T, class Map, class Combine>
T by_chance(test::chance_forks::script& script, int first, int last, std::size_t grain, T identity,
            Map map, Combine combine) {
    bide::fork_options options;
    options.grain = grain;
    return by_chance_with(script, options, first, last, std::move(identity), map, combine);
}

} // namespace

TEST_CASE("parallel_reduce: neighbours are combined in index order, and only moved",
          "[promise.reduce-order]") {
    test::chance_forks::script script(test::run_seed());
    bide::scheduler s(test::with(3, true));
    const auto one = [](int i) { return stretch(i); };
    for (int round = 0; round < 100; ++round) {
        const int first = static_cast<int>(script.chance.below(100)) - 50;
        const int last =
            first + 1 + static_cast<int>(script.chance.below(1u << script.chance.below(13)));
        const std::size_t grain = script.chance.below(100);
        INFO("[" << first << ", " << last << "), grain " << grain);
        const stretch a =
            by_chance(script, first, last, grain, stretch(first, first), one, stretch::joined);
        REQUIRE((a.first == first && a.last == last && !a.broken));
        const stretch b = bide::parallel_reduce({s, {.grain = grain}}, first, last,
                                                stretch(first, first), one, stretch::joined);
        REQUIRE((b.first == first && b.last == last && !b.broken));
    }
}

TEST_CASE("parallel_reduce: the tree is the documented one", "[promise.reduce-order]") {
    test::chance_forks::script script(test::run_seed());
    const auto name = [](int i) { return std::to_string(i); };
    const auto bracket = [](std::string&& a, std::string&& b) {
        return a.empty() ? std::move(b) : "(" + a + " " + b + ")";
    };
    const auto is_promised = [&](int n, std::size_t grain, std::size_t given) {
        return by_chance(script, 0, n, given, std::string(), name, bracket) ==
               tree(0, static_cast<std::size_t>(n), grain);
    };
    for (const int n : {1, 2, 3, 4, 5, 7, 100}) {
        CHECK(is_promised(n, 1, 0));
        CHECK(is_promised(n, 1, 1));
        CHECK(is_promised(n, 5, 5));
        CHECK(is_promised(n, 1'000, 1'000));
    }
    CHECK(is_promised(1'000, 3, 0));
    CHECK(is_promised(5'000, 19, 0));

    const auto value = [](int i) { return 1.0 / (i + 1); };
    const auto plus = [](double a, double b) { return a + b; };
    const auto sum = [&](std::size_t grain) {
        return std::bit_cast<std::uint64_t>(
            by_chance(script, 0, 1'000'000, grain, 0.0, value, plus));
    };
    CHECK(sum(0) == sum(2'048));
    CHECK(sum(0) != sum(1'000'000));
}

TEST_CASE("parallel_reduce: the tree is the same if a brief one takes long from some iteration on",
          "[promise.reduce-order]") {
    test::chance_forks::script script(test::run_seed());
    bide::scheduler s(test::with(2, true));
    int slow = -1;
    const auto value = [&slow](int i) {
        using clock = std::chrono::steady_clock;
        for (const auto end = clock::now() + std::chrono::microseconds(20);
             i == slow && clock::now() < end;) {
        }
        return 1.0 / (i + 1);
    };
    const auto halve = [](double a, double b) { return a / 2 + b; };
    const double same = by_chance(script, 0, 100, 0, 0.0, value, halve);
    const auto reduce = [&] { return bide::parallel_reduce(s, 0, 100, 0.0, value, halve); };
    for (const int at : {0, 1, 37, 64, 99}) {
        slow = -1;
        for (int i = 0; i < 50; ++i) {
            CHECK(reduce() == same);
        }
        slow = at;
        CHECK(reduce() == same);
    }
}

// What is converted to T without loss, and what is not.
enum plain_enum { plain_one };
enum class scoped_enum { one };
using bide::detail::reduces_to;
static_assert(reduces_to<int, int> && reduces_to<int, long> && reduces_to<const short&, int>);
static_assert(reduces_to<float, double> && reduces_to<std::vector<bool>::reference, bool>);
static_assert(reduces_to<int, double> && reduces_to<short, float> && reduces_to<bool, int>);
static_assert(reduces_to<plain_enum, long> && reduces_to<scoped_enum, scoped_enum>);
static_assert(!reduces_to<double, int> && !reduces_to<double, float> && !reduces_to<int, bool>);
static_assert(!reduces_to<std::size_t, int> && !reduces_to<int, unsigned>);
static_assert(!reduces_to<std::int64_t, double> && !reduces_to<int, float>);
static_assert(!reduces_to<int, char> && !reduces_to<const int*, bool>);
static_assert(!reduces_to<int, plain_enum> && !reduces_to<scoped_enum, int>);
static_assert(reduces_to<double, std::optional<double>> && reduces_to<const char*, std::string>);
static_assert(reduces_to<int, stretch>); // by an explicit constructor
static_assert(reduces_to<std::unique_ptr<int>, std::unique_ptr<int>>);
static_assert(!reduces_to<std::unique_ptr<int>&, std::unique_ptr<int>>);

TEST_CASE("parallel_reduce: the identity comes first, and is the result of an empty range") {
    bide::scheduler s(test::with(1, true));
    const auto left = [](int a, int) { return a; };
    const maps same = itself;
    const combines first = left;
    CHECK(bide::parallel_reduce(s, 0, 10, 7, same, first) == 7);
    CHECK(bide::parallel_reduce(s, 0, 10, 0, same, first) == 0);
    CHECK(bide::parallel_reduce(s, 3, 3, 42, same, combines(adds)) == 42);
    CHECK(bide::parallel_reduce(s, 4, 3, 42, same, combines(adds)) == 42);
    const auto none = [](unsigned) { return 0; };
    CHECK_THROWS_AS(bide::parallel_reduce(s, -1, 3u, 0, none, combines(adds)),
                    std::invalid_argument);
}

TEST_CASE("parallel_reduce: after combine throws, no later leaf begins") {
    test::chance_forks::script script(5);
    script.thieves = 0;
    int calls = 0;
    const auto map = [&calls](int i) { return calls += 1, i; };
    const auto throws = [](int a, int b) -> int {
        if (b == 11) {
            throw failure{b};
        }
        return a > b ? a : b;
    };
    CHECK_THROWS_AS(by_chance(script, 0, 64, 1, 0, maps(map), combines(throws)), failure);
    CHECK(calls == 12);
}

// A tree that is too large to walk. Its forks are counted, and memory allows only a few.
TEST_CASE("parallel_reduce: parts that a stop or an exception leaves out are not divided",
          "[promise.loop-stops]") {
    constexpr std::int64_t n = 1'000'000'000'000'000;
    constexpr int depth = 50; // forks above the first leaf, and above the last one
    test::chance_forks::script script(3);
    script.last_fork = 4 * depth;
    std::stop_source source;
    const bide::fork_options options{1, source.get_token(), nullptr};
    int calls = 0;
    const auto plus = [](std::int64_t a, std::int64_t b) { return a + b; };
    const auto run = [&](test::function_ref<std::int64_t(std::int64_t)> map) {
        script.forks = 0;
        calls = 0;
        return by_chance_with(script, options, std::int64_t{0}, n, std::int64_t{0}, map, plus);
    };
    const auto throws = [&](std::int64_t i) -> std::int64_t {
        ++calls;
        throw failure{static_cast<int>(i)};
    };
    const auto stops = [&](std::int64_t i) { return ++calls, source.request_stop(), i; };
    const auto stops_and_throws = [&](std::int64_t i) { return stops(i), throws(i); };

    SECTION("an exception of the first index") {
        script.thieves = 0;
        CHECK_THROWS_AS(run(throws), failure);
        CHECK(calls == 1);
        CHECK(script.forks <= depth);
    }
    SECTION("a stop by the first index to run, whichever that is") {
        script.thieves = GENERATE(0u, 2u, 4u);
        CHECK_THROWS_AS(run(stops), bide::stopped_error);
        CHECK(calls == 1);
        CHECK(script.forks <= depth);
    }
    SECTION("both at once: the exception leaves") {
        script.thieves = GENERATE(0u, 2u, 4u);
        CHECK_THROWS_AS(run(stops_and_throws), failure);
        CHECK(script.forks <= depth);
    }
    SECTION("a stop before it") {
        source.request_stop();
        CHECK_THROWS_AS(run(throws), bide::stopped_error);
        CHECK(calls == 0);
        CHECK(script.forks == 0);
    }
}

TEST_CASE("parallel_reduce: the progress counts what was done before a stop, and no more") {
    test::chance_forks::script script(4);
    script.thieves = 0;
    std::stop_source source;
    bide::fork_progress progress;
    const auto map = [&](int i) { return i == 7 ? (source.request_stop(), i) : i; };
    CHECK_THROWS_AS(by_chance_with(script, {1, source.get_token(), &progress}, 0, 1'000'000, 0,
                                   maps(map), combines(adds)),
                    bide::stopped_error);
    CHECK(progress.done() == 8);
    CHECK(progress.total() == 1'000'000);
}

TEST_CASE("parallel_reduce: a sum of integers wraps around in their own type") {
    bide::scheduler s(test::with(2, true));
    for (const int size : {1, 63, 64, 65, 1'000, 20'000}) {
        INFO(size << " numbers");
        std::vector<signed char> numbers;
        unsigned sum = 3;
        for (int i = 0; i < size; ++i) {
            numbers.push_back(static_cast<signed char>(i * 37));
            sum += static_cast<unsigned>(static_cast<int>(numbers.back()));
        }
        const auto wrapped = static_cast<signed char>(static_cast<unsigned char>(sum));
        CHECK(bide::parallel_reduce(s, numbers, static_cast<signed char>(3),
                                    std::plus<signed char>()) == wrapped);
        CHECK(bide::parallel_reduce(s, numbers, 3, std::plus<>()) == static_cast<int>(sum));
        CHECK(bide::parallel_reduce(s, numbers, std::int64_t{3}, std::plus<std::int64_t>()) ==
              static_cast<int>(sum));
    }
}

TEST_CASE("parallel_reduce_chunks: the chunks cover the range, in order, and are the leaves of the "
          "tree of parallel_reduce; values are only moved",
          "[promise.reduce-order]") {
    test::jitter chance(test::run_seed());
    for (const unsigned workers : {1U, 2U, 16U}) {
        bide::scheduler s(test::with(workers, true));
        for (int n : {1, 2, 3, 40, 257, 5'000}) {
            std::vector<int> in(static_cast<std::size_t>(n));
            std::iota(in.begin(), in.end(), 0);
            const std::size_t grain = chance.below(2) == 0 ? 0 : std::size_t{chance.below(50)};
            INFO(workers << " workers, " << n << " elements, grain " << grain);
            const auto body = [&](auto chunk) {
                stretch all(static_cast<int>(chunk.index()),
                            static_cast<int>(chunk.index() + chunk.size()));
                all.broken = chunk.size() < std::min(grain, in.size()) || chunk[0] != all.first ||
                             chunk.end()[-1] != all.last - 1;
                return all;
            };
            const stretch all = bide::parallel_reduce_chunks({s, {.grain = grain}}, in,
                                                             stretch(0, 0), body, stretch::joined);
            CHECK((all.first == 0 && all.last == n && !all.broken));

            const auto tenth = [](double x) { return x / 10; };
            const auto sum_of = [](auto chunk) { // as a leaf of parallel_reduce() of up to 4
                double sum = chunk[0] / 10.0;
                for (std::size_t i = 1; i != chunk.size(); ++i) {
                    sum += chunk[i] / 10.0;
                }
                return sum;
            };
            CHECK(bide::parallel_reduce_chunks({s, {.grain = 2}}, in.begin(), in.end(), 0.0, sum_of,
                                               std::plus()) ==
                  bide::parallel_reduce({s, {.grain = 2}}, in, 0.0, tenth, std::plus()));
        }
    }
}

TEST_CASE("parallel_reduce_chunks: an empty range calls nothing; the first exception in order "
          "leaves it; a stop is an exception") {
    bide::scheduler s(test::with(2, true));
    std::vector<int> in(100);
    std::iota(in.begin(), in.end(), 0);
    const auto throws = [](auto chunk) -> int {
        return chunk.index() >= 37 ? throw failure{chunk[0]} : 1;
    };
    const std::span<int> none;
    CHECK(bide::parallel_reduce_chunks(s, none, 5, throws, std::plus()) == 5);
    try {
        bide::parallel_reduce_chunks({s, {.grain = 1}}, in, 0, throws, std::plus());
        CHECK(false);
    } catch (const failure& failed) {
        CHECK(failed.at == 37);
    }
    std::stop_source stop;
    stop.request_stop();
    CHECK_THROWS_AS(
        bide::parallel_reduce_chunks({s, {.stop = stop.get_token()}}, in, 0, throws, std::plus()),
        bide::stopped_error);
}
