#include <bide/parallel/parallel_radix_sort.hpp>
#include <support/alloc.hpp>
#include <support/counted.hpp>
#include <support/forking.hpp>
#include <support/function_ref.hpp>
#include <support/narrow_iterator.hpp>
#include <support/scheduling.hpp>

namespace {

// Numbers in many ranges, so that they differ in few bits or in all.
template <class T> T any_number(test::jitter& chance, int shape) {
    const std::uint64_t bits = std::uint64_t{chance.below(1u << 31)} << 33 ^
                               std::uint64_t{chance.below(1u << 31)} << 11 ^ chance.below(1u << 31);
    switch (shape) {
    case 0: return static_cast<T>(bits);
    case 1: return static_cast<T>(bits % 3);
    case 2: return static_cast<T>(1'000 + bits % 5'000);
    case 3: return static_cast<T>(bits % 1'000 == 0 ? bits : bits % 7); // one bucket has nearly all
    case 4: return static_cast<T>(5);
    default: // a few large buckets, which several threads divide again at the same time
        return static_cast<T>((bits % 3) << (sizeof(T) * 8 - 4) | (bits >> 8) % 5'000);
    }
}

struct failure {};

// Its number is its place. It can only be moved, which leaves an empty object.
struct record : test::fickle<failure> {
    record(test::tally& in, int k, int p) : test::fickle<failure>(in, p), key(k) {}
    int key;
    int place() const { return number(); }
};

template <class T> using key_of = test::function_ref<int(const T&)>;

// Sorts with one thread and random answers. Returns true unless something threw.
template <class T>
bool sort_by_chance(test::chance_forks::script& script, std::vector<T>& v, key_of<T> key) {
    try {
        script.forks = 0;
        bide::detail::sort_by_bits(test::by_chance(script), bide::detail::elements_of(v), key);
        return true;
    } catch (const failure&) {
    } catch (const std::bad_alloc&) {
    }
    return false;
}

test::tally tally;

std::vector<record> records(std::size_t n, std::uint32_t keys, test::jitter& chance) {
    record::moves_left = -1;
    std::vector<record> made;
    made.reserve(n);
    for (std::size_t i = 0; i != n; ++i) {
        made.emplace_back(tally, static_cast<int>(chance.below(keys)) - static_cast<int>(keys / 2),
                          static_cast<int>(i));
    }
    return made;
}

bool all_there(const std::vector<record>& v) {
    std::vector<char> seen(v.size());
    for (const record& r : v) {
        const auto at = static_cast<std::size_t>(r.place());
        if (at >= v.size() || seen[at]++ != 0) {
            return false;
        }
    }
    return true;
}

} // namespace

TEMPLATE_TEST_CASE(
    "parallel_radix_sort: sorts integers of all kinds, and equal ones keep their order",
    "[promise.radix-sort]", std::uint8_t, std::int16_t, std::int64_t, std::uint64_t) {
    test::jitter chance(test::run_seed());
    bide::scheduler s(test::with(3, true));
    struct entry {
        TestType key;
        int place;
        bool operator==(const entry&) const = default;
    };
    for (const std::size_t n : {0u, 1u, 2u, 32u, 33u, 1'000u, 16'384u, 40'009u}) {
        for (int shape = 0; shape != 6; ++shape) {
            if (n > 20'000 && shape % 2 == 0) {
                continue; // those with large buckets
            }
            std::vector<entry> entries(n);
            for (std::size_t i = 0; i != n; ++i) {
                entries[i] = {any_number<TestType>(chance, shape), static_cast<int>(i)};
            }
            auto expected = entries;
            std::sort(expected.begin(), expected.end(), [](const entry& a, const entry& b) {
                return a.key != b.key ? a.key < b.key : a.place < b.place;
            });
            bide::parallel_radix_sort(s, entries, &entry::key);
            INFO(n << ", shape " << shape);
            REQUIRE(entries == expected);
        }
    }
}

TEMPLATE_TEST_CASE("parallel_radix_sort: floating-point numbers have the total order of IEEE 754",
                   "[promise.radix-sort]", float) {
    test::jitter chance(test::run_seed());
    bide::scheduler s(test::with(2, true));
    using limits = std::numeric_limits<TestType>;
    const TestType order[] = {-limits::quiet_NaN(), -limits::infinity(), limits::lowest(),
                              TestType(-1),         -limits::min(),      -limits::denorm_min(),
                              TestType(-0.0),       TestType(0.0),       limits::denorm_min(),
                              TestType(1),          limits::max(),       limits::infinity(),
                              limits::quiet_NaN()};
    const auto same = [](TestType a, TestType b) {
        return std::signbit(a) == std::signbit(b) && (a == b || (std::isnan(a) && std::isnan(b)));
    };
    std::vector<TestType> v;
    for (int i = 0; i != 40'000; ++i) {
        v.push_back(order[chance.below(static_cast<std::uint32_t>(std::size(order)))]);
    }
    bide::parallel_radix_sort(s, v);
    const auto rank = [&](TestType e) {
        return std::find_if(std::begin(order), std::end(order),
                            [&](TestType o) { return same(o, e); }) -
               std::begin(order);
    };
    CHECK(std::is_sorted(v.begin(), v.end(),
                         [&](TestType a, TestType b) { return rank(a) < rank(b); }));
    for (TestType& e : v) {
        e = static_cast<TestType>(chance.below(1u << 30)) - static_cast<TestType>(1u << 29);
    }
    bide::parallel_radix_sort(s, v);
    CHECK(std::is_sorted(v.begin(), v.end()));
}

TEST_CASE("parallel_radix_sort: move-only elements, deques and narrow differences") {
    test::jitter chance(test::run_seed());
    bide::scheduler s(test::with(2, true));
    for (const std::size_t n : {10u, 2'000u, 20'000u}) {
        std::vector<std::string> texts;
        for (std::size_t i = 0; i != n; ++i) {
            texts.emplace_back(chance.below(50), 'x');
        }
        using narrow = test::narrow_iterator<std::string>;
        bide::parallel_radix_sort(s, bide::detail::elements<narrow>{narrow(texts.data()), n},
                                  &std::string::size);
        CHECK(std::is_sorted(texts.begin(), texts.end()));
        std::deque<std::unique_ptr<bool>> bits;
        for (std::size_t i = 0; i != n; ++i) {
            bits.push_back(std::make_unique<bool>(chance.below(2) != 0));
        }
        bide::parallel_radix_sort(s, bits, [](const auto& p) { return *p; });
        CHECK(std::is_sorted(bits.begin(), bits.end(),
                             [](const auto& a, const auto& b) { return *a < *b; }));
    }
}

template <class T>
concept can_be_radix_sorted =
    requires(bide::scheduler& s, std::vector<T> v) { bide::parallel_radix_sort(s, v); };
static_assert(can_be_radix_sorted<int> && can_be_radix_sorted<double>);
static_assert(!can_be_radix_sorted<std::string> && !can_be_radix_sorted<bool>);
static_assert(!can_be_radix_sorted<long double> && !can_be_radix_sorted<int*>);

TEST_CASE("parallel_radix_sort: a projection that throws or changes its mind loses no element",
          "[promise.radix-sort]") {
    test::chance_forks::script script(test::run_seed());
    for (const std::size_t n : {20u, 2'000u, 40'000u}) {
        for (int round = 0; round != (n > 10'000 ? 6 : 32); ++round) {
            const bool is_random = round % 6 == 5;
            auto v = records(n, round % 3 == 0 ? 3 : 1u << 28, script.chance);
            std::uint32_t left = script.chance.below(static_cast<std::uint32_t>(7 * n));
            const auto any = [&] { return static_cast<int>(script.chance.below(1u << 28)); };
            const auto key = [&](const record& r) {
                return is_random ? any() : left-- == 0 ? throw failure() : r.key;
            };
            REQUIRE((sort_by_chance<record>(script, v, key) || !is_random));
            REQUIRE(all_there(v));
            if (is_random) {
                std::vector<int> numbers(n);
                std::iota(numbers.begin(), numbers.end(), 0);
                const std::vector<int> given = numbers;
                const auto any_number = [&](int) { return any(); };
                REQUIRE(sort_by_chance<int>(script, numbers, any_number));
                std::sort(numbers.begin(), numbers.end());
                REQUIRE(numbers == given);
            }
        }
    }
}

TEST_CASE("parallel_radix_sort: without memory nothing is lost", "[promise.radix-sort]") {
    test::chance_forks::script script(test::run_seed());
    const std::size_t n = 20'000;
    const auto key = [](const record& r) { return r.key; };
    auto v = records(n, 1u << 20, script.chance);
    REQUIRE(sort_by_chance<record>(script, v, key));
    const int all = script.forks;
    for (int round = 0; round != 12; ++round) {
        script.last_fork =
            round == 0 ? 0 : static_cast<int>(script.chance.below(static_cast<std::uint32_t>(all)));
        v = records(n, 1u << 20, script.chance);
        sort_by_chance<record>(script, v, key);
        REQUIRE(all_there(v));
    }
    if (test::counts_allocations()) {
        script.last_fork = 1 << 30;
        std::vector<int> numbers{3, 1, 2};
        bool sorted = true;
        {
            const test::out_of_memory none;
            const auto itself = [](int i) { return i; };
            sorted = sort_by_chance<int>(script, numbers, itself);
        }
        CHECK_FALSE(sorted);
        CHECK(numbers == std::vector<int>{3, 1, 2});
    }
}

TEST_CASE("parallel_radix_sort: if a move throws, every object is still alive") {
    test::chance_forks::script script(test::run_seed());
    const auto key = [](const record& r) { return r.key; };
    for (int round = 0; round != 40; ++round) {
        {
            auto v = records(2 + script.chance.below(round == 0 ? 20'000 : 3'000), 1u << 28,
                             script.chance);
            const int alive = tally.alive();
            record::moves_left =
                1 + static_cast<int>(script.chance.below(2u << script.chance.below(16)));
            sort_by_chance<record>(script, v, key);
            record::moves_left = -1;
            REQUIRE(tally.alive() == alive);
        }
        REQUIRE(tally.alive() == 0);
    }
}

TEST_CASE("parallel_radix_sort: takes a stop token, and the progress reaches the total",
          "[promise.sort-stops]") {
    test::jitter chance(test::run_seed());
    bide::scheduler s(test::with(2, true));
    for (int shape = 0; shape != 6; ++shape) {
        std::vector<float> v(40'003);
        for (auto& e : v) {
            e = static_cast<float>(any_number<int>(chance, shape));
        }
        bide::fork_progress progress;
        bide::parallel_radix_sort({s, {.progress = &progress}}, v);
        CHECK(progress.done() == v.size());
        CHECK(progress.total() == v.size());
    }
    for (const int when : {1, 150'000, 250'000}) {
        auto v = records(100'000, 1u << 28, chance);
        std::stop_source stop;
        std::atomic<int> calls{0};
        const auto counts = [&](const record& r) {
            if (++calls == when) {
                stop.request_stop();
            }
            return r.key;
        };
        CHECK_THROWS_AS(
            bide::parallel_radix_sort({s, {.stop = stop.get_token()}}, v, key_of<record>(counts)),
            bide::stopped_error);
        CHECK(calls < when + 70'000);
        CHECK(all_there(v));
    }
}
