#include <bide/parallel/parallel_transform.hpp>
#include <support/scheduling.hpp>

// The results and exceptions: algorithms_test.cpp.

namespace {

template <class Range, class Out>
concept transforms_to = requires(bide::scheduler& s, Range& range, Out out) {
    bide::parallel_transform(s, range, out, [](int i) { return i; });
};

} // namespace

static_assert(transforms_to<std::vector<int>, int*>);
static_assert(transforms_to<std::vector<int>, std::deque<long>::iterator>);
static_assert(!transforms_to<std::vector<int>, std::vector<bool>::iterator>);
static_assert(!transforms_to<std::vector<int>, std::back_insert_iterator<std::vector<int>>>);
static_assert(!transforms_to<std::vector<int>, const int*>);
static_assert(!transforms_to<std::vector<int>, std::unique_ptr<int>*>);

TEST_CASE("parallel_transform: the output may be the input") {
    bide::scheduler s(test::with(3, true));
    std::vector<int> numbers(10'000, 3);
    bide::parallel_transform(s, numbers.begin(), numbers.end(), numbers.begin(), numbers.begin(),
                             std::plus<>());
    CHECK(std::count(numbers.begin(), numbers.end(), 6) == 10'000);
}

TEMPLATE_TEST_CASE("parallel_transform: writes all places of any size, and no other", "",
                   std::uint8_t, std::uint16_t, double) {
    bide::scheduler s(test::with(2, true));
    for (std::size_t size = 0; size != 300; ++size) {
        std::vector<int> in(size);
        std::iota(in.begin(), in.end(), 0);
        std::vector<TestType> out(size + 2, TestType{77});
        bide::parallel_transform(s, in, out.begin() + 1,
                                 [](int i) { return static_cast<TestType>(i % 50); });
        bool is_right = out.front() == TestType{77} && out.back() == TestType{77};
        for (std::size_t i = 0; i != size; ++i) {
            is_right = is_right && out[i + 1] == static_cast<TestType>(i % 50);
        }
        INFO(size);
        REQUIRE(is_right);
    }
}

TEST_CASE("parallel_transform: values may be move-only, and functions members") {
    bide::scheduler s(test::with(2, true));
    const std::vector<std::string> words(500, "four");
    std::deque<std::unique_ptr<std::size_t>> owners(500);
    bide::parallel_transform({s, {.grain = 7}}, words, owners.begin(), [](const auto& word) {
        return std::make_unique<std::size_t>(word.size());
    });
    CHECK(std::all_of(owners.begin(), owners.end(), [](auto& owner) { return *owner == 4; }));
    std::vector<std::size_t> sizes(500);
    bide::parallel_transform(s, words, sizes.begin(), &std::string::size);
    CHECK(std::count(sizes.begin(), sizes.end(), 4u) == 500);
}
