#ifndef BIDE_TESTS_SUPPORT_STD_ALGORITHMS_HPP
#define BIDE_TESTS_SUPPORT_STD_ALGORITHMS_HPP

// Every algorithm of std that takes an execution policy, against the serial one of the same name.

#include <support/jitter.hpp>
#include <support/test.hpp>

#include <execution>

namespace test {

// An element with memory of its own: a lost, doubled or leaked object is found by ASan.
class boxed {
public:
    boxed(int n = 0) : n_(new int(n)) {}
    boxed(const boxed& other) : n_(new int(*other.n_)) {}
    boxed(boxed&& other) : n_(std::exchange(other.n_, new int(-1))) {}
    boxed& operator=(boxed other) noexcept {
        std::swap(n_, other.n_);
        return *this;
    }
    ~boxed() { delete n_; }
    int number() const { return *n_; }
    friend auto operator<=>(const boxed& a, const boxed& b) { return *a.n_ <=> *b.n_; }
    friend bool operator==(const boxed& a, const boxed& b) { return *a.n_ == *b.n_; }
    friend boxed operator+(const boxed& a, const boxed& b) { return *a.n_ + *b.n_; }
    friend boxed operator-(const boxed& a, const boxed& b) { return *a.n_ - *b.n_; }
    friend boxed operator*(const boxed& a, const boxed& b) { return *a.n_ * *b.n_; }

private:
    int* n_;
};

inline int number(int n) { return n; }
inline int number(const boxed& n) { return n.number(); }

inline constexpr auto is_even = [](const auto& x) { return number(x) % 2 == 0; };
inline constexpr auto is_small = [](const auto& x) { return number(x) < 3; };
inline constexpr auto same_tens = [](const auto& x, const auto& y) {
    return number(x) / 10 == number(y) / 10;
};
// Puts equal tens in no order: what a stable algorithm keeps in order.
inline constexpr auto fewer_tens = [](const auto& x, const auto& y) {
    return number(x) / 10 < number(y) / 10;
};

// Runs each algorithm without a policy and with one, on copies of the same values, and compares what
// it returns and what it leaves. A function f(a, b, out, policy...) is one algorithm: it is called
// without a policy, too. `out` has twice the size of `a`.
template <class Container, class Policy> class compared {
    using value = typename Container::value_type;
    using category = typename std::iterator_traits<typename Container::iterator>::iterator_category;
    static constexpr bool is_random = std::derived_from<category, std::random_access_iterator_tag>;
    static constexpr bool is_bidirectional =
        std::derived_from<category, std::bidirectional_iterator_tag>;

public:
    compared(std::size_t size, int most, const Policy& policy, jitter& chance)
        : size_(size), policy_(policy) {
        std::vector<int> a(size);
        std::vector<int> b(size / 2);
        for (std::vector<int>* const some : {&a, &b}) {
            for (int& x : *some) {
                x = static_cast<int>(chance.below(static_cast<unsigned>(most)));
            }
        }
        a_ = Container(a.begin(), a.end());
        b_ = Container(b.begin(), b.end());
        std::sort(a.begin(), a.end());
        std::sort(b.begin(), b.end());
        sorted_a_ = Container(a.begin(), a.end());
        sorted_b_ = Container(b.begin(), b.end());
    }

    // The names of the algorithms that differ. Those that only read and those that compute are
    // tried with numbers alone.
    std::string differ() {
        if constexpr (std::is_same_v<value, int>) {
            reads();
            numbers();
        }
        writes();
        if constexpr (is_random) {
            orders();
        }
        constructs();
        return differ_;
    }

private:
    template <class F>
    void check(const char* name, const Container& from_a, const Container& from_b, F f) {
        Container a[2] = {from_a, from_a};
        Container b[2] = {from_b, from_b};
        Container out[2] = {Container(2 * size_), Container(2 * size_)};
        const auto serial = f(a[0], b[0], out[0]);
        const auto parallel = f(a[1], b[1], out[1], policy_);
        if (!(serial == parallel && a[0] == a[1] && b[0] == b[1] && out[0] == out[1])) {
            differ_ += std::string(name) + " of " + std::to_string(size_) + "; ";
        }
    }
    template <class F> void check(const char* name, F f) { check(name, a_, b_, f); }
    template <class F> void check_sorted(const char* name, F f) {
        check(name, sorted_a_, sorted_b_, f);
    }

    // Of iterators into one container.
    template <class It> static auto place(Container& in, It it) {
        return std::distance(in.begin(), it);
    }

    void reads() {
#define BIDE_TESTS_CHECK(name, ...)                                                                \
    check(#name, []([[maybe_unused]] auto& a, [[maybe_unused]] auto& b,                            \
                    [[maybe_unused]] auto& out, const auto&... policy) { return __VA_ARGS__; })
#define BIDE_TESTS_CHECK_SORTED(name, ...)                                                         \
    check_sorted(#name,                                                                            \
                 []([[maybe_unused]] auto& a, [[maybe_unused]] auto& b,                            \
                    [[maybe_unused]] auto& out, const auto&... policy) { return __VA_ARGS__; })
        BIDE_TESTS_CHECK(any_of, std::any_of(policy..., a.begin(), a.end(), is_small));
        BIDE_TESTS_CHECK(all_of, std::all_of(policy..., a.begin(), a.end(), is_small));
        BIDE_TESTS_CHECK(none_of, std::none_of(policy..., a.begin(), a.end(), is_small));
        BIDE_TESTS_CHECK(count, std::count(policy..., a.begin(), a.end(), value(2)));
        BIDE_TESTS_CHECK(count_if, std::count_if(policy..., a.begin(), a.end(), is_even));
        BIDE_TESTS_CHECK(find, place(a, std::find(policy..., a.begin(), a.end(), value(2))));
        BIDE_TESTS_CHECK(find_if, place(a, std::find_if(policy..., a.begin(), a.end(), is_small)));
        BIDE_TESTS_CHECK(find_if_not,
                         place(a, std::find_if_not(policy..., a.begin(), a.end(), is_small)));
        BIDE_TESTS_CHECK(find_first_of, place(a, std::find_first_of(policy..., a.begin(), a.end(),
                                                                    b.begin(), b.end())));
        BIDE_TESTS_CHECK(find_end,
                         place(a, std::find_end(policy..., a.begin(), a.end(), a.begin(),
                                                std::next(a.begin(), a.empty() ? 0 : 1))));
        BIDE_TESTS_CHECK(adjacent_find,
                         place(a, std::adjacent_find(policy..., a.begin(), a.end())));
        BIDE_TESTS_CHECK(search, place(a, std::search(policy..., a.begin(), a.end(), b.begin(),
                                                      std::next(b.begin(), b.empty() ? 0 : 1))));
        BIDE_TESTS_CHECK(search_n,
                         place(a, std::search_n(policy..., a.begin(), a.end(), 2, value(1))));
        BIDE_TESTS_CHECK(
            mismatch,
            place(b, std::mismatch(policy..., a.begin(), a.end(), b.begin(), b.end()).second));
        BIDE_TESTS_CHECK(equal, std::equal(policy..., a.begin(), a.end(), a.begin()));
        BIDE_TESTS_CHECK(equal, std::equal(policy..., a.begin(), a.end(), b.begin(), b.end()));
        BIDE_TESTS_CHECK(
            lexicographical_compare,
            std::lexicographical_compare(policy..., a.begin(), a.end(), b.begin(), b.end()));
        BIDE_TESTS_CHECK(min_element, place(a, std::min_element(policy..., a.begin(), a.end())));
        BIDE_TESTS_CHECK(max_element, place(a, std::max_element(policy..., a.begin(), a.end())));
        BIDE_TESTS_CHECK(minmax_element,
                         place(a, std::minmax_element(policy..., a.begin(), a.end()).second));
        BIDE_TESTS_CHECK(is_partitioned,
                         std::is_partitioned(policy..., a.begin(), a.end(), is_even));
        BIDE_TESTS_CHECK(is_sorted_until,
                         place(a, std::is_sorted_until(policy..., a.begin(), a.end())));
        BIDE_TESTS_CHECK_SORTED(is_sorted, std::is_sorted(policy..., a.begin(), a.end()));
        BIDE_TESTS_CHECK_SORTED(includes,
                                std::includes(policy..., a.begin(), a.end(), b.begin(), b.end()));
    }

    void writes() {
        BIDE_TESTS_CHECK(copy, place(out, std::copy(policy..., a.begin(), a.end(), out.begin())));
        BIDE_TESTS_CHECK(copy_n, place(out, std::copy_n(policy..., a.begin(), place(a, a.end()) / 2,
                                                        out.begin())));
        BIDE_TESTS_CHECK(
            copy_if, place(out, std::copy_if(policy..., a.begin(), a.end(), out.begin(), is_even)));
        BIDE_TESTS_CHECK(move, (std::move(policy..., a.begin(), a.end(), out.begin()),
                                std::fill(a.begin(), a.end(), value()), 0));
        BIDE_TESTS_CHECK(swap_ranges,
                         place(a, std::swap_ranges(policy..., b.begin(), b.end(), a.begin())));
        BIDE_TESTS_CHECK(transform,
                         place(out, std::transform(policy..., a.begin(), a.end(), out.begin(),
                                                   [](const value& x) { return x + x; })));
        BIDE_TESTS_CHECK(transform,
                         place(out, std::transform(policy..., b.begin(), b.end(), a.begin(),
                                                   out.begin(), std::minus())));
        BIDE_TESTS_CHECK(
            for_each,
            (std::for_each(policy..., a.begin(), a.end(), [](value& x) { x = x + value(1); }), 0));
        BIDE_TESTS_CHECK(for_each_n,
                         place(a, std::for_each_n(policy..., a.begin(), place(a, a.end()) / 2,
                                                  [](value& x) { x = x + value(1); })));
        BIDE_TESTS_CHECK(fill, (std::fill(policy..., a.begin(), a.end(), value(7)), 0));
        BIDE_TESTS_CHECK(
            fill_n, place(a, std::fill_n(policy..., a.begin(), place(a, a.end()) / 2, value(7))));
        BIDE_TESTS_CHECK(
            generate, (std::generate(policy..., a.begin(), a.end(), [] { return value(7); }), 0));
        BIDE_TESTS_CHECK(generate_n,
                         place(a, std::generate_n(policy..., a.begin(), place(a, a.end()) / 2,
                                                  [] { return value(7); })));
        BIDE_TESTS_CHECK(replace,
                         (std::replace(policy..., a.begin(), a.end(), value(1), value(7)), 0));
        BIDE_TESTS_CHECK(replace_if,
                         (std::replace_if(policy..., a.begin(), a.end(), is_even, value(7)), 0));
        BIDE_TESTS_CHECK(replace_copy,
                         place(out, std::replace_copy(policy..., a.begin(), a.end(), out.begin(),
                                                      value(1), value(7))));
        BIDE_TESTS_CHECK(replace_copy_if,
                         place(out, std::replace_copy_if(policy..., a.begin(), a.end(), out.begin(),
                                                         is_even, value(7))));
        BIDE_TESTS_CHECK(remove_copy, place(out, std::remove_copy(policy..., a.begin(), a.end(),
                                                                  out.begin(), value(1))));
        BIDE_TESTS_CHECK(
            remove_copy_if,
            place(out, std::remove_copy_if(policy..., a.begin(), a.end(), out.begin(), is_even)));
        BIDE_TESTS_CHECK(unique_copy, place(out, std::unique_copy(policy..., a.begin(), a.end(),
                                                                  out.begin(), same_tens)));
        BIDE_TESTS_CHECK(rotate_copy,
                         place(out, std::rotate_copy(policy..., a.begin(),
                                                     std::next(a.begin(), place(a, a.end()) / 3),
                                                     a.end(), out.begin())));
        BIDE_TESTS_CHECK(
            partition_copy,
            place(out, std::partition_copy(policy..., a.begin(), a.end(), out.begin(),
                                           std::next(out.begin(), place(a, a.end())), is_even)
                           .second));
        // These leave unspecified values behind the end.
        BIDE_TESTS_CHECK(remove, cut(a, std::remove(policy..., a.begin(), a.end(), value(1))));
        BIDE_TESTS_CHECK(remove_if, cut(a, std::remove_if(policy..., a.begin(), a.end(), is_even)));
        BIDE_TESTS_CHECK(unique, cut(a, std::unique(policy..., a.begin(), a.end(), same_tens)));
        BIDE_TESTS_CHECK(
            rotate, place(a, std::rotate(policy..., a.begin(),
                                         std::next(a.begin(), place(a, a.end()) / 3), a.end())));
        // This has its parts in any order.
        BIDE_TESTS_CHECK(partition, [&] {
            const auto middle = std::partition(policy..., a.begin(), a.end(), is_even);
            const bool is_right = std::is_partitioned(a.begin(), a.end(), is_even);
            const auto result = place(a, middle);
            std::multiset<value> all(a.begin(), a.end());
            std::copy(all.begin(), all.end(), a.begin());
            return std::pair(is_right, result);
        }());
        BIDE_TESTS_CHECK_SORTED(merge,
                                place(out, std::merge(policy..., a.begin(), a.end(), b.begin(),
                                                      b.end(), out.begin(), fewer_tens)));
        BIDE_TESTS_CHECK_SORTED(set_union,
                                place(out, std::set_union(policy..., a.begin(), a.end(), b.begin(),
                                                          b.end(), out.begin())));
        BIDE_TESTS_CHECK_SORTED(set_intersection,
                                place(out, std::set_intersection(policy..., a.begin(), a.end(),
                                                                 b.begin(), b.end(), out.begin())));
        BIDE_TESTS_CHECK_SORTED(set_difference,
                                place(out, std::set_difference(policy..., a.begin(), a.end(),
                                                               b.begin(), b.end(), out.begin())));
        BIDE_TESTS_CHECK_SORTED(
            set_symmetric_difference,
            place(out, std::set_symmetric_difference(policy..., a.begin(), a.end(), b.begin(),
                                                     b.end(), out.begin())));
        if constexpr (is_bidirectional) {
            BIDE_TESTS_CHECK(reverse, (std::reverse(policy..., a.begin(), a.end()), 0));
            BIDE_TESTS_CHECK(reverse_copy, place(out, std::reverse_copy(policy..., a.begin(),
                                                                        a.end(), out.begin())));
            BIDE_TESTS_CHECK(stable_partition, place(a, std::stable_partition(policy..., a.begin(),
                                                                              a.end(), is_even)));
            BIDE_TESTS_CHECK(inplace_merge, [&] {
                const auto middle = std::next(a.begin(), place(a, a.end()) / 3);
                std::multiset<value> left(a.begin(), middle);
                std::multiset<value> right(middle, a.end());
                std::copy(right.begin(), right.end(),
                          std::copy(left.begin(), left.end(), a.begin()));
                std::inplace_merge(policy..., a.begin(), middle, a.end(), fewer_tens);
                return 0;
            }());
        }
    }

    // What only random-access iterators have, or what is parallel only for them.
    void orders() {
        BIDE_TESTS_CHECK(sort, (std::sort(policy..., a.begin(), a.end()), 0));
        BIDE_TESTS_CHECK(sort, (std::sort(policy..., a.begin(), a.end(), std::greater<>()), 0));
        BIDE_TESTS_CHECK(stable_sort,
                         (std::stable_sort(policy..., a.begin(), a.end(), fewer_tens), 0));
        BIDE_TESTS_CHECK(partial_sort, [&] {
            const auto middle = a.begin() + place(a, a.end()) / 3;
            std::partial_sort(policy..., a.begin(), middle, a.end());
            std::sort(middle, a.end());
            return 0;
        }());
        BIDE_TESTS_CHECK(
            partial_sort_copy,
            place(b, std::partial_sort_copy(policy..., a.begin(), a.end(), b.begin(), b.end())));
        BIDE_TESTS_CHECK(partial_sort_copy,
                         place(out, std::partial_sort_copy(policy..., a.begin(), a.end(),
                                                           out.begin(), out.end())));
        BIDE_TESTS_CHECK(nth_element, [&] {
            const auto nth = a.begin() + place(a, a.end()) / 3;
            std::nth_element(policy..., a.begin(), nth, a.end());
            std::sort(a.begin(), nth);
            std::sort(nth, a.end());
            return 0;
        }());
        BIDE_TESTS_CHECK(is_heap, std::is_heap(policy..., a.begin(), a.end()));
        BIDE_TESTS_CHECK(is_heap_until,
                         place(a, std::is_heap_until(policy..., a.begin(), a.end())));
    }

    void numbers() {
        const auto twice = [](const value& x) { return x + x; };
        BIDE_TESTS_CHECK(reduce, std::reduce(policy..., a.begin(), a.end()));
        BIDE_TESTS_CHECK(reduce, std::reduce(policy..., a.begin(), a.end(), value(5)));
        // The values are numbers, and the sum is text: elements cannot be converted to it.
        BIDE_TESTS_CHECK(transform_reduce,
                         std::transform_reduce(policy..., a.begin(), a.end(), 0L, std::plus(),
                                               [](const value& x) { return long{number(x)}; }));
        BIDE_TESTS_CHECK(transform_reduce,
                         std::transform_reduce(policy..., b.begin(), b.end(), a.begin(), value(3)));
        BIDE_TESTS_CHECK(inclusive_scan, place(out, std::inclusive_scan(policy..., a.begin(),
                                                                        a.end(), out.begin())));
        BIDE_TESTS_CHECK(inclusive_scan,
                         place(out, std::inclusive_scan(policy..., a.begin(), a.end(), out.begin(),
                                                        std::plus(), value(5))));
        BIDE_TESTS_CHECK(inclusive_scan, // in place
                         place(a, std::inclusive_scan(policy..., a.begin(), a.end(), a.begin(),
                                                      [](const value& x, const value& y) {
                                                          return std::max(x, y);
                                                      })));
        BIDE_TESTS_CHECK(
            exclusive_scan,
            place(out, std::exclusive_scan(policy..., a.begin(), a.end(), out.begin(), value(5))));
        check("transform_inclusive_scan",
              [twice](auto& a, auto&, auto& out, const auto&... policy) {
                  return place(out, std::transform_inclusive_scan(policy..., a.begin(), a.end(),
                                                                  out.begin(), std::plus(), twice));
              });
        check("transform_exclusive_scan",
              [twice](auto& a, auto&, auto& out, const auto&... policy) {
                  return place(out, std::transform_exclusive_scan(policy..., a.begin(), a.end(),
                                                                  out.begin(), value(5),
                                                                  std::plus(), twice));
              });
        BIDE_TESTS_CHECK(
            adjacent_difference,
            place(out, std::adjacent_difference(policy..., a.begin(), a.end(), out.begin())));
    }

    // Each constructs in raw memory, and destroys what it made.
    void constructs() {
        BIDE_TESTS_CHECK(uninitialized, [&] {
            const auto n = place(a, a.end());
            const auto size = static_cast<std::size_t>(n);
            std::allocator<value> memory;
            value* const at = memory.allocate(size + 1);
            int sum = 0;
            const auto count = [&](value* end) {
                sum = std::accumulate(at, at + n, sum, [](int all, const value& x) {
                    return static_cast<int>(static_cast<unsigned>(all) * 31u +
                                            static_cast<unsigned>(number(x)));
                });
                std::destroy(policy..., at, end);
            };
            count(std::uninitialized_copy(policy..., a.begin(), a.end(), at));
            count(std::uninitialized_copy_n(policy..., a.begin(), n, at));
            std::uninitialized_fill(policy..., at, at + n, value(4));
            count(at + n);
            count(std::uninitialized_fill_n(policy..., at, n, value(4)));
            std::uninitialized_value_construct(policy..., at, at + n);
            count(at + n);
            count(std::uninitialized_value_construct_n(policy..., at, n));
            std::uninitialized_default_construct(policy..., at, at + n);
            std::destroy(policy..., at, at + n);
            std::uninitialized_default_construct_n(policy..., at, n);
            std::destroy_n(policy..., at, n);
            count(std::uninitialized_move(policy..., a.begin(), a.end(), at));
            std::fill(a.begin(), a.end(), value(3));
            std::uninitialized_move_n(policy..., a.begin(), n, at);
            count(at + n);
            std::fill(a.begin(), a.end(), value(3));
            memory.deallocate(at, size + 1);
            return sum;
        }());
#undef BIDE_TESTS_CHECK
#undef BIDE_TESTS_CHECK_SORTED
    }

    // Drops what is behind `end`.
    static auto cut(Container& in, typename Container::iterator end) {
        const auto size = std::distance(in.begin(), end);
        in.resize(static_cast<std::size_t>(size));
        return size;
    }

    const std::size_t size_;
    const Policy& policy_;
    Container a_;
    Container b_; // half as many
    Container sorted_a_;
    Container sorted_b_;
    std::string differ_;
};

template <class Container, class Policy>
std::string differ(const Policy& policy, std::initializer_list<std::size_t> sizes) {
    jitter chance(run_seed());
    std::string all;
    for (const std::size_t size : sizes) {
        for (const int most : {4, 100'000}) {
            all += compared<Container, Policy>(size, most, policy, chance).differ();
        }
    }
    return all;
}

} // namespace test

#endif
