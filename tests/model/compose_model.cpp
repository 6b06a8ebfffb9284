// when_all, when_any, also with children in place: the parent resumes once, after all its children have ended. No child is
// accessed after its end. A cancellation ends the waits of all children, the winner ends those of
// the losers.

#include <bide/sched/child_deque.hpp>
#include <bide/task/compose.hpp>
#include <model/task_support.hpp>
#include <support/test.hpp>

namespace {

using platform = model::platform_without_lock_sleep;
using tokens = test::basic_tokens<platform>;
using link = model::link<platform>;
using model::at_random;
using model::progress;
using when_state = bide::detail::basic_when_state<platform>;
template <class T> using var = platform::var<T>;

// What became of a parent and its two children.
struct report {
    var<progress> what[2] = {progress::none, progress::none};
    var<int> settled[2] = {0, 0};
    var<int> went_on{0};
    var<std::size_t> winner{0};
};

// A child of a when_state.
class child final : public bide::detail::basic_when_child<platform> {
public:
    // If `fails` is not nullptr, cancels its children when this child ends.
    child(tokens& from, report& r, int which, when_state* fails = nullptr) noexcept
        : settled_(r.settled[which]), fails_(fails),
          link_(model::take<platform>(from, r.what[which])) {}
    child(link&& chain, var<int>& settled) noexcept
        : settled_(settled), fails_(nullptr), link_(std::move(chain)) {}

private:
    std::coroutine_handle<> begin(bide::executor_ref where) noexcept override {
        link_.frame.promise().context = this;
        link_.frame.promise().where = where;
        return link_.frame;
    }
    void settle() noexcept override {
        settled_ = settled_ + 1;
        if (fails_ != nullptr) {
            fails_->cancel_all(bide::cancel_reason::sibling);
        }
    }

    var<int>& settled_;
    when_state* const fails_;
    link link_;
};

// Awaits two children, and destroys them as soon as it resumes.
link compose(when_state::until what, tokens& first, tokens& second, report& r, bool fails) {
    when_state both(what);
    child a(first, r, 0, fails ? &both : nullptr);
    child b(second, r, 1);
    both.add(a);
    both.add(b);
    co_await both.wait();
    r.went_on = r.went_on + r.settled[0] * r.settled[1];
    r.winner = both.winner();
}

// The first of two children composes two children, too.
link compose_nested(tokens& first, tokens& second, tokens& third, report& inner, report& outer) {
    when_state both(when_state::until::all);
    child a(compose(when_state::until::all, first, second, inner, false), outer.settled[0]);
    child b(third, outer, 1);
    both.add(a);
    both.add(b);
    co_await both.wait();
    outer.went_on = outer.went_on + outer.settled[0] * outer.settled[1];
}

// A parent with two children, each of which takes a token of its own.
struct scene {
    scene(when_state::until what, int first, int second, bool first_fails = false) noexcept
        : s(first), t(second), c(compose(what, s, t, r, first_fails)) {}

    // Begins the parent beside one thread or two.
    void begin_beside(const std::function<void()>& one, const std::function<void()>& two = {}) {
        c.begin_beside(one, two);
        require_over();
    }
    // Both children have ended, and the parent resumed once; or the parent never began.
    void require_over() noexcept {
        MODEL_REQUIRE(c.ended == 1);
        MODEL_REQUIRE(r.went_on == (c.never_ran ? 0 : 1));
        MODEL_REQUIRE(r.what[0] != progress::begun && r.what[1] != progress::begun);
    }
    // What a child has come to that waits when the parent is cancelled.
    progress cancelled() const noexcept { return c.never_ran ? progress::none : progress::stopped; }

    tokens s;
    tokens t;
    report r;
    model::chain<platform> c;
};

// The calling thread is a worker of the executor of model::chain, until the destructor. Without
// children of its own, it runs no child in place.
class worker final : public bide::basic_worker_host<platform> {
    using local = bide::worker_local<platform>;
    using state = bide::detail::resume_state;

public:
    // What becomes of the first child: it starts at once, or pauses, and then the second one goes with it
    // or is queued.
    enum class first { starts, pauses, releases };

    explicit worker(bool has_children, first how = first::starts) noexcept
        : releases_(how == first::releases) {
        platform::near_local<state>().worker = where_;
        if (has_children) {
            local::get().host = this;
            local::get().next_budget = how == first::starts ? local::whole_budget : 1;
        }
    }
    ~worker() {
        local::get().host = nullptr;
        local::get().next_budget = local::whole_budget;
        platform::near_local<state>().worker = {};
    }

    // Runs what is left, as a worker does that has nothing else to run.
    void drain() noexcept {
        for (;;) {
            bide::runnable* const r = queue_.pop();
            if (r != nullptr) {
                r->run.wake();
            }
            // As the pool does: the children of a chain that has paused go with it.
            auto* const paused = std::exchange(paused_, nullptr);
            if (bide::runnable* const oldest =
                    paused != nullptr && releases_ ? children.steal() : nullptr) {
                queue_.push(*oldest); // as the pool does now and then
            }
            children.take_all(paused != nullptr ? paused->forked : queue_);
            if (paused != nullptr) {
                queue_.push(*paused);
            }
            if (queue_.first() == nullptr) {
                return;
            }
        }
    }
    void steal_from(worker& other) noexcept {
        if (bide::runnable* const r = other.children.steal()) {
            r->run.wake();
        }
    }

    void yield(bide::runnable& r) noexcept override { queue_.push(r); }
    void pause(bide::detail::paused_chain& chain) noexcept override { paused_ = &chain; }
    void fork(bide::detail::run_list& list) noexcept override { children.push(list); }
    bool take_back(bide::runnable& r) noexcept override { return children.take_back(r); }
    void add_timer(bide::timer&) noexcept override {}
    bool blocks() noexcept override { return true; }
    void unblocks() noexcept override {}
    bide::executor_ref executor() noexcept override { return where_; }

    bide::basic_child_deque<platform, 2> children;

private:
    bide::executor_ref where_ = model::chain<platform>::executor();
    bide::detail::run_list queue_;
    bide::detail::paused_chain* paused_ = nullptr;
    const bool releases_;
};

// Runs the parent on a worker, beside a thief and a thread that gives to the children that wait.
void run_beside_thief(scene& all, bool gives_s, bool gives_t, worker::first how = {}) {
    worker here(true, how);
    model::thread thief([&] {
        worker there(false);
        there.steal_from(here);
    });
    model::thread giver([&] {
        if (gives_s) {
            all.s.give();
        }
        if (gives_t) {
            all.t.give();
        }
    });
    all.c.begin();
    here.drain();
    giver.join();
    thief.join();
    here.drain();
    all.require_over();
}

} // namespace

TEST_CASE("when_all: the parent resumes once, after all children have ended") {
    model::check("all, two that end", [] {
        scene all(when_state::until::all, 0, 0);
        all.begin_beside([&] { all.s.give(); }, [&] { all.t.give(); });
        MODEL_REQUIRE(all.r.what[0] == progress::taken && all.r.what[1] == progress::taken);
    });
    model::check("all, one that is ready", [] {
        scene all(when_state::until::all, 1, 0);
        all.begin_beside([&] { all.t.give(); });
    });
}

TEST_CASE("when_all: a cancelled parent resumes after its children, which are cancelled") {
    const auto one = [] {
        scene all(when_state::until::all, 0, 1);
        all.begin_beside([&] { all.c.cancel(); });
        MODEL_REQUIRE(all.r.what[0] == all.cancelled());
        model::record(all.c.never_ran ? "never" : "stopped");
    };
    model::check("all, cancel", one);
    CHECK(model::outcomes({}, one) == "never stopped");
    model::check("all, cancel, end, at random", at_random(), [] {
        scene all(when_state::until::all, 0, 0);
        all.begin_beside([&] { all.c.cancel(); }, [&] { all.s.give(); });
        MODEL_REQUIRE(all.r.what[1] == all.cancelled());
    });
}

TEST_CASE("when_any: the parent resumes once, after the winner and the cancelled loser") {
    model::check("any, two at once, at random", at_random(), [] {
        scene any(when_state::until::first, 0, 0);
        any.begin_beside([&] { any.s.give(); }, [&] { any.t.give(); });
        MODEL_REQUIRE(any.r.winner < 2);
        MODEL_REQUIRE(any.r.what[any.r.winner] == progress::taken);
        MODEL_REQUIRE((any.r.what[0] == progress::taken) + any.s.available() == 1);
        MODEL_REQUIRE((any.r.what[1] == progress::taken) + any.t.available() == 1);
    });
    model::check("any, one that waits", [] {
        scene any(when_state::until::first, 0, 0);
        any.begin_beside([&] { any.t.give(); });
        MODEL_REQUIRE(any.r.winner == 1 && any.r.what[0] == progress::stopped);
    });
    model::check("any, one that is ready, cancel", [] {
        scene any(when_state::until::first, 0, 1);
        any.begin_beside([&] { any.c.cancel(); });
        MODEL_REQUIRE(any.c.never_ran || any.r.what[0] == progress::stopped);
    });
}

TEST_CASE(
    "when_all: a child that fails cancels the others, and the parent resumes after all of them") {
    model::check("the first fails, the second waits", at_random(), [] {
        scene all(when_state::until::all, 0, 0, true);
        all.begin_beside([&] { all.s.give(); }, [&] { all.t.give(); });
        MODEL_REQUIRE(all.r.what[0] == progress::taken);
        MODEL_REQUIRE((all.r.what[1] == progress::taken) + all.t.available() == 1);
    });
    const auto in_place = [](int first) {
        return [=] {
            scene all(when_state::until::all, first, 0, true);
            run_beside_thief(all, first == 0, false);
            MODEL_REQUIRE(all.r.what[0] == progress::taken);
            MODEL_REQUIRE(all.r.what[1] == progress::stopped);
        };
    };
    model::check("in place, the first fails, a thief", in_place(1));
    model::check("in place, the first waits and fails, a thief", at_random(), in_place(0));
}

TEST_CASE("when_all: children in place, taken back or stolen, end before the parent resumes") {
    const auto beside_a_thief = [](int first, int second, worker::first how = {}) {
        return [=] {
            scene all(when_state::until::all, first, second);
            run_beside_thief(all, first == 0, second == 0, how);
            MODEL_REQUIRE(all.r.what[0] == progress::taken && all.r.what[1] == progress::taken);
        };
    };
    model::check("in place, two that are ready, a thief", beside_a_thief(1, 1));
    model::check("in place, the first waits, a thief", at_random(), beside_a_thief(0, 1));
    model::check("in place, the second waits, a thief", at_random(), beside_a_thief(1, 0));
    model::check("in place, both wait, a thief", at_random(), beside_a_thief(0, 0));
    model::check("in place, the first pauses, a thief", at_random(),
                 beside_a_thief(1, 0, worker::first::pauses));
    model::check("in place, the first pauses, the second is queued, a thief", at_random(),
                 beside_a_thief(0, 1, worker::first::releases));
}

TEST_CASE("when_all: a cancelled parent resumes after its children in place") {
    const auto cancelled = [](int first, int second, bool steals) {
        return [=] {
            scene all(when_state::until::all, first, second);
            worker here(true);
            model::thread canceller([&] { all.c.cancel(); });
            model::thread thief([&] {
                worker there(false);
                if (steals) {
                    there.steal_from(here);
                }
            });
            all.c.begin();
            here.drain();
            canceller.join();
            thief.join();
            here.drain();
            all.require_over();
            for (const int i : {0, 1}) {
                const bool ready = (i == 0 ? first : second) != 0;
                MODEL_REQUIRE(ready || all.r.what[i] == all.cancelled());
            }
        };
    };
    model::check("in place, ready, cancel", cancelled(1, 1, false));
    model::check("in place, the first waits, cancel", cancelled(0, 1, false));
    model::check("in place, the second waits, cancel, a thief, at random", at_random(),
                 cancelled(1, 0, true));
    model::check("in place, both wait, cancel, a thief, at random", at_random(),
                 cancelled(0, 0, true));
}

TEST_CASE("when_all: a cancellation passes through parents that have not begun their waits") {
    const auto cancelled = [](int first, int second, int third) {
        return [=] {
            tokens s(first);
            tokens t(second);
            tokens u(third);
            report inner;
            report outer;
            model::chain<platform> c(compose_nested(s, t, u, inner, outer));
            worker here(true);
            model::thread canceller([&] { c.cancel(); });
            // The thief is no worker here, because the executor of these chains runs a posted chain
            // at once: a child that the thief cancels would end in place inside of its claim.
            model::thread thief([&] {
                if (bide::runnable* const r = here.children.steal()) {
                    r->run.wake();
                }
            });
            c.begin();
            here.drain();
            canceller.join();
            thief.join();
            here.drain();
            MODEL_REQUIRE(c.ended == 1);
            const auto stopped = c.never_ran ? progress::none : progress::stopped;
            MODEL_REQUIRE(outer.went_on == (c.never_ran ? 0 : 1));
            MODEL_REQUIRE(inner.went_on == outer.went_on);
            MODEL_REQUIRE(first != 0 || inner.what[0] == stopped);
            MODEL_REQUIRE(second != 0 || inner.what[1] == stopped);
            MODEL_REQUIRE(third != 0 || outer.what[1] == stopped);
        };
    };
    model::check("nested, the stolen child waits, cancel", at_random(), cancelled(1, 1, 0));
    model::check("nested, the innermost children wait, cancel", at_random(), cancelled(0, 0, 1));
    model::check("nested, the middle child waits, cancel", at_random(), cancelled(1, 0, 0));
}
