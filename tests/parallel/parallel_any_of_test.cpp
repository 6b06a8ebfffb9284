#include <bide/parallel/parallel_any_of.hpp>
#include <support/scheduling.hpp>

// The results: algorithms_test.cpp. How the search ends: parallel_find_test.cpp.

TEST_CASE("parallel_any_of: predicates and projections may be members") {
    bide::scheduler s(test::with(2, true));
    struct item {
        std::string name;
        bool is_named() const { return !name.empty(); }
    };
    std::vector<item> items(300);
    items[123].name = "here";
    // A predicate without a declared result type: it cannot even be asked about an item.
    const auto is_long = [](const auto& name) { return name.size() > 3; };
    CHECK(bide::parallel_any_of(s, items, is_long, &item::name));
    CHECK(bide::parallel_any_of(s, items, &item::is_named));
    CHECK_FALSE(bide::parallel_none_of(s, items, is_long, &item::name));
    CHECK_FALSE(bide::parallel_all_of(s, items, &item::is_named));
}
