#include <bide/channel/channel.hpp>
#include <bide/channel/handles.hpp>
#include <bide/channel/select.hpp>

#include <string>

using bide::on_recv, bide::on_send;

void select_keeps_no_channel() { // a temporary that is not a handle
    static_cast<void>(bide::try_select(on_recv(bide::make_channel<int>(1).second)));
    //! static_cast<void>(bide::try_select(on_recv(bide::channel<int>(1)))); // gone before it begins
}

void select_sends_no_literal_zero(bide::channel<int>& ch, int value) { // on_send takes an lvalue
    static_cast<void>(bide::select(on_send(ch, value)));
    //! static_cast<void>(bide::select(on_send(ch, 0))); // a null pointer constant: never happens
}

void select_sends_no_nullptr(bide::channel<int>& ch, int* nothing) { // on_send takes an lvalue
    static_cast<void>(bide::try_select(on_send(ch, nothing)));
    //! static_cast<void>(bide::try_select(on_send(ch, nullptr)));
}

void select_sends_no_temporary(bide::channel<std::string>& ch) { // on_send takes an lvalue
    std::string value = "text";
    static_cast<void>(bide::select(on_send(ch, value)));
    //! static_cast<void>(bide::select(on_send(ch, value + "s"))); // gone before it begins
}

void select_takes_no_operation(bide::channel<int>& items) { // a select takes cases
    static_cast<void>(bide::try_select(on_recv(items)));
    //! static_cast<void>(bide::try_select(items.async_recv()));
}
