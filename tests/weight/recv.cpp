// async_recv() with a time-out, under sync_wait(), until it returns errc::timeout.

#include "entered.hpp"

#include <bide/channel/channel.hpp>
#include <bide/task/task.hpp>

#include <chrono>
#include <thread>

namespace {

bide::task<bool> receive(bide::channel<int>& values) {
    const auto got = co_await values.async_recv().with_timeout(std::chrono::milliseconds(100));
    co_return got.has_value();
}

} // namespace

int main() {
    bide::channel<int> values(1);
    weight::begin();
    const bool received = bide::sync_wait(receive(values));
    weight::end();
    return received ? 1 : 0;
}
