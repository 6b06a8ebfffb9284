// expect: private
#include <bide/sync/synchronized_value.hpp>

int main() {
    bide::synchronized_value<int> value(1);
#if defined(BIDE_CONTROL)
    return value.with([](int& inside) { return inside; });
#else
    return value.value_;
#endif
}
