#include <bide/parallel/parallel_merge.hpp>
#include <support/alloc.hpp>
#include <support/function_ref.hpp>
#include <support/jitter.hpp>
#include <support/narrow_iterator.hpp>
#include <support/scheduling.hpp>

namespace {

using order = test::function_ref<bool(int, int)>;

struct entry {
    int key;
    int place;
    bool operator==(const entry&) const = default;
};

std::vector<entry> sorted_entries(std::size_t n, std::uint32_t keys, int first_place,
                                  test::jitter& chance) {
    std::vector<entry> made(n);
    for (entry& e : made) {
        e.key = static_cast<int>(chance.below(keys));
    }
    std::sort(made.begin(), made.end(), [](entry a, entry b) { return a.key < b.key; });
    for (entry& e : made) {
        e.place = first_place++;
    }
    return made;
}

const auto by_key = [](const entry& a, const entry& b) { return a.key < b.key; };

} // namespace

TEST_CASE("parallel_merge: writes what std::merge writes, and parallel_inplace_merge in its place",
          "[promise.merge-as-std]") {
    test::jitter chance(test::run_seed());
    const std::pair<std::size_t, std::size_t> sizes[] = {
        {0, 0},     {0, 1},         {1, 0},      {1, 1},          {7, 3},
        {8'191, 1}, {8'192, 8'192}, {1, 16'385}, {50'021, 30'011}};
    for (const unsigned workers : {1u, 2u, 3u}) {
        bide::scheduler s(test::with(workers, true));
        for (const auto& [n, m] : sizes) {
            for (const std::uint32_t keys : {1u, 10u, 1u << 30}) {
                const auto left = sorted_entries(n, keys, 0, chance);
                const auto right = sorted_entries(m, keys, 1 << 20, chance);
                std::vector<entry> expected(n + m);
                std::merge(left.begin(), left.end(), right.begin(), right.end(), expected.begin(),
                           by_key);
                std::vector<entry> merged(n + m);
                INFO(n << " and " << m << " of " << keys << " keys, " << workers << " workers");
                REQUIRE(bide::parallel_merge(s, left, right, merged.begin(), by_key) ==
                        merged.end());
                REQUIRE(merged == expected);
                auto all = left;
                all.insert(all.end(), right.begin(), right.end());
                using narrow = test::narrow_iterator<entry>;
                bide::parallel_inplace_merge(s, narrow(all.data()), narrow(all.data() + n),
                                             narrow(all.data() + n + m), std::less<>(),
                                             &entry::key);
                REQUIRE(all == expected);
                if (keys != 10) {
                    continue;
                }
                std::deque<entry> apart(n + m);
                bide::parallel_merge({s, {.grain = 100}}, left.begin(), left.end(), right.begin(),
                                     right.end(), apart.begin(), std::less<>(), &entry::key,
                                     [](entry e) { return e.key; });
                REQUIRE(std::equal(apart.begin(), apart.end(), expected.begin(), expected.end()));
            }
        }
    }
}

TEST_CASE("parallel_merge: merges two types of elements, and iterators of narrow differences") {
    bide::scheduler s(test::with(2, true));
    std::vector<int> few(1'000);
    std::vector<std::int64_t> many(20'000);
    for (std::size_t i = 0; i < few.size(); ++i) {
        few[i] = static_cast<int>(i * 7);
    }
    for (std::size_t i = 0; i < many.size(); ++i) {
        many[i] = static_cast<std::int64_t>(i);
    }
    std::vector<std::int64_t> numbers(few.size() + many.size());
    bide::parallel_merge(s, few, many, numbers.begin());
    CHECK(std::is_sorted(numbers.begin(), numbers.end()));

    std::vector<int> twice(2 * few.size());
    int* const begin = few.data();
    int* const end = begin + few.size();
    using narrow = test::narrow_iterator<int>;
    const narrow last = bide::parallel_merge(s, narrow(begin), narrow(end), narrow(begin),
                                             narrow(end), narrow(twice.data()));
    CHECK(last - narrow(twice.data()) == 2'000);
    CHECK(std::is_sorted(twice.begin(), twice.end()));
}

TEST_CASE("parallel_merge: what a comparison threw leaves it", "[promise.merge-as-std]") {
    bide::scheduler s(test::with(2, true));
    struct failure {};
    std::vector<int> left(30'000);
    std::iota(left.begin(), left.end(), 0);
    const std::vector<int> right = left;
    std::vector<int> out(60'000);
    std::atomic<int> calls{0};
    const auto fails = [&calls](int a, int b) {
        return ++calls > 20'000 ? throw failure() : a < b;
    };
    CHECK_THROWS_AS(bide::parallel_merge(s, left, right, out.begin(), order(fails)), failure);
}

TEST_CASE("parallel_merge: comparisons that contradict each other touch nothing outside",
          "[promise.merge-as-std]") {
    bide::scheduler s(test::with(2, true));
    std::atomic<std::uint32_t> calls{test::run_seed()};
    const auto less = [&calls](int, int) {
        const std::uint32_t x = calls.fetch_add(1) * 2'654'435'769u;
        return (x >> 17) % 3 == 0;
    };
    for (const std::size_t n : {1u, 100u, 9'000u, 40'000u}) {
        const std::vector<int> left(n, 1);
        const std::vector<int> right(n / 2, 2);
        std::vector<int> out(n + n / 2 + 2, -1);
        bide::parallel_merge({s, {.grain = 50}}, left, right, out.begin() + 1, order(less));
        CHECK(out.front() == -1);
        CHECK(out.back() == -1);
        CHECK(std::all_of(out.begin() + 1, out.end() - 1, [](int e) { return e > 0; }));
    }
}

TEST_CASE("parallel_inplace_merge: merges move-only elements, and changes nothing without memory",
          "[promise.merge-as-std]") {
    bide::scheduler s(test::with(2, true));
    std::vector<std::unique_ptr<int>> all;
    for (int i = 0; i < 40'000; ++i) {
        all.push_back(std::make_unique<int>(i % 20'000));
    }
    const auto by_value = [](const auto& a, const auto& b) { return *a < *b; };
    bide::parallel_inplace_merge(s, all, all.begin() + 20'000, by_value);
    CHECK(std::is_sorted(all.begin(), all.end(), by_value));
    if (test::counts_allocations()) {
        std::vector<std::unique_ptr<int>> two;
        two.push_back(std::make_unique<int>(2));
        two.push_back(std::make_unique<int>(1));
        bool refused = false;
        {
            const test::out_of_memory none;
            try {
                bide::parallel_inplace_merge(s, two, two.begin() + 1, by_value);
            } catch (const std::bad_alloc&) {
                refused = true;
            }
        }
        CHECK(refused);
        CHECK((*two[0] == 2 && *two[1] == 1));
    }
}
