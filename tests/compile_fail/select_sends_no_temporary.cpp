// expect: on_send takes an lvalue
#include <bide/channel/channel.hpp>
#include <bide/channel/select.hpp>

#include <string>

int main() {
    bide::channel<std::string> ch(1);
    std::string value = "text";
#if defined(BIDE_CONTROL)
    static_cast<void>(bide::select(bide::on_send(ch, value)));
#else
    // gone before the select begins
    static_cast<void>(bide::select(bide::on_send(ch, value + "s")));
#endif
}
