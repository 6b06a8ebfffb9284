// expect: destroys twice what braces make .*async_emplace
#include <bide/channel/channel.hpp>
#include <bide/task/task.hpp>

#include <string>

struct item {
    int number;
    std::string name;
};

bide::task<> send(bide::channel<item>& ch) {
#if defined(BIDE_CONTROL)
    static_cast<void>(co_await ch.async_emplace(1, "text"));
#else
    static_cast<void>(co_await ch.async_send({1, "text"}));
#endif
}

int main() {
    bide::channel<item> ch(1);
    bide::sync_wait(send(ch));
}
