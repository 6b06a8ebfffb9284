#include <bide/parallel/parallel_any_of.hpp>
#include <bide/parallel/parallel_copy.hpp>
#include <bide/parallel/parallel_count_if.hpp>
#include <bide/parallel/parallel_fill.hpp>
#include <bide/parallel/parallel_find.hpp>
#include <bide/parallel/parallel_for.hpp>
#include <bide/parallel/parallel_nth_element.hpp>
#include <bide/parallel/parallel_reduce.hpp>
#include <bide/parallel/parallel_remove_if.hpp>
#include <bide/parallel/parallel_transform.hpp>
#include <support/function_ref.hpp>
#include <support/jitter.hpp>
#include <support/scheduling.hpp>

#if defined(__clang__) && __clang_major__ < 16

TEST_CASE("parallel_spellings: this compiler cannot compile the views of libstdc++") { SUCCEED(); }

#else

// How algorithms of std are written that bide has under no name: the rows of the room's README.md,
// against std.

using namespace bide;
using std::views::iota;
using std::views::reverse;

namespace {

using by_value = test::function_ref<bool(int)>;
using each = test::function_ref<void(int&)>;
using at_each = test::function_ref<void(std::size_t)>;
using by_place = test::function_ref<bool(std::size_t)>;

// Two ranges of n small numbers.
struct ranges {
    std::vector<int> a;
    std::vector<int> b;
    std::size_t n;
};

ranges make(test::jitter& chance) {
    ranges all{{}, {}, chance.below(1u << chance.below(12))};
    for (std::size_t i = 0; i < all.n; ++i) {
        all.a.push_back(static_cast<int>(chance.below(5)));
        all.b.push_back(chance.below(500) == 0 ? 9 : all.a.back());
    }
    return all;
}

constexpr std::size_t zero = 0;
constexpr std::size_t one = 1;

} // namespace

TEST_CASE("parallel_spellings: searches and comparisons that are one line",
          "[promise.std-spellings]") {
    test::jitter chance(test::run_seed());
    bide::scheduler s(test::with(3, true));
    for (int round = 0; round < 60; ++round) {
        const auto [numbers, others, n] = make(chance);
        const std::vector<int>& a = numbers; // a lambda captures no structured binding
        const std::vector<int>& b = others;
        INFO(n << " elements");
        const auto p = [](int i) { return i < 4; };
        const auto is_two = [](int x) { return x == 2; };
        CHECK(parallel_find_if(s, a, by_value(std::not_fn(p))) ==
              std::find_if_not(a.begin(), a.end(), p));
        const std::vector<int> some = {4, 3};
        const auto is_some = [&](int x) { return std::ranges::count(some, x) != 0; };
        CHECK(parallel_find_if(s, a, by_value(is_some)) ==
              std::find_first_of(a.begin(), a.end(), some.begin(), some.end()));
        const auto equals_last = [&](std::size_t i) { return a[i - 1] == a[i]; };
        const std::size_t last = std::max(n, one);
        const auto neighbours = *parallel_find_if(s, iota(one, last), by_place(equals_last));
        const auto first = std::adjacent_find(a.begin(), a.end());
        CHECK((neighbours == last
                   ? a.end()
                   : a.begin() + static_cast<std::ptrdiff_t>(neighbours - 1)) == first);
        CHECK(parallel_count_if(s, a, by_value(is_two)) == std::count(a.begin(), a.end(), 2));
        const auto is_equal = [&](std::size_t i) { return a[i] == b[i]; };
        const std::size_t unlike =
            *parallel_find_if(s, iota(zero, n), by_place(std::not_fn(is_equal)));
        CHECK(a.begin() + static_cast<std::ptrdiff_t>(unlike) ==
              std::mismatch(a.begin(), a.end(), b.begin()).first);
        CHECK(parallel_all_of(s, iota(zero, n), by_place(is_equal)) ==
              std::equal(a.begin(), a.end(), b.begin()));
        CHECK((unlike != n && a[unlike] < b[unlike]) ==
              std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end()));
        const auto at = [&](std::size_t i) { return a.begin() + static_cast<std::ptrdiff_t>(i); };
        if (n >= 2) {
            const auto begins = [&](std::size_t i) {
                return std::equal(some.begin(), some.end(), at(i));
            };
            const std::size_t found = *parallel_find_if(s, iota(zero, n - 1), by_place(begins));
            CHECK((found == n - 1 ? a.end() : at(found)) ==
                  std::search(a.begin(), a.end(), some.begin(), some.end()));
            const auto backwards = reverse(iota(zero, n - 1));
            const auto end = parallel_find_if(s, backwards, by_place(begins));
            CHECK((end == backwards.end() ? a.end() : at(*end)) ==
                  std::find_end(a.begin(), a.end(), some.begin(), some.end()));
            const auto repeats = [&](std::size_t i) {
                return std::all_of(at(i), at(i + 2), [](int x) { return x == 3; });
            };
            const std::size_t twice = *parallel_find_if(s, iota(zero, n - 1), by_place(repeats));
            CHECK((twice == n - 1 ? a.end() : at(twice)) ==
                  std::search_n(a.begin(), a.end(), 2, 3));
        }
        const auto rest = parallel_find_if(s, a, by_value(std::not_fn(p)));
        CHECK(parallel_none_of(s, rest, a.end(), by_value(p)) ==
              std::is_partitioned(a.begin(), a.end(), p));
        const auto is_above = [&](std::size_t i) { return a[(i - 1) / 2] < a[i]; };
        CHECK(*parallel_find_if(s, iota(one, last), by_place(is_above)) ==
              std::max(one, static_cast<std::size_t>(std::is_heap_until(a.begin(), a.end()) -
                                                     a.begin())));
        const auto is_below = [&](std::size_t i) { return a[i] < a[i - 1]; };
        CHECK(*parallel_find_if(s, iota(one, last), by_place(is_below)) ==
              std::max(one, static_cast<std::size_t>(std::is_sorted_until(a.begin(), a.end()) -
                                                     a.begin())));
        std::vector<int> copied(a);
        std::vector<int> least(n / 2);
        bide::parallel_partial_sort(s, copied, copied.begin() + static_cast<std::ptrdiff_t>(n / 2),
                                    test::function_ref<bool(int, int)>(std::less<>()));
        std::partial_sort_copy(a.begin(), a.end(), least.begin(), least.end());
        CHECK(std::equal(least.begin(), least.end(), copied.begin()));
        CHECK(parallel_reduce(
                  s, zero, n, 0, [&](std::size_t i) { return a[i] * b[i]; }, std::plus<>()) ==
              std::transform_reduce(a.begin(), a.end(), b.begin(), 0));
        const std::set<int> x(a.begin(), a.end());
        const std::vector<int> small(x.begin(), x.end());
        std::vector<int> both(small.size());
        std::vector<int> wanted(small.size());
        const auto is_in = [&](int i) {
            return std::ranges::binary_search(some, i, std::greater<>());
        };
        std::vector<int> sorted(some.rbegin(), some.rend());
        both.erase(parallel_copy_if(s, small, both.begin(), by_value(is_in)), both.end());
        wanted.erase(std::set_intersection(small.begin(), small.end(), sorted.begin(), sorted.end(),
                                           wanted.begin()),
                     wanted.end());
        CHECK(both == wanted);
        both.resize(small.size());
        wanted.resize(small.size());
        both.erase(parallel_copy_if(s, small, both.begin(), by_value(std::not_fn(is_in))),
                   both.end());
        wanted.erase(std::set_difference(small.begin(), small.end(), sorted.begin(), sorted.end(),
                                         wanted.begin()),
                     wanted.end());
        CHECK(both == wanted);
        const auto is_small = [&](int i) { return std::ranges::binary_search(small, i); };
        CHECK(parallel_all_of(s, std::as_const(sorted), by_value(is_small)) ==
              std::includes(small.begin(), small.end(), sorted.begin(), sorted.end()));
    }
}

TEST_CASE("parallel_spellings: changes that are one line", "[promise.std-spellings]") {
    test::jitter chance(test::run_seed());
    bide::scheduler s(test::with(3, true));
    for (int round = 0; round < 60; ++round) {
        const ranges all = make(chance);
        const std::size_t n = all.n;
        INFO(n << " elements");
        std::vector<int> a = all.a;
        std::vector<int> b = all.b;
        std::vector<int> wanted = all.a;
        std::vector<int> out(n);
        const auto p = [](int i) { return i == 2; };
        const auto half = static_cast<std::ptrdiff_t>(n / 2);

        const auto increase = [](int& x) { ++x; };
        parallel_for(s, a.begin(), a.begin() + half, each(increase));
        std::for_each_n(wanted.begin(), half, [](int& x) { ++x; });
        CHECK(a == wanted);
        parallel_fill(s, a.begin(), a.begin() + half, 7);
        std::fill_n(wanted.begin(), half, 7);
        CHECK(a == wanted);
        parallel_copy(s, b.begin(), b.begin() + half, a.begin());
        std::copy_n(b.begin(), half, wanted.begin());
        CHECK(a == wanted);
        const auto exchange = [&](std::size_t i) { std::swap(a[i], b[i]); };
        parallel_for(s, iota(zero, n), at_each(exchange));
        CHECK(b == wanted);
        CHECK(a == all.b);
        wanted = a;
        const auto replace = [&](int& x) { x = p(x) ? 8 : x; };
        parallel_for(s, a, each(replace));
        std::replace_if(wanted.begin(), wanted.end(), p, 8);
        CHECK(a == wanted);
        const auto replaced = [&](int x) { return p(x) ? 8 : x; };
        parallel_transform(s, b, out.begin(), test::function_ref<int(int)>(replaced));
        std::replace_copy_if(b.begin(), b.end(), wanted.begin(), p, 8);
        CHECK(out == wanted);
        const auto mirror = [&](std::size_t i) { std::swap(a[i], a[n - 1 - i]); };
        parallel_for(s, iota(zero, n / 2), at_each(mirror));
        parallel_copy(s, reverse(a), out.begin());
        std::reverse(a.begin(), a.end());
        CHECK(out == a);
        wanted = all.b;
        std::replace_if(wanted.begin(), wanted.end(), p, 8);
        CHECK(out == wanted);
        const auto middle = parallel_copy(s, b.begin() + half, b.end(), out.begin());
        parallel_copy(s, b.begin(), b.begin() + half, middle);
        std::rotate_copy(b.begin(), b.begin() + half, b.end(), wanted.begin());
        CHECK(out == wanted);
        wanted = b;
        const auto is_three = [](int x) { return x == 3; };
        b.erase(parallel_remove_if(s, b, by_value(is_three)), b.end());
        wanted.erase(std::remove(wanted.begin(), wanted.end(), 3), wanted.end());
        CHECK(b == wanted);
        out.resize(b.size());
        out.erase(parallel_copy_if(s, std::as_const(b), out.begin(), by_value(std::not_fn(p))),
                  out.end());
        wanted.erase(std::remove_copy_if(b.begin(), b.end(), wanted.begin(), p), wanted.end());
        CHECK(out == wanted);
    }
}

TEST_CASE("parallel_spellings: moves, and memory without objects", "[promise.std-spellings]") {
    bide::scheduler s(test::with(3, true));
    constexpr std::size_t n = 1'000;
    std::allocator<std::string> memory;
    std::string* const places = memory.allocate(n);
    const auto construct = [&](std::size_t i) { std::construct_at(places + i, "text"); };
    parallel_for(s, iota(zero, n), at_each(construct));
    std::vector<std::string> out(n);
    parallel_transform(s, places, places + n, out.begin(),
                       [](std::string& x) { return std::move(x); });
    const auto destroy = [&](std::size_t i) { std::destroy_at(places + i); };
    parallel_for(s, iota(zero, n), at_each(destroy));
    memory.deallocate(places, n);
    CHECK(std::count(out.begin(), out.end(), "text") == n);
}

#endif
