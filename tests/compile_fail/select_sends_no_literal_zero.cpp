// expect: on_send takes an lvalue
#include <bide/channel/channel.hpp>
#include <bide/channel/select.hpp>

int main() {
    bide::channel<int> ch(1);
    int value = 0;
#if defined(BIDE_CONTROL)
    static_cast<void>(bide::select(bide::on_send(ch, value)));
#else
    // a null pointer constant: it would never happen
    static_cast<void>(bide::select(bide::on_send(ch, 0)));
#endif
    return value;
}
