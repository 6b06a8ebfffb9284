#include <bide/parallel/parallel_remove_if.hpp>
#include <support/function_ref.hpp>
#include <support/scheduling.hpp>
#include <support/two_threads.hpp>

// The results, the exceptions, and what thieves take: algorithms_test.cpp.

TEST_CASE("parallel_remove_if: a thief's part is moved behind what is kept before it",
          "[promise.filter-as-std]") {
    bide::scheduler s(test::with(3, true));
    for (const int rarity : {2, 3, 1'000}) { // the less are removed, the less is the room
        std::vector<int> in(200'000);
        for (std::size_t i = 0; i != in.size(); ++i) {
            in[i] = static_cast<int>(i);
        }
        std::vector<int> wanted = in;
        std::erase_if(wanted, [&](int i) { return i % rarity == 0; });
        test::two_threads both;
        const auto is_rare = [&](int i) { return both.come(), i % rarity == 0; };
        in.erase(bide::parallel_remove_if(s, in, test::function_ref<bool(int)>(is_rare)), in.end());
        CHECK(both.met());
        CHECK(in == wanted);
    }
}

TEST_CASE("parallel_unique: projections and arrays") {
    bide::scheduler s(test::with(2, true));
    std::string words[] = {"bb", "cc", "ee", "a", "d"};
    CHECK(bide::parallel_unique(s, words, std::equal_to<>(), &std::string::size) == words + 2);
    CHECK(words[1] == "a");
}
