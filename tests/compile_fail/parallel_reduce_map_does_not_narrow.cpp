// expect: what map returns does not fit into the type of the identity
#include <bide/parallel/parallel_reduce.hpp>

double half(int i) { return i / 2.0; }
double plus(double a, double b) { return a + b; }

double sum(bide::scheduler& s) {
#if defined(BIDE_CONTROL)
    return bide::parallel_reduce(s, 0, 10, 0.0, half, plus);
#else
    return bide::parallel_reduce(s, 0, 10, 0, half, plus); // sums integers
#endif
}
