// expect: on_send takes an lvalue
#include <bide/channel/channel.hpp>
#include <bide/channel/select.hpp>

int main() {
    bide::channel<int> ch(1);
    int* const nothing = nullptr;
#if defined(BIDE_CONTROL)
    return bide::try_select(bide::on_send(ch, nothing)).has_value();
#else
    return bide::try_select(bide::on_send(ch, nullptr)).has_value() && nothing == nullptr;
#endif
}
