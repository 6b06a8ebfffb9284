#include <bide/parallel/parallel_inplace_merge.hpp>
#include <support/alloc.hpp>
#include <support/scheduling.hpp>

// What it gives: parallel_merge_test.cpp.

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
