// expect: write bide::with_timeout
#include <bide/task/with_deadline.hpp>

#include <chrono>

bide::task<int> work();

bide::task<> brief() {
#if defined(BIDE_CONTROL)
    const auto value = co_await bide::with_timeout(work(), std::chrono::seconds(1));
#else
    const auto value = co_await work().with_timeout(std::chrono::seconds(1));
#endif
    static_cast<void>(value);
}
