// oneshot, broadcast, watch: the receiver sees what is sent, with what came before it, and may then
// destroy everything. No waiter sleeps beside its value. Values are read before they are destroyed.

#include <bide/channel/broadcast.hpp>
#include <bide/channel/oneshot.hpp>
#include <bide/channel/watch.hpp>
#include <bide/core/async_op.hpp>
#include <model/sync_support.hpp>
#include <support/contested.hpp>
#include <support/test.hpp>

using namespace sync_model;

namespace {

using quick = model::platform_without_lock_sleep;
using value = var<int>;
using choice = bide::basic_choice<quick>;

template <class Platform = quick> auto oneshot() { return bide::oneshot<value, Platform>(); }
using broadcast = bide::basic_broadcast<value, quick>;
using watch = bide::basic_watch<value, quick>;

template <class Result> int number(const Result& got) { return got ? static_cast<int>(*got) : -1; }

template <class Wait> void await_decided(const Wait& w) {
    while (!w.is_complete()) {
        quick::pause();
    }
}

// What a receiver gets of 7, sent by another thread, sees what came before and may destroy at once: all of it.
template <class All> void sent_and_destroyed() {
    auto* const a = new All;
    var<int> before{0};
    model::thread sending(model::after_writing(before, [a] { a->send(); }));
    MODEL_REQUIRE(a->receive() == 7);
    MODEL_REQUIRE(before == 1);
    delete a; // though the other one is inside of send() still
}
template <class Platform> struct all_of_a_oneshot {
    std::pair<bide::basic_oneshot_sender<value, Platform>,
              bide::basic_oneshot_receiver<value, Platform>>
        ends = oneshot<Platform>();
    void send() { MODEL_REQUIRE(std::move(ends.first).send(7)); }
    int receive() { return number(ends.second.recv()); }
};
struct all_of_a_broadcast {
    broadcast b{1};
    broadcast::subscriber s = b.subscribe();
    void send() { MODEL_REQUIRE(b.send(7) == 1); }
    int receive() { return number(s.recv()); }
};
struct all_of_a_watch {
    watch w;
    watch::receiver r = w.subscribe();
    void send() { MODEL_REQUIRE(w.send(7)); }
    int receive() { return r.changed() ? static_cast<int>(r.get()) : -1; }
};

} // namespace

TEST_CASE("oneshot: a value reaches the receiver, with what came before it") {
    model::check("oneshot: send, receive", sent_and_destroyed<all_of_a_oneshot<quick>>);
    model::check("oneshot: send, receive, and the lock's waiters sleep",
                 sent_and_destroyed<all_of_a_oneshot<platform>>);
    model::check("oneshot: a receiver that tries destroys everything", [] {
        auto* const both = new auto(oneshot());
        model::thread sending([both] { MODEL_REQUIRE(std::move(both->first).send(7)); });
        const bool received = both->second.try_recv().has_value();
        model::assume(received);
        delete both; // though the other one is inside of send() still
    });
}

TEST_CASE("oneshot: an end that goes is seen by the other") {
    model::check("oneshot: the sender goes without sending", [] {
        std::optional both(oneshot());
        auto from = std::move(both->second);
        var<int> before{0};
        model::thread going(model::after_writing(before, [&] { both.reset(); }));
        MODEL_REQUIRE(number(from.recv()) == -1);
        MODEL_REQUIRE(before == 1);
    });
    model::check("oneshot: the receiver goes, and is waited for", [] {
        std::optional both(oneshot());
        auto to = std::move(both->first);
        var<int> before{0};
        model::thread going(model::after_writing(before, [&] { both.reset(); }));
        to.closed();
        MODEL_REQUIRE(before == 1);
        MODEL_REQUIRE(!std::move(to).send(1));
    });
    model::check("oneshot: both go at once, with a value or without", [] {
        auto both = oneshot();
        const bool sends = model::choose(2) == 0;
        model::thread going([&both] { const auto gone = std::move(both.second); });
        auto to = std::move(both.first);
        if (sends) {
            const auto back = std::move(to).send(7);
            MODEL_REQUIRE(back || back.error().value == 7);
        }
    });
}

TEST_CASE("oneshot: the last to go frees what all have left") {
    model::check("oneshot: both ends and an operation go at once", [] {
        auto both = oneshot();
        std::optional op(both.second.async_recv());
        model::thread dropping([&op] { op.reset(); });
        model::thread going([&both] { const auto gone = std::move(both.second); });
        auto to = std::move(both.first);
        static_cast<void>(std::move(to).send(7));
    });
}

TEST_CASE("oneshot: close() leaves what was sent, and fails what was not") {
    model::check("oneshot: send against close", [] {
        auto [to, from] = oneshot();
        bool sent = false;
        model::thread sending([&sent, t = &to] { sent = std::move(*t).send(7).has_value(); });
        from.close();
        const int got = number(from.recv());
        sending.join();
        MODEL_REQUIRE(got == (sent ? 7 : -1));
    });
}

TEST_CASE("oneshot: a wait that is cancelled leaves the value") {
    model::check("oneshot: time-out against send", {.timeouts = 1}, [] {
        auto [to, from] = oneshot();
        model::thread sending([t = &to] { MODEL_REQUIRE(std::move(*t).send(7)); });
        int got = number(from.try_recv_for(soon));
        if (got == -1) {
            got = number(from.recv());
        }
        MODEL_REQUIRE(got == 7);
    });
    model::check("oneshot: a choice that falls elsewhere, against send", [] {
        auto [to, from] = oneshot();
        choice c;
        test::contested wait(from.async_recv().as_case(), c);
        model::thread sending([t = &to] { MODEL_REQUIRE(std::move(*t).send(7)); });
        int got = -1;
        if (!wait.start() && c.claim()) {
            c.commit();
            wait.cancel();
            got = number(from.recv());
        } else {
            await_decided(wait);
            got = number(*wait.collect());
        }
        MODEL_REQUIRE(got == 7);
    });
    model::check("oneshot: one choice, two senders", [] {
        auto [to, from] = oneshot();
        auto [other_to, other_from] = oneshot();
        choice c;
        test::contested first(from.async_recv().as_case(), c);
        test::contested second(other_from.async_recv().as_case(), c);
        MODEL_REQUIRE(!first.start() && !second.start());
        model::thread sending([t = &to] { MODEL_REQUIRE(std::move(*t).send(1)); });
        MODEL_REQUIRE(std::move(other_to).send(2));
        sending.join();
        MODEL_REQUIRE(first.is_complete() != second.is_complete());
        if (first.is_complete()) {
            MODEL_REQUIRE(number(*first.collect()) == 1);
            MODEL_REQUIRE(number(other_from.try_recv()) == 2);
        } else {
            MODEL_REQUIRE(number(*second.collect()) == 2);
            MODEL_REQUIRE(number(from.try_recv()) == 1);
        }
    });
}

TEST_CASE("broadcast: a value reaches a subscriber, with what came before it") {
    model::check("broadcast: send, receive", sent_and_destroyed<all_of_a_broadcast>);
    model::check("broadcast: one in the queue, one that comes", [] {
        broadcast b(1);
        auto s = b.subscribe();
        auto t = b.subscribe();
        choice c;
        test::contested queued(t.async_recv().as_case(), c);
        MODEL_REQUIRE(!queued.start());
        model::thread receiving([&] { MODEL_REQUIRE(number(s.recv()) == 7); });
        b.send(7);
        MODEL_REQUIRE(queued.is_complete());
        MODEL_REQUIRE(number(queued.collect()) == 7);
    });
}

TEST_CASE("broadcast: a value is copied before it is pushed out, or missed") {
    model::check("broadcast: two sends, one receives, capacity 1", [] {
        broadcast b(1);
        auto s = b.subscribe();
        model::thread sending([&] {
            b.send(1);
            b.send(2);
        });
        const auto got = s.recv();
        sending.join();
        MODEL_REQUIRE(got ? *got == 1 : got.error().missed == 1);
        MODEL_REQUIRE(number(s.try_recv()) == 2);
    });
    model::check("broadcast: two receive what a third pushes out", [] {
        broadcast b(1);
        auto s = b.subscribe();
        auto t = b.subscribe();
        b.send(1);
        model::thread receiving([&] {
            const auto got = s.try_recv();
            MODEL_REQUIRE(got ? *got == 1 : got.error().missed == 1);
        });
        model::thread sending([&] { b.send(2); });
        const auto got = t.try_recv();
        MODEL_REQUIRE(got ? *got == 1 : got.error().missed == 1);
    });
}

TEST_CASE("broadcast: no subscriber waits for what will not come") {
    model::check("broadcast: the end, with a value before it", [] {
        std::optional<broadcast> b(std::in_place, 1u);
        auto s = b->subscribe();
        model::thread sending([&] {
            b->send(7);
            b.reset();
        });
        MODEL_REQUIRE(number(s.recv()) == 7);
        MODEL_REQUIRE(s.recv().error().code == bide::errc::closed);
    });
    model::check("broadcast: time-out against send", {.timeouts = 1}, [] {
        broadcast b(1);
        auto s = b.subscribe();
        model::thread sending([&] { b.send(7); });
        int got = number(s.try_recv_for(soon));
        if (got == -1) {
            got = number(s.recv());
        }
        MODEL_REQUIRE(got == 7);
    });
}

TEST_CASE("watch: a version reaches a waiter, with what came before it") {
    model::check("watch: send, changed", sent_and_destroyed<all_of_a_watch>);
    model::check("watch: the last version, then the end, and it goes", [] {
        auto* const w = new watch;
        auto r = w->subscribe();
        model::thread sending([w] {
            w->send(7);
            delete w;
        });
        MODEL_REQUIRE(r.changed());
        MODEL_REQUIRE(!r.changed());
    });
}

TEST_CASE("watch: a value is copied before it goes") {
    model::check("watch: get against send", [] {
        watch w;
        auto r = w.subscribe();
        model::thread sending([&] { w.send(7); });
        const int got = r.get();
        MODEL_REQUIRE(got == 0 || got == 7);
        sending.join();
        MODEL_REQUIRE(r.has_changed() && r.see() == 7 && !r.has_changed());
    });
    model::check("watch: two copy what a third replaces", [] {
        watch w;
        auto r = w.subscribe();
        auto s = w.subscribe();
        model::thread copying([&] { MODEL_REQUIRE(r.get() % 7 == 0); });
        model::thread sending([&] { w.send(7); });
        MODEL_REQUIRE(s.get() % 7 == 0);
    });
}

TEST_CASE("watch: no modification is lost", "[promise.watch-modify]") {
    model::check("watch: modify, twice", [] {
        watch w;
        const auto more = [&] { w.modify([](value& n) { n = n + 1; }); };
        model::thread other(more);
        more();
        other.join();
        MODEL_REQUIRE(w.get() == 2);
    });
    model::check("watch: modify against send", [] {
        watch w;
        auto r = w.subscribe();
        model::thread sending([&] { MODEL_REQUIRE(w.send(10)); });
        MODEL_REQUIRE(w.modify([](value& n) { n = n + 1; }));
        sending.join();
        const int last = w.get();
        MODEL_REQUIRE(last == 10 || last == 11);
        MODEL_REQUIRE(r.has_changed());
    });
    model::check("watch: get against modify", [] {
        watch w;
        auto r = w.subscribe();
        model::thread changing([&] { w.modify([](value& n) { n = n + 1; }); });
        const int got = r.get();
        MODEL_REQUIRE(got == 0 || got == 1);
    });
    model::check("watch: modify against send, a third reads", random(10'000), [] {
        watch w;
        auto r = w.subscribe();
        model::thread sending([&] { w.send(10); });
        model::thread reading([&] {
            const int got = r.get();
            MODEL_REQUIRE(got == 0 || got == 1 || got == 10 || got == 11);
        });
        w.modify([](value& n) { n = n + 1; });
    });
    model::check("watch: modify against close", [] {
        watch w;
        model::thread closing([&] { w.close(); });
        const bool modified = w.modify([](value& n) { n = n + 1; });
        closing.join();
        MODEL_REQUIRE(w.get() == (modified ? 1 : 0));
        MODEL_REQUIRE(!w.send(7));
    });
}

TEST_CASE("watch: see() marks what it has copied, and no more") {
    model::check("watch: see against send", [] {
        watch w;
        auto r = w.subscribe();
        model::thread sending([&] { w.send(7); });
        const int got = r.see();
        sending.join();
        MODEL_REQUIRE(r.has_changed() == (got == 0));
    });
}
