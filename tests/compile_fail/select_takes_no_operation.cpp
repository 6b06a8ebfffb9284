// expect: a select takes cases
#include <bide/channel/channel.hpp>
#include <bide/channel/select.hpp>

int main() {
    bide::channel<int> items(1);
#if defined(BIDE_CONTROL)
    const auto chosen = bide::try_select(bide::on_recv(items));
#else
    const auto chosen = bide::try_select(items.async_recv());
#endif
    return chosen ? 1 : 0;
}
