#include <bide/channel/channel.hpp>
#include <bide/task/task.hpp>

#include <string>

namespace channel_async_send_takes_no_braces { // 1: destroys twice what braces make .*async_emplace
struct item {
    int number;
    std::string name;
};

bide::task<> send(bide::channel<item>& ch) {
#if BIDE_MISUSE != 1
    static_cast<void>(co_await ch.async_emplace(1, "text"));
#else
    static_cast<void>(co_await ch.async_send({1, "text"}));
#endif
}

void use() {
    bide::channel<item> ch(1);
    bide::sync_wait(send(ch));
}
} // namespace channel_async_send_takes_no_braces

namespace channel_async_send_takes_no_designators { // 2: destroys twice what braces make .*async_emplace
struct item {
    int number;
    std::string name;
};

bide::task<> send(bide::channel<item>& ch) {
#if BIDE_MISUSE != 2
    static_cast<void>(co_await ch.async_emplace(1, "text"));
#else
    static_cast<void>(co_await ch.async_send({.number = 1, .name = "text"}));
#endif
}

void use() {
    bide::channel<item> ch(1);
    bide::sync_wait(send(ch));
}
} // namespace channel_async_send_takes_no_designators
