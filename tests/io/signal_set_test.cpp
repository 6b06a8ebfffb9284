#include <bide/io/signal_set.hpp>

// On other systems the header is empty, and so is this.
#if defined(__linux__)

#include <bide/channel/select.hpp>
#include <bide/io/pollable_wait.hpp>
#include <bide/sched/run_loop.hpp>
#include <support/file_waits.hpp>
#include <support/sched.hpp>

#include <poll.h>

using namespace bide;

static_assert(!std::is_copy_constructible_v<signal_set>);

namespace {

void send(int signal) { ::kill(::getpid(), signal); }

struct sigaction action_of(int signal) {
    struct sigaction now{};
    ::sigaction(signal, nullptr, &now);
    return now;
}
bool has_handler(int signal, void (*handler)(int)) {
    return action_of(signal).sa_handler == handler;
}

// Sets the action of a signal while it lives.
class action {
public:
    action(int signal, void (*handler)(int)) : signal_(signal) {
        struct sigaction wanted{};
        wanted.sa_handler = handler;
        ::sigaction(signal, &wanted, &before_);
    }
    action& operator=(action&&) = delete;
    ~action() { ::sigaction(signal_, &before_, nullptr); }

private:
    int signal_;
    struct sigaction before_{};
};

void ignore_it(int) {}

// Says which error the set has; empty if there is none.
template <class... Signals> std::string error_of(std::error_code& code, Signals... signals) {
    try {
        const signal_set made(signals...);
        return "";
    } catch (const std::system_error& e) {
        code = e.code();
        return e.what();
    }
}

task<int> next_of(signal_set& from) { co_return co_await from.async_wait(); }

} // namespace

TEST_CASE("signal_set: threads and coroutines receive signals in the order of their waits",
          "[promise.signal-once]") {
    signal_set set(SIGUSR1, SIGUSR2);
    run_loop loop;
    std::vector<int> order;
    const auto note = [&](int who) -> task<> {
        co_await set.async_wait();
        order.push_back(who);
    };
    loop.spawn(note(1)).detach();
    loop.poll();
    std::atomic<int> thread_got{0};
    std::thread waiting([&] { thread_got = set.wait(); });
    REQUIRE(test::eventually([&] { return set.waiters() == 2; }));
    loop.spawn(note(3)).detach();
    loop.poll();

    send(SIGUSR1);
    REQUIRE(test::eventually([&] { return loop.poll() != 0; }));
    REQUIRE(order == std::vector<int>{1});
    REQUIRE(thread_got == 0);
    send(SIGUSR2);
    waiting.join();
    REQUIRE(thread_got == SIGUSR2);
    REQUIRE(order.size() == 1);
    send(SIGUSR1);
    loop.run();
    REQUIRE(order == std::vector<int>{1, 3});
}

TEST_CASE(
    "signal_set: a signal that nothing waits for is kept, counts once, and the lowest comes first",
    "[promise.signal-once]") {
    signal_set last(SIGUSR2); // receives after the set that is made later
    signal_set set(SIGUSR1, SIGUSR2);
    REQUIRE(SIGUSR1 < SIGUSR2);
    for (int i = 0; i < 3; ++i) {
        send(SIGUSR1);
        send(SIGUSR2);
        REQUIRE(last.wait() == SIGUSR2);
    }
    REQUIRE(set.wait() == SIGUSR1);
    REQUIRE(set.wait() == SIGUSR2);
    REQUIRE(set.wait_for(1ms) == std::nullopt);
    REQUIRE(last.wait_until(deadline::poll()) == std::nullopt);
}

TEST_CASE("signal_set: a time-out, a stop or a cancellation loses no signal",
          "[promise.signal-once]") {
    signal_set set(SIGUSR1);
    run_loop loop;
    REQUIRE(set.wait_for(1ms) == std::nullopt);
    std::stop_source stop = test::new_stop();
    auto stopped = loop.spawn([&]() -> task<errc> {
        co_return (co_await set.async_wait().with_stop(stop.get_token())).error();
    });
    auto cancelled = loop.spawn(next_of(set));
    auto timed = loop.spawn(
        [&]() -> task<errc> { co_return (co_await set.async_wait().with_timeout(1ms)).error(); });
    loop.poll();
    std::atomic<bool> thread_stopped{false};
    std::thread waiting([&] {
        const auto got = set.wait(stop.get_token());
        thread_stopped = !got && got.error() == errc::stopped;
    });
    REQUIRE(test::eventually([&] { return set.waiters() >= 3; }));
    stop.request_stop();
    cancelled.cancel();
    waiting.join();
    loop.run();
    REQUIRE(thread_stopped);
    REQUIRE(std::move(stopped).join() == errc::stopped);
    REQUIRE(std::move(timed).join() == errc::timeout);
    REQUIRE_THROWS_AS(std::move(cancelled).join(), stopped_error);
    REQUIRE(set.waiters() == 0);
    send(SIGUSR1);
    REQUIRE(set.wait() == SIGUSR1);
}

TEST_CASE(
    "signal_set: a coroutine that is granted a signal and destroyed leaves it to the next wait",
    "[promise.signal-once]") {
    signal_set set(SIGUSR1);
    test::manual_executor later;
    int got = 0;
    {
        auto waits = [](signal_set& from, executor_ref on, int& out) -> test::held {
            out = co_await from.async_wait().resume_on(on);
        }(set, later, got);
        waits.start();
        send(SIGUSR1);
        REQUIRE(test::eventually([&] { return later.size() == 1; }));
        waits.destroy();
        later.drop_all();
    }
    REQUIRE(got == 0);
    REQUIRE(set.wait_for(test::patience) == SIGUSR1);
}

TEST_CASE(
    "signal_set: each of several sets receives a signal, until the last one restores its action",
    "[promise.signal-restored]") {
    REQUIRE(has_handler(SIGUSR1, SIG_DFL));
    {
        signal_set first(SIGUSR1);
        {
            signal_set second(SIGUSR1);
            send(SIGUSR1);
            REQUIRE(first.wait() == SIGUSR1);
            REQUIRE(second.wait() == SIGUSR1);
        }
        REQUIRE_FALSE(has_handler(SIGUSR1, SIG_DFL));
        send(SIGUSR1);
        REQUIRE(first.wait() == SIGUSR1);
    }
    REQUIRE(has_handler(SIGUSR1, SIG_DFL));

    const action ignored(SIGUSR1, SIG_IGN);
    {
        signal_set set(SIGUSR1);
        send(SIGUSR1);
        REQUIRE(set.wait() == SIGUSR1);
    }
    REQUIRE(has_handler(SIGUSR1, SIG_IGN));
}

TEST_CASE("signal_set: a handler that was installed over it stays", "[promise.signal-restored]") {
    std::optional<signal_set> set(std::in_place, SIGUSR1);
    const action later(SIGUSR1, &ignore_it);
    set.reset();
    REQUIRE(has_handler(SIGUSR1, &ignore_it));
}

TEST_CASE("signal_set: a signal of another handler is refused, and the handler is named",
          "[promise.signal-taken]") {
    std::error_code code;
    {
        const action taken(SIGUSR2, &std::exit); // a function of a library that exports its names
        const std::string why = error_of(code, SIGUSR1, SIGUSR2);
        UNSCOPED_INFO(why);
        REQUIRE(code == std::errc::device_or_resource_busy);
        REQUIRE(test::contains(why, "signal " + std::to_string(SIGUSR2)));
        REQUIRE(test::contains(why, "exit"));
        REQUIRE(has_handler(SIGUSR2, &std::exit));
        REQUIRE(has_handler(SIGUSR1, SIG_DFL));
    }
    {
        const action taken(SIGUSR2, &ignore_it);
        const std::string why = error_of(code, SIGUSR2);
        UNSCOPED_INFO(why);
        REQUIRE(code == std::errc::device_or_resource_busy);
        const std::string program = std::filesystem::read_symlink("/proc/self/exe").filename();
        REQUIRE(test::contains(why, program));
        REQUIRE((test::contains(why, "+0x") || test::contains(why, "ignore_it")));
    }
    signal_set set(SIGUSR1); // and it is ours
    const action over(SIGUSR1, &ignore_it);
    REQUIRE_FALSE(error_of(code, SIGUSR1).empty());
}

TEST_CASE("signal_set: signals that no handler may have are refused", "[promise.signal-taken]") {
    for (const int none : {0, -1, 65, 1 << 30, SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
        std::error_code code;
        UNSCOPED_INFO(none);
        REQUIRE_FALSE(error_of(code, SIGUSR1, none).empty());
        REQUIRE(code == std::errc::invalid_argument);
        REQUIRE(has_handler(SIGUSR1, SIG_DFL));
    }
    signal_set empty;
    REQUIRE(empty.wait_for(1ms) == std::nullopt);
}

TEST_CASE("signal_set: a coroutine waits in one line", "[promise.signal-restored]") {
    run_loop loop;
    auto got =
        loop.spawn([]() -> task<int> { co_return co_await signal_set(SIGUSR1).async_wait(); });
    loop.poll();
    REQUIRE_FALSE(has_handler(SIGUSR1, SIG_DFL));
    send(SIGUSR1);
    loop.run();
    REQUIRE(std::move(got).join() == SIGUSR1);
    REQUIRE(has_handler(SIGUSR1, SIG_DFL));
}

TEST_CASE("signal_set: selects, callbacks and the loops of other libraries wait for it") {
    signal_set set(SIGUSR1);
    send(SIGUSR1);
    const auto selected = select(on_event(set), on_timeout(test::patience));
    REQUIRE(selected.index() == 0);

    pollable_wait<int> next;
    next.begin(set.async_wait());
    send(SIGUSR1);
    pollfd file{next.fd(), POLLIN, 0};
    REQUIRE(::poll(&file, 1, -1) == 1);
    REQUIRE(next.take().value() == SIGUSR1);
}

TEST_CASE("signal_set: a waker may destroy it on the thread that delivers the signals",
          "[promise.signal-restored]") {
    struct owner {
        std::optional<signal_set> set{std::in_place, SIGUSR1};
        callback_wait<int> wait{waker(&on_signal, this)};
        std::atomic<int> got{0};

        static void on_signal(void* self) noexcept {
            auto& me = *static_cast<owner*>(self);
            const int signal = me.wait.take().value();
            me.set.reset();
            me.got = signal;
        }
    } mine;
    REQUIRE_FALSE(mine.wait.begin(mine.set->async_wait()));
    send(SIGUSR1);
    REQUIRE(test::eventually([&] { return mine.got == SIGUSR1; }));
    REQUIRE(has_handler(SIGUSR1, SIG_DFL));
}

TEST_CASE(
    "signal_set: receives signals that all threads of the process block, and blocks them again",
    "[promise.signal-once]") {
    const auto end = test::run_child([] {
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
        {
            signal_set set(SIGHUP);
            send(SIGHUP);
            if (set.wait() != SIGHUP) {
                ::_exit(1);
            }
        }
        send(SIGHUP); // stays pending
        std::this_thread::sleep_for(10ms);
        int got = 0;
        ::sigwait(&all, &got);
        ::_exit(got == SIGHUP ? 7 : 2);
    });
    INFO(end.text());
    REQUIRE(end.has_exited(7));
}

#if BIDE_TESTS_CAN_DIE_AT_WORK
TEST_CASE("signal_set: a signal to a child of fork() is not its parent's",
          "[promise.signal-restored]") {
    signal_set set(SIGHUP, SIGUSR1);
    const auto ended = test::run_child([] {
        ::raise(SIGHUP);
        std::this_thread::sleep_for(60s); // a sanitizer may deliver it later
    });
    INFO(ended.text());
    REQUIRE(WIFSIGNALED(ended.status));
    REQUIRE(WTERMSIG(ended.status) == SIGHUP);
    const auto other = test::run_child([] {
        signal_set mine(SIGUSR2); // and not that of its parent
        send(SIGUSR1);
        static_cast<void>(mine.wait_for(60s));
    });
    INFO(other.text());
    REQUIRE(WIFSIGNALED(other.status));
    REQUIRE(WTERMSIG(other.status) == SIGUSR1);
    const auto own = test::run_child([&set] {
        {
            signal_set mine(SIGUSR1);
            send(SIGUSR1);
            if (mine.wait_for(60s) != SIGUSR1) {
                ::_exit(1);
            }
        }
        set.~signal_set(); // blocks for nothing
        ::_exit(has_handler(SIGUSR1, SIG_DFL) ? 7 : 2);
    });
    INFO(own.text());
    REQUIRE(own.has_exited(7));
    REQUIRE(set.wait_for(1ms) == std::nullopt);
}
#endif

#if BIDE_TESTS_CAN_DIE
TEST_CASE("signal_set: destroyed while it has waiters, it ends the process") {
    const std::string said = test::dies([] {
        auto* const set = new signal_set(SIGUSR1);
        callback_wait<int> wait{waker(+[](void*) noexcept {}, nullptr)};
        wait.begin(set->async_wait());
        delete set;
    });
    INFO(said);
    REQUIRE(test::contains(said, "signal_set"));
}
#endif

#endif
