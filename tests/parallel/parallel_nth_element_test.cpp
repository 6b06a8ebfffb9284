#include <bide/parallel/parallel_nth_element.hpp>
#include <support/forking.hpp>
#include <support/function_ref.hpp>
#include <support/narrow_iterator.hpp>
#include <support/scheduling.hpp>

namespace {

using ints = std::vector<int>;
using order = test::function_ref<bool(int, int)>;

constexpr int shapes = 6;
constexpr std::size_t large = 100'000;

ints make(int shape, std::size_t n, test::jitter& chance) {
    ints made(n);
    const int size = static_cast<int>(n);
    for (int i = 0; i < size; ++i) {
        int& e = made[static_cast<std::size_t>(i)];
        switch (shape) {
        case 0: e = static_cast<int>(chance.below(1u << 30)); break;
        case 1: e = i; break;
        case 2: e = -i; break;
        case 3: e = 7; break;
        case 4: e = static_cast<int>(chance.below(5)); break;
        default: e = std::min(i, size - i);
        }
    }
    return made;
}

const auto is_less = [](int a, int b) { return a < b; };

// The same elements, with an error probability of 2^-32.
std::uint64_t sum_of_hashes(const ints& v) {
    std::uint64_t sum = 0;
    for (const int e : v) {
        const std::uint64_t x = static_cast<std::uint32_t>(e) * 0x9e37'79b9'7f4a'7c15u;
        sum += (x ^ x >> 29) * 0xbf58'476d'1ce4'e5b9u;
    }
    return sum;
}
bool all_there(const ints& v, const ints& given) {
    return v.size() == given.size() && sum_of_hashes(v) == sum_of_hashes(given);
}

bool is_selected(const ints& v, std::size_t nth) {
    const int at = v[nth];
    const auto middle = v.begin() + static_cast<std::ptrdiff_t>(nth);
    return std::all_of(v.begin(), middle, [&](int e) { return e <= at; }) &&
           std::all_of(middle, v.end(), [&](int e) { return e >= at; });
}

ints sorted(ints v) {
    std::sort(v.begin(), v.end());
    return v;
}

} // namespace

TEST_CASE(
    "parallel_nth_element: puts what a sort would put there; parallel_partial_sort, before it, too",
    "[promise.selection]") {
    test::jitter chance(test::run_seed());
    const order less(is_less);
    for (const unsigned workers : {1u, 3u}) {
        bide::scheduler s(test::with(workers, true));
        for (const std::size_t n : {1u, 2u, 24u, 25u, 129u, 1'023u, 1'024u, 10'007u, 300'007u}) {
            for (int shape = 0; shape != shapes; ++shape) {
                if (n > large && (shape % 4 != 0 || workers == 1)) {
                    continue; // random and few values are enough
                }
                const ints given = make(shape, n, chance);
                const ints expected = n > large ? ints() : sorted(given);
                for (const std::size_t nth : {std::size_t{0}, n / 3, n - 1, n}) {
                    INFO(nth << " of " << n << ", shape " << shape << ", " << workers
                             << " workers");
                    const auto place = static_cast<std::ptrdiff_t>(nth);
                    ints v = given;
                    bide::parallel_nth_element(s, v, v.begin() + place, less);
                    REQUIRE((nth == n ? v == given : is_selected(v, nth) && all_there(v, given)));
                    if (n > large) {
                        continue;
                    }
                    v = given;
                    bide::parallel_partial_sort(s, v.begin(), v.begin() + place, v.end(), less);
                    REQUIRE(std::equal(v.begin(), v.begin() + place, expected.begin()));
                    REQUIRE(all_there(v, given));
                }
            }
        }
    }
}

TEST_CASE("parallel_nth_element: gives the same order on any number of workers, by a projection",
          "[promise.sort-same-order]") {
    test::jitter chance(11);
    struct entry {
        std::uint32_t key;
        int place;
    };
    std::vector<entry> given;
    for (int i = 0; i < 300'000; ++i) {
        given.push_back({chance.below(1'000), i});
    }
    std::vector<int> orders[2];
    const unsigned workers[] = {1, 3};
    for (int i = 0; i != 2; ++i) {
        bide::scheduler s(test::with(workers[i], true));
        auto v = given;
        bide::parallel_nth_element(s, v, v.begin() + 100'000, std::less<>(), &entry::key);
        for (const entry& e : v) {
            orders[i].push_back(e.place);
        }
    }
    CHECK(orders[0] == orders[1]);
}

TEST_CASE("parallel_partial_sort: projections, orders, and iterators of narrow differences") {
    bide::scheduler s(test::with(2, true));
    test::jitter chance(5);
    struct entry {
        int key;
    };
    std::vector<entry> v;
    std::vector<int> keys;
    for (int i = 0; i < 20'000; ++i) {
        keys.push_back(static_cast<int>(chance.below(1u << 20)));
        v.push_back({keys.back()});
    }
    std::sort(keys.begin(), keys.end(), std::greater<>());
    using narrow = test::narrow_iterator<entry>;
    bide::parallel_partial_sort(s, narrow(v.data()), narrow(v.data() + 700),
                                narrow(v.data() + v.size()), std::greater<>(), &entry::key);
    CHECK(std::equal(v.begin(), v.begin() + 700, keys.begin(),
                     [](const entry& e, int key) { return e.key == key; }));
}

TEST_CASE("parallel_nth_element: comparisons that throw or are random lose no element of the range",
          "[promise.selection]") {
    test::chance_forks::script script(test::run_seed());
    struct failure {};
    for (const std::size_t n : {3u, 100u, 5'000u, 300'000u}) {
        for (int round = 0; round != (n > large ? 4 : 30); ++round) {
            std::uint32_t left = script.chance.below(static_cast<std::uint32_t>(3 * n));
            const bool is_random = round % 3 == 0;
            const ints given = make(is_random ? 0 : round % shapes, n + 4, script.chance);
            ints v = given;
            const auto answers = [&](int a, int b) {
                if (left-- == 0) {
                    throw failure();
                }
                return is_random ? script.chance.below(3) == 0 : a < b;
            };
            order less(answers);
            int* const begin = v.data() + 2;
            try {
                const bide::detail::elements<int*> all{begin, n};
                if (round % 2 == 0) {
                    bide::detail::nth_element(test::by_chance(script), all, n / 2, less);
                } else {
                    bide::detail::partial_sort(test::by_chance(script), all, n / 2, less);
                }
            } catch (const failure&) {
            }
            REQUIRE(std::equal(v.begin(), v.begin() + 2, given.begin()));
            REQUIRE(std::equal(v.end() - 2, v.end(), given.end() - 2));
            REQUIRE(all_there(v, given));
        }
    }
}

TEST_CASE("parallel_nth_element: takes a stop token, and the progress reaches the total",
          "[promise.sort-stops]") {
    bide::scheduler s(test::with(2, true));
    test::jitter chance(3);
    for (int shape = 0; shape != shapes; ++shape) {
        const int n = shape == 4 ? 300'000 : 30'000; // few values: large, and soon sorted
        const ints given = make(shape, static_cast<std::size_t>(n), chance);
        const std::uint64_t all = given.size();
        ints v = given;
        bide::fork_progress progress;
        bide::parallel_nth_element({s, {.progress = &progress}}, v, v.begin() + n / 3,
                                   order(is_less));
        CHECK(progress.done() == all);
        CHECK(progress.total() == all);
        v = given;
        bide::fork_progress of_sort;
        bide::parallel_partial_sort({s, {.progress = &of_sort}}, v, v.begin() + n / 3,
                                    order(is_less));
        CHECK(of_sort.done() == all + all / 3);
        CHECK(of_sort.total() == all + all / 3);
        if (shape != 0) {
            continue;
        }
        std::stop_source stop;
        std::atomic<int> calls{0};
        v = given;
        const auto counts = [&](int a, int b) {
            if (++calls == 15'000) {
                stop.request_stop();
            }
            return a < b;
        };
        CHECK_THROWS_AS(bide::parallel_nth_element({s, {.stop = stop.get_token()}}, v,
                                                   v.begin() + n / 3, order(counts)),
                        bide::stopped_error);
        CHECK(calls < 45'000);
        CHECK(all_there(v, given));
        CHECK_THROWS_AS(bide::parallel_partial_sort({s, {.stop = stop.get_token()}}, v,
                                                    v.begin() + 3, order(counts)),
                        bide::stopped_error);
    }
}
