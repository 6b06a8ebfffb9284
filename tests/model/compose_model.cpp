// when_all, when_any: the parent goes on once, after all its children, who are not touched after
// their ends; a cancellation or a winner ends the waits of the others.

#include <bide/task/detail/when_state.hpp>
#include <model/check.hpp>
#include <model/task_support.hpp>
#include <support/catch.hpp>
#include <support/tokens.hpp>

#include <coroutine>
#include <cstddef>
#include <utility>

namespace {

using platform = model::platform_without_lock_sleep;
using tokens = test::basic_tokens<platform>;
using link = model::link<platform>;
using when_state = bide::detail::basic_when_state<platform>;
template <class T> using var = platform::var<T>;

// What became of a child: 0 when it has not begun, 1 while it has not ended.
enum outcome { none, begun, taken, stopped };

link take(tokens& from, var<outcome>& what) {
    what = begun;
    auto token = co_await from.async_take().as_result();
    if (token) {
        token->keep();
    }
    what = token ? taken : stopped;
}

// What became of a parent and its two children.
struct report {
    var<outcome> what[2] = {none, none};
    var<int> settled[2] = {0, 0};
    var<int> went_on{0};
    var<std::size_t> winner{0};
};

// One of the children of a when_state.
class child final : public bide::detail::basic_when_child<platform> {
public:
    child(tokens& from, report& r, int which) noexcept
        : settled_(r.settled[which]), link_(take(from, r.what[which])) {}

private:
    std::coroutine_handle<> begin(bide::executor_ref where) noexcept override {
        link_.frame.promise().context = this;
        link_.frame.promise().where = where;
        return link_.frame;
    }
    void settle() noexcept override { settled_ = settled_ + 1; }

    var<int>& settled_;
    link link_;
};

// The children go with it, at once.
link compose(when_state::until what, tokens& first, tokens& second, report& r) {
    when_state both(what);
    child a(first, r, 0);
    child b(second, r, 1);
    both.add(a);
    both.add(b);
    co_await both;
    r.went_on = r.went_on + r.settled[0] * r.settled[1];
    r.winner = both.winner();
}

class parent final : public bide::detail::basic_task_control<platform> {
public:
    parent(when_state::until what, tokens& first, tokens& second) noexcept
        : basic_task_control(1, true), link_(compose(what, first, second, r)) {
        link_.frame.promise().context = this;
        link_.frame.promise().where = here_;
    }

    void begin() noexcept { to_run().run.wake(); }

    // Both have ended, and it went on once. Or it never began.
    void require_over() noexcept {
        MODEL_REQUIRE(ended == 1);
        MODEL_REQUIRE(r.went_on == (never_ran ? 0 : 1));
        MODEL_REQUIRE(r.what[0] != begun && r.what[1] != begun);
    }

    report r;
    var<int> ended{0};
    var<bool> never_ran{false};

private:
    std::coroutine_handle<> start() noexcept override { return link_.frame; }
    void never_start() noexcept override { never_ran = true; }
    void finish() noexcept override {
        ended = ended + 1;
        state_.finish();
    }
    void post_home() noexcept override { here_.post(to_run()); }

    model::at_once here_;
    link link_;
};

model::options at_random() {
    model::options o;
    o.how = model::options::method::pct;
    o.runs = 10'000;
    return o;
}

} // namespace

TEST_CASE("when_all: the parent goes on once, after all children", "[compose]") {
    const auto two = [] {
        tokens s(0);
        tokens t(0);
        parent c(when_state::until::all, s, t);
        model::thread first([&] { s.give(); });
        model::thread second([&] { t.give(); });
        c.begin();
        first.join();
        second.join();
        c.require_over();
        MODEL_REQUIRE(c.r.what[0] == taken && c.r.what[1] == taken);
    };
    model::check("all, two that end", {}, two);
    model::check("all, one that is ready", {}, [] {
        tokens s(1);
        tokens t(0);
        parent c(when_state::until::all, s, t);
        model::thread second([&] { t.give(); });
        c.begin();
        second.join();
        c.require_over();
    });
}

TEST_CASE("when_all: a cancellation reaches the children, and the parent waits for them",
          "[compose]") {
    const auto one = [] {
        tokens s(0);
        tokens t(1);
        parent c(when_state::until::all, s, t);
        model::thread canceller([&] { c.cancel(); });
        c.begin();
        canceller.join();
        c.require_over();
        MODEL_REQUIRE(c.r.what[0] == (c.never_ran ? none : stopped));
        model::record(c.never_ran ? "never" : "stopped");
    };
    model::check("all, cancel", {}, one);
    CHECK(model::outcomes({}, one) == "never stopped");
    model::check("all, cancel, end, at random", at_random(), [] {
        tokens s(0);
        tokens t(0);
        parent c(when_state::until::all, s, t);
        model::thread canceller([&] { c.cancel(); });
        model::thread giver([&] { s.give(); });
        c.begin();
        canceller.join();
        giver.join();
        c.require_over();
        MODEL_REQUIRE(c.r.what[1] == (c.never_ran ? none : stopped));
    });
}

TEST_CASE("when_any: one wins, the other is stopped or ends, the parent goes on once",
          "[compose]") {
    const auto race = [] {
        tokens s(0);
        tokens t(0);
        parent c(when_state::until::first, s, t);
        model::thread first([&] { s.give(); });
        model::thread second([&] { t.give(); });
        c.begin();
        first.join();
        second.join();
        c.require_over();
        MODEL_REQUIRE(c.r.winner < 2);
        MODEL_REQUIRE(c.r.what[c.r.winner] == taken);
        MODEL_REQUIRE((c.r.what[0] == taken) + s.available() == 1);
        MODEL_REQUIRE((c.r.what[1] == taken) + t.available() == 1);
    };
    model::check("any, two at once, at random", at_random(), race);
    model::check("any, one that waits", {}, [] {
        tokens s(0);
        tokens t(0);
        parent c(when_state::until::first, s, t);
        model::thread second([&] { t.give(); });
        c.begin();
        second.join();
        c.require_over();
        MODEL_REQUIRE(c.r.winner == 1 && c.r.what[0] == stopped);
    });
    model::check("any, one that is ready, cancel", {}, [] {
        tokens s(0);
        tokens t(1);
        parent c(when_state::until::first, s, t);
        model::thread canceller([&] { c.cancel(); });
        c.begin();
        canceller.join();
        c.require_over();
        MODEL_REQUIRE(c.never_ran || c.r.what[0] == stopped);
    });
}
