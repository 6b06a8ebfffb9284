// expect: of object types
#include <bide/core/result.hpp>

int main() {
    int value = 0;
#if defined(BIDE_CONTROL)
    const bide::result<int*> answer(&value);
#else
    const bide::result<int&> answer(value);
#endif
    return answer ? 0 : 1;
}
