// expect: sortable
#include <bide/parallel/parallel_sort.hpp>

#include <vector>

#if defined(BIDE_CONTROL)
using numbers = std::vector<int>;
#else
using numbers = const std::vector<int>; // their iterators cannot be written through
#endif

void sort(bide::scheduler& s, numbers& of) { bide::parallel_sort(s, of.begin(), of.end()); }
