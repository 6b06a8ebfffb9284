// expect: takes two stop tokens at most
#include <bide/sync/semaphore.hpp>

#include <stop_token>
#include <utility>

int main() {
    bide::semaphore permits(1);
    std::stop_token stop;
    [[maybe_unused]] auto two = permits.async_acquire().with_stop(stop).with_stop(stop);
#if !defined(BIDE_CONTROL)
    [[maybe_unused]] auto three = std::move(two).with_stop(stop);
#endif
}
