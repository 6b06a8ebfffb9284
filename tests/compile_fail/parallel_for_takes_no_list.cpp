// expect: random_access
#include <bide/parallel/parallel_for.hpp>

#include <list>
#include <vector>

#if defined(BIDE_CONTROL)
using numbers = std::vector<int>;
#else
using numbers = std::list<int>; // its parts cannot be found in constant time
#endif

void zero(bide::scheduler& s, numbers& all) {
    bide::parallel_for(s, all, [](int& number) { number = 0; });
}
