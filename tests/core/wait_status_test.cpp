#include <bide/core/wait_status.hpp>
#include <bide/core/waiter.hpp>
#include <support/test.hpp>

using bide::wait_status;

TEST_CASE("wait_status: the mark of an announced outcome is no outcome of its own, and comes off") {
    for (const wait_status what :
         {wait_status::granted, wait_status::closed, wait_status::stopped, wait_status::timed_out,
          wait_status::no_memory, wait_status::all_let_go, wait_status::destroyed}) {
        CHECK(what > wait_status::parked);
        CHECK_FALSE(bide::detail::is_announced(what));
        const wait_status announced = bide::detail::announced_as(what);
        CHECK(bide::detail::is_announced(announced));
        CHECK(announced > wait_status::destroyed);
        CHECK(bide::detail::announced_as(announced) == what);
    }
}
