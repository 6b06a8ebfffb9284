#include <bide/task/detail/task_control.hpp>
#include <model/task_support.hpp>
#include <support/test.hpp>

// Tasks that wait, are woken, cancelled, joined and detached. Each suspension is ended once, and
// not accessed afterwards. The outcome is taken or discarded once, and the memory is freed once.
// The primitive that the tasks wait for is support/tokens.hpp.

namespace {

using platform = model::platform_without_lock_sleep;
using tokens = test::basic_tokens<platform>;
using state = bide::detail::basic_task_state<platform>;
using bide::cancel_reason;
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
        } else {
            MODEL_REQUIRE(news == 1);
            stopped = stopped + 1;
        }
    }
};

// Takes that many tokens, cancelled or not, and keeps them or gives each back.
link take(tokens& from, notes& n, int times = 1, bool keeps = true) {
    for (int i = 0; i < times; ++i) {
        auto token = co_await from.async_take().as_result();
        n.note(token);
        if (token && keeps) {
            token->keep();
        }
    }
}

// A task that waits for tokens, and what runs beside it.
struct scene {
    template <class... Args>
    explicit scene(link (*make)(tokens&, notes&, Args...), std::type_identity_t<Args>... args)
        : c(make(t, n, args...)) {}
    explicit scene(link (*make)(scene&)) : c(make(*this)) {}

    // Begins the task, beside one thread or two.
    void begin_beside(const std::function<void()>& one, const std::function<void()>& two = {}) {
        c.begin_beside(one, two);
        MODEL_REQUIRE(c.ended == 1);
    }
    bool cancel() noexcept {
        n.news = 1;
        return c.cancel();
    }
    // How many waits the task had.
    int waits() const noexcept { return n.taken + n.stopped; }

    tokens t{0};
    notes n;
    std::optional<platform::stop_token> token; // the task's
    var<cancel_reason> seen{cancel_reason::none};
    chain c;
};

TEST_CASE("task_state: a wake reaches a task that is entering its wait") {
    const auto woken = [](int times) {
        scene s(take, times, true);
        s.begin_beside([&] {
            for (int i = 0; i < times; ++i) {
                s.t.give();
            }
        });
        MODEL_REQUIRE(s.n.taken == times);
    };
    model::check("wake, going idle", {.weak_failures = 1}, [=] { woken(1); });
    model::check("wake, going idle, twice", [=] { woken(2); });
}

TEST_CASE("task_state: a cancellation ends a wait, or the wait does not begin") {
    const auto one = [] {
        scene s(take, 1, true);
        s.begin_beside([&] { MODEL_REQUIRE(s.cancel()); });
        MODEL_REQUIRE(s.n.stopped == (s.c.never_ran ? 0 : 1));
        model::record(s.c.never_ran ? "never" : "stopped");
    };
    model::check("cancel, going idle", {.weak_failures = 1}, one);
    CHECK(model::outcomes({}, one) == "never stopped");
    model::check("cancel, a wait that is refused", [] {
        scene s(take, 2, true);
        s.t.give();
        s.begin_beside([&] { MODEL_REQUIRE(s.cancel()); });
        MODEL_REQUIRE(s.waits() == (s.c.never_ran ? 0 : 2));
    });
}

TEST_CASE("task_state: a wait is ended by its wake or by a cancellation") {
    const auto one = [] {
        scene s(take, 1, true);
        s.begin_beside([&] { s.cancel(); }, [&] { s.t.give(); });
        MODEL_REQUIRE(s.n.taken + s.t.available() == 1);
        MODEL_REQUIRE(s.waits() == (s.c.never_ran ? 0 : 1));
        model::record(s.c.never_ran ? "never" : s.n.taken == 1 ? "taken" : "stopped");
    };
    model::check("cancel, wake", one);
    CHECK(model::outcomes({}, one) == "never stopped taken");
}

TEST_CASE("task_state: one of two cancellers ends the wait") {
    model::check("two cancellers", [] {
        scene s(take, 1, true);
        s.n.news = 1;
        s.begin_beside([&] { s.c.cancel(); }, [&] { s.c.cancel(); });
        MODEL_REQUIRE(s.n.stopped == (s.c.never_ran ? 0 : 1));
    });
}

link read_reason(scene& s) {
    static_cast<void>(co_await s.t.async_take().as_result());
    s.seen = s.c.reason();
}

TEST_CASE("task_state: the canceller that stops the task gives the reason") {
    const auto two = [] {
        scene s(read_reason);
        s.begin_beside([&] { s.c.cancel(cancel_reason::timeout); },
                       [&] { s.c.cancel(bide::user_reason(1)); });
        MODEL_REQUIRE(s.c.never_ran || s.seen == s.c.reason());
        model::record(s.c.reason() == cancel_reason::timeout ? "timeout" : "user");
    };
    model::check("two cancellers, reasons", two);
    CHECK(model::outcomes({}, two) == "timeout user");
}

constexpr int budget = bide::worker_local<platform>::whole_budget;

TEST_CASE("task_state: a task whose operations are all ready is stopped when its budget is spent") {
    const auto one = [] {
        scene s(take, 2 * budget, false);
        s.t.give();
        s.begin_beside([&] { s.cancel(); });
        MODEL_REQUIRE(s.waits() == (s.c.never_ran ? 0 : 2 * budget));
        MODEL_REQUIRE(s.t.available() == 1);
        model::record(s.c.never_ran      ? "never"
                      : s.n.stopped == 0 ? "taken"
                      : s.n.stopped == 1 ? "late"
                                         : "stopped");
    };
    model::check("cancel, all ready", one);
    CHECK(model::outcomes({}, one) == "late never stopped taken");
    model::check("cancel, ready or given meanwhile", [] {
        scene s(take, budget, false);
        s.n.news = 1;
        s.begin_beside([&] { s.c.cancel(); }, [&] { s.t.give(); });
        MODEL_REQUIRE(s.waits() == (s.c.never_ran ? 0 : budget));
        MODEL_REQUIRE(s.t.available() == 1);
    });
}

TEST_CASE("task_state: a task that is woken while it is interrupted is posted once, and active") {
    model::check("wake, claim", [] {
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

// Waits once behind the shield, and once without.
link take_shielded(scene& s) {
    MODEL_REQUIRE(s.c.shield());
    {
        auto token = co_await s.t.async_take().as_result();
        MODEL_REQUIRE(token);
        token->keep();
        s.n.note(token);
    }
    s.c.unshield();
    auto token = co_await s.t.async_take().as_result();
    MODEL_REQUIRE(!token);
    s.n.note(token);
}

// A task that learns of a cancellation, by any of three calls, finds its token stopped.
link unshield_and_see(scene& s) {
    MODEL_REQUIRE(s.c.shield());
    s.token = s.c.get_stop_token();
    s.c.unshield();
    co_return;
}

link ask_and_see(scene& s) {
    s.token = s.c.get_stop_token();
    const bool cancelled = s.c.is_cancelled();
    MODEL_REQUIRE(!cancelled || s.token->stop_requested());
    co_return;
}

link wait_and_see(scene& s) {
    const platform::stop_token token = s.c.get_stop_token();
    auto taken = co_await s.t.async_take().as_result();
    MODEL_REQUIRE(!taken);
    MODEL_REQUIRE(token.stop_requested());
}

link watch_stop(scene& s) {
    s.token = s.c.get_stop_token();
    co_return;
}

TEST_CASE("task_state: a shield keeps a cancellation from taking effect until its end") {
    model::check("cancel, shielded", [] {
        scene s(take_shielded);
        model::thread canceller([&] { s.cancel(); });
        s.c.begin();
        s.t.give();
        canceller.join();
        MODEL_REQUIRE(s.c.ended == 1);
        MODEL_REQUIRE(s.n.stopped == (s.c.never_ran ? 0 : 1));
    });
}

TEST_CASE("task_state: the task that removes a shield sees the writes before the cancellation") {
    const auto one = [] {
        state s(1, false);
        var<int> news{0};
        model::thread canceller(model::after_writing(news, [&] { s.cancel(); }));
        MODEL_REQUIRE(s.shield() && s.shield());
        MODEL_REQUIRE(!s.unshield());
        const bool cancelled = s.unshield();
        MODEL_REQUIRE(!cancelled || news == 1);
        canceller.join();
        MODEL_REQUIRE(s.is_cancelled());
        model::record(cancelled ? "before" : "after");
    };
    model::check("cancel, unshield", one);
    CHECK(model::outcomes({}, one) == "after before");
}

TEST_CASE("task_state: a cancellation stops the stop token") {
    const auto seen_by = [](link (*task)(scene&)) {
        return [task] {
            scene s(task);
            bool in_time = false;
            s.begin_beside([&] { in_time = s.c.cancel(); });
            MODEL_REQUIRE(!s.token || s.token->stop_requested() == in_time);
            model::record(!s.token ? "never" : in_time ? "stopped" : "late");
        };
    };
    model::check("cancel, get_stop_token", seen_by(watch_stop));
    CHECK(model::outcomes({}, seen_by(watch_stop)) == "late never stopped");
    model::check("cancel, unshield, token", seen_by(unshield_and_see));
    model::check("cancel, is_cancelled, token", seen_by(ask_and_see));
    model::check("cancel, wait, token", seen_by(wait_and_see));
}

// ---- The end: the outcome and the references

link nothing() { co_return; }

// A task that a worker runs, and its handle.
struct spawned {
    explicit spawned(link&& what, bool kept = true)
        : c(*new cell(h, std::move(what), kept, book)) {}

    void start() {
        worker.emplace([this] { c.begin(); });
    }
    void require_end(int discarded) {
        worker.reset();
        MODEL_REQUIRE(book.discarded == discarded && book.destroyed == 1);
    }

    home h;
    ledger book;
    cell& c;
    std::optional<model::thread> worker;
};

TEST_CASE("task_state: the outcome is taken or discarded, once") {
    model::check("join, end", [] {
        spawned s(nothing());
        s.start();
        s.c.ended_gate().wait();
        MODEL_REQUIRE(s.c.take() == 1);
        s.c.forgo();
        s.require_end(0);
    });
    model::check("detach, end", [] {
        spawned s(nothing());
        s.start();
        s.c.touched[0] = 1;
        s.c.forgo();
        s.require_end(2);
    });
    const auto learned = [](bool cancels) {
        spawned s(nothing());
        s.start();
        const bool ended = cancels ? !s.c.cancel() : s.c.is_complete();
        MODEL_REQUIRE(!ended || s.c.take() == 1);
        s.c.forgo();
        s.require_end(ended ? 0 : 1);
    };
    model::check("ask whether it has ended, end", [=] { learned(false); });
    model::check("cancel, end", [=] { learned(true); });
}

TEST_CASE("task_state: the last reference destroys the task, after all accesses") {
    model::check("three references", [] {
        spawned s(nothing());
        s.c.add_reference();
        s.start();
        model::thread other([&c = s.c] {
            c.touched[1] = 1;
            c.drop_reference();
        });
        s.c.touched[0] = 1;
        s.c.forgo();
        other.join();
        s.require_end(2);
    });
    model::check("refused", [] {
        spawned s(nothing());
        s.worker.emplace([&c = s.c] { c.refuse(); });
        s.c.ended_gate().wait();
        MODEL_REQUIRE(s.c.take() == 2);
        s.c.forgo();
        s.require_end(0);
    });
}

TEST_CASE("task_state: the shutdown of the scheduler ends a wait") {
    model::check("close, going idle", [] {
        tokens t(0);
        notes n;
        n.news = 1;
        spawned s(take(t, n), false);
        s.start();
        s.h.registry().close();
        s.h.registry().for_each([](auto& task) { task.cancel(); });
        s.require_end(1);
        MODEL_REQUIRE(n.stopped == 1);
    });
}

TEST_CASE("task_state: a wake, a cancellation, a join and the end may race") {
    model::check("wake, cancel, join, at random", at_random(), [] {
        tokens t(0);
        notes n;
        spawned s(take(t, n, 2));
        s.c.add_reference();
        s.start();
        model::thread giver([&] {
            t.give();
            t.give();
        });
        model::thread canceller([&] {
            n.news = 1;
            s.c.cancel();
            s.c.drop_reference();
        });
        s.c.ended_gate().wait();
        const int outcome = s.c.take();
        s.c.forgo();
        giver.join();
        canceller.join();
        s.require_end(0);
        MODEL_REQUIRE(n.taken + n.stopped == (outcome == 2 ? 0 : 2));
        MODEL_REQUIRE(n.taken + t.available() == 2);
    });
    model::check("wake, two cancellers, detach, at random", at_random(), [] {
        tokens t(0);
        notes n;
        n.news = 1;
        spawned s(take(t, n));
        s.c.add_reference();
        s.start();
        model::thread giver([&] { t.give(); });
        model::thread canceller([&] {
            s.c.cancel();
            s.c.drop_reference();
        });
        s.c.cancel();
        s.c.forgo();
        giver.join();
        canceller.join();
        s.require_end(1);
        MODEL_REQUIRE(n.taken + t.available() == 1);
    });
}

} // namespace
