#include <bide/core/detail/worker_host.hpp>
#include <bide/task/detail/task_control.hpp>
#include <bide/task/detail/task_header.hpp>
#include <bide/task/detail/task_state.hpp>
#include <model/check.hpp>
#include <model/task_support.hpp>
#include <support/test.hpp>
#include <support/tokens.hpp>

// Tasks that wait, are woken, cancelled, joined and detached. Each suspension is ended once, and
// not accessed afterwards. The outcome is taken or discarded once, and the memory is freed once.
// The primitive that the tasks wait for is support/tokens.hpp.

namespace {

using platform = model::platform_without_lock_sleep;
using tokens = test::basic_tokens<platform>;
using state = bide::detail::basic_task_state<platform>;
using model::at_random;
using chain = model::chain<platform>;
using link = model::link<platform>;
using home = model::task_home<platform>;
using ledger = model::ledger<platform>;
using cell = model::task_cell<platform>;
template <class T> using var = platform::var<T>;

// What a canceller wrote before, and what became of the waits.
struct notes {
    var<int> news{0};
    var<int> taken{0};
    var<int> stopped{0};

    template <class R> void note(R& token) noexcept {
        if (token) {
            taken = taken + 1;
            token->keep();
        } else {
            MODEL_REQUIRE(news == 1);
            stopped = stopped + 1;
        }
    }
};

link take(tokens& from, notes& n) {
    auto token = co_await from.async_take().as_result();
    n.note(token);
}

link take_twice(tokens& from, notes& n) {
    for (int i = 0; i < 2; ++i) {
        auto token = co_await from.async_take().as_result();
        n.note(token);
    }
}

bool cancel(chain& c, notes& n) noexcept {
    n.news = 1;
    return c.cancel();
}

TEST_CASE("task_state: a wake reaches a task that is entering its wait", "[task_state]") {
    const auto one = [] {
        tokens t(0);
        notes n;
        chain c(take(t, n));
        model::thread giver([&] { t.give(); });
        c.begin();
        giver.join();
        MODEL_REQUIRE(n.taken == 1 && c.ended == 1);
    };
    model::check("wake, going idle", {}, one);
    model::check("wake, going idle, weak", {.weak_failures = 1}, one);
    model::check("wake, going idle, twice", {}, [] {
        tokens t(0);
        notes n;
        chain c(take_twice(t, n));
        model::thread giver([&] {
            t.give();
            t.give();
        });
        c.begin();
        giver.join();
        MODEL_REQUIRE(n.taken == 2 && c.ended == 1);
    });
}

TEST_CASE("task_state: a cancellation ends a wait, or the wait does not begin", "[task_state]") {
    const auto one = [] {
        tokens t(0);
        notes n;
        chain c(take(t, n));
        model::thread canceller([&] { MODEL_REQUIRE(cancel(c, n)); });
        c.begin();
        canceller.join();
        MODEL_REQUIRE(c.ended == 1);
        MODEL_REQUIRE(n.stopped == (c.never_ran ? 0 : 1));
        model::record(c.never_ran ? "never" : "stopped");
    };
    model::check("cancel, going idle", {}, one);
    model::check("cancel, going idle, weak", {.weak_failures = 1}, one);
    CHECK(model::outcomes({}, one) == "never stopped");
    model::check("cancel, a wait that is refused", {}, [] {
        tokens t(0);
        notes n;
        t.give();
        chain c(take_twice(t, n));
        model::thread canceller([&] { MODEL_REQUIRE(cancel(c, n)); });
        c.begin();
        canceller.join();
        MODEL_REQUIRE(c.ended == 1);
        MODEL_REQUIRE(n.taken + n.stopped == (c.never_ran ? 0 : 2));
    });
}

TEST_CASE("task_state: a wait is ended by its wake or by a cancellation", "[task_state]") {
    const auto one = [] {
        tokens t(0);
        notes n;
        chain c(take(t, n));
        model::thread canceller([&] { cancel(c, n); });
        model::thread giver([&] { t.give(); });
        c.begin();
        canceller.join();
        giver.join();
        MODEL_REQUIRE(c.ended == 1);
        MODEL_REQUIRE(n.taken + t.available() == 1);
        MODEL_REQUIRE(n.taken + n.stopped == (c.never_ran ? 0 : 1));
        model::record(c.never_ran ? "never" : n.taken == 1 ? "taken" : "stopped");
    };
    model::check("cancel, wake", {}, one);
    CHECK(model::outcomes({}, one) == "never stopped taken");
}

TEST_CASE("task_state: one of two cancellers ends the wait", "[task_state]") {
    model::check("two cancellers", {}, [] {
        tokens t(0);
        notes n;
        n.news = 1;
        chain c(take(t, n));
        model::thread first([&] { c.cancel(); });
        model::thread second([&] { c.cancel(); });
        c.begin();
        first.join();
        second.join();
        MODEL_REQUIRE(c.ended == 1);
        MODEL_REQUIRE(n.stopped == (c.never_ran ? 0 : 1));
    });
}

link read_reason(tokens& from, chain*& self, var<bide::cancel_reason>& to) {
    static_cast<void>(co_await from.async_take().as_result());
    to = self->reason();
}

TEST_CASE("task_state: the canceller that stops the task gives the reason", "[task_state]") {
    using bide::cancel_reason;
    const auto two = [] {
        tokens t(0);
        notes n;
        n.news = 1;
        var<cancel_reason> seen{cancel_reason::none};
        chain* self = nullptr;
        chain c(read_reason(t, self, seen));
        self = &c;
        model::thread first([&] { c.cancel(cancel_reason::timeout); });
        model::thread second([&] { c.cancel(bide::user_reason(1)); });
        c.begin();
        first.join();
        second.join();
        MODEL_REQUIRE(c.never_ran || seen == c.reason());
        model::record(c.reason() == cancel_reason::timeout ? "timeout" : "user");
    };
    model::check("two cancellers, reasons", {}, two);
    CHECK(model::outcomes({}, two) == "timeout user");
}

// ---- Operations that are ready

constexpr int budget = bide::worker_local<platform>::whole_budget;

// Takes and gives back a token that many times, cancelled or not.
link take_and_give(tokens& from, int times, notes& n) {
    for (int i = 0; i < times; ++i) {
        auto token = co_await from.async_take().as_result();
        if (token) {
            n.taken = n.taken + 1;
        } else {
            MODEL_REQUIRE(n.news == 1);
            n.stopped = n.stopped + 1;
        }
    }
}

TEST_CASE("task_state: a task whose operations are all ready is stopped when its budget is spent",
          "[task_state]") {
    const auto one = [] {
        tokens t(1);
        notes n;
        chain c(take_and_give(t, 2 * budget, n));
        model::thread canceller([&] { cancel(c, n); });
        c.begin();
        canceller.join();
        MODEL_REQUIRE(c.ended == 1);
        MODEL_REQUIRE(n.taken + n.stopped == (c.never_ran ? 0 : 2 * budget));
        MODEL_REQUIRE(t.available() == 1);
        model::record(c.never_ran      ? "never"
                      : n.stopped == 0 ? "taken"
                      : n.stopped == 1 ? "late"
                                       : "stopped");
    };
    model::check("cancel, all ready", {}, one);
    CHECK(model::outcomes({}, one) == "late never stopped taken");
    model::check("cancel, ready or given meanwhile", {}, [] {
        tokens t(0);
        notes n;
        n.news = 1;
        chain c(take_and_give(t, budget, n));
        model::thread canceller([&] { c.cancel(); });
        model::thread giver([&] { t.give(); });
        c.begin();
        canceller.join();
        giver.join();
        MODEL_REQUIRE(c.ended == 1);
        MODEL_REQUIRE(n.taken + n.stopped == (c.never_ran ? 0 : budget));
        MODEL_REQUIRE(t.available() == 1);
    });
}

TEST_CASE("task_state: a task that is woken while it is interrupted is posted once, and active",
          "[task_state]") {
    model::check("wake, claim", {}, [] {
        state s(1, false);
        MODEL_REQUIRE(s.begin_wait());
        bool by_wake = false;
        bool by_claim = false;
        model::thread waking([&] { by_wake = s.wake(); });
        if (s.cancel() == state::cancelling::claimed) {
            by_claim = s.end_claim();
        }
        waking.join();
        MODEL_REQUIRE(by_wake != by_claim);
        MODEL_REQUIRE(!s.is_waiting());
    });
}

// ---- Shields and stop tokens

// Waits once behind the shield, and once without.
link take_shielded(chain*& self, tokens& from, notes& n) {
    MODEL_REQUIRE(self->shield());
    {
        auto token = co_await from.async_take().as_result();
        MODEL_REQUIRE(token);
        token->keep();
        n.taken = n.taken + 1;
    }
    self->unshield();
    auto token = co_await from.async_take().as_result();
    MODEL_REQUIRE(!token);
    n.note(token);
}

// A task that learns of a cancellation, by any of three calls, finds its token stopped.
link unshield_and_see(chain*& self, std::optional<platform::stop_token>& token) {
    MODEL_REQUIRE(self->shield());
    token = self->get_stop_token();
    self->unshield();
    co_return;
}

link ask_and_see(chain*& self, std::optional<platform::stop_token>& token) {
    token = self->get_stop_token();
    const bool cancelled = self->is_cancelled();
    MODEL_REQUIRE(!cancelled || token->stop_requested());
    co_return;
}

link wait_and_see(chain*& self, tokens& from) {
    const platform::stop_token token = self->get_stop_token();
    auto taken = co_await from.async_take().as_result();
    MODEL_REQUIRE(!taken);
    MODEL_REQUIRE(token.stop_requested());
}

link watch_stop(chain*& self, std::optional<platform::stop_token>& token) {
    token = self->get_stop_token();
    co_return;
}

TEST_CASE("task_state: a shield keeps a cancellation from taking effect until its end",
          "[task_state]") {
    model::check("cancel, shielded", {}, [] {
        tokens t(0);
        notes n;
        chain* self = nullptr;
        chain c(take_shielded(self, t, n));
        self = &c;
        model::thread canceller([&] { cancel(c, n); });
        c.begin();
        t.give();
        canceller.join();
        MODEL_REQUIRE(c.ended == 1);
        MODEL_REQUIRE(n.stopped == (c.never_ran ? 0 : 1));
    });
}

TEST_CASE("task_state: the task that removes a shield sees the writes before the cancellation",
          "[task_state]") {
    const auto one = [] {
        state s(1, false);
        var<int> news{0};
        model::thread canceller([&] {
            news = 1;
            s.cancel();
        });
        MODEL_REQUIRE(s.shield() && s.shield());
        MODEL_REQUIRE(!s.unshield());
        const bool cancelled = s.unshield();
        MODEL_REQUIRE(!cancelled || news == 1);
        canceller.join();
        MODEL_REQUIRE(s.is_cancelled());
        model::record(cancelled ? "before" : "after");
    };
    model::check("cancel, unshield", {}, one);
    CHECK(model::outcomes({}, one) == "after before");
}

TEST_CASE("task_state: a cancellation stops the stop token", "[task_state]") {
    const auto one = [] {
        std::optional<platform::stop_token> token;
        chain* self = nullptr;
        chain c(watch_stop(self, token));
        self = &c;
        bool in_time = false;
        model::thread canceller([&] { in_time = c.cancel(); });
        c.begin();
        canceller.join();
        MODEL_REQUIRE(c.ended == 1);
        MODEL_REQUIRE(!token || token->stop_requested() == in_time);
        model::record(!token ? "never" : in_time ? "stopped" : "late");
    };
    model::check("cancel, get_stop_token", {}, one);
    CHECK(model::outcomes({}, one) == "late never stopped");
}

TEST_CASE("task_state: a task that learns of its cancellation finds its token stopped",
          "[task_state]") {
    const auto seen_by = [](auto&& make) {
        std::optional<platform::stop_token> token;
        tokens t(0);
        chain* self = nullptr;
        chain c(make(self, token, t));
        self = &c;
        bool in_time = false;
        model::thread canceller([&] { in_time = c.cancel(); });
        c.begin();
        canceller.join();
        MODEL_REQUIRE(c.ended == 1);
        MODEL_REQUIRE(!token || token->stop_requested() == in_time);
    };
    model::check("cancel, unshield, token", {}, [=] {
        seen_by([](auto& self, auto& token, auto&) { return unshield_and_see(self, token); });
    });
    model::check("cancel, is_cancelled, token", {}, [=] {
        seen_by([](auto& self, auto& token, auto&) { return ask_and_see(self, token); });
    });
    model::check("cancel, wait, token", {}, [=] {
        seen_by([](auto& self, auto&, auto& t) { return wait_and_see(self, t); });
    });
}

// ---- The end: the outcome and the references

link nothing() { co_return; }

TEST_CASE("task_state: the outcome is taken or discarded, once", "[task_state]") {
    model::check("join, end", {}, [] {
        home h;
        ledger book;
        auto* const c = new cell(h, nothing(), true, book);
        model::thread worker([c] { c->begin(); });
        c->ended_gate().wait();
        MODEL_REQUIRE(c->take() == 1);
        c->forgo();
        worker.join();
        MODEL_REQUIRE(book.discarded == 0 && book.destroyed == 1);
    });
    model::check("detach, end", {}, [] {
        home h;
        ledger book;
        auto* const c = new cell(h, nothing(), true, book);
        model::thread worker([c] { c->begin(); });
        c->touched[0] = 1;
        c->forgo();
        worker.join();
        MODEL_REQUIRE(book.discarded == 2 && book.destroyed == 1);
    });
    model::check("ask whether it has ended, end", {}, [] {
        home h;
        ledger book;
        auto* const c = new cell(h, nothing(), true, book);
        model::thread worker([c] { c->begin(); });
        const bool ended = c->is_complete();
        MODEL_REQUIRE(!ended || c->take() == 1);
        c->forgo();
        worker.join();
        MODEL_REQUIRE(book.discarded == (ended ? 0 : 1) && book.destroyed == 1);
    });
    model::check("cancel, end", {}, [] {
        home h;
        ledger book;
        auto* const c = new cell(h, nothing(), true, book);
        model::thread worker([c] { c->begin(); });
        const bool ended = !c->cancel();
        MODEL_REQUIRE(!ended || c->take() == 1);
        c->forgo();
        worker.join();
        MODEL_REQUIRE(book.discarded == (ended ? 0 : 1) && book.destroyed == 1);
    });
}

TEST_CASE("task_state: the last reference destroys the task, after all accesses", "[task_state]") {
    model::check("three references", {}, [] {
        home h;
        ledger book;
        auto* const c = new cell(h, nothing(), true, book);
        c->add_reference();
        model::thread worker([c] { c->begin(); });
        model::thread other([c] {
            c->touched[1] = 1;
            c->drop_reference();
        });
        c->touched[0] = 1;
        c->forgo();
        worker.join();
        other.join();
        MODEL_REQUIRE(book.discarded == 2 && book.destroyed == 1);
    });
    model::check("refused", {}, [] {
        home h;
        ledger book;
        auto* const c = new cell(h, nothing(), true, book);
        model::thread refusing([c] { c->refuse(); });
        c->ended_gate().wait();
        MODEL_REQUIRE(c->take() == 2);
        c->forgo();
        refusing.join();
        MODEL_REQUIRE(book.discarded == 0 && book.destroyed == 1);
    });
}

TEST_CASE("task_state: the shutdown of the scheduler ends a wait", "[task_state]") {
    const auto one = [] {
        home h;
        ledger book;
        tokens t(0);
        notes n;
        n.news = 1;
        auto* const c = new cell(h, take(t, n), false, book);
        model::thread worker([c] { c->begin(); });
        h.registry().close();
        h.registry().for_each([](auto& task) { task.cancel(); });
        worker.join();
        MODEL_REQUIRE(n.stopped == 1);
        MODEL_REQUIRE(book.discarded == 1 && book.destroyed == 1);
    };
    model::check("close, going idle", {}, one);
}

TEST_CASE("task_state: a wake, a cancellation, a join and the end may race", "[task_state]") {
    model::check("wake, cancel, join, at random", at_random(), [] {
        home h;
        ledger book;
        tokens t(0);
        notes n;
        auto* const c = new cell(h, take_twice(t, n), true, book);
        c->add_reference();
        model::thread worker([c] { c->begin(); });
        model::thread giver([&] {
            t.give();
            t.give();
        });
        model::thread canceller([&] {
            n.news = 1;
            c->cancel();
            c->drop_reference();
        });
        c->ended_gate().wait();
        const int outcome = c->take();
        c->forgo();
        worker.join();
        giver.join();
        canceller.join();
        MODEL_REQUIRE(n.taken + n.stopped == (outcome == 2 ? 0 : 2));
        MODEL_REQUIRE(n.taken + t.available() == 2);
        MODEL_REQUIRE(book.discarded == 0 && book.destroyed == 1);
    });
    model::check("wake, two cancellers, detach, at random", at_random(), [] {
        home h;
        ledger book;
        tokens t(0);
        notes n;
        n.news = 1;
        auto* const c = new cell(h, take(t, n), true, book);
        c->add_reference();
        model::thread worker([c] { c->begin(); });
        model::thread giver([&] { t.give(); });
        model::thread canceller([&] {
            c->cancel();
            c->drop_reference();
        });
        c->cancel();
        c->forgo();
        worker.join();
        giver.join();
        canceller.join();
        MODEL_REQUIRE(n.taken + t.available() == 1);
        MODEL_REQUIRE(book.discarded == 1 && book.destroyed == 1);
    });
}

} // namespace
