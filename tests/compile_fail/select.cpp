#include <bide/channel/channel.hpp>
#include <bide/channel/handles.hpp>
#include <bide/channel/select.hpp>

#include <string>

void select_keeps_no_channel() { // 1: a temporary that is not a handle
#if BIDE_MISUSE != 1
    static_cast<void>(bide::try_select(bide::on_recv(bide::make_channel<int>(1).second)));
#else
    // gone before the select begins
    static_cast<void>(bide::try_select(bide::on_recv(bide::channel<int>(1))));
#endif
}

int select_sends_no_literal_zero() { // 2: on_send takes an lvalue
    bide::channel<int> ch(1);
    int value = 0;
#if BIDE_MISUSE != 2
    static_cast<void>(bide::select(bide::on_send(ch, value)));
#else
    // a null pointer constant: it would never happen
    static_cast<void>(bide::select(bide::on_send(ch, 0)));
#endif
    return value;
}

int select_sends_no_nullptr() { // 3: on_send takes an lvalue
    bide::channel<int> ch(1);
    int* const nothing = nullptr;
#if BIDE_MISUSE != 3
    return bide::try_select(bide::on_send(ch, nothing)).has_value();
#else
    return bide::try_select(bide::on_send(ch, nullptr)).has_value() && nothing == nullptr;
#endif
}

void select_sends_no_temporary() { // 4: on_send takes an lvalue
    bide::channel<std::string> ch(1);
    std::string value = "text";
#if BIDE_MISUSE != 4
    static_cast<void>(bide::select(bide::on_send(ch, value)));
#else
    // gone before the select begins
    static_cast<void>(bide::select(bide::on_send(ch, value + "s")));
#endif
}

int select_takes_no_operation() { // 5: a select takes cases
    bide::channel<int> items(1);
#if BIDE_MISUSE != 5
    const auto chosen = bide::try_select(bide::on_recv(items));
#else
    const auto chosen = bide::try_select(items.async_recv());
#endif
    return chosen ? 1 : 0;
}
