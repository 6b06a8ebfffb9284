#include <bide/parallel/parallel_copy.hpp>
#include <bide/parallel/parallel_fill.hpp>
#include <support/scheduling.hpp>

TEST_CASE("parallel_copy: copies to another container, and parallel_fill() assigns to all",
          "[promise.counts-as-std]") {
    bide::scheduler s(test::with(2, true));
    std::string words[1'000];
    const std::string same = "same";
    bide::parallel_fill({s, {.grain = 9}}, words + 1, words + 999, same);
    CHECK(std::count(words, words + 1'000, same) == 998);
    std::deque<std::string> copies(1'000, "end");
    CHECK(bide::parallel_copy(s, words, words + 999, copies.begin()) == copies.end() - 1);
    CHECK(copies.front().empty());
    CHECK(copies.back() == "end");
    CHECK(std::count(copies.begin(), copies.end(), same) == 998);
}
