// expect: a temporary that is not a handle
#include <bide/channel/channel.hpp>
#include <bide/channel/handles.hpp>
#include <bide/channel/select.hpp>

int main() {
#if defined(BIDE_CONTROL)
    static_cast<void>(bide::try_select(bide::on_recv(bide::make_channel<int>(1).second)));
#else
    // gone before the select begins
    static_cast<void>(bide::try_select(bide::on_recv(bide::channel<int>(1))));
#endif
}
