#include <bide/parallel/fork_join.hpp>
#include <support/sched.hpp>

#if defined(__linux__)
#include <pthread.h>
#endif

// scheduler_options::stack_size.

using namespace bide;
using test::with;

namespace {

constexpr std::size_t mebibyte = 1U << 20;

// Uses about n * 256 KiB of the stack.
int descend(scheduler& s, int n) {
    volatile char used[256 * 1024];
    used[0] = 1;
    used[sizeof used - 1] = 1;
    const int below = n == 0 ? 0 : join(s, [&s, n] { return descend(s, n - 1); }, [] {}).first;
    return below + used[0];
}

scheduler_options sized(std::size_t bytes) {
    auto wanted = with(2, true);
    wanted.stack_size = bytes;
    return wanted;
}

} // namespace

#if defined(__linux__)
namespace {

std::size_t stack_here() {
    pthread_attr_t how;
    std::size_t size = 0;
    if (::pthread_getattr_np(::pthread_self(), &how) == 0) {
        ::pthread_attr_getstacksize(&how, &size);
        ::pthread_attr_destroy(&how);
    }
    return size;
}

} // namespace

TEST_CASE("stack_size: workers and threads for blocking tasks have at least that stack",
          "[promise.stack-size]") {
    scheduler s(sized(40 * mebibyte + 1)); // not a multiple of a page
    CHECK(s.spawn(&stack_here, {.worker = 0}).join() > 40 * mebibyte);
    CHECK(s.spawn(&stack_here, {.worker = 1}).join() > 40 * mebibyte);
    CHECK(s.spawn_blocking(&stack_here).join() > 40 * mebibyte);
    CHECK(s.spawn([&s] { return descend(s, 100); }).join() == 101);
    scheduler small(sized(mebibyte));
    CHECK(small.spawn(&stack_here).join() < 8 * mebibyte);
}

TEST_CASE("stack_size: a size that no thread can have is refused", "[promise.stack-size]") {
    CHECK_THROWS_AS(scheduler(sized(1)), std::invalid_argument);
    CHECK_THROWS_AS(scheduler(sized((std::numeric_limits<std::size_t>::max)())),
                    std::invalid_argument);
}

TEST_CASE("stack_size: a size for which there is no memory is reported, and leaves no thread") {
    CHECK_THROWS_AS(scheduler(sized(std::size_t{1} << 50)), std::system_error);
}
#endif
