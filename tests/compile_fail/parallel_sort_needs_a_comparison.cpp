// expect: sortable
#include <bide/parallel/parallel_sort.hpp>

#include <vector>

struct person {
    int age;
#if defined(BIDE_CONTROL)
    friend bool operator<(const person& a, const person& b) { return a.age < b.age; }
#endif
};

void sort(bide::scheduler& s, std::vector<person>& of) {
    bide::parallel_sort(s, of.begin(), of.end());
}
