#define BIDE_RECYCLE_FRAMES 0 // so that each frame is an allocation

#include "support/alloc.hpp"
#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/shortage.hpp"

#include <bide/interop/asio.hpp>

#include <asio.hpp>
#include <asio/experimental/as_tuple.hpp>
#include <asio/experimental/awaitable_operators.hpp>
#include <asio/experimental/deferred.hpp>

#include <system_error>
#include <tuple>

namespace net = asio;
namespace with = bide::with_asio;
using error_code = std::error_code;
using system_error = std::system_error;
#define TEST_SLOTS 1

#include "interop/asio_cases.hpp"

namespace {

net::awaitable<void> take_tuple(bide::semaphore& closed, bool& seen) {
    constexpr auto token = net::experimental::as_tuple(net::use_awaitable);
    auto got = co_await async_await(closed.async_acquire(), token);
    seen = std::get<0>(got) == bide::errc::closed && !std::get<1>(got);
}

bide::task<bool> tuple_in_task(timer& t) {
    t.cancel();
    const auto [e] = co_await t.async_wait(net::experimental::as_tuple(use_bide));
    co_return !e;
}

net::awaitable<void> race(bide::semaphore& none, bide::event& set, std::size_t& winner) {
    using namespace net::experimental::awaitable_operators;
    auto first = co_await (async_await(none.async_acquire(), net::use_awaitable) ||
                           async_await(set.async_wait(), net::use_awaitable));
    winner = first.index();
}

} // namespace

TEST_CASE("asio: a deferred operation begins when it is given a token") {
    net::io_context io;
    bide::semaphore none(0);
    auto later = async_await(io, none.async_acquire(), net::experimental::deferred);
    CHECK(none.waiters() == 0);
    noted got;
    std::move(later)(note{&got});
    CHECK(none.waiters() == 1);
    none.release();
    run(io);
    CHECK(got.calls == 1);
}

TEST_CASE("asio: tokens that change the arguments of a handler work both ways") {
    net::io_context io;
    bide::semaphore closed(0);
    closed.close();
    bool in_awaitable = false;
    bool in_task = false;
    timer soon(io, 1ms);
    net::co_spawn(io, take_tuple(closed, in_awaitable), net::detached);
    with::co_spawn(io, tuple_in_task(soon), [&](std::exception_ptr, bool b) { in_task = b; });
    run(io);
    CHECK(in_awaitable);
    CHECK(in_task);
}

TEST_CASE("asio: the operator || of Asio cancels the wait that comes second") {
    net::io_context io;
    bide::semaphore none(0);
    bide::event set;
    std::size_t winner = 9;
    net::co_spawn(io, race(none, set, winner), net::detached);
    io.poll();
    CHECK(none.waiters() == 1);
    set.set();
    run(io);
    CHECK(winner == 1);
    CHECK(none.waiters() == 0);
}
