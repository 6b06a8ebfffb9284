#include <bide/task/join_handle.hpp>

#include <bide/sync/semaphore.hpp>
#include <bide/task/this_task.hpp>
#include <support/counted.hpp>
#include <support/scheduling.hpp>
#include <support/waiting.hpp>

using bide::join_handle;
using bide::scheduler;
using bide::stopped_error;
using bide::sync_wait;
using bide::task;
using bide::this_task::sleep_for;
using bide::this_task::yield;
using test::with;

namespace {

task<int> number(int n) { co_return n; }
task<int> fails(const char* why) {
    co_await yield();
    throw std::runtime_error(why);
}
task<int> takes(bide::semaphore& s) {
    auto permit = co_await s.async_acquire();
    permit.forget();
    co_return 1;
}
task<int> tries(bide::semaphore& s) {
    auto permit = co_await s.async_acquire().as_result();
    if (permit) {
        permit->forget();
        co_return 1;
    }
    co_return permit.error() == bide::errc::stopped ? 2 : 3;
}

// Describes what join() throws; empty if it throws nothing.
template <class T> std::string thrown_by(join_handle<T> h) {
    try {
        static_cast<void>(std::move(h).join());
        return {};
    } catch (const stopped_error&) {
        return "stopped";
    } catch (const std::system_error& e) {
        return e.code() == std::errc::resource_deadlock_would_occur ? "itself" : "system";
    } catch (const std::exception& e) {
        return e.what();
    }
}

// Keeps a worker busy until it is released.
class busy {
public:
    explicit busy(scheduler& s)
        : handle_(s.spawn([this] {
              runs_ = true;
              return test::spin_until(over_);
          })) {
        test::eventually([this] { return runs_.load(); });
    }
    busy(const busy&) = delete;
    busy& operator=(const busy&) = delete;
    ~busy() { end(); }
    void end() {
        if (!over_.exchange(true)) {
            std::move(handle_).join();
        }
    }

private:
    std::atomic<bool> over_{false};
    std::atomic<bool> runs_{false};
    join_handle<bool> handle_;
};

struct rigid { // neither assigned nor default constructed
    explicit rigid(int n) : value(n) {}
    rigid(rigid&&) = default;
    rigid& operator=(rigid&&) = delete;
    const int value;
};
task<rigid> makes(int n) { co_return rigid(n); }
task<test::counted_once> counts(test::tally& t) { co_return test::counted_once(t, 7); }
task<std::optional<int>> perhaps() { co_return std::nullopt; }
task<bide::result<int>> refuses() { co_return bide::unexpected{bide::errc::full}; }

test::detached joins(join_handle<int> h, std::atomic<int>& got) {
    const int value = co_await std::move(h); // of a coroutine that is no task
    got = value;
}

// A task that owns its own handle, and joins it.
struct joins_itself {
    std::unique_ptr<join_handle<std::string>> own;
    std::atomic<bool> there{false};
    std::atomic<bool> over{false};
    std::string said;

    std::string blocks() {
        test::spin_until(there);
        said = thrown_by(std::move(*own));
        over = true; // the last access of the task
        return {};
    }
    task<std::string> blocks_in_task() { co_return blocks(); }
    task<> joins() {
        co_await yield();
        try {
            co_await std::move(*own).async_join();
        } catch (const std::system_error& e) {
            said = e.code() == std::errc::resource_deadlock_would_occur ? "itself" : "other";
        }
    }
    task<std::string> waits(bool in_sync_wait) {
        test::spin_until(there);
        if (in_sync_wait) {
            sync_wait(joins());
        } else {
            co_await joins();
        }
        over = true;
        co_return {};
    }
};

// Records the calls of on_unhandled.
struct report {
    std::atomic<int> calls{0};
    test::journal texts;

    bide::scheduler_options options(unsigned workers) {
        bide::scheduler_options wanted = with(workers, false);
        wanted.on_unhandled = [this](const std::exception_ptr& e) {
            try {
                std::rethrow_exception(e);
            } catch (const std::exception& error) {
                texts.add(error.what()[0]);
            }
            ++calls;
        };
        return wanted;
    }
};

} // namespace

static_assert(!std::is_copy_constructible_v<join_handle<int>>);
static_assert(std::is_nothrow_move_constructible_v<join_handle<int>>);
static_assert(std::is_nothrow_move_assignable_v<join_handle<>>);
static_assert(!std::is_default_constructible_v<join_handle<>>);

TEST_CASE("join_handle: returns values of all kinds once, to a thread and to a task") {
    test::tally t;
    scheduler s(with(GENERATE(1u, 2u), false));
    CHECK(s.spawn(makes(3)).join().value == 3);
    CHECK(s.spawn(counts(t)).join().number() == 7);
    CHECK_FALSE(s.spawn(perhaps()).join());
    CHECK(s.spawn(refuses()).join().error() == bide::errc::full);
    s.spawn([] {}).join();
    CHECK(s.spawn([&]() -> task<int> {
               auto a = s.spawn(makes(4));
               auto b = s.spawn(counts(t));
               auto c = s.spawn([] {});
               auto d = s.spawn(refuses());
               const rigid first = co_await std::move(a).async_join();
               const auto second = co_await std::move(b).async_join();
               co_await std::move(c).async_join();
               const auto third = co_await std::move(d).async_join();
               co_return first.value + second.number() + (third ? 100 : 0);
           }).join() == 11);
    CHECK(t.alive() == 0);
    CHECK(t.copied == 0);
}

TEST_CASE("join_handle: co_await of a handle is co_await of its async_join()") {
    test::tally t;
    scheduler s(with(GENERATE(1u, 2u), false));
    int referred = 0;
    CHECK(s.spawn([&]() -> task<int> {
               const auto first = co_await s.spawn(counts(t)); // an rvalue already
               auto blocking = s.spawn_blocking([] { return 4; });
               auto reference = s.spawn([&]() -> int& { return referred; });
               auto failed = s.spawn(fails("why"));
               bide::semaphore none(0);
               auto stopped = s.spawn(takes(none));
               int sum = first.number() + co_await std::move(blocking);
               int& same = co_await std::move(reference);
               same = 3;
               try {
                   sum += co_await std::move(failed);
               } catch (const std::runtime_error&) {
                   sum += 100;
               }
               stopped.cancel();
               try {
                   sum += co_await std::move(stopped);
               } catch (const stopped_error&) {
                   sum += 1'000;
               }
               co_return sum;
           }).join() == 1'111);
    CHECK(referred == 3);
    CHECK(t.alive() == 0);
    CHECK(t.copied == 0);
}

TEST_CASE("join_handle: the outcome of a detached task is destroyed with the task") {
    test::tally t;
    {
        scheduler s(with(2, false));
        s.spawn(counts(t)).detach();
        {
            auto dropped = s.spawn(counts(t));
        }
        auto kept = s.spawn(counts(t));
        REQUIRE(test::eventually([&] { return kept.done(); }));
        CHECK_FALSE(kept.cancel());
    }
    CHECK(t.made > 0);
    CHECK(t.alive() == 0);
}

TEST_CASE("join_handle: join throws what the task threw", "[promise.task-exceptions]") {
    scheduler s(with(2, false));
    CHECK(thrown_by(s.spawn(fails("coroutine"))) == "coroutine");
    CHECK(thrown_by(s.spawn([]() -> int { throw std::logic_error("function"); })) == "function");
    CHECK(thrown_by(s.spawn_blocking([] { throw std::logic_error("blocks"); })) == "blocks");
    CHECK_THROWS_AS(s.spawn([]() -> task<int> { throw std::logic_error("before"); }),
                    std::logic_error);
    CHECK_THROWS_AS(sync_wait(s, fails("in sync_wait")), std::runtime_error);
    auto asks = s.spawn([&]() -> task<std::string> {
        auto h = s.spawn(fails("for a task"));
        std::string said;
        try {
            co_await std::move(h).async_join();
        } catch (const std::runtime_error& e) {
            said = e.what();
        }
        auto other = s.spawn(fails("as a result"));
        try {
            [[maybe_unused]] const auto r = co_await std::move(other).async_join().as_result();
        } catch (const std::runtime_error& e) {
            said += e.what();
        }
        co_return said;
    });
    CHECK(std::move(asks).join() == "for a taskas a result");
}

TEST_CASE("join_handle: threads, tasks that block and coroutines of any type may join") {
    const unsigned workers = GENERATE(1u, 2u);
    const bool naps = GENERATE(true, false);
    bide::semaphore permits(0);
    std::atomic<int> got{0};
    scheduler s(with(workers, naps));
    joins(s.spawn(takes(permits)), got);
    auto blocks = s.spawn([h = s.spawn(takes(permits))]() mutable { return std::move(h).join(); });
    auto waits = s.spawn([h = s.spawn(takes(permits))]() mutable -> task<int> {
        co_return co_await std::move(h).async_join();
    });
    auto here = s.spawn(takes(permits));
    REQUIRE(test::has_waiters(permits, 4));
    permits.release(4);
    CHECK(std::move(here).join() == 1);
    CHECK(std::move(waits).join() == 1);
    CHECK(std::move(blocks).join() == 1);
    CHECK(test::eventually([&] { return got == 1; }));
}

TEST_CASE("join_handle: a chain of tasks ends in which each task joins the next") {
    scheduler s(with(GENERATE(1u, 3u), GENERATE(true, false)));
    struct link {
        static task<int> run(scheduler& on, int n) {
            if (n == 0) {
                co_return 0;
            }
            auto next = on.spawn(run(on, n - 1));
            co_return 1 + co_await std::move(next).async_join();
        }
    };
    CHECK(s.spawn(link::run(s, 2'000)).join() == 2'000);
}

TEST_CASE("join_handle: a move empties the source, and detaches the task of the target") {
    bide::semaphore permits(0);
    scheduler s(with(1, false));
    auto first = s.spawn(takes(permits));
    auto second = s.spawn(number(2));
    first = std::move(second);
    CHECK(permits.waiters() <= 1); // not cancelled
    auto third = std::move(first);
    CHECK(std::move(third).join() == 2);
    permits.release();
    CHECK(test::eventually([&] { return permits.available() == 0; }));
}

TEST_CASE("join_handle: a task that joins itself gets resource_deadlock_would_occur") {
    using way = join_handle<std::string> (*)(scheduler&, joins_itself&);
    const way ways[] = {
        [](scheduler& s, joins_itself& me) { return s.spawn(me.blocks_in_task()); },
        [](scheduler& s, joins_itself& me) { return s.spawn(me.waits(false)); },
        [](scheduler& s, joins_itself& me) { return s.spawn(me.waits(true)); },
        [](scheduler& s, joins_itself& me) { return s.spawn([&me] { return me.blocks(); }); },
        [](scheduler& s, joins_itself& me) {
            return s.spawn_blocking([&me] { return me.blocks(); });
        },
    };
    scheduler s(with(2, false));
    for (const way spawn : ways) {
        joins_itself one;
        one.own = std::make_unique<join_handle<std::string>>(spawn(s, one));
        one.there = true;
        REQUIRE(test::eventually([&one] { return one.over.load(); }));
        CHECK(one.said == "itself");
    }
}

TEST_CASE("join_handle: an exception that no join throws is reported once",
          "[promise.task-exceptions]") {
    const unsigned workers = GENERATE(1u, 2u);
    report told;
    {
        std::optional<join_handle<int>> late;
        {
            scheduler s(told.options(workers));
            s.spawn(fails("a")).detach();
            REQUIRE(test::eventually([&] { return told.calls == 1; }));
            {
                auto dropped = s.spawn(fails("b"));
                REQUIRE(test::eventually([&] { return dropped.done(); }));
                CHECK(told.calls == 1);
            }
            REQUIRE(test::eventually([&] { return told.calls == 2; }));
            CHECK(thrown_by(s.spawn(fails("c"))) == "c");
            s.spawn_blocking([] { throw std::runtime_error("d"); }).detach();
            late.emplace(s.spawn([]() -> int { throw std::runtime_error("e"); }));
            s.spawn([]() -> task<> { // no value and no exception
                 co_return;
             })
                .join();
        }
        CHECK(told.calls == 3);
    }
    CHECK(told.texts.entries() == std::vector<int>{'a', 'b', 'd', 'e'});
}

TEST_CASE("join_handle: the stopped_error of a cancelled task is not reported, another one is") {
    report told;
    bide::semaphore permits(0);
    {
        scheduler s(told.options(1));
        auto h = s.spawn(takes(permits));
        REQUIRE(test::has_waiters(permits, 1));
        CHECK(h.cancel());
        std::move(h).detach();
        auto never_ran = [&] {
            const busy worker(s);
            auto queued = s.spawn(number(1));
            CHECK(queued.cancel());
            return queued;
        }();
        std::move(never_ran).detach();
        s.spawn(takes(permits)).detach(); // waits until the shutdown
        s.spawn([] { bide::detail::throw_error(bide::errc::stopped); }).detach();
    }
    CHECK(told.calls == 1);
    CHECK(permits.waiters() == 0);
}

#if BIDE_TESTS_CAN_DIE

TEST_CASE("join_handle: join of a handle that was moved from terminates with a message") {
    scheduler s(with(1, false));
    auto h = s.spawn(number(1));
    auto other = std::move(h);
    CHECK(test::contains(test::dies([&] { std::move(h).join(); }), "moved from"));
    CHECK(test::contains(test::dies([&] { static_cast<void>(std::move(h).async_join()); }),
                         "moved from"));
    CHECK(std::move(other).join() == 1);
}

#endif

TEST_CASE("cancel: a queued task never starts, and its arguments are destroyed") {
    test::tally t;
    scheduler s(with(1, false));
    bool ran = false;
    std::optional<busy> worker(std::in_place, s);
    auto h = s.spawn([&ran, mine = test::counted_once(t, 1)]() -> task<> {
        ran = true;
        co_return;
    });
    auto f = s.spawn([&ran, mine = test::counted_once(t, 1)] { ran = true; });
    CHECK(h.cancel());
    CHECK(h.cancel()); // it has not ended
    CHECK(f.cancel());
    worker.reset();
    CHECK(thrown_by(std::move(f)) == "stopped");
    REQUIRE(test::eventually([&] { return h.done(); }));
    CHECK_FALSE(h.cancel());
    CHECK(thrown_by(std::move(h)) == "stopped");
    CHECK_FALSE(ran);
    CHECK(t.alive() == 0);
}

TEST_CASE("cancel: a waiting task is woken at once, and no other wait ends",
          "[promise.cancel-ends-wait]") {
    bide::semaphore permits(0);
    scheduler s(with(GENERATE(1u, 2u), GENERATE(true, false)));
    auto first = s.spawn(takes(permits));
    REQUIRE(test::has_waiters(permits, 1));
    auto second = s.spawn(tries(permits));
    REQUIRE(test::has_waiters(permits, 2));
    auto third = s.spawn(takes(permits));
    REQUIRE(test::has_waiters(permits, 3));
    auto sleeper = s.spawn([]() -> task<int> {
        const auto slept = co_await sleep_for(1h).as_result();
        co_return slept ? 1 : 2;
    });
    CHECK(first.cancel());
    CHECK(second.cancel());
    CHECK(sleeper.cancel());
    CHECK(thrown_by(std::move(first)) == "stopped");
    CHECK(std::move(second).join() == 2);
    permits.release();
    CHECK(std::move(third).join() == 1);
    CHECK(permits.available() == 0);
    const std::string slept =
        [&]() -> std::string { // cancelled before its first run, or while it sleeps
        try {
            return std::to_string(std::move(sleeper).join());
        } catch (const stopped_error&) {
            return "never ran";
        }
    }();
    CHECK((slept == "2" || slept == "never ran"));
}

TEST_CASE("cancel: stops the waits of a running task, but not operations that are ready") {
    bide::semaphore none(0);
    bide::semaphore some(10);
    std::atomic<bool> runs{false};
    std::atomic<bool> cancelled{false};
    scheduler s(with(1, false));
    auto h = s.spawn([&]() -> task<std::string> {
        runs = true;
        test::spin_until(cancelled);
        std::string seen = bide::this_task::is_cancelled() ? "c" : "-";
        const auto ready = co_await some.async_acquire().as_result();
        seen += ready ? "r" : "-";
        for (int i = 0; i < 3; ++i) { // each of three waits
            const auto waited = co_await none.async_acquire().as_result();
            seen += waited ? "-" : "s";
        }
        const auto slept = co_await sleep_for(1h).as_result();
        seen += slept ? "-" : "s";
        const auto yielded = co_await yield().as_result();
        seen += yielded ? "-" : "s";
        const auto more = co_await some.async_acquire().as_result();
        seen += more ? "r" : "-";
        co_return seen; // the value of the task is its outcome
    });
    REQUIRE(test::eventually([&] { return runs.load(); }));
    CHECK(h.cancel());
    cancelled = true;
    CHECK(std::move(h).join() == "crsssssr");
    CHECK(some.available() == 10);
}

TEST_CASE("cancel: is_cancelled() is true in a cancelled function") {
    const bool apart = GENERATE(true, false);
    scheduler s(with(1, false));
    std::atomic<bool> runs{false};
    const auto looks = [&runs] {
        const std::stop_token told = bide::this_task::get_stop_token();
        runs = true;
        return test::eventually([] { return bide::this_task::is_cancelled(); },
                                test::patience / 2) &&
               told.stop_requested() && bide::this_task::get_stop_token() == told;
    };
    auto h = apart ? s.spawn_blocking(looks) : s.spawn(looks);
    REQUIRE(test::eventually([&] { return runs.load(); }));
    CHECK(h.cancel());
    CHECK(std::move(h).join());
}

TEST_CASE(
    "cancel: a task may cancel itself; its yield runs the queued tasks, and then is stopped") {
    bide::semaphore none(0);
    scheduler s(with(1, false));
    std::unique_ptr<join_handle<std::string>> own;
    std::atomic<bool> there{false};
    std::string seen;
    own = std::make_unique<join_handle<std::string>>(s.spawn([&]() -> task<std::string> {
        test::spin_until(there);
        seen += own->cancel() ? "c" : "-";
        seen += bide::this_task::is_cancelled() ? "i" : "-";
        auto other = s.spawn([&] { seen += "o"; });
        const auto yielded = co_await yield().as_result();
        seen += yielded ? "-" : "y";
        const auto waited = co_await none.async_acquire().as_result();
        seen += waited ? "-" : "s";
        seen += own->cancel() ? "c" : "-";
        co_return seen;
    }));
    there = true;
    REQUIRE(test::eventually([&] { return own->done(); }));
    CHECK(std::move(*own).join() == "cioysc");
}

TEST_CASE("async_join: a time-out, a stop or a cancellation ends the wait and detaches the task") {
    report told;
    bide::semaphore permits(0);
    std::stop_source stop;
    {
        scheduler s(told.options(1));
        const auto fails_then = [&]() -> task<int> {
            auto permit = co_await permits.async_acquire();
            permit.forget();
            throw std::runtime_error("x");
        };
        CHECK(s.spawn([&]() -> task<bool> {
                   auto h = s.spawn(fails_then);
                   const auto got = co_await std::move(h).async_join().with_timeout(1ms);
                   co_return !got && got.error() == bide::errc::timeout;
               }).join());
        auto stopped = s.spawn([&]() -> task<bool> {
            auto h = s.spawn(fails_then);
            const auto got = co_await std::move(h).async_join().with_stop(stop.get_token());
            co_return !got && got.error() == bide::errc::stopped;
        });
        auto cancelled = s.spawn([&]() -> task<bool> {
            auto h = s.spawn(fails_then);
            const auto got = co_await std::move(h).async_join().as_result();
            co_return !got && got.error() == bide::errc::stopped;
        });
        REQUIRE(test::has_waiters(permits, 3));
        stop.request_stop();
        cancelled.cancel();
        CHECK(std::move(stopped).join());
        CHECK(std::move(cancelled).join());
        permits.release(3);
        REQUIRE(test::eventually([&] { return told.calls == 3; }));
    }
    CHECK(told.calls == 3);
}

TEST_CASE("async_join: returns errc::stopped for a task that never ran or was stopped, and reports "
          "it once") {
    report told;
    {
        scheduler s(told.options(1));
        CHECK(s.spawn([&]() -> task<bool> {
                   auto thrower =
                       s.spawn([]() -> int { bide::detail::throw_error(bide::errc::stopped); });
                   auto queued = s.spawn(number(1));
                   const bool in_time = queued.cancel();
                   const auto thrown = co_await std::move(thrower).async_join().as_result();
                   const auto never_ran = co_await std::move(queued).async_join().as_result();
                   co_return in_time && !thrown && thrown.error() == bide::errc::stopped &&
                       !never_ran && never_ran.error() == bide::errc::stopped;
               }).join());
    }
    CHECK(told.calls == 0);
}
