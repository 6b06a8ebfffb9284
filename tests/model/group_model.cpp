// task_group and join_set. A group may be destroyed as soon as a wait for its end has returned. A
// join waits for each child that was spawned before it. A cancelled task that waits for its group
// resumes once, after all members have ended, and blocks no thread meanwhile. Each outcome is
// returned once.

#include <bide/sched/join_set.hpp>
#include <bide/sched/task_group.hpp>
#include <model/task_support.hpp>
#include <support/test.hpp>

namespace {

using platform = model::platform_without_lock_sleep;
using tokens = test::basic_tokens<platform>;
using link = model::link<platform>;
using model::at_random;
using model::progress;
using home = model::task_home<platform>;
using group = bide::detail::basic_group<platform>;
using children = bide::detail::basic_ended_children<platform>;
template <class T> using var = platform::var<T>;

// A member of a group, with its task.
class member final : public bide::detail::basic_task_header<platform> {
public:
    member(group& g, model::task_home<platform>& h, link&& what, bool fails) noexcept
        : basic_task_header(h, false), in_group(g, *this), link_(std::move(what)), fails_(fails) {
        link_.frame.promise().context = this;
        link_.frame.promise().where = here_;
    }

    void begin() noexcept { to_run().run.wake(); }

    bide::detail::basic_group_member<platform> in_group;

private:
    std::coroutine_handle<> start() noexcept override { return link_.frame; }
    void never_start() noexcept override {}
    void settle() noexcept override {}
    void discard_outcome() noexcept override { in_group.end({}, fails_); }
    void destroy() noexcept override { delete this; }

    model::at_once here_;
    link link_;
    const bool fails_;
};

link write(var<int>& to) {
    to = to + 1;
    co_return;
}

member& spawn(group& g, home& h, link&& what, bool fails = false) {
    auto* const m = new member(g, h, std::move(what), fails);
    g.begin(m->in_group);
    return *m;
}

// What the members of a group need: values to write, and a token to wait for.
struct scene {
    explicit scene(int given = 0) : t(given) {}

    member& writes(group& in, var<int>& to, bool fails = false) {
        return spawn(in, h, write(to), fails);
    }
    member& takes(group& in) { return spawn(in, h, model::take<platform>(t, what)); }
    // The child that takes a token was stopped, or never began.
    bool is_stopped() const noexcept { return what == progress::none || what == progress::stopped; }

    home h;
    tokens t;
    var<int> x{0};
    var<int> y{0};
    var<progress> what{progress::none};
};

TEST_CASE("task_group: may be destroyed as soon as a join has returned, after all children") {
    model::check("group, two children", [] {
        scene s;
        auto* const g = new group;
        member& m = s.writes(*g, s.x);
        member& n = s.writes(*g, s.y);
        model::thread worker([&] { m.begin(); });
        n.begin();
        g->of_children().wait();
        MODEL_REQUIRE(s.x == 1 && s.y == 1);
        delete g;
    });
}

TEST_CASE("task_group: a join that follows a spawn waits for that child") {
    model::check("group, spawn, end", [] {
        scene s;
        auto* const g = new group;
        member& m = s.writes(*g, s.x);
        model::thread worker([&] { m.begin(); });
        member& n = s.writes(*g, s.y);
        n.begin();
        g->of_children().wait();
        MODEL_REQUIRE(s.x == 1 && s.y == 1);
        delete g;
    });
}

TEST_CASE("task_group: a failure or a cancellation ends the waits of all children") {
    const auto cancelled = [] {
        scene s;
        group g;
        member& m = s.takes(g);
        model::thread worker([&] { m.begin(); });
        g.cancel();
        worker.join();
        g.of_children().wait();
        MODEL_REQUIRE(s.is_stopped());
        model::record(s.what == progress::none ? "never" : "stopped");
    };
    model::check("group, cancel, going idle", cancelled);
    CHECK(model::outcomes({}, cancelled) == "never stopped");
    model::check("group, failure, join, at random", at_random(), [] {
        scene s;
        auto* const g = new group;
        member& m = s.takes(*g);
        member& n = s.writes(*g, s.x, true);
        model::thread worker([&] { m.begin(); });
        model::thread failing([&] { n.begin(); });
        g->of_children().wait();
        MODEL_REQUIRE(s.x == 1 && s.is_stopped());
        delete g;
    });
    model::check("group, end, failure, cancel, at random", at_random(), [] {
        scene s(1);
        auto* const g = new group;
        member& m = s.takes(*g);
        member& n = s.writes(*g, s.x, true);
        model::thread worker([&] { m.begin(); });
        model::thread failing([&] { n.begin(); });
        g->cancel();
        g->of_children().wait();
        delete g;
    });
}

TEST_CASE("task_group: a handle cancels one child, and may be the last to use the child") {
    // As a cancel_handle does, which has a reference.
    const auto cancelled = [](bool fails) {
        scene s;
        auto* const g = new group;
        member& m = s.takes(*g);
        member& n = s.writes(*g, s.x, fails);
        m.add_reference();
        model::thread worker([&] { m.begin(); });
        model::thread owner([&] {
            m.cancel();
            m.drop_reference();
        });
        n.begin();
        g->of_children().wait();
        MODEL_REQUIRE(s.x == 1 && s.is_stopped());
        delete g;
    };
    model::check("group, a handle cancels a child", [&] { cancelled(false); });
    model::check("group, a handle and the group cancel a child, at random", at_random(),
                 [&] { cancelled(true); });
}

// Threads join while the last child ends elsewhere. The last of them destroys the group.
void joined_by(int joiners, bool cancelled) {
    scene s;
    platform::atomic<int> left{joiners};
    auto* const g = new group;
    member& m = s.writes(*g, s.x);
    model::thread worker([&] { m.begin(); });
    const auto join = [&] {
        g->of_children().wait();
        MODEL_REQUIRE(cancelled || s.x == 1);
        if (left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            delete g;
        }
    };
    std::unique_ptr<model::thread> other;
    if (joiners == 2) {
        other = std::make_unique<model::thread>(join);
    }
    if (cancelled) {
        g->cancel();
    }
    join();
}

// A coroutine waits for all members, and a thread for the children, which end elsewhere, one by one or
// by a cancellation.
void joined_by_a_coroutine_and_a_thread(bool cancelled) {
    scene s;
    platform::atomic<int> joined{0};
    auto* const g = new group;
    member& first = s.writes(*g, s.x);
    member& second = s.takes(*g);
    second.begin();
    model::chain<platform> waits([](group* in, platform::atomic<int>& counts) -> link {
        static_cast<void>(co_await in->of_all().async_wait().as_result());
        counts.fetch_add(1, std::memory_order_release);
    }(g, joined));
    waits.begin();
    model::thread worker([&] { first.begin(); });
    model::thread other([&] {
        if (cancelled) {
            g->cancel();
        } else {
            s.t.give();
        }
    });
    g->of_children().wait();
    MODEL_REQUIRE(cancelled || s.x == 1);
    MODEL_REQUIRE(s.what == (cancelled ? progress::stopped : progress::taken));
    worker.join();
    other.join();
    MODEL_REQUIRE(joined.load(std::memory_order_acquire) == 1 && waits.ended == 1);
    delete g;
}

TEST_CASE("task_group: joins from several sides each return after the last child", "[long]") {
    auto some = at_random();
    some.runs = 1'000;
    model::check("one thread joins and cancels", model::brief_or_long(some, {}),
                 [] { joined_by(1, true); });
    model::check("two threads join, at random", some, [] { joined_by(2, false); });
    model::check("two threads join, one cancels, at random", some, [] { joined_by(2, true); });
    model::check("a coroutine and a thread join, at random", some,
                 [] { joined_by_a_coroutine_and_a_thread(false); });
    model::check("a coroutine and a thread join, a third one cancels, at random", some,
                 [] { joined_by_a_coroutine_and_a_thread(true); });
}

using semaphore = bide::basic_semaphore<platform>;

// Takes room as task_group does.
link spawns(group& g, semaphore& room, member& m) {
    auto one = co_await room.async_acquire();
    g.begin(m.in_group);
    one.forget();
    m.begin();
}

// A group with room for one child, and two members.
struct limited : scene {
    void destroy() {
        delete g;
        delete room;
    }

    semaphore* const room = new semaphore(1);
    group* const g = new group(room);
    member* const m = new member(*g, h, write(x), false);
    member* const n = new member(*g, h, write(x), false); // a race if both run at a time
};

TEST_CASE("task_group: room that a child leaves goes to the next spawner, and the group may end") {
    model::check("limit 1, two spawn", [] {
        limited s;
        model::thread other([&] {
            s.room->acquire();
            s.g->begin(s.m->in_group);
            s.m->begin();
        });
        s.room->acquire();
        s.g->begin(s.n->in_group);
        s.n->begin();
        other.join();
        s.g->of_children().wait();
        MODEL_REQUIRE(s.x == 2);
        MODEL_REQUIRE(s.room->available() == 1);
        s.destroy();
    });
    model::check("limit 1, a thread waits for room, joins and destroys", at_random(), [] {
        limited s;
        s.room->acquire();
        s.g->begin(s.m->in_group);
        model::thread first([&] { s.m->begin(); });
        s.room->acquire();
        s.g->begin(s.n->in_group);
        model::thread second([&] { s.n->begin(); });
        s.g->of_children().wait();
        MODEL_REQUIRE(s.x == 2);
        s.destroy();
    });
    model::check("limit 1, a coroutine waits for room, a thread joins and destroys", [] {
        limited s;
        s.room->acquire();
        s.g->begin(s.m->in_group);
        model::chain<platform> spawner(spawns(*s.g, *s.room, *s.n));
        model::thread worker([&] { s.m->begin(); });
        spawner.begin();
        worker.join();
        s.g->of_children().wait();
        MODEL_REQUIRE(s.x == 2 && spawner.ended == 1);
        s.destroy();
    });
}

// A task that waits for the end of its group, and destroys the group as soon as it resumes.
class owner final : public model::chain<platform> {
public:
    explicit owner(bool cancels_itself = false) noexcept
        : chain(body(*this)), cancels_itself_(cancels_itself) {}

    // The owner has ended, and resumed once. If it never began, the group is still there.
    void require_over() noexcept {
        MODEL_REQUIRE(ended == 1);
        MODEL_REQUIRE(went_on == (never_ran ? 0 : 1));
        if (never_ran) {
            g->cancel();
            g->of_all().wait();
            delete g;
        }
    }

    group* const g = new group;
    var<int> went_on{0};
    var<bool> was_stopped{false};

private:
    static link body(owner& me) {
        if (me.cancels_itself_) {
            me.cancel();
        }
        const auto joined = co_await me.g->of_all().async_wait().as_result();
        me.was_stopped = !joined.has_value();
        me.went_on = me.went_on + 1;
        delete me.g;
    }

    const bool cancels_itself_;
};

// The name of what became of the owner and a child.
const char* name_of(const owner& o, progress child) {
    return o.never_ran                  ? "never"
           : !o.was_stopped             ? "joined"
           : child == progress::none    ? "stopped, not begun"
           : child == progress::stopped ? "stopped"
                                        : "stopped, ended";
}

void cancelled_while_it_waits() {
    scene s;
    owner o;
    member& m = s.takes(*o.g);
    model::thread canceller([&] { o.cancel(); });
    m.begin();
    o.begin();
    canceller.join();
    o.require_over();
    MODEL_REQUIRE(s.is_stopped());
    model::record(name_of(o, s.what));
}

void cancelled_while_a_child_ends() {
    scene s;
    owner o;
    member& m = s.takes(*o.g);
    m.begin();
    o.begin();
    model::thread canceller([&] { o.cancel(); });
    s.t.give();
    canceller.join();
    o.require_over();
    MODEL_REQUIRE(s.what == progress::taken || s.what == progress::stopped);
    model::record(name_of(o, s.what));
}

void cancelled_while_a_child_begins() {
    scene s;
    owner o;
    member& m = s.takes(*o.g);
    model::thread worker([&] { m.begin(); });
    model::thread canceller([&] { o.cancel(); });
    o.begin();
    worker.join();
    canceller.join();
    o.require_over();
    MODEL_REQUIRE(s.is_stopped());
}

// The children do not wait.
void cancelled_while_children_run() {
    scene s;
    owner o;
    member& m = s.writes(*o.g, s.x);
    member& n = s.writes(*o.g, s.y);
    o.begin();
    model::thread worker([&] { m.begin(); });
    model::thread canceller([&] { o.cancel(); });
    n.begin();
    worker.join();
    canceller.join();
    o.require_over();
    MODEL_REQUIRE((s.x == 1 && s.y == 1) || o.was_stopped);
}

void cancelled_before() {
    scene s;
    owner o(true);
    member& m = s.takes(*o.g);
    model::thread worker([&] { m.begin(); });
    o.begin();
    worker.join();
    o.require_over();
    MODEL_REQUIRE(o.was_stopped && s.is_stopped());
}

TEST_CASE("task_group: a cancelled joiner resumes once, after the children") {
    model::check("owner, cancel", cancelled_while_it_waits);
    CHECK(model::outcomes({}, cancelled_while_it_waits) == "never stopped");
    model::check("owner, cancel, child's end", cancelled_while_a_child_ends);
    CHECK(model::outcomes({}, cancelled_while_a_child_ends) == "joined stopped stopped, ended");
    model::check("owner, cancelled before, child's begin", cancelled_before);
}

TEST_CASE("task_group: a joiner may be cancelled while a child starts", "[long]") {
    model::check("owner, cancel, two children that run", at_random(), cancelled_while_children_run);
    model::check("owner, cancel, child's begin", model::brief_or_long(at_random(), {}),
                 cancelled_while_a_child_begins);
}

link joins(group& g, var<int>& went_on) {
    static_cast<void>(co_await g.of_all().async_wait().as_result());
    went_on = went_on + 1;
}

TEST_CASE("task_group: the destruction of a waiting coroutine cancels the children") {
    model::check("destroyed, child's begin", [] {
        scene s;
        var<int> went_on{0};
        model::at_once here;
        group g;
        member& m = s.takes(g);
        {
            const model::link<platform> waits = joins(g, went_on);
            waits.frame.promise().where = here;
            model::thread worker([&] { m.begin(); });
            waits.frame.resume();
            worker.join();
        }
        g.of_all().wait();
        MODEL_REQUIRE(s.what == progress::stopped && went_on == 0);
    });
}

// A member of the outer group owns the inner group.
TEST_CASE("task_group: a cancellation reaches the members of a nested group") {
    const auto nested = [] {
        scene s;
        var<int> inner_ended{0};
        group* const inner = new group;
        owner o;
        member& grandchild = s.takes(*inner);
        member& child = spawn(*o.g, s.h, [](group* g, var<int>& ended) -> model::link<platform> {
            const auto joined = co_await g->of_all().async_wait().as_result();
            ended = ended + (joined.has_value() ? 10 : 1);
            delete g;
        }(inner, inner_ended));
        grandchild.begin();
        child.begin();
        o.begin();
        model::thread canceller([&] { o.cancel(); });
        s.t.give();
        canceller.join();
        o.require_over();
        MODEL_REQUIRE(s.what == progress::taken || s.what == progress::stopped);
        MODEL_REQUIRE(inner_ended == 1 || inner_ended == 10);
    };
    model::check("owner, group in group, cancel, end", nested);
}

TEST_CASE("task_group: the end of all members comes after the body and the children") {
    model::check("body, child", [] {
        scene s;
        owner o;
        auto* const body = new member(*o.g, s.h, write(s.x), false);
        o.g->begin_body(body->in_group);
        member& child = s.writes(*o.g, s.y);
        model::thread worker([&] { body->begin(); });
        o.begin();
        child.begin();
        worker.join();
        o.require_over();
        MODEL_REQUIRE(s.x == 1 && s.y == 1 && !o.was_stopped);
    });
    model::check("body that joins its child", [] {
        scene s;
        var<int> seen{0};
        owner o;
        auto* const body = new member(
            *o.g, s.h,
            [](group* g, var<int>& of, var<int>& to) -> model::link<platform> {
                const auto over = co_await g->of_children().async_wait().as_result();
                to = over ? 10 * of : 1;
            }(o.g, s.x, seen),
            false);
        o.g->begin_body(body->in_group);
        member& child = s.writes(*o.g, s.x);
        model::thread worker([&] { child.begin(); });
        body->begin();
        o.begin();
        worker.join();
        o.require_over();
        MODEL_REQUIRE(seen == 10);
    });
    model::check("body that fails, child that waits", at_random(), [] {
        scene s;
        owner o;
        auto* const body = new member(*o.g, s.h, write(s.x), true);
        o.g->begin_body(body->in_group);
        member& child = s.takes(*o.g);
        model::thread worker([&] { body->begin(); });
        model::thread other([&] { child.begin(); });
        o.g->of_all().wait();
        worker.join();
        other.join();
        MODEL_REQUIRE(s.is_stopped());
        delete o.g;
    });
}

struct ended_child : children::child {
    var<int> number{0};
};

// Returns the number of the next child; 0 if no child is left.
int next_of(children& from) {
    auto what = from.try_reserve();
    if (what == bide::wait_status::waiting) {
        what = bide::thread_wait<children, platform>::until(from, 1, bide::deadline::never());
    }
    return what == bide::wait_status::granted
               ? static_cast<int>(static_cast<ended_child&>(from.take_reserved()).number)
               : 0;
}

TEST_CASE(
    "join_set: each outcome is returned once, and then each waiter learns that no child is left") {
    const auto one_asks = [](bool both_elsewhere) {
        children c;
        ended_child a;
        ended_child b;
        a.number = 1;
        b.number = 2;
        c.begin();
        c.begin();
        model::thread other([&] { c.end(&a); });
        model::thread third([&] {
            if (both_elsewhere) {
                c.end(&b);
            }
        });
        if (!both_elsewhere) {
            c.end(&b);
        }
        const int first = next_of(c);
        const int second = next_of(c);
        MODEL_REQUIRE(first + second == 3 && first * second == 2);
        MODEL_REQUIRE(next_of(c) == 0);
        other.join();
        third.join();
    };
    model::check("two end, one asks three times", [&] { one_asks(false); });
    model::check("two end elsewhere, one asks three times", at_random(), [&] { one_asks(true); });
    const auto two_ask = [] {
        children c;
        ended_child a;
        a.number = 1;
        c.begin();
        c.begin();
        var<int> got{0};
        model::thread asker([&] { got = next_of(c); });
        model::thread ender([&] {
            c.end(&a);
            c.end(nullptr);
        });
        const int mine = next_of(c);
        asker.join();
        ender.join();
        MODEL_REQUIRE(mine + got == 1);
    };
    model::check("two ask, one ends, one is stopped", at_random(), two_ask);
    model::check("a reservation is given up, one asks", [] {
        children c;
        ended_child a;
        a.number = 1;
        c.begin();
        c.end(&a);
        model::thread other([&] {
            if (c.try_reserve() == bide::wait_status::granted) {
                c.give_up();
            }
        });
        MODEL_REQUIRE(next_of(c) == 1);
    });
    model::check("cancelled: none before all have ended", [] {
        children c;
        ended_child a;
        a.number = 1;
        var<bool> all{false};
        c.begin();
        c.begin();
        model::thread ender([&] {
            c.end(&a);
            all = true;
            c.end(nullptr);
        });
        c.cancel();
        MODEL_REQUIRE(next_of(c) == 1);
        MODEL_REQUIRE(all);
        MODEL_REQUIRE(next_of(c) == 0);
        ender.join();
    });
}

TEST_CASE(
    "join_set: a wait that may not begin, or that a choice has decided against, takes nothing") {
    using node = bide::basic_waiter<platform>;
    using bide::wait_status;
    // Its time is over before it is queued.
    model::check("an attempt, one ends", [] {
        children c;
        ended_child a;
        a.number = 1;
        c.begin();
        node attempt;
        attempt.forbid(wait_status::timed_out);
        const wait_status what = c.enqueue(attempt);
        MODEL_REQUIRE(what == wait_status::timed_out);
        model::thread ender([&] { c.end(&a); });
        MODEL_REQUIRE(next_of(c) == 1);
    });
    // The other case of its choice is chosen before, or it is.
    model::check("two cases, a child for each", [] {
        children one;
        children two;
        ended_child a;
        ended_child b;
        one.begin();
        two.begin();
        two.end(&b);
        bide::basic_choice<platform> choice;
        node first;
        node second;
        first.contest(+[](void*) noexcept {}, choice);
        second.contest(+[](void*) noexcept {}, choice);
        MODEL_REQUIRE(one.enqueue(first) == wait_status::waiting);
        model::thread ender([&] { one.end(&a); });
        const bool takes_second = two.enqueue(second) == wait_status::granted;
        ender.join();
        MODEL_REQUIRE(one.take() == (takes_second ? &a : nullptr));
        MODEL_REQUIRE(two.take() == (takes_second ? nullptr : &b));
        model::record(takes_second ? "second" : "first");
    });
}

} // namespace
