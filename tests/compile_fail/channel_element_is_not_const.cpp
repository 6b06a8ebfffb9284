// expect: elements must be objects that are not const
#include <bide/channel/channel.hpp>

int main() {
#if defined(BIDE_CONTROL)
    bide::channel<int> ch(1);
#else
    bide::channel<const int> ch(1); // nothing could be moved out
#endif
    ch.close();
}
