#include <bide/io/child_process.hpp>

// On other systems the header is empty, and so is this.
#if defined(__linux__)

#include <bide/channel/select.hpp>
#include <bide/sched/run_loop.hpp>
#include <support/file_waits.hpp>
#include <support/sched.hpp>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

using namespace bide;

static_assert(!std::is_copy_constructible_v<child_process>);
static_assert(std::is_nothrow_move_constructible_v<child_process>);

namespace {

child_process start(const std::vector<std::string>& arguments, const child_options& options = {}) {
    return child_process::spawn(arguments, options).value();
}
child_process shell(const std::string& script, const child_options& options = {}) {
    return start({"sh", "-c", script}, options);
}

// A child that runs until it gets a signal.
child_process sleeper(const child_options& options = {}) {
    return start({"sleep", "1000"}, options);
}

bool has_children() {
    siginfo_t info{};
    return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}
bool exists(pid_t pid) { return ::kill(pid, 0) == 0; } // a zombie exists

struct pipe_ends {
    pipe_ends() {
        int both[2];
        if (::pipe2(both, O_CLOEXEC) != 0) {
            test::give_up(test::where(), "no pipe");
        }
        out = both[0];
        in = both[1];
    }
    pipe_ends& operator=(pipe_ends&&) = delete;
    ~pipe_ends() {
        ::close(out);
        close_in();
    }
    void close_in() {
        if (in >= 0) {
            ::close(std::exchange(in, -1));
        }
    }
    // All until the last writer closes it.
    std::string rest() {
        close_in();
        std::string all;
        char some[256];
        for (ssize_t n; (n = ::read(out, some, sizeof some)) > 0;) {
            all.append(some, static_cast<std::size_t>(n));
        }
        return all;
    }
    int out, in;
};

// What a script writes to stdout.
std::string said_by(const std::string& script, child_options options = {}) {
    pipe_ends text;
    options.out = text.in;
    child_process child = shell(script, options);
    const std::string all = text.rest();
    REQUIRE(child.wait().has_value());
    return all;
}

} // namespace

TEST_CASE("child_process: threads and coroutines learn how a child has ended, as often as they ask",
          "[promise.child-end]") {
    child_process child = shell("exit 3");
    REQUIRE(child.pid() > 0);
    run_loop loop;
    const auto ends = [&child]() -> task<int> { co_return (co_await child.async_wait())->code; };
    auto first = loop.spawn(ends());
    auto second = loop.spawn(ends());
    std::atomic<int> in_thread{-1};
    std::thread waiting([&] { in_thread = child.wait()->code; });
    loop.run();
    waiting.join();
    REQUIRE(std::move(first).join() == 3);
    REQUIRE(std::move(second).join() == 3);
    REQUIRE(in_thread == 3);
    REQUIRE(child.has_ended());
    REQUIRE(child.wait_for(0ms).value() == exit_status{3, 0});
    REQUIRE(child.wait(test::new_stop().get_token()).value() == exit_status{3, 0});
    REQUIRE(loop.run_until(ends()) == 3);
    REQUIRE_FALSE(has_children());

    child = shell("kill -9 $$");
    REQUIRE(child.wait().value() == exit_status{128 + SIGKILL, SIGKILL});
    child = start({"true"});
    REQUIRE(child.wait().value() == exit_status{});
    REQUIRE_FALSE(has_children());
}

TEST_CASE(
    "child_process: a child that cannot be started gives the system's error, and leaves nothing",
    "[promise.child-no-start]") {
    start({"true"}).wait().value(); // the thread of the monitor has its files
    const auto before = test::open_files();
    const auto error = [](const std::vector<std::string>& arguments, child_options options = {}) {
        return child_process::spawn(arguments, options).error();
    };
    REQUIRE(error({"/no/such/program"}) == std::errc::no_such_file_or_directory);
    REQUIRE(error({"no_such_program_in_the_path"}) == std::errc::no_such_file_or_directory);
    REQUIRE(error({"/"}) == std::errc::permission_denied);
    REQUIRE(error({"true", std::string(10'000'000, 'x')}) == std::errc::argument_list_too_long);
    REQUIRE(error({}) == std::errc::invalid_argument);
    REQUIRE(error({std::string("true\0", 5)}) == std::errc::invalid_argument);
    REQUIRE(error({"true"}, {.environment = {std::string("A=\0", 3)}}) ==
            std::errc::invalid_argument);
    REQUIRE(error({"true"}, {.out = 12'345}) == std::errc::bad_file_descriptor);
    {
        const test::no_descriptors none;
        REQUIRE(error({"true"}) == std::errc::too_many_files_open);
    }
    REQUIRE(test::open_files() <= before); // it may count one that is about to be closed
    REQUIRE_FALSE(has_children());
}

TEST_CASE("child_process: its input, output and error are the descriptors that were named") {
    pipe_ends in, out, err;
    child_process child = shell("read line; echo got $line; echo oops >&2",
                                {.in = in.out, .out = out.in, .err = err.in});
    REQUIRE(::write(in.in, "it\n", 3) == 3);
    REQUIRE(out.rest() == "got it\n");
    REQUIRE(err.rest() == "oops\n");
    REQUIRE(child.wait().value() == exit_status{});

    // Descriptors that an earlier redirection replaces: those of this process are meant.
    const auto end = test::run_child([] {
        pipe_ends first, second;
        ::dup2(first.in, 1);
        ::dup2(second.in, 2);
        child_process swapped = shell("echo to 1; echo to 2 >&2", {.out = 2, .err = 1});
        swapped.wait().value();
        ::close(1);
        ::close(2);
        ::_exit(first.rest() == "to 2\n" && second.rest() == "to 1\n" ? 7 : 1);
    });
    INFO(end.text());
    REQUIRE(end.has_exited(7));
}

TEST_CASE("child_process: its environment is that of this process, with replacements, or its own") {
    ::setenv("BIDE_TEST_A", "parents", 1);
    ::setenv("BIDE_TEST_B", "parents", 1);
    const std::string show =
        "echo \"${BIDE_TEST_A-none} ${BIDE_TEST_B-none} ${BIDE_TEST_AB-none}\"";
    REQUIRE(said_by(show) == "parents parents none\n");
    REQUIRE(said_by(show, {.environment = {"BIDE_TEST_A=own", "BIDE_TEST_AB=new"}}) ==
            "own parents new\n");
    REQUIRE(said_by(show, {.environment = {"BIDE_TEST_B="}, .inherits_environment = false}) ==
            "none  none\n");
    ::unsetenv("BIDE_TEST_A");
    ::unsetenv("BIDE_TEST_B");
}

TEST_CASE("child_process: no signal is blocked in a child, and SIGPIPE acts") {
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGUSR1, SIG_IGN);
    sigset_t some;
    ::sigemptyset(&some);
    ::sigaddset(&some, SIGUSR2);
    ::pthread_sigmask(SIG_BLOCK, &some, nullptr);
    const std::string text = said_by("grep -E 'Sig(Blk|Ign)' /proc/self/status");
    ::pthread_sigmask(SIG_UNBLOCK, &some, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    ::signal(SIGUSR1, SIG_DFL);
    INFO(text);
    REQUIRE(test::contains(text, "SigBlk:\t0000000000000000"));
    const auto ignored = std::stoull(text.substr(text.find("SigIgn:\t") + 8), nullptr, 16);
    REQUIRE((ignored >> (SIGPIPE - 1) & 1) == 0);
    REQUIRE((ignored >> (SIGUSR1 - 1) & 1) == 1);
}

TEST_CASE("child_process: time-outs, stops and cancellation end the wait and not the child",
          "[promise.child-end]") {
    child_process child = sleeper();
    REQUIRE(child.wait_for(1ms).error() == errc::timeout);
    REQUIRE(child.wait_until(deadline::poll()).error() == errc::timeout);
    std::stop_source stop = test::new_stop();
    run_loop loop;
    const auto error_of = [](auto op) -> task<std::error_code> {
        const auto end = co_await std::move(op);
        co_return end.error();
    };
    auto stopped = loop.spawn(error_of(child.async_wait().with_stop(stop.get_token())));
    auto timed = loop.spawn(error_of(child.async_wait().with_timeout(1ms)));
    auto cancelled = loop.spawn(error_of(child.async_wait()));
    loop.poll();
    std::error_code in_thread;
    std::thread waiting([&] { in_thread = child.wait(stop.get_token()).error(); });
    stop.request_stop();
    cancelled.cancel();
    waiting.join();
    loop.run();
    REQUIRE(in_thread == errc::stopped);
    REQUIRE(std::move(stopped).join() == errc::stopped);
    REQUIRE(std::move(timed).join() == errc::timeout);
    REQUIRE(std::move(cancelled).join() == errc::stopped);
    REQUIRE_FALSE(child.has_ended());

    REQUIRE(child.kill(12'345) == std::errc::invalid_argument);
    REQUIRE(!child.kill(SIGTERM));
    REQUIRE(child.wait().value() == exit_status{128 + SIGTERM, SIGTERM});
    REQUIRE(child.kill(SIGTERM) == std::errc::no_such_process);
    REQUIRE(select(on_event(child), on_timeout(test::patience)).index() == 0);
}

TEST_CASE("child_process: destroyed, it lets the child run on, and no zombie is left",
          "[promise.child-reaped]") {
    pid_t pid = 0;
    {
        child_process child = sleeper();
        pid = child.pid();
    }
    REQUIRE(exists(pid));
    ::kill(pid, SIGTERM);
    REQUIRE(test::eventually([&] { return !exists(pid); }));
    for (int i = 0; i < 20; ++i) { // it may have ended before
        pid = start({"true"}).pid();
    }
    REQUIRE(test::eventually([] { return !has_children(); }));

    pid = sleeper({.is_killed_at_end = true}).pid();
    REQUIRE(test::eventually([&] { return !exists(pid); }));

    child_process first = sleeper({.is_killed_at_end = true});
    pid = first.pid();
    first = start({"true"}); // destroys the other one
    REQUIRE(test::eventually([&] { return !exists(pid); }));
    REQUIRE(first.wait().value() == exit_status{});
    child_process second = std::move(first);
    REQUIRE(second.wait().value() == exit_status{});
}

TEST_CASE("child_process: the wait for a child that others have reaped is an error",
          "[promise.child-end]") {
    ::signal(SIGCHLD, SIG_IGN); // the system reaps
    for (int i = 0; i < 20; ++i) {
        REQUIRE(start({"true"}).wait().error() == std::errc::no_child_process);
    }
    ::signal(SIGCHLD, SIG_DFL);
    REQUIRE_FALSE(has_children());
}

TEST_CASE("child_process: a group of its own is signalled with its children") {
    REQUIRE(::getpgid(sleeper({.is_killed_at_end = true}).pid()) != 0);
    pipe_ends text;
    child_process child =
        shell("sleep 1000 & echo $!; wait", {.out = text.in, .has_own_group = true});
    REQUIRE(::getpgid(child.pid()) == child.pid());
    char number[16] = {};
    REQUIRE(::read(text.out, number, sizeof number - 1) > 1);
    ::kill(-child.pid(), SIGKILL);
    REQUIRE(child.wait()->signal == SIGKILL);
    REQUIRE(text.rest().empty()); // the grandchild has closed it, too
}

TEST_CASE("child_process: many at once, from many threads, leave neither zombies nor descriptors",
          "[promise.child-reaped]") {
    start({"true"}).wait().value();
    const auto before = test::open_files();
    std::atomic<int> wrong{0};
    {
        scheduler workers(2);
        test::team threads(4, [&](int who) {
            for (int i = 0; i < 25; ++i) {
                child_process child = shell("exit " + std::to_string(who));
                if (i % 3 == 0) {
                    continue; // reaped without a wait
                }
                const exit_result end =
                    i % 3 == 1 ? child.wait() : sync_wait(workers, [&child]() -> task<exit_result> {
                        co_return co_await child.async_wait().with_timeout(test::patience);
                    }());
                wrong += !end || *end != exit_status{who, 0};
            }
        });
        threads.join();
    }
    REQUIRE(wrong == 0);
    REQUIRE(test::eventually([] { return !has_children(); }));
    REQUIRE(test::eventually([&] {
        return test::open_files() <= before;
    })); // it may count one that is about to be closed
}

#if BIDE_TESTS_CAN_DIE
TEST_CASE("child_process: destroyed with waiters, or used after a move, it ends the process") {
    const std::string moved = test::dies([] {
        child_process child = start({"true"});
        const child_process other = std::move(child);
        child.wait().value();
    });
    REQUIRE(test::contains(moved, "moved"));
    const std::string waited_for = test::dies([] {
        pipe_ends nothing;
        auto* const child = new child_process(shell("read a", {.in = nothing.out}));
        callback_wait<exit_result> wait{waker(+[](void*) noexcept {}, nullptr)};
        wait.begin(child->async_wait());
        delete child;
    });
    REQUIRE(test::contains(waited_for, "child_process"));
}
#endif

#endif
