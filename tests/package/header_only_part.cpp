// A part of compiled.cpp's program that has the definitions in its headers.

#undef BIDE_COMPILED
#include <bide/bide.hpp>

#include <utility>

bide::scheduler& shared_of_the_other_file();
int run_in_the_other_file(bide::scheduler& here, bide::channel<int>& items);

namespace {

bide::task<int> send_two(bide::channel<int>& items) {
    int sent = 0;
    while (sent < 2 && (co_await items.async_send(sent + 1))) {
        ++sent;
    }
    co_return sent;
}

} // namespace

bide::scheduler& shared_of_the_other_file() { return bide::scheduler::shared(); }

int run_in_the_other_file(bide::scheduler& here, bide::channel<int>& items) {
    bide::scheduler mine({.num_workers = 1});
    const int sent = mine.spawn(send_two(items)).join();
    bide::task_group group(here);
    group.spawn([] {});
    group.join();
    return sent;
}
