// when_all, when_any: the parent resumes once, after all its children have ended. No child is
// accessed after its end. A cancellation ends the waits of all children, the winner ends those of
// the losers.

#include <bide/task/detail/when_state.hpp>
#include <model/check.hpp>
#include <model/task_support.hpp>
#include <support/catch.hpp>
#include <support/tokens.hpp>

#include <coroutine>
#include <cstddef>

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
    child(tokens& from, report& r, int which) noexcept
        : settled_(r.settled[which]), link_(model::take<platform>(from, r.what[which])) {}

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

// Awaits two children, and destroys them as soon as it resumes.
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

class parent final : public model::chain<platform> {
public:
    parent(when_state::until what, tokens& first, tokens& second) noexcept
        : chain(compose(what, first, second, r)) {}

    // Both children have ended, and the parent resumed once; or the parent never began.
    void require_over() noexcept {
        MODEL_REQUIRE(ended == 1);
        MODEL_REQUIRE(r.went_on == (never_ran ? 0 : 1));
        MODEL_REQUIRE(r.what[0] != progress::begun && r.what[1] != progress::begun);
    }

    report r;
};

} // namespace

TEST_CASE("when_all: the parent resumes once, after all children have ended", "[compose]") {
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
        MODEL_REQUIRE(c.r.what[0] == progress::taken && c.r.what[1] == progress::taken);
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

TEST_CASE("when_all: a cancelled parent resumes after its children, which are cancelled",
          "[compose]") {
    const auto one = [] {
        tokens s(0);
        tokens t(1);
        parent c(when_state::until::all, s, t);
        model::thread canceller([&] { c.cancel(); });
        c.begin();
        canceller.join();
        c.require_over();
        MODEL_REQUIRE(c.r.what[0] == (c.never_ran ? progress::none : progress::stopped));
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
        MODEL_REQUIRE(c.r.what[1] == (c.never_ran ? progress::none : progress::stopped));
    });
}

TEST_CASE("when_any: the parent resumes once, after the winner and the cancelled loser",
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
        MODEL_REQUIRE(c.r.what[c.r.winner] == progress::taken);
        MODEL_REQUIRE((c.r.what[0] == progress::taken) + s.available() == 1);
        MODEL_REQUIRE((c.r.what[1] == progress::taken) + t.available() == 1);
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
        MODEL_REQUIRE(c.r.winner == 1 && c.r.what[0] == progress::stopped);
    });
    model::check("any, one that is ready, cancel", {}, [] {
        tokens s(0);
        tokens t(1);
        parent c(when_state::until::first, s, t);
        model::thread canceller([&] { c.cancel(); });
        c.begin();
        canceller.join();
        c.require_over();
        MODEL_REQUIRE(c.never_ran || c.r.what[0] == progress::stopped);
    });
}
