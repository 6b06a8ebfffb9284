#include <bide/parallel/parallel_for.hpp>
#include <bide/parallel/parallel_reduce.hpp>
#include <bide/parallel/parallel_sort.hpp>

#include <cstddef>
#include <list>
#include <vector>

namespace parallel_for_takes_no_list { // 1: random_access
#if BIDE_MISUSE != 1
using numbers = std::vector<int>;
#else
using numbers = std::list<int>; // its parts cannot be found in constant time
#endif

void zero(bide::scheduler& s, numbers& all) {
    bide::parallel_for(s, all, [](int& number) { number = 0; });
}
} // namespace parallel_for_takes_no_list

namespace parallel_reduce_combine_does_not_narrow { // 2: what combine returns does not fit into the type of the identity
int same(int i) { return i; }
std::size_t plus(std::size_t a, std::size_t b) { return a + b; }

#if BIDE_MISUSE != 2
std::size_t sum(bide::scheduler& s) {
    return bide::parallel_reduce(
        s, 0, 10, std::size_t{0}, [](int i) { return static_cast<std::size_t>(same(i)); }, plus);
}
#else
int sum(bide::scheduler& s) { return bide::parallel_reduce(s, 0, 10, 0, same, plus); }
#endif
} // namespace parallel_reduce_combine_does_not_narrow

namespace parallel_reduce_map_does_not_narrow { // 3: what map returns does not fit into the type of the identity
double half(int i) { return i / 2.0; }
double plus(double a, double b) { return a + b; }

double sum(bide::scheduler& s) {
#if BIDE_MISUSE != 3
    return bide::parallel_reduce(s, 0, 10, 0.0, half, plus);
#else
    return bide::parallel_reduce(s, 0, 10, 0, half, plus); // sums integers
#endif
}
} // namespace parallel_reduce_map_does_not_narrow

namespace parallel_sort_needs_a_comparison { // 4: sortable
struct person {
    int age;
#if BIDE_MISUSE != 4
    friend bool operator<(const person& a, const person& b) { return a.age < b.age; }
#endif
};

void sort(bide::scheduler& s, std::vector<person>& of) {
    bide::parallel_sort(s, of.begin(), of.end());
}
} // namespace parallel_sort_needs_a_comparison

namespace parallel_sort_writes_no_const { // 5: sortable
#if BIDE_MISUSE != 5
using numbers = std::vector<int>;
#else
using numbers = const std::vector<int>; // their iterators cannot be written through
#endif

void sort(bide::scheduler& s, numbers& of) { bide::parallel_sort(s, of.begin(), of.end()); }
} // namespace parallel_sort_writes_no_const
