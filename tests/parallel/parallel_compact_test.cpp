#include <bide/parallel/parallel_compact.hpp>
#include <support/counted.hpp>
#include <support/forking.hpp>
#include <support/function_ref.hpp>
#include <support/scheduling.hpp>
#include <support/two_threads.hpp>

// The results, the exceptions, and what thieves take: algorithms_test.cpp.

namespace {

struct failure {};

// Hostile, and its moves throw, from one on.
struct tired : test::counted_once {
    using test::counted_once::counted_once;
    tired(tired&& other) : test::counted_once((move(), std::move(other))) {}
    tired& operator=(tired&& other) {
        move();
        test::counted_once::operator=(std::move(other));
        return *this;
    }
    tired* operator&() const = delete;
    template <class T> void operator,(T&&) const = delete;
    static void move() {
        if (--moves_left <= 0) {
            throw failure();
        }
    }
    static inline int moves_left = 0;
};

} // namespace

TEST_CASE("parallel_compact: a thief's part is moved behind what is kept before it",
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

TEST_CASE("parallel_compact: a partition loses no element if there is no memory to fork",
          "[promise.filter-as-std]") {
    constexpr int n = 100'000; // so that thieves' parts are moved by several threads
    test::tally tally;
    const auto partition = [&](test::chance_forks::script& script) {
        script.hunger = 4;
        script.thieves = 4;
        std::vector<test::counted> in;
        for (int i = 0; i != n; ++i) {
            in.emplace_back(tally, i);
        }
        auto predicate = [](int number) { return number * 7 % 13 % 2 == 0; };
        auto projection = &test::counted::number;
        const bide::detail::elements<test::counted*> all{in.data(), in.size()};
        bool has_memory = true;
        try {
            bide::detail::stable_partition_on(test::chance_forks(script), {.grain = n / 4}, all,
                                              predicate, projection);
        } catch (const std::bad_alloc&) {
            has_memory = false;
        }
        std::vector<char> found(n + 1);
        for (const test::counted& element : in) {
            found[static_cast<std::size_t>(element.number() + 1)] = 1; // moved from: 0
        }
        REQUIRE(found[0] == 0);
        REQUIRE(std::count(found.begin(), found.end(), 1) == n);
        return has_memory;
    };
    test::chance_forks::script plenty(1);
    REQUIRE(partition(plenty));
    int shortages = 0;
    for (int last = 0; last < plenty.forks; last += 1 + plenty.forks / 20) {
        INFO("no memory after " << last << " of " << plenty.forks << " forks");
        test::chance_forks::script script(1);
        script.last_fork = last;
        shortages += partition(script) ? 0 : 1;
    }
    CHECK(shortages > 0);
}

TEST_CASE(
    "parallel_compact: if moves throw, the exception leaves the partition, and all are alive") {
    bide::scheduler s(test::with(2, true));
    for (int throws_from = 1; throws_from < 400; throws_from += 7) {
        test::tally tally;
        {
            tired::moves_left = 1 << 30;
            std::vector<tired> in;
            in.reserve(100);
            for (int i = 0; i != 100; ++i) {
                in.emplace_back(tally, i);
            }
            tired::moves_left = throws_from;
            bool thrown = false;
            try {
                bide::parallel_stable_partition({s, {.grain = 200}}, in,
                                                [](const tired& t) { return t.number() % 2 == 0; });
            } catch (const failure&) {
                thrown = true;
            }
            CHECK(thrown == (tired::moves_left <= 0));
            CHECK(tally.alive() == 100);
        }
        CHECK(tally.alive() == 0);
    }
}

TEST_CASE("parallel_compact: projections and arrays") {
    bide::scheduler s(test::with(2, true));
    std::string words[] = {"bb", "cc", "ee", "a", "d"};
    CHECK(bide::parallel_unique(s, words, std::equal_to<>(), &std::string::size) == words + 2);
    CHECK(words[1] == "a");
}
