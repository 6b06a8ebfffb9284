#include <bide/task/task_tag.hpp>

#include <bide/sched/join_set.hpp>
#include <bide/sched/run_loop.hpp>
#include <bide/sched/task_group.hpp>
#include <bide/task/for_each_concurrent.hpp>
#include <bide/task/with_deadline.hpp>
#include <support/coroutines.hpp>
#include <support/scheduling.hpp>

// Tags: what they are, and which task has which. What a dump and a trace show of them is tested in
// sched/trace_test.cpp and sched/chrome_trace_test.cpp.

using bide::run_loop;
using bide::scheduler;
using bide::sync_wait;
using bide::task;
using bide::task_tag;
using bide::this_task::set_tag;
using bide::this_task::tag;
using test::with;

namespace {

const task_tag red("red");
const task_tag blue("blue");

task<task_tag> own_tag() { co_return tag(); }
task<> note(task_tag& to) {
    co_await bide::this_task::yield();
    to = tag();
}

// Awaits a task for another library's coroutine, whose promise it does not pass on.
struct erased {
    task<>::awaiter inner;

    explicit erased(task<>&& t) : inner(std::move(t).operator co_await()) {}
    bool await_ready() const noexcept { return inner.await_ready(); }
    auto await_suspend(std::coroutine_handle<> h) noexcept { return inner.await_suspend(h); }
    void await_resume() { inner.await_resume(); }
};

test::detached await_erased(task<> t, bool& ended) {
    erased all(std::move(t));
    co_await all;
    ended = true;
}

} // namespace

TEST_CASE("task_tag: tags of equal texts are equal, and tags of other texts are not") {
    const char letters[] = {'r', 'e', 'd', 0};
    CHECK(task_tag(letters) == red);
    CHECK(red != blue);
    CHECK(std::string(red.text()) == "red");
    CHECK(std::string(blue.text()) == "blue");
    CHECK(red);
    const task_tag empty("");
    CHECK(empty);
    CHECK(empty != red);
    CHECK(std::string(empty.text()).empty());
}

TEST_CASE("task_tag: no tag has no text") {
    constexpr task_tag none;
    STATIC_REQUIRE(none == task_tag());
    STATIC_REQUIRE(!none);
    CHECK(none.text() == nullptr);
    CHECK(task_tag(nullptr) == none);
    CHECK(none != red);
}

TEST_CASE("task_tag: a task has the tag of its maker, then the one that it sets") {
    const auto set_and_get = []() -> task<std::vector<task_tag>> {
        std::vector<task_tag> seen{tag()};
        set_tag(blue);
        seen.push_back(tag());
        co_await bide::this_task::yield();
        seen.push_back(tag());
        set_tag({});
        seen.push_back(tag());
        co_return seen;
    };
    const std::vector<task_tag> wanted{red, blue, blue, task_tag()};
    scheduler s(with(1, false));
    CHECK(s.spawn(set_and_get().tagged(red)).join() == wanted);
    CHECK(s.spawn(set_and_get(), {.tag = red}).join() == wanted);
    CHECK(s.spawn(set_and_get().tagged(blue), {.tag = red}).join() == wanted);
    CHECK(s.spawn(set_and_get().tagged(red), {.priority = bide::task_priority::low}).join() ==
          wanted);
    CHECK(s.spawn([&] { return set_and_get().tagged(red); }).join() == wanted);
    CHECK(s.spawn([&] { return set_and_get(); }, {.tag = red}).join() == wanted);
    CHECK(s.spawn([] { return tag(); }, {.worker = 0, .tag = red}).join() == red);
    CHECK(s.spawn([] { return tag(); }).join() == task_tag());
    CHECK(s.spawn(own_tag()).join() == task_tag());
    run_loop loop;
    CHECK(loop.run_until(set_and_get().tagged(red)) == wanted);
}

TEST_CASE("task_tag: a name and a tag of one task do not mix") {
    scheduler s(with(1, false));
    const auto both = []() -> task<bool> {
        const bool named = std::string(bide::this_task::name()) == "name";
        co_return named&& tag() == red;
    };
    CHECK(s.spawn(both().named("name").tagged(red)).join());
    CHECK(s.spawn(both().tagged(red).named("name")).join());
    task<bool> moved = both().tagged(red);
    task<bool> to = std::move(moved).named("name");
    moved = std::move(to);
    CHECK(s.spawn(std::move(moved)).join());
}

TEST_CASE("task_tag: where no task runs, there is no tag and set_tag() does nothing") {
    set_tag(red);
    CHECK(tag() == task_tag());
    // A task that is awaited, or run by sync_wait(), is not spawned: its own tag has no effect.
    CHECK(sync_wait(own_tag().tagged(red)) == task_tag());
    scheduler s(with(1, false));
    const auto awaits = []() -> task<task_tag> { co_return co_await own_tag().tagged(red); };
    CHECK(s.spawn(awaits().tagged(blue)).join() == blue);
}

TEST_CASE(
    "task_tag: a task with a tag that a coroutine awaits without its promise has no context") {
    bide::semaphore never(0);
    bool ended = false;
    const auto waits = [&]() -> task<> { const auto permit = co_await never.async_acquire(); };
    await_erased(waits().tagged(red), ended);
    CHECK_FALSE(ended);
    never.release();
    CHECK(ended);
}

TEST_CASE("task_tag: children have the tag of their task, and tasks of the scheduler do not",
          "[promise.task-tags]") {
    scheduler s(with(GENERATE(1u, 2u), false));
    std::array<task_tag, 10> seen{};
    task_tag spawned = red;
    const auto parent = [&]() -> task<> {
        set_tag(red);
        auto a = note(seen[0]);
        auto b = note(seen[1]);
        co_await bide::when_all(std::move(a), std::move(b));
        auto c = note(seen[2]);
        co_await bide::when_any(std::move(c));
        {
            bide::task_group group(s);
            group.spawn(note(seen[3]));
            group.spawn([&] { return note(seen[4]); });
            co_await group.async_join();
        }
        bide::join_set<> set(s);
        set.spawn(note(seen[5]));
        co_await set.async_join_next();
        const auto body = [&](bide::task_group& group) -> task<> {
            group.spawn(note(seen[7]));
            co_await note(seen[6]);
        };
        co_await bide::task_group::run(s, body);
        const std::vector<int> one{1};
        const auto note_here = [&](int) { return note(seen[8]); };
        co_await bide::for_each_concurrent(one, 1, note_here);
        auto d = note(seen[9]);
        static_cast<void>(co_await bide::with_timeout(std::move(d), 1h));
        auto away = s.spawn(note(spawned));
        co_await std::move(away).async_join();
    };
    s.spawn(parent()).join();
    for (std::size_t i = 0; i < seen.size(); ++i) {
        CAPTURE(i);
        CHECK(seen[i] == red);
    }
    CHECK(spawned == task_tag());
}

TEST_CASE(
    "task_tag: a member of a group has its own tag, else that of the task that made the group") {
    scheduler s(with(1, false));
    task_tag own, of_maker, nested;
    const auto parent = [&]() -> task<> {
        set_tag(red);
        bide::task_group group(s);
        set_tag(blue); // too late for the members of `group`
        group.spawn(note(own).tagged(blue));
        group.spawn(note(of_maker));
        group.spawn([&]() -> task<> {
            bide::task_group inner(s);
            inner.spawn(note(nested));
            co_await inner.async_join();
        });
        co_await group.async_join();
    };
    s.spawn(parent()).join();
    CHECK(own == blue);
    CHECK(of_maker == red);
    CHECK(nested == red);
    bide::task_group outside(s);
    outside.spawn(note(own));
    outside.join();
    CHECK(own == task_tag());
}

TEST_CASE("task_tag: a child that sets the tag sets that of its task") {
    scheduler s(with(1, false));
    task_tag sibling;
    const auto parent = [&]() -> task<task_tag> {
        const auto sets = []() -> task<> {
            set_tag(blue);
            co_return;
        };
        auto a = sets();
        auto b = note(sibling);
        co_await bide::when_all(std::move(a), std::move(b));
        co_return tag();
    };
    CHECK(s.spawn(parent().tagged(red)).join() == blue);
    CHECK(sibling == blue);
}

TEST_CASE("task_tag: a tag makes neither a task object nor its frame larger",
          "[promise.task-tags]") {
    struct without_tag { // the fields of a promise
        void* words[6];
    };
    CHECK(sizeof(task<>) == 2 * sizeof(void*));
    CHECK(sizeof(task<>::promise_type) == sizeof(without_tag));
    CHECK(sizeof(task_tag) == 1);
}

// The last test: it uses all tags of the process up.
TEST_CASE("task_tag: a process has 255 of them, and those that are made stay") {
    static std::vector<std::string> texts;
    texts.reserve(300); // the characters stay where they are
    unsigned made = 0;
    bool refused = false;
    while (!refused && made < 300) {
        texts.push_back("tag " + std::to_string(made));
        try {
            const task_tag one(texts.back().c_str());
            REQUIRE(texts.back() == one.text());
            ++made;
        } catch (const std::length_error&) {
            refused = true;
        }
    }
    CHECK(refused);
    CHECK(made <= 255);
    CHECK(made > 200);
    CHECK(std::string(red.text()) == "red");
    CHECK(task_tag("blue") == blue);
    CHECK(std::string(task_tag("tag 7").text()) == "tag 7");
}
