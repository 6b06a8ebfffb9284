// expect: what combine returns does not fit into the type of the identity
#include <bide/parallel/parallel_reduce.hpp>

#include <cstddef>

int same(int i) { return i; }
std::size_t plus(std::size_t a, std::size_t b) { return a + b; }

#if defined(BIDE_CONTROL)
std::size_t sum(bide::scheduler& s) {
    return bide::parallel_reduce(
        s, 0, 10, std::size_t{0}, [](int i) { return static_cast<std::size_t>(same(i)); }, plus);
}
#else
int sum(bide::scheduler& s) { return bide::parallel_reduce(s, 0, 10, 0, same, plus); }
#endif
