// A user of bide::compiled. The other file of the program is compiled without BIDE_COMPILED: both have the
// same scheduler, and tasks of each run in it.

#include <bide/bide.hpp>

#if !defined(BIDE_COMPILED)
#error "bide::compiled does not define BIDE_COMPILED"
#endif

#include <chrono>
#include <utility>

using namespace std::chrono_literals;

bide::scheduler& shared_of_the_other_file();
int run_in_the_other_file(bide::scheduler& here, bide::channel<int>& items);

namespace {

bide::task<int> receive_two(bide::channel<int>& items) {
    const int first = (co_await items.async_recv().with_timeout(60s)).value().value();
    co_return first + (co_await items.async_recv()).value();
}

} // namespace

int main() {
    bide::channel<int> items(1);
    bide::scheduler workers({.num_workers = 2});
    auto sum = workers.spawn(receive_two(items));
    const int sent = run_in_the_other_file(workers, items);
    const bool is_same = &shared_of_the_other_file() == &bide::scheduler::shared();

    bide::run_loop loop;
    const int three = loop.run_until([](bide::scheduler& on) -> bide::task<int> {
        co_await bide::this_task::sleep_for(1ms);
        co_return co_await on.spawn([] { return 3; }).async_join();
    }(workers));
    return std::move(sum).join() == 3 && sent == 2 && is_same && three == 3 ? 0 : 1;
}
