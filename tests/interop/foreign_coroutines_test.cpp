// Coroutine types of other libraries await what bide has, without an adapter. The types here are built as
// those of cppcoro and of TooManyCooks are. core/async_op_resume_test.cpp has promises that name an executor.

#include "support/coroutines.hpp"
#include "support/test.hpp"

#include <bide/bide.hpp>

namespace {

// ---- A lazy task that knows no executor: it resumes its awaiter by symmetric transfer.

namespace lazy {

template <class T> class [[nodiscard]] task {
public:
    struct promise_type {
        std::coroutine_handle<> awaiter = std::noop_coroutine();
        std::optional<T> value{};
        std::exception_ptr error{};

        struct final_awaiter {
            final_awaiter() noexcept {}
            bool await_ready() const noexcept { return false; }
            std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> h) noexcept {
                return h.promise().awaiter;
            }
            void await_resume() const noexcept {}
        };
        task get_return_object() {
            return task(std::coroutine_handle<promise_type>::from_promise(*this));
        }
        std::suspend_always initial_suspend() const noexcept { return {}; }
        final_awaiter final_suspend() const noexcept { return final_awaiter(); }
        template <class U> void return_value(U&& v) { value.emplace(std::forward<U>(v)); }
        void unhandled_exception() { error = std::current_exception(); }
    };

    explicit task(std::coroutine_handle<promise_type> h) noexcept : frame_(h) {}
    task(task&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
    task& operator=(task&&) = delete;
    ~task() {
        if (frame_) {
            frame_.destroy();
        }
    }

    bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiter) noexcept {
        frame_.promise().awaiter = awaiter;
        return frame_;
    }
    T await_resume() {
        if (frame_.promise().error) {
            std::rethrow_exception(frame_.promise().error);
        }
        return std::move(*frame_.promise().value);
    }

private:
    std::coroutine_handle<promise_type> frame_;
};

template <class T> test::detached run(task<T> t, std::promise<T> to) {
    try {
        to.set_value(co_await std::move(t));
    } catch (...) {
        to.set_exception(std::current_exception());
    }
}

template <class T> T sync_wait(task<T> t) {
    std::promise<T> promise;
    std::future<T> value = promise.get_future();
    run(std::move(t), std::move(promise));
    if (value.wait_for(test::patience) != std::future_status::ready) {
        test::give_up(test::where(), "the task has not ended in time");
    }
    return value.get();
}

} // namespace lazy

// ---- A task of a pool: its await_transform wraps what it does not know into a coroutine of its own,
// which brings the task back to the pool, whichever thread has resumed it.

namespace pooled {

using pool = test::thread_executor;

class [[nodiscard]] task {
public:
    struct promise_type;
    // Owns the awaitable, and hides the task from it.
    template <class A> class wrapped {
    public:
        wrapped(A&& a, pool& p) noexcept : awaited_(std::move(a)), pool_(p) {}
        bool await_ready() const noexcept { return false; }
        void await_suspend(std::coroutine_handle<> outer) { outside(this, outer); }
        decltype(auto) await_resume() {
            if constexpr (!std::is_void_v<result>) {
                return std::move(*value_);
            }
        }

    private:
        using result = decltype(std::declval<A>().operator co_await().await_resume());
        using kept = std::conditional_t<std::is_void_v<result>, int, result>;

        static void resume(void* h) noexcept { std::coroutine_handle<>::from_address(h).resume(); }
        static test::detached outside(wrapped* self, std::coroutine_handle<> outer) {
            if constexpr (std::is_void_v<result>) {
                co_await std::move(self->awaited_);
            } else {
                self->value_.emplace(co_await std::move(self->awaited_));
            }
            self->pool_.post(bide::waker(&resume, outer.address()));
        }

        A awaited_;
        pool& pool_;
        std::optional<kept> value_{};
    };

    struct promise_type {
        pool& on;
        std::atomic<bool>& over;
        template <class... Args>
        explicit promise_type(pool& p, std::atomic<bool>& o, Args&...) noexcept : on(p), over(o) {}
        task get_return_object() noexcept {
            return task(std::coroutine_handle<promise_type>::from_promise(*this));
        }
        std::suspend_always initial_suspend() const noexcept { return {}; }
        auto final_suspend() const noexcept {
            over = true;
            return std::suspend_never();
        }
        void return_void() const noexcept {}
        [[noreturn]] void unhandled_exception() noexcept { std::terminate(); }
        template <class A> wrapped<A> await_transform(A&& a) noexcept {
            return wrapped<A>(std::move(a), on);
        }
    };

    // Starts it on its pool. It destroys itself at its end.
    void spawn() && noexcept {
        frame_.promise().on.post(
            bide::waker([](void* h) noexcept { std::coroutine_handle<>::from_address(h).resume(); },
                        frame_.address()));
    }

private:
    explicit task(std::coroutine_handle<promise_type> frame) noexcept : frame_(frame) {}

    std::coroutine_handle<promise_type> frame_;
};

} // namespace pooled

// ---- What they await

bide::task<int> twice(int n) {
    co_await bide::this_task::yield();
    co_return 2 * n;
}

lazy::task<std::string> use_all(bide::semaphore& none, bide::scheduler& workers) {
    std::string log;
    {
        const bide::permit p = co_await none.async_acquire();
        log += p.count() == 1 ? "permit " : "";
    }
    bide::mutex m;
    {
        const auto lock = co_await m.async_lock();
        log += lock.owns_lock() ? "lock " : "";
    }
    bide::channel<int> items(1);
    const auto sent = co_await items.async_send(4);
    const auto got = co_await items.async_recv();
    log += sent && got == 4 ? "item " : "";
    bide::event never;
    const auto late = co_await never.async_wait().with_timeout(1ms);
    log += !late && late.error() == bide::errc::timeout ? "timeout " : "";
    std::stop_source stop;
    stop.request_stop();
    const auto stopped = co_await never.async_wait().with_stop(stop.get_token());
    log += !stopped && stopped.error() == bide::errc::stopped ? "stopped " : "";
    auto select = bide::async_select(bide::on_recv(items), bide::on_timeout(1ms));
    const auto chosen = co_await std::move(select);
    log += chosen.index() == 1 ? "select " : "";
    log += co_await twice(3) == 6 ? "task " : "";
    const auto both = co_await bide::when_all(twice(1), twice(2));
    log += std::get<0>(both) + std::get<1>(both) == 6 ? "all " : "";
    auto handle = workers.spawn(twice(4));
    log += co_await std::move(handle).async_join() == 8 ? "joined" : "";
    co_return log;
}

lazy::task<int> outer(bide::semaphore& none) {
    const auto inner = [](bide::semaphore& s) -> lazy::task<int> {
        const bide::permit p = co_await s.async_acquire(2);
        co_return static_cast<int>(p.count());
    };
    co_return co_await inner(none) + 1;
}

lazy::task<int> fail(bide::semaphore& closed) {
    const bide::permit p = co_await closed.async_acquire();
    co_return static_cast<int>(p.count());
}

pooled::task lock_and_receive(pooled::pool& p, std::atomic<bool>&, bide::mutex& m,
                              bide::channel<int>& from, bool& at_home, int& received) {
    for (int i = 0; i < 100; ++i) {
        const auto item = co_await from.async_recv();
        const auto lock = co_await m.async_lock();
        at_home = at_home && std::this_thread::get_id() == p.id();
        received += *item;
    }
}

} // namespace

TEST_CASE("foreign coroutines: a task without an executor awaits each kind of operation",
          "[promise.foreign-coroutines]") {
    bide::semaphore none(0);
    bide::scheduler workers;
    std::thread releases([&] {
        test::eventually([&] { return none.waiters() == 1; });
        none.release();
    });
    CHECK(lazy::sync_wait(use_all(none, workers)) ==
          "permit lock item timeout stopped select task all joined");
    releases.join();
}

TEST_CASE(
    "foreign coroutines: a chain resumes from its innermost wait, and errors pass through it") {
    bide::semaphore none(0);
    std::thread releases([&] {
        test::eventually([&] { return none.waiters() == 1; });
        none.release(2);
    });
    CHECK(lazy::sync_wait(outer(none)) == 3);
    releases.join();
    none.close();
    CHECK_THROWS_AS(lazy::sync_wait(fail(none)), bide::closed_error);
}

TEST_CASE("foreign coroutines: an await_transform that wraps brings the task back to its pool",
          "[promise.foreign-coroutines]") {
    bide::mutex m;
    bide::channel<int> items(0);
    std::atomic<bool> over{false};
    bool at_home = true;
    int received = 0;
    pooled::pool pool; // ends before what its thread uses
    lock_and_receive(pool, over, m, items, at_home, received).spawn();
    for (int i = 0; i < 100; ++i) {
        REQUIRE(items.send(1));
        const std::lock_guard lock(m);
    }
    REQUIRE(test::eventually([&] { return over.load(); }));
    CHECK(at_home);
    CHECK(received == 100);
}

TEST_CASE("foreign coroutines: they wait in one queue with threads and tasks",
          "[promise.foreign-coroutines]") {
    bide::semaphore none(0);
    std::mutex turns_of;
    std::string turns;
    const auto note = [&](char who) {
        const std::lock_guard lock(turns_of);
        turns += who;
    };
    const auto foreign = [](bide::semaphore& s, const auto& say) -> lazy::task<int> {
        const bide::permit p = co_await s.async_acquire();
        say('f');
        co_return 1;
    };
    const auto native = [](bide::semaphore& s, const auto& say) -> bide::task<int> {
        const bide::permit p = co_await s.async_acquire();
        say('t');
        co_return 1;
    };
    bide::scheduler workers;
    const auto in_queue = [&](std::size_t n) {
        return test::eventually([&] { return none.waiters() == n; });
    };
    std::thread first([&] { static_cast<void>(lazy::sync_wait(foreign(none, note))); });
    REQUIRE(in_queue(1));
    auto second = workers.spawn(native(none, note));
    REQUIRE(in_queue(2));
    std::thread third([&] {
        const bide::permit p(none);
        note('b');
    });
    REQUIRE(in_queue(3));
    none.release(); // each passes it on
    first.join();
    CHECK(std::move(second).join() == 1);
    third.join();
    CHECK(turns == "ftb");
}
