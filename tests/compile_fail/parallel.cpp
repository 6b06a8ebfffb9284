#include <bide/parallel/parallel_for.hpp>
#include <bide/parallel/parallel_reduce.hpp>
#include <bide/parallel/parallel_sort.hpp>

#include <cstddef>
#include <list>
#include <vector>

namespace parallel_for_takes_no_list { // random_access
using numbers = std::vector<int>;
//! using numbers = std::list<int>; // its parts cannot be found in constant time

void zero(bide::scheduler& s, numbers& all) {
    bide::parallel_for(s, all, [](int& number) { number = 0; });
}
} // namespace parallel_for_takes_no_list

namespace parallel_reduce_combine_does_not_narrow { // what combine returns does not fit into the type of the identity
using number = std::size_t;
//! using number = int;
number same(int i) { return static_cast<number>(i); }
std::size_t plus(std::size_t a, std::size_t b) { return a + b; }

auto sum(bide::scheduler& s) { return bide::parallel_reduce(s, 0, 10, number{0}, same, plus); }
} // namespace parallel_reduce_combine_does_not_narrow

namespace parallel_reduce_map_does_not_narrow { // what map returns does not fit into the type of the identity
double half(int i) { return i / 2.0; }
double plus(double a, double b) { return a + b; }

double sum(bide::scheduler& s) {
    return bide::parallel_reduce(s, 0, 10, 0.0, half, plus);
    //! return bide::parallel_reduce(s, 0, 10, 0, half, plus); // sums integers
}
} // namespace parallel_reduce_map_does_not_narrow

namespace parallel_sort_needs_a_comparison { // sortable
struct person {
    int age;
    friend bool operator<(const person& a, const person& b) { return a.age < b.age; }
    //! friend bool operator==(const person& a, const person& b) { return a.age == b.age; }
};

void sort(bide::scheduler& s, std::vector<person>& of) {
    bide::parallel_sort(s, of.begin(), of.end());
}
} // namespace parallel_sort_needs_a_comparison

namespace parallel_sort_writes_no_const { // sortable
using numbers = std::vector<int>;
//! using numbers = const std::vector<int>; // their iterators cannot be written through

void sort(bide::scheduler& s, numbers& of) { bide::parallel_sort(s, of.begin(), of.end()); }
} // namespace parallel_sort_writes_no_const
