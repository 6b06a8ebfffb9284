#include <bide/io/child_process.hpp>
#include <bide/io/signal_set.hpp>
#include <bide/sched/task_group.hpp>
#include <support/file_waits.hpp>
#include <support/sched.hpp>

#if defined(__linux__)

#include <signal.h>

using namespace bide;

// Each sender has a signal of its own, and sends it again when it was received. So no signal may be
// counted twice or be lost. The receivers are threads and coroutines, and some of their waits end
// early. Other threads make and destroy sets with the same signals.
TEST_CASE("signal_set: each signal is received once, by threads and coroutines that give up",
          "[promise.signal-once]") {
    constexpr int senders = 3;
    std::array<std::atomic<long>, senders> sent{}, received{};
    std::atomic<int> sending{senders};
    signal_set set(SIGRTMIN, SIGRTMIN + 1, SIGRTMIN + 2);
    const auto note = [&](int signal) { ++received[static_cast<std::size_t>(signal - SIGRTMIN)]; };
    scheduler workers(2);
    task_group receiving(workers);
    const auto receive = [&](std::uint32_t seed) -> task<> {
        test::jitter chance(seed);
        while (sending != 0) {
            const auto got = co_await set.async_wait().with_timeout(
                std::chrono::microseconds(chance.below(300)));
            if (got) {
                note(*got);
            }
        }
    };
    receiving.spawn(receive(1));
    receiving.spawn(receive(2));
    test::stress_threads(senders + 3, [&](int who) {
        test::jitter chance(static_cast<std::uint32_t>(who));
        if (who < senders) {
            const auto mine = static_cast<std::size_t>(who);
            for (const test::stress_time time; time.is_left();) {
                ++sent[mine];
                ::kill(::getpid(), SIGRTMIN + who);
                if (!test::eventually([&] { return received[mine] == sent[mine]; })) {
                    test::give_up(test::where(), "a signal is lost");
                }
            }
            --sending;
        } else if (who < senders + 2) {
            while (sending != 0) {
                if (const auto got = set.wait_for(std::chrono::microseconds(chance.below(300)))) {
                    note(*got);
                }
            }
        } else {
            while (sending != 0) {
                signal_set other(SIGRTMIN + 1, SIGRTMIN + 5);
                static_cast<void>(other.wait_for(std::chrono::microseconds(chance.below(100))));
            }
        }
    });
    receiving.join();
    REQUIRE(set.wait_for(0ms) == std::nullopt);
    for (std::size_t i = 0; i < senders; ++i) {
        CHECK(sent[i] > 0);
        CHECK(sent[i] == received[i]);
    }
}

TEST_CASE("child_process: each child is reaped with its status, while signals come",
          "[promise.child-reaped]") {
    std::atomic<long> wrong{0};
    std::atomic<int> starting{2};
    signal_set chatter(SIGCHLD);
    scheduler workers(2);
    test::stress_threads(3, [&](int who) {
        test::jitter chance(static_cast<std::uint32_t>(who));
        if (who == 2) {
            while (starting != 0) {
                static_cast<void>(chatter.wait_for(1ms));
            }
            return;
        }
        for (const test::stress_time time; time.is_left();) {
            const int code = static_cast<int>(chance.below(100));
            child_process child =
                child_process::spawn({"sh", "-c", "exit " + std::to_string(code)}).value();
            if (chance.below(3) == 0) {
                continue; // reaped without a wait
            }
            exit_result end = child.wait_for(std::chrono::microseconds(chance.below(2'000)));
            if (!end) {
                end = sync_wait(workers, [](child_process& of) -> task<exit_result> {
                    co_return co_await of.async_wait().with_timeout(test::patience);
                }(child));
            }
            wrong += end && *end == exit_status{code, 0} ? 0 : 1;
        }
        --starting;
    });
    REQUIRE(wrong == 0);
    REQUIRE(test::eventually([] {
        siginfo_t info{};
        return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD;
    }));
}

#endif
