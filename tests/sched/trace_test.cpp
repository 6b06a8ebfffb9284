#include <bide/core/platform.hpp>
#include <bide/sched/chrome_trace.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/semaphore.hpp>
#include <support/sched.hpp>

// What a scheduler reports: to a trace, and in a dump.

using namespace bide;
using namespace test;

namespace {

// Records all events.
class recorder final : public trace_sink {
public:
    struct span {
        unsigned worker;
        std::string name; // "": none
        task_tag tag;
        std::int64_t begin;
        std::int64_t end;
    };
    struct theft {
        unsigned worker;
        unsigned count;
    };

    void ran(unsigned worker, const char* name, task_tag tag, std::int64_t begin,
             std::int64_t end) noexcept override {
        const std::lock_guard lock(mutex_);
        runs.push_back({worker, name != nullptr ? name : "", tag, begin, end});
        all.push_back(runs.back());
    }
    void parked(unsigned worker, std::int64_t begin, std::int64_t end) noexcept override {
        const std::lock_guard lock(mutex_);
        parks.push_back({worker, "", {}, begin, end});
        all.push_back(parks.back());
    }
    void stole(unsigned worker, unsigned count, std::int64_t) noexcept override {
        const std::lock_guard lock(mutex_);
        thefts.push_back({worker, count});
    }

    std::ptrdiff_t runs_of(const std::string& name) const {
        return std::count_if(runs.begin(), runs.end(),
                             [&name](const span& s) { return s.name == name; });
    }

    // After the end of the scheduler:
    std::vector<span> runs, parks, all;
    std::vector<theft> thefts;

private:
    std::mutex mutex_;
};

scheduler_options traced(scheduler_options wanted, trace_sink& by) {
    wanted.trace = &by;
    return wanted;
}

std::uint64_t count_of(const std::string& text, const std::string& part) {
    std::uint64_t n = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
        ++n;
    }
    return n;
}

task<> yields(int times) {
    for (int i = 0; i < times; ++i) {
        co_await this_task::yield();
    }
}
task<> waits(semaphore& s) { const auto permit = co_await s.async_acquire(); }
task<> blocks(semaphore& s) {
    s.acquire();
    s.release();
    co_return;
}

// A task spawns another and does not wait for it: that one must be stolen.
bool make_steal(scheduler& s) {
    return s
        .spawn([&s] {
            std::atomic<bool> told{false};
            auto inner = s.spawn([&told] { told = true; });
            const bool in_time = test::spin_until(told);
            std::move(inner).join();
            return in_time;
        })
        .join();
}

} // namespace

TEST_CASE("trace: records each run with the name of its task") {
    recorder seen;
    {
        scheduler s(traced(test::each_of({2}), seen));
        auto a = s.spawn(yields(4).named("four"));
        auto b = s.spawn(yields(4).named("four"));
        auto c = s.spawn(yields(2).named("two"));
        s.spawn([] { return yields(1).named("one"); }).join();
        s.spawn(yields(1)).join();
        s.spawn([] {}).join();
        std::move(a).join();
        std::move(b).join();
        std::move(c).join();
    }
    CHECK(seen.runs_of("four") == 10);
    CHECK(seen.runs_of("two") == 3);
    CHECK(seen.runs_of("one") == 2);
    CHECK(seen.runs_of("") == 3);
    CHECK(seen.runs.size() == 18);
}

TEST_CASE("trace: records each run with the tag of its task", "[promise.task-tags]") {
    const task_tag red("red");
    const task_tag blue("blue");
    recorder seen;
    {
        scheduler s(traced(with(1, false), seen));
        s.spawn(yields(2).tagged(red)).join();
        s.spawn([] {}, {.tag = blue}).join();
        s.spawn(yields(0)).join();
        const auto renamed = [&]() -> task<> {
            co_await this_task::yield();
            this_task::set_tag(blue); // this run counts as blue
            auto a = yields(0);
            auto b = yields(0);
            co_await when_all(std::move(a), std::move(b)); // in place
        };
        s.spawn(renamed().named("renamed").tagged(red)).join();
        s.spawn([&] { this_task::set_tag(blue); }).join();
        event ran;
        s.post(waker([](void* e) noexcept { static_cast<event*>(e)->set(); }, &ran));
        ran.wait();
    }
    CHECK(seen.runs.back().name.empty()); // it is no task
    std::vector<std::string> tags;
    for (const recorder::span& run : seen.runs) {
        tags.emplace_back(run.tag ? run.tag.text() : "none");
    }
    CHECK(tags == std::vector<std::string>{"red", "red", "red", "blue", "none", "red", "blue",
                                           "blue", "none"});
}

TEST_CASE("trace: a task and its children have the name that the task was last given",
          "[promise.task-names]") {
    recorder seen;
    bool good = this_task::name() == nullptr;
    this_task::set_name("no task runs"); // does nothing
    {
        scheduler s(traced(with(2, false), seen));
        const auto is_named = [](const char* name) {
            const char* const now = this_task::name();
            return now != nullptr && std::string(now) == name;
        };
        const auto child = [&](bool& is) -> task<> {
            co_await this_task::yield();
            is = is_named("second");
        };
        const auto parent = [&]() -> task<> {
            good = good && is_named("first");
            this_task::set_name("second");
            good = good && is_named("second");
            co_await this_task::yield();
            bool children[2] = {};
            auto a = child(children[0]);
            auto b = child(children[1]);
            co_await when_all(std::move(a), std::move(b));
            good = good && children[0] && children[1];
            const auto renames = []() -> task<> {
                this_task::set_name("third");
                co_return;
            };
            auto c = renames();
            co_await when_all(std::move(c));
            good = good && is_named("third");
        };
        s.spawn(parent().named("first")).join();
        s.spawn([] { this_task::set_name("function"); }).join();
        s.spawn([&] { good = good && this_task::name() == nullptr; }).join();
        s.spawn_blocking([&] {
             good = good && this_task::name() == nullptr;
             this_task::set_name("blocking");
             good = good && is_named("blocking");
         }).join();
    }
    CHECK(good);
    CHECK(this_task::name() == nullptr);
    CHECK(seen.runs_of("first") == 0); // it was renamed in its first run
    CHECK(seen.runs_of("second") >= 2);
    CHECK(seen.runs_of("third") >= 1);
    CHECK(seen.runs_of("function") == 1);
}

TEST_CASE("trace: agrees with stats(), and so does a Chrome trace") {
    const auto kind = test::each_of({3});
    recorder seen;
    chrome_trace chrome;
    for (trace_sink* const sink :
         {static_cast<trace_sink*>(&seen), static_cast<trace_sink*>(&chrome)}) {
        scheduler s(traced(kind, *sink));
        for (int i = 0; i < 5; ++i) {
            REQUIRE(make_steal(s));
            s.spawn(yields(10)).join();
            s.spawn([]() -> task<> { co_await this_task::sleep_for(1ms); }).join();
        }
        s.shutdown();
        const scheduler_stats now = s.stats();
        std::uint64_t runs = seen.runs.size();
        std::uint64_t parks = seen.parks.size();
        std::uint64_t thefts = seen.thefts.size();
        if (sink == &chrome) {
            const std::string text =
                test::written_by([&](std::FILE* to) { CHECK(chrome.write(to)); });
            runs = count_of(text, "\"cat\":\"run\"");
            parks = count_of(text, "\"cat\":\"park\"");
            thefts = count_of(text, "\"cat\":\"steal\"");
        } else {
            std::uint64_t stolen = 0;
            for (const auto& theft : seen.thefts) {
                stolen += theft.count;
            }
            CHECK(stolen == now.stolen);
            CHECK(stolen >= 5);
        }
        CHECK(runs == now.polled);
        CHECK(parks == now.parked);
        CHECK(thefts == now.steal_batches);
        scheduler_stats sum; // what the workers have counted
        for (unsigned i = 0; i < s.concurrency(); ++i) {
            sum += s.stats(i);
        }
        CHECK(sum.spawned + 5 * 3 == now.spawned); // three of each round come from here
        CHECK(sum.polled == now.polled);
    }
}

TEST_CASE("trace: the events of one worker come in their order") {
    recorder seen;
    const std::int64_t before = native_platform::now();
    {
        scheduler s(traced(test::each_of({2}), seen));
        for (int i = 0; i < 50; ++i) {
            auto other = s.spawn(yields(3));
            s.spawn(yields(3)).join();
            std::move(other).join();
        }
    }
    const std::int64_t after = native_platform::now();
    std::int64_t last[2] = {before, before};
    bool ordered = true;
    for (const recorder::span& it : seen.all) {
        REQUIRE(it.worker < 2);
        ordered = ordered && last[it.worker] <= it.begin && it.begin <= it.end;
        last[it.worker] = it.end;
    }
    CHECK(ordered);
    CHECK(std::max(last[0], last[1]) <= after);
}

TEST_CASE("trace: a run that blocks lasts until its end, although another thread runs the worker") {
    recorder seen;
    {
        semaphore sleeps(0);
        scheduler s(traced(test::each_of({1}), seen));
        auto blocked = s.spawn(blocks(sleeps).named("blocked"));
        REQUIRE(test::has_waiters(sleeps, 1));
        s.spawn(yields(2).named("meanwhile")).join();
        sleeps.release();
        std::move(blocked).join();
    }
    REQUIRE(seen.runs_of("blocked") == 1);
    CHECK(seen.runs_of("meanwhile") == 3);
    const auto blocked = std::find_if(seen.runs.begin(), seen.runs.end(),
                                      [](const recorder::span& s) { return s.name == "blocked"; });
    for (const recorder::span& it : seen.runs) {
        if (it.name == "meanwhile") {
            CHECK(blocked->begin <= it.begin);
            CHECK(it.begin <= blocked->end);
        }
    }
}

TEST_CASE("dump: shows the names that tasks have given themselves and their tags, and counts each "
          "name and tag apart",
          "[promise.task-tags][promise.task-names]") {
    const task_tag red("red");
    const task_tag quoted("q\"t");
    semaphore never(0);
    scheduler s(with(2, false));
    const auto renames = [&](const char* name) -> task<> {
        this_task::set_name(name);
        co_await waits(never);
    };
    std::vector<join_handle<>> all;
    all.push_back(s.spawn(waits(never).named("reader").tagged(red)));
    all.push_back(s.spawn(waits(never).named("reader"), {.tag = red}));
    all.push_back(s.spawn(waits(never).named("reader").tagged(quoted)));
    all.push_back(s.spawn(renames("reader").named("order")));
    all.push_back(s.spawn(renames(nullptr).named("nameless").tagged(red)));
    REQUIRE(test::has_waiters(never, 5));
    const std::string text = dump_of(s);
    INFO(text);
    CHECK(contains(text, "waiting tasks: 5\n"
                         "         1  unnamed, tag \"red\"\n"
                         "         1  \"reader\"\n"
                         "         1  \"reader\", tag \"q\\\"t\"\n"
                         "         2  \"reader\", tag \"red\"\n"));
    never.release(5);
    test::join_all(all);
}

TEST_CASE("dump: lists the names of the tasks that wait, with their numbers, and no others") {
    semaphore never(0);
    semaphore once(0);
    std::atomic<bool> end{false};
    scheduler s(with(2, false));
    std::vector<join_handle<>> waiting;
    for (int i = 0; i < 3; ++i) {
        waiting.push_back(s.spawn(waits(never).named("reader")));
    }
    waiting.push_back(s.spawn(waits(never).named("the \"other\"")));
    waiting.push_back(s.spawn(waits(never)));
    auto gone = s.spawn(waits(once).named("gone"));
    auto running = s.spawn([&]() -> task<> {
        return [](semaphore& first, std::atomic<bool>& last) -> task<> {
            const auto permit = co_await first.async_acquire();
            test::spin_until(last);
        }(once, end)
                                                                    .named("running");
    });
    auto no_worker_started = s.spawn(yields(0).named("ended"));
    REQUIRE(test::has_waiters(never, 5));
    REQUIRE(test::has_waiters(once, 2));
    once.release(2);
    REQUIRE(test::eventually([&] { return gone.done() && no_worker_started.done(); }));
    REQUIRE(test::eventually([&] { return once.waiters() == 0; }));

    const std::string text = dump_of(s);
    INFO(text);
    CHECK(contains(text, "waiting tasks: 5\n"));
    CHECK(contains(text, " 3  \"reader\"\n"));
    CHECK(contains(text, " 1  \"the \\\"other\\\"\"\n"));
    CHECK(contains(text, " 1  unnamed\n"));
    CHECK(!contains(text, "gone"));
    CHECK(!contains(text, "running"));
    CHECK(!contains(text, "ended"));
    CHECK(contains(text, "2 workers, 6 tasks of 8 left\n"));

    end = true;
    never.release(5);
    std::move(running).join();
    test::join_all(waiting);
    std::move(gone).join();
    s.shutdown();
    const std::string at_end = dump_of(s);
    INFO(at_end);
    CHECK(contains(at_end, "0 tasks of 8 left\n"));
    CHECK(contains(at_end, "waiting tasks: 0\n"));
}

TEST_CASE("dump: lists the states of the workers and the lengths of the queues") {
    semaphore sleeps(0);
    std::atomic<bool> end{false};
    scheduler_options wanted = with(1, false);
    wanted.max_blocking_threads = 1;
    scheduler s(std::move(wanted));
    CHECK(test::eventually(
        [&] { return contains(dump_of(s), "     0  asleep     0    0        0 "); }));
    CHECK(contains(dump_of(s), "global queue: 0; sleeping 1, searching 0\n"));
    CHECK(contains(dump_of(s), "blocking threads: 0, idle 0; queued for them 0\n"));
    CHECK(!contains(dump_of(s), "next timer"));

    // The thread pool's only thread, so that no thread replaces the worker that blocks.
    auto held = s.spawn_blocking([&] { sleeps.acquire(); });
    auto next = s.spawn_blocking([] {});
    CHECK(contains(dump_of(s), "blocking threads: 1, idle 0; queued for them 1\n"));
    auto blocked = s.spawn([&] { sleeps.acquire(); });
    REQUIRE(test::has_waiters(sleeps, 2));
    CHECK(test::eventually(
        [&] { return contains(dump_of(s), "     0  blocked    0    0        0 "); }));
    sleeps.release(2);
    std::move(held).join();
    std::move(next).join();
    std::move(blocked).join();

    std::string from_task;
    latch all(7);
    s.spawn([&] {
         for (int i = 0; i < 7; ++i) {
             s.spawn([&all] { all.count_down(); }).detach();
         }
         from_task = dump_of(s);
     }).join();
    all.wait();
    INFO(from_task);
    CHECK(contains(from_task, "     0  awake      1    6        0 "));

    latch runs(1);
    auto busy = s.spawn([&] {
        runs.count_down();
        test::spin_until(end);
    });
    runs.wait(); // so that its worker fetches no other task with it
    auto timed = s.spawn([]() -> task<> { co_await this_task::sleep_for(1h); });
    auto behind = s.spawn([] {});
    CHECK(test::eventually([&] { return contains(dump_of(s), "global queue: 2; "); }));
    end = true;
    std::move(busy).join();
    std::move(behind).join();
    CHECK(test::eventually([&] { return contains(dump_of(s), "next timer: in 3"); })); // 3.6e6 ms
    timed.cancel();
    s.shutdown();
    CHECK(contains(dump_of(s), "1 workers, 0 tasks of 14 left\n"));
}

TEST_CASE("dump: lists how many children of when_all wait in their worker's deque") {
    scheduler s(with(1, false));
    std::string texts[3];
    const auto child = [&](std::string& to) -> task<> {
        to = dump_of(s);
        co_return;
    };
    const auto parent = [&]() -> task<> {
        auto all = when_all(child(texts[0]), child(texts[1]), child(texts[2]));
        co_await std::move(all);
    };
    s.spawn(parent()).join();
    CHECK(contains(texts[0], "     0  awake      0    0        2 "));
    CHECK(contains(texts[1], "     0  awake      0    0        1 "));
    CHECK(contains(texts[2], "     0  awake      0    0        0 "));
    CHECK(contains(texts[2], "worker  state   lifo ring children"));
}

TEST_CASE("dump: any thread may call it at any time, while tasks rename themselves",
          "[promise.task-names]") {
    test::tally t;
    {
        scheduler s(test::each_of({2}));
        std::atomic<bool> over{false};
        std::atomic<bool> good{true};
        test::team others(2, [&](int) {
            while (!over) {
                if (!contains(dump_of(s), "waiting tasks: ")) {
                    good = false;
                }
            }
        });
        for (int round = 0; round < 40; ++round) {
            semaphore go(0);
            latch ended(20);
            std::vector<join_handle<>> made;
            for (int i = 0; i < 20; ++i) {
                made.push_back(s.spawn([&go, &ended, i, mine = test::counted(t, i)]() -> task<> {
                    this_task::set_name(i % 2 == 0 ? "even" : "odd");
                    this_task::set_tag(task_tag(i % 3 == 0 ? "third" : "other"));
                    const auto permit = co_await go.async_acquire();
                    this_task::set_name("renamed");
                    co_await this_task::sleep_for(10us);
                    ended.count_down();
                }));
            }
            if (round % 2 == 0) {
                s.spawn([&] { static_cast<void>(dump_of(s)); }).join();
            }
            go.release(20);
            for (auto& h : made) {
                if (round % 4 < 2) {
                    std::move(h).join();
                }
            }
            ended.wait();
            go.acquire(20); // all threads have left it
        }
        s.shutdown();
        over = true;
        others.join();
        CHECK(good);
    }
    CHECK(t.alive() == 0);
}

TEST_CASE("dump: without memory it throws, and keeps no reference") {
    if (!test::counts_allocations()) {
        return;
    }
    test::tally t;
    semaphore never(0);
    bool refused = false;
    {
        scheduler s(with(1, false));
        auto waiting = s.spawn([&never, mine = test::counted(t, 1)]() -> task<> {
            const auto permit = co_await never.async_acquire();
        });
        REQUIRE(test::has_waiters(never, 1));
        std::FILE* const to = std::tmpfile();
        REQUIRE(to != nullptr);
        std::fputs("buffered\n", to);
        {
            const test::out_of_memory none;
            try {
                s.dump(to);
            } catch (const std::bad_alloc&) {
                refused = true;
            }
        }
        CHECK(contains(test::read_all(to), "1 workers"));
        std::fclose(to);
        never.release();
        std::move(waiting).join();
    }
    CHECK(refused);
    CHECK(t.alive() == 0);
}
