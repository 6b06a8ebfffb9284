#include <bide/core/async_op.hpp>
#include <bide/sync/event.hpp>
#include <model/check.hpp>
#include <support/coroutines.hpp>
#include <support/test.hpp>
#include <support/tokens.hpp>

// Coroutines that wait for a token. Each is resumed once, on the giver's thread or on its executor.
// The giver and the thread that queued the wait do not access the frame afterwards. The checker
// reports a remaining frame as a leak, and an access to a destroyed atomic as a lifetime failure.
// The primitive is minimal: support/tokens.hpp.

namespace {

using bide::deadline;
using model::platform;
using awake = model::platform_without_lock_sleep;
using test::detached;
using test::held;
using parker = bide::basic_parker<platform>;
template <class T> using var = platform::var<T>;
template <class P> using tokens = test::basic_tokens<P>;
template <class P> using ready_queue = bide::basic_ready_queue<P>;

// Has passed at the first check.
constexpr deadline now = deadline::at_ns(1);
constexpr deadline soon = deadline::at_ns(1'000'000);

// What a giver wrote before, and how often the receiver of a token has seen it.
struct notes {
    var<int> news{0};
    var<int> seen{0};

    void see() noexcept {
        MODEL_REQUIRE(news == 1);
        seen = seen + 1;
    }
};

template <class P> detached take_and_keep(tokens<P>& from, notes& n) {
    auto token = co_await from.async_take();
    n.see();
    token.keep();
}

// Gives the token back when the frame is destroyed, on the thread that runs it.
template <class P> detached take_and_give(tokens<P>& from, notes& n) {
    const auto token = co_await from.async_take();
    n.see();
}

template <class P> void give(tokens<P>& to, notes& n) noexcept {
    n.news = 1;
    to.give();
}

TEST_CASE("async_op: a coroutine resumes once, on the giver's thread or on its own") {
    model::check("one coroutine", [] {
        tokens<platform> t(0);
        notes n;
        model::thread giver([&] { give(t, n); });
        take_and_keep(t, n);
        giver.join();
        MODEL_REQUIRE(n.seen == 1);
        MODEL_REQUIRE(t.available() == 0);
        MODEL_REQUIRE(t.waiters() == 0);
    });
    model::check("one coroutine, spurious", {.spurious = 1, .weak_failures = 1}, [] {
        tokens<awake> t(0);
        notes n;
        model::thread giver([&] { give(t, n); });
        take_and_give(t, n);
        giver.join();
        MODEL_REQUIRE(n.seen == 1);
        MODEL_REQUIRE(t.available() == 1);
    });
}

template <class P> detached take_and_destroy(std::unique_ptr<tokens<P>>& from, notes& n) {
    auto token = co_await from->async_take();
    n.see();
    token.keep();
    from.reset();
}

TEST_CASE("async_op: the coroutine may destroy the primitive as soon as it resumes") {
    model::check("the primitive is destroyed", [] {
        auto t = std::make_unique<tokens<platform>>(0);
        notes n;
        model::thread giver([&n, mine = t.get()] { give(*mine, n); });
        take_and_destroy(t, n);
        giver.join();
        MODEL_REQUIRE(n.seen == 1);
        MODEL_REQUIRE(t == nullptr);
    });
}

TEST_CASE("async_op: a token passes through two coroutines") {
    model::check("two coroutines on one thread", [] {
        tokens<awake> t(0);
        notes n;
        model::thread giver([&] { give(t, n); });
        take_and_give(t, n);
        take_and_give(t, n);
        giver.join();
        MODEL_REQUIRE(n.seen == 2);
        MODEL_REQUIRE(t.available() == 1);
    });
    model::check("a coroutine and a thread", [] {
        tokens<awake> t(0);
        notes n;
        model::thread giver([&] { give(t, n); });
        take_and_give(t, n);
        MODEL_REQUIRE(t.take_until(deadline::never()) == bide::wait_status::granted);
        n.see();
        t.give();
        giver.join();
        MODEL_REQUIRE(n.seen == 2);
        MODEL_REQUIRE(t.available() == 1);
    });
}

TEST_CASE("async_op: coroutines of two threads resume once each", "[.long]") {
    model::check("two threads and a giver", [] {
        tokens<awake> t(0);
        notes n;
        n.news = 1;
        model::thread other([&] { take_and_give(t, n); });
        model::thread giver([&] { t.give(); });
        take_and_give(t, n);
        other.join();
        giver.join();
        MODEL_REQUIRE(n.seen == 2);
        MODEL_REQUIRE(t.available() == 1);
    });
}

template <class P> detached take_on(ready_queue<P>& where, tokens<P>& from, notes& n) {
    auto token = co_await from.async_take().resume_on(where);
    n.see();
    token.keep();
}

TEST_CASE("async_op: a coroutine resumes on its executor and may destroy it") {
    model::check("a queue of this thread", {.spurious = 1}, [] {
        tokens<awake> t(0);
        auto mine = std::make_unique<ready_queue<awake>>();
        notes n;
        model::thread giver([&] { give(t, n); });
        take_on(*mine, t, n);
        if (n.seen == 0) { // this thread alone has run it
            mine->pop(deadline::never())->run.wake();
        }
        mine.reset();
        MODEL_REQUIRE(n.seen == 1);
    });
}

// Runs when it is started. At its end it unparks its owner, which may destroy it.
struct [[nodiscard]] awaited {
    struct promise_type {
        parker* owner = nullptr;

        awaited get_return_object() noexcept {
            return {std::coroutine_handle<promise_type>::from_promise(*this)};
        }
        std::suspend_always initial_suspend() noexcept { return {}; }
        struct final_awaiter {
            bool await_ready() noexcept { return false; }
            void await_suspend(std::coroutine_handle<promise_type> h) noexcept {
                h.promise().owner->unpark(); // the frame may be destroyed when this returns
            }
            void await_resume() noexcept {}
        };
        final_awaiter final_suspend() noexcept { return {}; }
        void return_void() noexcept {}
        [[noreturn]] void unhandled_exception() noexcept { std::terminate(); }
    };
    std::coroutine_handle<promise_type> frame;

    // Waits until it has ended, on any thread, and destroys it.
    void wait() const {
        parker p;
        frame.promise().owner = &p;
        bide::resume<platform>(frame);
        p.park();
        frame.destroy();
    }
};

template <class P> awaited take_awaited(tokens<P>& from, notes& n) {
    auto token = co_await from.async_take();
    n.see();
    token.keep();
}

TEST_CASE("async_op: a thread waits for a coroutine that ends on another one, and destroys it") {
    const auto body = [] {
        tokens<platform> t(0);
        notes n;
        model::thread giver([&] { give(t, n); });
        take_awaited(t, n).wait();
        MODEL_REQUIRE(n.seen == 1);
    };
    model::check("waited for by a parker", body);
    model::check("waited for by a parker, spurious", {.spurious = 1}, body);
}

// A child that its parent awaits. Each transfers the thread to the other.
struct [[nodiscard]] child {
    struct promise_type {
        std::coroutine_handle<> parent;
        bide::detail::transfer_node node;

        child get_return_object() noexcept {
            return child(std::coroutine_handle<promise_type>::from_promise(*this));
        }
        std::suspend_always initial_suspend() noexcept { return {}; }
        struct final_awaiter {
            bool await_ready() noexcept { return false; }
            std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> h) noexcept {
                return bide::transfer<platform>(h.promise().parent, h.promise().node);
            }
            void await_resume() noexcept {}
        };
        final_awaiter final_suspend() noexcept { return {}; }
        void return_void() noexcept {}
        [[noreturn]] void unhandled_exception() noexcept { std::terminate(); }
    };

    explicit child(std::coroutine_handle<promise_type> f) noexcept : frame(f) {}
    child(child&& other) noexcept : frame(std::exchange(other.frame, nullptr)) {}
    child& operator=(child&&) = delete;
    ~child() {
        if (frame) {
            frame.destroy();
        }
    }

    bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> parent) noexcept {
        frame.promise().parent = parent;
        return bide::transfer<platform>(frame, frame.promise().node);
    }
    void await_resume() const noexcept {}

    std::coroutine_handle<promise_type> frame;
};

template <class P> child take_as_child(tokens<P>& from, notes& n) {
    auto token = co_await from.async_take();
    n.see();
    token.keep();
}

template <class P> awaited parent(tokens<P>& from, notes& n) {
    co_await take_as_child(from, n);
    co_await take_as_child(from, n);
    MODEL_REQUIRE(n.seen == 2);
}

TEST_CASE("async_op: the parent continues on the thread that resumed the child") {
    model::check("a parent and two children", [] {
        tokens<platform> t(1);
        notes n;
        n.news = 1;
        model::thread giver([&] { t.give(); });
        parent(t, n).wait();
        MODEL_REQUIRE(n.seen == 2);
    });
}

template <class P> held take_held(tokens<P>& from, notes& n) {
    const auto token = co_await from.async_take();
    n.see();
}
template <class P> held take_held_on(ready_queue<P>& where, tokens<P>& from, notes& n) {
    const auto token = co_await from.async_take().resume_on(where);
    n.see();
}
template <class P>
held take_held_until(deadline until, ready_queue<P>& where, tokens<P>& from, notes& n) {
    const auto token = co_await from.async_take().with_deadline(until).resume_on(where);
    n.seen = n.seen + 1;
}

template <class P> held take_and_kill(tokens<P>& from, std::optional<held>& victim, notes& n) {
    const auto token = co_await from.async_take();
    n.see();
    victim.reset();
}

TEST_CASE("async_op: a destroyed coroutine leaves the queue while other waits begin and end") {
    const auto body = [] {
        tokens<awake> t(0);
        notes n;
        model::thread other([&] { t.take_until(soon); });
        {
            held h = take_held(t, n);
            h.start();
        }
        t.give(); // to the other coroutine, if that has not timed out
        other.join();
        MODEL_REQUIRE(n.seen == 0);
        MODEL_REQUIRE(t.waiters() == 0);
    };
    model::check("destroyed beside another wait", body);
    model::check("destroyed beside another wait that times out", {.timeouts = 1}, body);
}

TEST_CASE("async_op: a coroutine that is destroyed before it sees its grant gives it back") {
    model::check("destroyed with a grant", [] {
        tokens<platform> t(0);
        ready_queue<platform> mine; // destroyed with its runnables, which do not run
        notes n;
        {
            held h = take_held_on(mine, t, n);
            model::thread giver([&] { give(t, n); });
            h.start();
            giver.join(); // its release has returned
        }
        MODEL_REQUIRE(n.seen <= 1); // the attempt may have found the token
        MODEL_REQUIRE(t.available() == 1);
        MODEL_REQUIRE(t.waiters() == 0);
    });
    model::check("destroyed by the one before it", [] {
        tokens<platform> t(0);
        notes n;
        std::optional<held> victim;
        held killer = take_and_kill(t, victim, n);
        victim.emplace(take_held(t, n));
        killer.start();
        victim->start();
        n.news = 1;
        model::thread giver([&] { t.give(2); });
        giver.join();
        MODEL_REQUIRE(n.seen == 1);
        MODEL_REQUIRE(t.available() == 2);
    });
}

// Runs each runnable inside post().
struct inline_executor {
    void post(bide::waker w) noexcept { w.wake(); }
};

template <class P>
held take_inline_and_kill(inline_executor& here, tokens<P>& from, std::optional<held>& victim) {
    const auto token = co_await from.async_take().resume_on(here);
    victim.reset();
}

TEST_CASE("async_op: a coroutine that resumes in a release destroys another, granted or not") {
    const auto body = [](int given, int by_other) {
        return [given, by_other] {
            tokens<awake> t(0);
            notes n;
            inline_executor here;
            std::optional<held> victim;
            held killer = take_inline_and_kill(here, t, victim);
            victim.emplace(take_held(t, n));
            killer.start();
            victim->start();
            model::thread giver([&] { t.give(given); });
            for (int left = by_other; left != 0; --left) {
                MODEL_REQUIRE(t.take_until(deadline::never()) == bide::wait_status::granted);
                t.give();
            }
            giver.join();
            MODEL_REQUIRE(n.seen == 0);
            MODEL_REQUIRE(t.available() == given);
            MODEL_REQUIRE(t.waiters() == 0);
        };
    };
    model::check("one release grants both", body(2, 0));
    model::check("one release grants both and a thread", body(3, 1));
    model::check("the second is not granted yet", body(1, 0));
}

template <class P> using event_on = std::unique_ptr<bide::basic_event<P>>;

template <class P>
held wait_and_destroy(inline_executor& here, event_on<P>& e, std::optional<held>& victim) {
    co_await e->async_wait().resume_on(here);
    e.reset();
    victim.reset();
}
template <class P> held wait_for(event_on<P>& e, notes& n) {
    co_await e->async_wait();
    n.seen = n.seen + 1;
}

TEST_CASE("async_op: a coroutine destroyed after its grant does not access the primitive") {
    model::check("the primitive is gone when the second is destroyed", [] {
        auto e = std::make_unique<bide::basic_event<awake>>();
        notes n;
        inline_executor here;
        std::optional<held> victim;
        held killer = wait_and_destroy<awake>(here, e, victim);
        victim.emplace(wait_for<awake>(e, n));
        killer.start();
        victim->start();
        model::thread setter([set = e.get()] { set->set(); });
        setter.join();
        MODEL_REQUIRE(killer.done() && !victim && n.seen == 0);
    });
}

// ---- Time-outs. The service never ends, so its threads are daemons.

template <class P> void start_service() {
    auto* const service = new bide::basic_timer_service<P>;
    model::use_service(service);
    model::daemon([service] { service->run(); });
}

template <class P>
detached take_until(deadline until, tokens<P>& from, notes& n, parker& finished) {
    {
        const auto token = co_await from.async_take().with_deadline(until);
        model::record(token ? "granted" : "timed_out");
        if (token) {
            n.see();
        } else {
            MODEL_REQUIRE(token.error() == bide::errc::timeout);
        }
    }
    finished.unpark();
}

enum class gives { afterwards, at_once, elsewhere };

void time_out(gives when) {
    start_service<awake>();
    tokens<awake> t(0);
    notes n;
    parker finished;
    std::optional<model::thread> giver;
    if (when == gives::elsewhere) {
        giver.emplace([&] { give(t, n); });
    }
    take_until(now, t, n, finished);
    if (when == gives::at_once) {
        give(t, n);
    }
    finished.park();
    giver.reset();
    MODEL_REQUIRE(t.waiters() == 0);
    if (when == gives::afterwards) {
        MODEL_REQUIRE(n.seen == 0);
        t.give();
    }
    MODEL_REQUIRE(t.available() == 1);
}

void destroyed_against_time_out() {
    start_service<awake>();
    tokens<awake> t(0);
    ready_queue<awake> mine; // destroyed with its runnables, which do not run
    notes n;
    {
        held h = take_held_until(now, mine, t, n);
        h.start();
        MODEL_REQUIRE(n.seen == (h.done() ? 1 : 0)); // refused if the time-out came first
    }
    MODEL_REQUIRE(t.waiters() == 0);
    t.give();
    MODEL_REQUIRE(t.available() == 1);
}

TEST_CASE("async_op: a time-out and a grant end a wait once", "[long]") {
    const model::options random{.how = model::options::method::pct};
    const auto against_grant = [] { time_out(gives::at_once); };
    model::check("a time-out", model::brief_or_long(random, {}),
                 [] { time_out(gives::afterwards); });
    model::check("grant against time-out", model::brief_or_long(random, {}), against_grant);
    CHECK(model::outcomes(random, against_grant) == "granted timed_out");
    model::check("another's grant against time-out, at random", random,
                 [] { time_out(gives::elsewhere); });
}

TEST_CASE("async_op: a time-out does not access a destroyed coroutine", "[long]") {
    const model::options random{.how = model::options::method::pct};
    model::check("destroyed against time-out", model::brief_or_long(random, {}),
                 destroyed_against_time_out);
}

} // namespace
