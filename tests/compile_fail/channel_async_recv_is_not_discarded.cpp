// expect: co_await it
#include <bide/channel/channel.hpp>

int main() {
    bide::channel<int> ch(1);
#if defined(BIDE_CONTROL)
    [[maybe_unused]] const auto operation = ch.async_recv();
#else
    ch.async_recv(); // does nothing
#endif
}
