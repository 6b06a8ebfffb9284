// The tests of interop/asio.hpp that use each name of interop/detail/asio_names.inc, once for each Asio:
// that file is all that differs. The other tests are in asio_test.cpp. The file that includes this one has
// named `net`, the namespace of Asio, and `with`, that of bide for it, and has defined TEST_SLOTS.

#include <bide/channel/channel.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/compose.hpp>
#include <bide/task/strand.hpp>

#include <support/standard.hpp>

using namespace std::chrono_literals;

namespace {

using net::ip::tcp;
using with::async_await;
using with::use_bide;

template <class R> using of_awaitable = net::awaitable<R, net::any_io_executor>;

template <class Op> using awaited = decltype(async_await(std::declval<Op>(), net::use_awaitable));
using op_of_permit = decltype(std::declval<bide::semaphore&>().async_acquire());
using limited_op = decltype(std::declval<op_of_permit>().with_timeout(1ms));
using op_of_int = decltype(std::declval<bide::channel<int>&>().async_recv());

static_assert(std::is_same_v<awaited<op_of_permit>, of_awaitable<bide::permit>>);
static_assert(std::is_same_v<awaited<limited_op>, of_awaitable<bide::result<bide::permit>>>);
static_assert(std::is_same_v<awaited<op_of_int>, of_awaitable<std::optional<int>>>);
static_assert(std::is_same_v<awaited<bide::async_op<void>>, of_awaitable<void>>);

static_assert(std::is_same_v<decltype(std::declval<net::steady_timer&>().async_wait(use_bide)),
                             bide::task<void>>);
static_assert(
    std::is_same_v<decltype(std::declval<net::ip::tcp::acceptor&>().async_accept(use_bide)),
                   bide::task<net::ip::tcp::socket>>);

// Runs until no work is left.
void run(net::io_context& io) {
    io.run_for(test::patience);
    REQUIRE(io.stopped());
    io.restart();
}

// A handler that writes down what it gets.
struct noted {
    int calls = 0;
    error_code error{};
    std::thread::id on;
};
struct note {
    noted* to;
    template <class... Values> void operator()(error_code e, Values&&...) const {
        ++to->calls;
        to->error = e;
        to->on = std::this_thread::get_id();
    }
};

// Handlers of few types: each type makes an operation anew, which is long to compile.
struct note_error {
    std::optional<bide::errc>* to;
    void operator()(const bide::result<bide::permit>& r) const { *to = r.error(); }
};
template <class T> struct keep {
    T* to;
    void operator()(const std::exception_ptr& e, T value) const {
        if (!e) {
            *to = std::move(value);
        }
    }
};
// Counts its calls; `alive` tells whether a copy of it is left.
struct counted_handler {
    int* calls;
    std::shared_ptr<int> alive;
    template <class... Values> void operator()(Values&&...) const { ++*calls; }
};

// A handler with an allocator of its own.
struct memory {
    std::function<void()> on_allocation = [] {};
    std::atomic<int> live{0};
    std::atomic<int> made{0};
};
template <class T> struct counting_allocator {
    using value_type = T;
    memory* of;
    explicit counting_allocator(memory* m) noexcept : of(m) {}
    template <class U> counting_allocator(const counting_allocator<U>& o) noexcept : of(o.of) {}
    T* allocate(std::size_t n) {
        of->on_allocation();
        ++of->made;
        ++of->live;
        return std::allocator<T>().allocate(n);
    }
    void deallocate(T* p, std::size_t n) noexcept {
        --of->live;
        std::allocator<T>().deallocate(p, n);
    }
    template <class U> bool operator==(const counting_allocator<U>& o) const noexcept {
        return of == o.of;
    }
};
struct frugal_handler {
    using allocator_type = counting_allocator<std::byte>;
    memory* of;
    int* left; // what is allocated when the handler is called
    allocator_type get_allocator() const noexcept { return allocator_type(of); }
    void operator()(error_code, const bide::permit&) const { *left = of->live; }
};

bide::task<std::thread::id> thread_after_wait(bide::semaphore& s) {
    const bide::permit p = co_await s.async_acquire();
    co_return std::this_thread::get_id();
}
bide::task<int> add_up(bide::semaphore& s) {
    const auto both = co_await bide::when_all(thread_after_wait(s), thread_after_wait(s));
    co_return std::get<0>(both) == std::get<1>(both) ? 2 : 0;
}

using timer = net::steady_timer;

bide::task<bool> wait_here(timer& t) {
    co_await t.async_wait(use_bide);
    co_return true;
}
bide::task<std::string> read_of_closed(net::io_context& io) {
    tcp::socket closed(io);
    std::array<char, 8> room{};
    std::string what;
    try {
        co_await closed.async_read_some(net::buffer(room), use_bide);
    } catch (const system_error& e) {
        what = e.code() == net::error::bad_descriptor ? "bad descriptor" : "other";
    }
    co_return what;
}

net::awaitable<void> hold_and_wait(bide::semaphore& held, bide::semaphore& none) {
    const bide::permit p = co_await async_await(held.async_acquire(), net::use_awaitable);
    const bide::permit q = co_await async_await(none.async_acquire(), net::use_awaitable);
}

} // namespace

TEST_CASE("asio: an operation that completes at once calls its handler later, on its executor",
          "[promise.asio-waits]") {
    net::io_context io;
    bide::semaphore free(1);
    noted got;
    async_await(io, free.async_acquire(), note{&got});
    CHECK(got.calls == 0);
    CHECK(free.available() == 0);
    std::thread([&] { io.run(); }).join();
    CHECK(got.calls == 1);
    CHECK_FALSE(got.error);
    CHECK(got.on != std::this_thread::get_id());
    CHECK(free.available() == 1);
}

TEST_CASE("asio: a wait is work of its executor until its handler was called",
          "[promise.asio-waits]") {
    net::io_context io;
    bide::semaphore none(0);
    noted got;
    async_await(io, none.async_acquire(), note{&got});
    CHECK(io.poll() == 0);
    CHECK_FALSE(io.stopped());
    std::thread([&] { none.release(); }).join();
    CHECK(io.poll() == 1);
    CHECK(io.stopped());
    CHECK(got.calls == 1);
}

TEST_CASE("asio: a handler runs on its associated executor", "[promise.asio-waits]") {
    net::io_context io;
    net::thread_pool other(1);
    const auto strand = net::make_strand(other);
    bide::event set(true);
    bool on_strand = false;
    async_await(io, set.async_wait(), net::bind_executor(strand, [&](error_code) {
                    on_strand = strand.running_in_this_thread();
                }));
    run(io);
    other.join();
    CHECK(on_strand);
}

TEST_CASE("asio: all memory is of the handler's allocator, and free when the handler is called") {
    net::io_context io;
    bide::semaphore none(0);
    memory used;
    int left = -1;
    async_await(io, none.async_acquire(), frugal_handler{&used, &left});
    CHECK(used.made == 2);
    none.release();
    run(io);
    CHECK(left == 0);
    CHECK(used.live == 0);
    CHECK(used.made >= 3); // the turn, too
}

TEST_CASE("asio: an error is a code of bide, and a result says it without a code") {
    net::io_context io;
    bide::semaphore closed(0);
    closed.close();
    noted got;
    async_await(io, closed.async_acquire(), note{&got});
    std::optional<bide::errc> why;
    async_await(io, closed.async_acquire().as_result(), note_error{&why});
    bide::semaphore none(0);
    std::optional<bide::errc> late;
    async_await(io, none.async_acquire().with_timeout(1ms), note_error{&late});
    run(io);
    CHECK(got.error.value() == static_cast<int>(bide::errc::closed));
    CHECK(got.error.category().name() == std::string("bide"));
    CHECK(got.error.message() == "closed");
    CHECK(why == bide::errc::closed);
    CHECK(late == bide::errc::timeout);
}

// ---- Tasks on executors of Asio

TEST_CASE("asio: a task and its children run on the executor, and its value goes to the handler") {
    net::io_context io;
    bide::semaphore none(0);
    int sum = 0;
    with::co_spawn(io, add_up(none), keep<int>{&sum});
    CHECK(none.waiters() == 0); // it starts on the executor
    std::thread other([&] {
        test::eventually([&] { return none.waiters() == 2; });
        none.release(2);
    });
    run(io);
    other.join();
    CHECK(sum == 2);
    CHECK(none.available() == 2);
}

TEST_CASE("asio: an executor of Asio is an executor of bide") {
    net::thread_pool pool(1);
    with::executor on_pool(pool);
    bide::semaphore s(1);
    const auto first = bide::sync_wait(on_pool, thread_after_wait(s));
    CHECK(first != std::this_thread::get_id());
    bide::strand serial(on_pool);
    CHECK(bide::sync_wait(on_pool, serial.run(thread_after_wait(s))) == first);
    pool.join();
}

// ---- Operations of Asio in tasks

TEST_CASE("asio: a task awaits operations of Asio, and gets their errors as exceptions") {
    net::io_context io;
    timer soon(io, 1ms);
    bool waited = false;
    std::string error;
    with::co_spawn(io, wait_here(soon), keep<bool>{&waited});
    with::co_spawn(io, read_of_closed(io), keep<std::string>{&error});
    run(io);
    CHECK(waited);
    CHECK(error == "bad descriptor");
}

// ---- The end of the context

TEST_CASE("asio: the end of the context ends its waits, and calls no handler",
          "[promise.asio-context-end]") {
    bide::semaphore none(0);
    bide::semaphore one(1);
    int calls = 0;
    const auto waiting = std::make_shared<int>();
    const auto granted = std::make_shared<int>();
    const auto late = std::make_shared<int>();
    {
        net::io_context io;
        async_await(io, none.async_acquire(), counted_handler{&calls, waiting});
        async_await(io, one.async_acquire(), counted_handler{&calls, granted});
        async_await(io, one.async_acquire(), counted_handler{&calls, late});
        CHECK(one.available() == 0);
        CHECK(one.waiters() == 1);
    }
    CHECK(calls == 0);
    CHECK(waiting.use_count() == 1);
    CHECK(granted.use_count() == 1);
    CHECK(late.use_count() == 1);
    CHECK(none.waiters() == 0);
    CHECK(one.waiters() == 0);
    CHECK(one.available() == 1);
}

TEST_CASE("asio: the end of the context destroys coroutines that wait, with what they hold",
          "[promise.asio-context-end]") {
    bide::semaphore held(1);
    bide::semaphore none(0);
    {
        net::io_context io;
        net::co_spawn(io, hold_and_wait(held, none), net::detached);
        net::co_spawn(io, hold_and_wait(held, none), net::detached);
        io.poll();
        CHECK(held.available() == 0);
        CHECK(held.waiters() == 1);
        CHECK(none.waiters() == 1);
    }
    CHECK(held.available() == 1);
    CHECK(held.waiters() + none.waiters() == 0);
}

// ---- Cancellation

#if TEST_SLOTS

TEST_CASE("asio: a slot cancels a wait, which passes on what it was granted in part",
          "[promise.asio-cancel]") {
    net::io_context io;
    bide::semaphore two(2);
    net::cancellation_signal signal;
    noted large;
    noted small;
    async_await(io, two.async_acquire(5), net::bind_cancellation_slot(signal.slot(), note{&large}));
    async_await(io, two.async_acquire(1), note{&small});
    CHECK(two.waiters() == 2);
    signal.emit(net::cancellation_type::total);
    CHECK(two.waiters() == 0);
    CHECK(large.calls == 0);
    run(io);
    CHECK(large.error == net::error::operation_aborted);
    CHECK(large.calls == 1);
    CHECK_FALSE(small.error);
    CHECK(small.calls == 1);
    CHECK(two.available() == 2);
    signal.emit(net::cancellation_type::terminal); // the slot is empty
}

TEST_CASE("asio: a slot cancels a task, by types that allow for effects") {
    net::io_context io;
    bide::semaphore none(0);
    net::cancellation_signal signal;
    bool stopped = false;
    auto wait = [&]() -> bide::task<bool> {
        const auto p = co_await none.async_acquire().as_result();
        co_return !p;
    };
    with::co_spawn(io, wait, net::bind_cancellation_slot(signal.slot(), keep<bool>{&stopped}));
    CHECK(none.waiters() == 0); // it begins on the executor
    io.poll();
    CHECK(none.waiters() == 1);
    signal.emit(net::cancellation_type::total);
    io.poll();
    CHECK_FALSE(stopped);
    signal.emit(net::cancellation_type::partial);
    run(io);
    CHECK(stopped);
}

TEST_CASE("asio: a task that is cancelled ends its operation of Asio, and waits for the end",
          "[promise.asio-task-cancel]") {
    net::io_context io;
    const auto work = net::make_work_guard(io);
    bide::event goes_on;
    std::thread runs([&] {
        goes_on.wait();
        io.run();
    });
    {
        bide::scheduler workers{{.num_workers = 1}};
        timer never(io, 1h);
        std::atomic<bool> waits{false};
        bool stopped = false;
        auto on = workers.spawn([&]() -> bide::task<> {
            waits = true;
            try {
                co_await never.async_wait(use_bide);
            } catch (const bide::stopped_error&) {
                stopped = true;
            }
        });
        REQUIRE(test::eventually([&] { return waits.load(); }));
        on.cancel();
        // Time to go wrong: the operation cannot end while no thread runs the context.
        CHECK_FALSE(test::eventually([&] { return on.done(); }, 50ms));
        goes_on.set();
        std::move(on).join();
        CHECK(stopped);
    }
    io.stop();
    runs.join();
}

#endif // TEST_SLOTS
