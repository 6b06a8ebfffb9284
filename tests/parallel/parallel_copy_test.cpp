#include <bide/parallel/parallel_copy.hpp>
#include <support/scheduling.hpp>

// The results, the exceptions, and what thieves take: algorithms_test.cpp.

namespace {

template <class Out>
concept copies_to = requires(bide::scheduler& s, std::vector<int>& in, Out out) {
    bide::parallel_copy_if(s, in, out, [](int) { return true; });
};

} // namespace

static_assert(copies_to<int*>);
static_assert(copies_to<std::deque<long>::iterator>);
static_assert(!copies_to<std::vector<bool>::iterator>);
static_assert(!copies_to<std::back_insert_iterator<std::vector<int>>>);

TEST_CASE("parallel_copy_if: projections, deques and views", "[promise.filter-as-std]") {
    bide::scheduler s(test::with(2, true));
    const std::deque<std::string> words = {"a", "bb", "cc", "d", "ee"};
    std::vector<std::string> out(5);
    CHECK(bide::parallel_unique_copy(s, words, out.begin(), std::equal_to<>(),
                                     &std::string::size) == out.begin() + 4);
    CHECK(out == std::vector<std::string>{"a", "bb", "d", "ee", ""});
#if !defined(__clang__) || __clang_major__ >= 16 // before, clang cannot compile libstdc++'s views
    int odd[4] = {};
    const auto is_odd = [](int i) { return i % 2 == 1; };
    CHECK(bide::parallel_copy_if(s, std::views::iota(0, 4), odd, is_odd) == odd + 2);
    CHECK(odd[1] == 3);
#endif
}
