#include <bide/channel/channel.hpp>
#include <bide/task/task.hpp>

#include <string>

struct item {
    int number;
    std::string name;
};
using items = bide::channel<item>;

bide::task<> channel_async_send_takes_no_braces(items& ch) { // braces make .*async_emplace
    static_cast<void>(co_await ch.async_emplace(1, "text"));
    //! static_cast<void>(co_await ch.async_send({1, "text"})); // destroyed twice
}

bide::task<> channel_async_send_takes_no_designators(items& ch) { // braces make .*async_emplace
    static_cast<void>(co_await ch.async_emplace(1, "text"));
    //! static_cast<void>(co_await ch.async_send({.number = 1, .name = "text"})); // destroyed twice
}
