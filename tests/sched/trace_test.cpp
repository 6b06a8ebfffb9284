#include <bide/core/platform.hpp>
#include <bide/sched/chrome_trace.hpp>
#include <bide/sched/report.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/semaphore.hpp>
#include <support/sched.hpp>

// What a scheduler reports to a trace.

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

TEST_CASE("trace: agrees with stats_of(), and so does a Chrome trace") {
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
        const scheduler_stats now = stats_of(s);
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
        std::uint64_t spawned = 0; // what the workers have counted
        std::uint64_t polled = 0;
        for (unsigned i = 0; i < s.concurrency(); ++i) {
            spawned += stats_of(s, i).spawned;
            polled += stats_of(s, i).polled;
        }
        CHECK(spawned + 5 * 3 == now.spawned); // three of each round come from here
        CHECK(polled == now.polled);
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
