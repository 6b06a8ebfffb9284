// expect: is noexcept
#include <bide/sync/barrier.hpp>

int main() {
#if defined(BIDE_CONTROL)
    bide::barrier b(1, []() noexcept {});
#else
    bide::barrier b(1, [] {}); // the other threads wait for it: it cannot fail
#endif
    b.arrive_and_wait();
}
