// expect: nodiscard
#include <bide/channel/channel.hpp>

int main() {
    bide::channel<int> ch(1);
#if defined(BIDE_CONTROL)
    return ch.send(1) ? 0 : 1;
#else
    ch.send(1); // sent, or lost in a closed channel? unknown
#endif
}
