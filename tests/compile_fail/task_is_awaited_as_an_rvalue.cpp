// expect: operator co_await|await_ready
#include <bide/task/task.hpp>

#include <utility>

bide::task<int> one();
bide::task<int> twice();

bide::task<int> one() { co_return 1; }

bide::task<int> twice() {
    auto child = one();
#if defined(BIDE_CONTROL)
    co_return co_await std::move(child);
#else
    co_return co_await child; // a task ends once
#endif
}
