#include <bide/parallel/parallel_inplace_merge.hpp>
#include <bide/sched/scheduler.hpp>
#include <support/alloc.hpp>
#include <support/jitter.hpp>
#include <support/narrow_iterator.hpp>
#include <support/scheduling.hpp>
#include <support/test.hpp>

namespace {

struct entry {
    int key;
    int place;
    bool operator==(const entry&) const = default;
};

} // namespace

TEST_CASE("parallel_inplace_merge: gives what std::merge gives in a third place",
          "[promise.merge-as-std]") {
    test::jitter chance(test::run_seed());
    const auto by_key = [](const entry& a, const entry& b) { return a.key < b.key; };
    for (const unsigned workers : {1u, 3u}) {
        bide::scheduler s(test::with(workers, true));
        for (const std::size_t n : {0u, 1u, 2u, 3u, 31u, 1'023u, 1'025u, 50'021u}) {
            for (const std::size_t cut : {std::size_t{0}, n / 7, n / 2, n}) {
                std::vector<entry> all(n);
                for (entry& e : all) {
                    e.key = static_cast<int>(chance.below(1 + static_cast<std::uint32_t>(n) / 3));
                }
                const auto middle = static_cast<std::ptrdiff_t>(cut);
                std::sort(all.begin(), all.begin() + middle, by_key);
                std::sort(all.begin() + middle, all.end(), by_key);
                int place = 0;
                for (entry& e : all) {
                    e.place = place++;
                }
                auto expected = all;
                std::merge(all.begin(), all.begin() + middle, all.begin() + middle, all.end(),
                           expected.begin(), by_key);
                using iterator = test::narrow_iterator<entry>;
                bide::parallel_inplace_merge(s, iterator(all.data()), iterator(all.data() + middle),
                                             iterator(all.data() + n), std::less<>(), &entry::key);
                INFO(cut << " of " << n << ", " << workers << " workers");
                REQUIRE(all == expected);
            }
        }
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
