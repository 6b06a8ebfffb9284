#define BIDE_RECYCLE_FRAMES 0 // so that each frame is an allocation

#include "support/shortage.hpp"

#include <bide/channel/oneshot.hpp>
#include <bide/channel/select.hpp>
#include <bide/interop/asio.hpp>
#include <bide/sched/executor_runner.hpp>
#include <bide/sched/run_loop.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/shared_mutex.hpp>

#include <support/death.hpp>

#include <asio.hpp>
#include <asio/experimental/as_tuple.hpp>
#include <asio/experimental/awaitable_operators.hpp>
#include <asio/experimental/deferred.hpp>

namespace net = asio;
namespace with = bide::with_asio;
using error_code = std::error_code;
using system_error = std::system_error;
#define TEST_SLOTS 1

#include "interop/asio_cases.hpp"

namespace {

net::awaitable<void> use_all(bide::scheduler& workers, std::string& log) {
    bide::mutex m;
    {
        const auto lock = co_await async_await(m.async_lock(), net::use_awaitable);
        log += lock.owns_lock() ? "mutex " : "";
    }
    bide::shared_mutex shared;
    {
        const auto lock = co_await async_await(shared.async_lock_shared(), net::use_awaitable);
        log += lock.owns_lock() ? "shared " : "";
    }
    bide::event set(true);
    co_await async_await(set.async_wait(), net::use_awaitable);
    bide::channel<std::unique_ptr<int>> items(1);
    const auto sent =
        co_await async_await(items.async_emplace(std::make_unique<int>(3)), net::use_awaitable);
    log += sent ? "sent " : "";
    const auto item = co_await async_await(items.async_recv(), net::use_awaitable);
    log += **item == 3 ? "received " : "";
    items.close();
    const auto refused =
        co_await async_await(items.async_emplace(std::make_unique<int>(4)), net::use_awaitable);
    log += !refused && *refused.error().value == 4 ? "refused " : "";
    auto select = bide::async_select(bide::on_recv(items), bide::on_event(set));
    const auto chosen = co_await async_await(std::move(select), net::use_awaitable);
    log += chosen.has_value() ? "selected " : "";
    auto four = workers.spawn([] { return 4; });
    const int joined = co_await async_await(std::move(four).async_join(), net::use_awaitable);
    log += joined == 4 ? "joined " : "";
    auto [sender, receiver] = bide::oneshot<int>();
    static_cast<void>(std::move(sender).send(5));
    const auto once = co_await async_await(receiver.async_recv(), net::use_awaitable);
    log += once == 5 ? "oneshot " : "";
    bide::semaphore closed(0);
    closed.close();
    try {
        const bide::permit p = co_await async_await(closed.async_acquire(), net::use_awaitable);
    } catch (const system_error& e) {
        log += e.code().value() == static_cast<int>(bide::errc::closed) ? "closed" : "";
    }
}

bide::task<int> fail() {
    co_await bide::this_task::yield();
    throw std::runtime_error("of a task");
}

bide::task<std::size_t> write_and_read(tcp::socket& a, tcp::socket& b, std::string& text) {
    const std::string sent = "bide";
    co_await net::async_write(a, net::buffer(sent), use_bide);
    text.resize(sent.size());
    co_return co_await net::async_read(b, net::buffer(text), use_bide);
}
void connect(net::io_context& io, tcp::socket& a, tcp::socket& b) {
    tcp::acceptor acceptor(io, {net::ip::address_v4::loopback(), 0});
    a.connect(acceptor.local_endpoint());
    acceptor.accept(b);
}

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

// Calls begin(io, handler), which begins a wait: what completes at once, and the first step of a task, need
// memory of the executor. If that has not thrown, calls finish(), and runs the loop.
template <class Begin, class Finish> void begins(test::trial& t, Begin begin, Finish finish) {
    net::io_context io;
    int calls = 0;
    const auto alive = std::make_shared<int>();
    const bool has_begun = t.attempt([&] { begin(io, counted_handler{&calls, alive}); });
    t.expect(has_begun || alive.use_count() == 1);
    if (has_begun) {
        finish();
    }
    io.run_for(test::patience);
    t.expect(io.stopped());
    t.expect(calls == (has_begun ? 1 : 0));
    t.expect(alive.use_count() == 1);
}

const test::scenario beginnings[] = {
    {"a permit that is waited for",
     [](test::trial& t) {
         bide::semaphore s(0);
         begins(
             t, [&](auto& io, auto handler) { async_await(io, s.async_acquire(), handler); },
             [&] {
                 t.expect(s.waiters() == 1);
                 s.release();
             });
         t.expect(s.waiters() == 0);
     }},
    {"an item that is waited for",
     [](test::trial& t) {
         bide::channel<int> c(1);
         begins(
             t, [&](auto& io, auto handler) { async_await(io, c.async_recv(), handler); },
             [&] { t.expect(c.try_send(7).has_value()); });
         t.expect(!c.try_recv().has_value());
     }},
    {"an operation of Asio in a task",
     [](test::trial& t) {
         net::io_context io;
         timer never(io, 1h);
         t.attempt([&] { static_cast<void>(never.async_wait(use_bide)); });
     }},
};

} // namespace

TEST_CASE("asio: a wait takes its place in the queue in the initiating function",
          "[promise.asio-waits]") {
    net::io_context io;
    bide::semaphore none(0);
    noted got;
    async_await(io, none.async_acquire(), note{&got});
    int calls_before = -1;
    std::thread thread([&] {
        const bide::permit one(none);
        calls_before = got.calls;
    });
    REQUIRE(test::eventually([&] { return none.waiters() == 2; }));
    none.release();
    run(io);
    thread.join();
    CHECK(calls_before == 1);
    CHECK(none.available() == 1);
}

TEST_CASE("asio: a stop token ends a wait") {
    net::io_context io;
    bide::semaphore none(0);
    std::stop_source stop;
    std::optional<bide::errc> why;
    async_await(io, none.async_acquire().with_stop(stop.get_token()), note_error{&why});
    stop.request_stop();
    run(io);
    CHECK(why == bide::errc::stopped);
    CHECK(none.waiters() == 0);
}

TEST_CASE("asio: a future gets the value, or the error as an exception") {
    net::io_context io;
    bide::channel<int> items(1);
    std::future<std::optional<int>> item = async_await(io, items.async_recv(), net::use_future);
    bide::semaphore closed(0);
    closed.close();
    std::future<bide::permit> permit = async_await(io, closed.async_acquire(), net::use_future);
    std::thread([&] { static_cast<void>(items.send(7)); }).join();
    run(io);
    REQUIRE(item.wait_for(test::patience) == std::future_status::ready);
    CHECK(item.get() == 7);
    CHECK_THROWS_AS(permit.get(), system_error);
}

TEST_CASE("asio: an exception of a handler leaves the function that runs the executor") {
    net::io_context io;
    bide::event set(true);
    async_await(io, set.async_wait(), [](error_code) { throw std::runtime_error("of a handler"); });
    CHECK_THROWS_AS(io.run(), std::runtime_error);
    run(io);
}

TEST_CASE("asio: each kind of operation can be awaited by a coroutine of Asio") {
    net::io_context io;
    bide::scheduler workers{{.num_workers = 1}};
    std::string log;
    net::co_spawn(io, use_all(workers, log), net::detached);
    run(io);
    CHECK(log == "mutex shared sent received refused selected joined oneshot closed");
}

TEST_CASE("asio: the exception of a task goes to the handler") {
    net::io_context io;
    std::exception_ptr error;
    with::co_spawn(io, fail(), [&](std::exception_ptr e, int) { error = e; });
    const std::unique_ptr<int> captured = std::make_unique<int>(3);
    int value = 0;
    auto lambda = [&captured]() -> bide::task<int> { co_return *captured; };
    with::co_spawn(io.get_executor(), lambda, keep<int>{&value});
    run(io);
    CHECK_THROWS_AS(std::rethrow_exception(error), std::runtime_error);
    CHECK(value == 3);
}

TEST_CASE("asio: the end of the context cancels its tasks, and runs them to their ends",
          "[promise.asio-context-end]") {
    bide::semaphore none(0);
    bool stopped = false;
    int calls = 0;
    {
        net::io_context io;
        with::co_spawn(
            io,
            [&]() -> bide::task<> {
                const auto p = co_await none.async_acquire().as_result();
                stopped = !p && p.error() == bide::errc::stopped;
                co_await bide::this_task::yield();
            },
            counted_handler{&calls, nullptr});
        with::co_spawn(io, add_up(none), counted_handler{&calls, nullptr});
        io.poll();
        with::co_spawn(io, add_up(none), counted_handler{&calls, nullptr}); // never starts
    }
    CHECK(stopped);
    CHECK(calls == 0);
    CHECK(none.waiters() == 0);
}

TEST_CASE("asio: a task writes to a socket, and reads from one") {
    net::io_context io;
    tcp::socket a(io);
    tcp::socket b(io);
    connect(io, a, b);
    std::string text;
    std::size_t size = 0;
    with::co_spawn(io, write_and_read(a, b, text), keep<std::size_t>{&size});
    run(io);
    CHECK(size == 4);
    CHECK(text == "bide");
}

TEST_CASE("asio: a task of a scheduler awaits an operation of Asio, and resumes on its scheduler") {
    net::io_context io;
    const auto work = net::make_work_guard(io);
    std::thread runs([&] { io.run(); });
    {
        bide::scheduler workers{{.num_workers = 1}};
        timer soon(io, 1ms);
        auto on = workers.spawn([&]() -> bide::task<bool> {
            const auto before = std::this_thread::get_id();
            co_await soon.async_wait(use_bide);
            co_return before == std::this_thread::get_id();
        });
        CHECK(std::move(on).join());
    }
    io.stop();
    runs.join();
}

TEST_CASE("asio: a task learns that its operation was destroyed with the context",
          "[promise.asio-task-cancel]") {
    auto io = std::make_unique<net::io_context>();
    bide::run_loop loop;
    std::string what;
    auto task = loop.spawn([&]() -> bide::task<> {
        try {
            co_await net::post(*io, use_bide);
        } catch (const system_error& e) {
            what = e.code() == net::error::operation_aborted ? "aborted" : "other";
        }
    });
    loop.poll();
    CHECK_FALSE(task.done());
    io.reset();
    loop.run();
    CHECK(what == "aborted");
}

TEST_CASE("asio: the end of the context races releases, and no permit is lost",
          "[promise.asio-context-end]") {
    constexpr int rounds = 200;
    constexpr int waits = 8;
    bide::semaphore permits(0);
    std::atomic<int> calls{0};
    for (int round = 0; round < rounds; ++round) {
        auto io = std::make_unique<net::io_context>();
        for (int i = 0; i < waits; ++i) {
            async_await(*io, permits.async_acquire(), [&](error_code e, bide::permit p) {
                p.forget();
                calls += e ? 0 : 1;
            });
        }
        test::run_threads(2, [&](int which) {
            if (which == 0) {
                permits.release(waits / 2);
            } else {
                io->poll();
                io.reset();
            }
        });
        REQUIRE(permits.waiters() == 0);
        REQUIRE(permits.available() == (round + 1) * (waits / 2) - calls);
    }
}

// The first thread that allocates a turn stops in the middle of its post.
TEST_CASE("asio: the end of the context waits for a release that is about to post to it") {
    auto io = std::make_unique<net::io_context>();
    bide::semaphore permits(0);
    bide::event entered;
    bide::event proceed;
    std::atomic<bool> armed{false};
    std::atomic<bool> destroyed{false}; // the context
    std::atomic<bool> was_late{false};
    memory slow;
    slow.on_allocation = [&] {
        if (armed.exchange(false)) {
            entered.set();
            proceed.wait();
            was_late = destroyed.load();
        }
    };
    int left = 0;
    async_await(*io, permits.async_acquire(), frugal_handler{&slow, &left});
    armed = true;
    std::thread releases([&] { permits.release(); });
    REQUIRE(entered.wait_for(test::patience));
    std::thread destroys([&] {
        io.reset();
        destroyed = true;
    });
    // Time to go wrong; the right order does not depend on it.
    test::eventually([&] { return destroyed.load(); }, 50ms);
    proceed.set();
    releases.join();
    destroys.join();
    CHECK_FALSE(was_late);
    CHECK(permits.available() == 1);
}

TEST_CASE("asio: a permit that was granted before a cancellation is delivered",
          "[promise.asio-cancel]") {
    net::io_context io;
    bide::semaphore none(0);
    net::cancellation_signal signal;
    noted got;
    async_await(io, none.async_acquire(), net::bind_cancellation_slot(signal.slot(), note{&got}));
    none.release();
    signal.emit(net::cancellation_type::terminal);
    run(io);
    CHECK(got.calls == 1);
    CHECK_FALSE(got.error);
    CHECK(none.available() == 1);
}

// Each wait is cancelled, or granted, or both at once. Every handler is called, and every permit that
// was released is delivered or free.
TEST_CASE("asio: cancellations and releases on many threads lose no permit",
          "[promise.asio-cancel]") {
    constexpr int count = 1'000;
    constexpr int released = count / 2;
    struct wait {
        explicit wait(net::io_context& io) : strand(net::make_strand(io)) {}
        net::strand<net::io_context::executor_type> strand;
        net::cancellation_signal signal;
        int calls = 0;
        int got = 0;
        error_code error{};
    };
    net::io_context io;
    bide::semaphore permits(0);
    std::vector<std::unique_ptr<wait>> waits;
    for (int i = 0; i < count; ++i) {
        waits.push_back(std::make_unique<wait>(io));
    }
    for (const auto& one : waits) {
        wait* const w = one.get();
        net::post(w->strand, [&permits, w] {
            async_await(w->strand, permits.async_acquire(),
                        net::bind_cancellation_slot(
                            w->signal.slot(),
                            net::bind_executor(w->strand, [w](error_code e, bide::permit p) {
                                ++w->calls;
                                w->error = e;
                                w->got = static_cast<int>(p.count());
                                p.forget();
                            })));
        });
    }
    const auto emit = [&](std::size_t i) {
        wait* const w = waits[i].get();
        net::post(w->strand, [w] { w->signal.emit(net::cancellation_type::terminal); });
    };
    auto guard = net::make_work_guard(io);
    std::atomic<int> working{3};
    test::run_threads(5, [&](int which) {
        if (which < 2) {
            io.run();
            return;
        }
        std::minstd_rand random(static_cast<unsigned>(which));
        for (int i = 0; i < released; ++i) {
            if (which == 2) {
                permits.release();
            } else {
                emit(random() % count);
            }
        }
        if (--working == 0) { // all waits end
            for (std::size_t i = 0; i < count; ++i) {
                emit(i);
            }
            guard.reset(); // each wait is work of its own until its handler was called
        }
    });
    int delivered = 0;
    for (const auto& w : waits) {
        REQUIRE(w->calls == 1);
        REQUIRE((w->got == 1 ? !w->error : w->error == net::error::operation_aborted));
        delivered += w->got;
    }
    CHECK(delivered + permits.available() == released);
    CHECK(permits.waiters() == 0);
}

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
    with::co_spawn(io, tuple_in_task(soon), keep<bool>{&in_task});
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

TEST_CASE("asio: an operation that finds no memory has not begun, and destroys its handler",
          "[promise.out-of-memory]") {
    test::for_each_allocation_failure(beginnings);
}

#if BIDE_TESTS_CAN_DIE
TEST_CASE("asio: an executor that is destroyed before a task that is to resume on it terminates",
          "[promise.home-outlives-tasks]") {
    const std::string said = test::dies([] {
        bide::semaphore none(0);
        net::io_context io;
        with::executor on(io);
        bide::spawn(on, [&]() -> bide::task<> {
            const auto one = co_await none.async_acquire();
        }).detach();
        io.run();
    });
    CHECK(test::contains(said, "destroyed while tasks are to resume on it: 1"));
}
#endif
