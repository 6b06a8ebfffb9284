#include <bide/parallel/parallel_find.hpp>
#include <support/forking.hpp>
#include <support/scheduling.hpp>

// The results on workers: algorithms_test.cpp.

namespace {

struct failure {
    std::size_t at;
};

enum class answer : std::uint8_t { no, yes, throws, no_memory };

// What a serial search comes to: a match, an exception, or the end. Any answer gives the place of it.
struct outcome {
    answer what;
    std::size_t at;
    bool operator==(const outcome&) const = default;
};

outcome expected(const std::vector<answer>& all) {
    const auto first =
        std::find_if(all.begin(), all.end(), [](answer a) { return a != answer::no; });
    return first == all.end() ? outcome{answer::no, all.size()}
                              : outcome{*first, static_cast<std::size_t>(first - all.begin())};
}

// The same search on a scheduler with random answers.
template <bide::detail::wanted_match Wanted>
outcome found_by_chance(test::chance_forks::script& script, const std::vector<answer>& all,
                        const bide::fork_options& options, std::vector<std::size_t>& asked) {
    const bide::detail::elements<const answer*> numbers{all.data(), all.size()};
    auto predicate = [&](const answer& element) {
        const auto at = static_cast<std::size_t>(&element - all.data());
        asked.push_back(at);
        if (element == answer::throws) {
            throw failure{at};
        }
        return element == answer::yes;
    };
    std::identity same;
    try {
        const std::uint64_t at = bide::detail::find_match<Wanted>(test::by_chance(script, options),
                                                                  numbers, predicate, same);
        return {at == all.size() ? answer::no : answer::yes, at};
    } catch (const failure& failed) {
        return {answer::throws, failed.at};
    } catch (const std::bad_alloc&) {
        return {answer::no_memory, all.size()};
    }
}

} // namespace

TEST_CASE("parallel_find_if: a match or an exception, whichever a serial search comes to first",
          "[promise.search-first]") {
    test::chance_forks::script script(test::run_seed());
    int shortages = 0;
    for (int round = 0; round < 500; ++round) {
        script.forks = 0;
        script.last_fork = round % 3 == 0 ? static_cast<int>(script.chance.below(6)) : 1 << 30;
        script.hunger = script.chance.below(5);
        script.thieves = script.chance.below(5);
        std::vector<answer> all(script.chance.below(1u << script.chance.below(10)), answer::no);
        for (std::uint32_t left = script.chance.below(4); left != 0 && !all.empty(); --left) {
            all[script.chance.below(static_cast<std::uint32_t>(all.size()))] =
                script.chance.below(2) == 0 ? answer::yes : answer::throws;
        }
        const outcome serial = expected(all);
        bide::fork_options options;
        options.grain = script.chance.below(2) == 0 ? 0 : script.chance.below(30);
        std::vector<std::size_t> asked;
        const outcome first =
            found_by_chance<bide::detail::wanted_match::first>(script, all, options, asked);
        INFO("round " << round << ", " << all.size() << " elements, grain " << options.grain);
        if (round % 3 == 0 && first.what == answer::no_memory) {
            ++shortages;
            continue; // it is not taken for a search that found nothing
        }
        REQUIRE(first == serial);
        std::sort(asked.begin(), asked.end());
        REQUIRE(std::adjacent_find(asked.begin(), asked.end()) == asked.end());
        const std::size_t needed = (std::min)(serial.at + 1, all.size());
        REQUIRE(std::count_if(asked.begin(), asked.end(), [needed](std::size_t at) {
                    return at < needed;
                }) == static_cast<std::ptrdiff_t>(needed));

        asked.clear();
        script.last_fork = 1 << 30;
        const outcome any =
            found_by_chance<bide::detail::wanted_match::any>(script, all, options, asked);
        if (any.what == answer::no) {
            REQUIRE(serial.what == answer::no);
        } else {
            REQUIRE(all[any.at] == any.what);
        }
    }
    CHECK(shortages > 0);
}

TEST_CASE("parallel_find_if: behind a match nothing is asked, and nothing is divided",
          "[promise.search-first]") {
    test::chance_forks::script script(1);
    script.thieves = 0;
    std::vector<answer> all(1'000'000, answer::no);
    all[70] = answer::yes;
    std::vector<std::size_t> asked;
    bide::fork_options options;
    options.grain = 10;
    const outcome first =
        found_by_chance<bide::detail::wanted_match::first>(script, all, options, asked);
    CHECK(first.at == 70);
    CHECK(asked.size() == 71);
    CHECK(script.forks < 40);
}

TEST_CASE("parallel_find_any: one match ends the search for all", "[promise.search-first]") {
    test::chance_forks::script script(1);
    script.thieves = 4; // the second halves run first
    std::vector<answer> all(1'000'000, answer::yes);
    std::vector<std::size_t> asked;
    const outcome any = found_by_chance<bide::detail::wanted_match::any>(script, all, {}, asked);
    CHECK(any.what == answer::yes);
    // Only the first leaf of all is not left out: it begins at the place of the search's end.
    CHECK(asked.size() <= 2);
    CHECK(script.forks < 100);
}

TEST_CASE("parallel_find_if: predicates and projections may be members") {
    bide::scheduler s(test::with(2, true));
    struct item {
        std::string name;
        bool is_named() const { return !name.empty(); }
    };
    std::vector<item> items(300);
    items[123].name = "here";
    CHECK(bide::parallel_find_if(s, items, &item::is_named) - items.begin() == 123);
    CHECK(bide::parallel_find(s, items, "here", &item::name) - items.begin() == 123);
    // A predicate without a declared result type: it cannot even be asked about an item.
    const auto is_long = [](const auto& name) { return name.size() > 3; };
    CHECK(bide::parallel_find_if(s, items, is_long, &item::name) - items.begin() == 123);
}

#if !defined(__clang__) ||                                                                         \
    __clang_major__ >= 16 // before, clang cannot compile the views of libstdc++
TEST_CASE("parallel_find_if: views whose differences are wider than all integers",
          "[promise.search-first]") {
    bide::scheduler s(test::with(2, true));
    const auto numbers = std::views::iota(std::size_t{0}, std::size_t{5'000});
    const auto is_wanted = [](auto number) { return number == 3'210; };
    CHECK(*bide::parallel_find_if(s, numbers, is_wanted) == 3'210);
}
#endif

TEST_CASE("parallel_find: finds a number at any place, in ranges of any size") {
    bide::scheduler s(test::with(2, true));
    for (const std::size_t size : {0u, 1u, 63u, 64u, 65u, 130u, 1'500u}) {
        std::vector<short> numbers(size, short{5});
        for (std::size_t at = 0; at < size; at += 1 + size / 70) {
            INFO(size << " elements, " << at);
            numbers[at] = 7;
            numbers[size - 1] = 7;
            REQUIRE(bide::parallel_find({s, {.grain = size}}, numbers, short{7}) -
                        numbers.begin() ==
                    static_cast<std::ptrdiff_t>(at));
            REQUIRE(bide::parallel_find(s, numbers, 7) - numbers.begin() ==
                    static_cast<std::ptrdiff_t>(at));
            numbers[at] = 5;
            numbers[size - 1] = 5;
        }
        CHECK(bide::parallel_find(s, numbers, short{7}) == numbers.end());
    }
    const std::vector<float> unordered(100, std::numeric_limits<float>::quiet_NaN());
    CHECK(bide::parallel_find(s, unordered, unordered[0]) == unordered.end());
}
