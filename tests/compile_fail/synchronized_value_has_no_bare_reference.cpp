// expect: no match for|indirection requires pointer operand
#include <bide/sync/synchronized_value.hpp>

int main() {
    bide::synchronized_value<int> value(1);
#if defined(BIDE_CONTROL)
    *value.lock() = 2;
#else
    *value = 2;
#endif
}
