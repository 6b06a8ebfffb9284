// Waits that a stop token ends: the real wait of each primitive, with the stop tokens of the model.
// Whichever comes first, the release or the stop, what was released is taken or still there. The callback
// runs on the thread that requests the stop, beside the wait and beside the end of the primitive.

#include <bide/core/callback_wait.hpp>
#include <bide/sync/condition_variable.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/notify.hpp>
#include <bide/sync/once.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/sync/shared_mutex.hpp>
#include <model/channel_support.hpp>
#include <support/coroutines.hpp>
#include <support/test.hpp>

using namespace channel_model;

namespace {

using source = platform::stop_source;
using token = platform::stop_token;
using semaphore = bide::basic_semaphore<awake>;
using permit = bide::basic_permit<awake>;
using mutex = bide::basic_mutex<awake>;
using bide::errc;

// A release on a thread of its own, a stop on a third one, or the other way round: the threads of a model are
// not alike, as the body itself is one of them.
template <class Wait, class Release> void beside(const source& s, Wait wait, Release release) {
    model::thread releasing(release);
    model::thread stopping([mine = s]() mutable { mine.request_stop(); });
    wait(s.get_token());
}

TEST_CASE("stoppable_wait: a semaphore's permit is taken, or still there",
          "[promise.release-or-stop]") {
    const auto one = [] {
        semaphore s(0);
        const source stop;
        bool taken = false;
        var<int> given{0};
        beside(
            stop,
            [&](const token& t) {
                const auto got = s.acquire(t);
                MODEL_REQUIRE(got ? given == 1 : got.error() == errc::stopped);
                taken = got.has_value();
            },
            [&] {
                given = 1;
                s.release();
            });
        MODEL_REQUIRE(s.available() == (taken ? 0 : 1));
        MODEL_REQUIRE(s.waiters() == 0);
        model::record(taken ? "taken" : "stopped");
    };
    model::check("stoppable_wait: acquire, release", one);
    CHECK(model::outcomes({}, one) == "stopped taken");
}

TEST_CASE("stoppable_wait: the waiter that learned of the stop sees what came before the request") {
    model::check("stoppable_wait: what came before", [] {
        semaphore s(0);
        source stop;
        var<int> reason{0};
        model::thread stopping(model::after_writing(reason, [&] { stop.request_stop(); }));
        MODEL_REQUIRE(!s.acquire(stop.get_token()));
        MODEL_REQUIRE(reason == 1);
    });
}

TEST_CASE("stoppable_wait: the primitive, the source and the token may end with the wait") {
    model::check("stoppable_wait: destroyed by the waiter", [] {
        auto s = std::make_unique<semaphore>(0);
        auto stop = std::make_unique<source>();
        model::thread stopping([mine = *stop]() mutable { mine.request_stop(); });
        MODEL_REQUIRE(!s->acquire(stop->get_token()));
        s.reset();
        stop.reset();
    });
    model::check("stoppable_wait: a grant, destroyed by the waiter", [] {
        auto s = std::make_unique<semaphore>(0);
        source stop;
        model::thread releasing([mine = s.get()] { mine->release(); });
        model::thread stopping([mine = stop]() mutable { mine.request_stop(); });
        if (s->acquire(stop.get_token())) {
            s.reset();
        } else {
            releasing.join();
        }
    });
}

TEST_CASE("stoppable_wait: two that wait with a token, and one release") {
    model::check("stoppable_wait: two waiters, a release, then the stop", random(20'000), [] {
        semaphore s(0);
        source stop;
        bool first = false;
        bool second = false;
        {
            model::thread one([&] { first = s.acquire(stop.get_token()).has_value(); });
            model::thread other([&] { second = s.acquire(stop.get_token()).has_value(); });
            s.release();
            stop.request_stop();
        }
        MODEL_REQUIRE(first != second);
        MODEL_REQUIRE(s.available() == 0);
    });
    model::check("stoppable_wait: the first of two is stopped", random(20'000), [] {
        semaphore s(0);
        source stop;
        model::thread waiting([&] {
            if (s.acquire(stop.get_token())) {
                s.release();
            }
        });
        model::thread other([&] { s.acquire(); });
        stop.request_stop();
        s.release();
    });
}

TEST_CASE("stoppable_wait: a lock is held, or free", "[promise.release-or-stop]") {
    model::check("stoppable_wait: mutex", [] {
        mutex m;
        const source stop;
        m.lock();
        var<int> data{0};
        beside(
            stop,
            [&](const token& t) {
                if (m.lock(t)) {
                    increment(data);
                    m.unlock();
                }
            },
            [&] {
                increment(data);
                m.unlock();
            });
        MODEL_REQUIRE(m.try_lock());
        m.unlock();
    });
    model::check("stoppable_wait: shared_mutex, a reader behind a writer that is stopped",
                 random(20'000), [] {
                     bide::basic_shared_mutex<awake> m;
                     source stop;
                     m.lock_shared();
                     model::thread writing([&] {
                         if (m.lock(stop.get_token())) {
                             m.unlock();
                         }
                     });
                     model::thread stopping([&] { stop.request_stop(); });
                     m.lock_shared(); // not for ever behind the writer
                     m.unlock_shared();
                     m.unlock_shared();
                 });
}

TEST_CASE("stoppable_wait: an event, a notification, a flag and a condition") {
    model::check("stoppable_wait: event", [] {
        bide::basic_event<awake> e;
        const source stop;
        beside(
            stop, [&](const token& t) { MODEL_REQUIRE(e.wait(t) || t.stop_requested()); },
            [&] { e.set(); });
        MODEL_REQUIRE(e.is_set());
    });
    model::check("stoppable_wait: notify", [] {
        bide::basic_notify<awake> n;
        const source stop;
        bool taken = false;
        beside(
            stop, [&](const token& t) { taken = n.wait(t).has_value(); }, [&] { n.notify_one(); });
        MODEL_REQUIRE(n.try_wait() != taken);
    });
    model::check("stoppable_wait: once_flag", [] {
        bide::basic_once_flag<awake> f;
        source stop;
        auto mine = f.begin();
        model::thread waiting([&] {
            const auto got = f.begin(stop.get_token());
            MODEL_REQUIRE(got || got.error() == errc::stopped);
            MODEL_REQUIRE(!got || !*got || !f.is_set());
        });
        model::thread stopping([&] { stop.request_stop(); });
        mine.set();
    });
    model::check("stoppable_wait: condition_variable", [] {
        mutex m;
        bide::basic_condition_variable<awake> changed;
        source stop;
        var<bool> there{false};
        model::thread other([&] {
            {
                const std::scoped_lock lock(m);
                there = true;
            }
            changed.notify_one();
            stop.request_stop();
        });
        std::unique_lock lock(m);
        const auto got = changed.wait(lock, stop.get_token(), [&] { return there; });
        MODEL_REQUIRE(lock.owns_lock());
        MODEL_REQUIRE(got && there); // what was notified before the stop is seen
    });
    model::check(
        "stoppable_wait: condition_variable, with a limit of time", random(20'000, {.timeouts = 1}),
        [] {
            mutex m;
            bide::basic_condition_variable<awake> changed;
            source stop;
            int calls = 0;
            model::thread notifying([&] { changed.notify_one(); });
            model::thread stopping([&] { stop.request_stop(); });
            std::unique_lock lock(m);
            const auto got =
                changed.wait_for(lock, stop.get_token(), soon, [&] { return ++calls == 3; });
            MODEL_REQUIRE(lock.owns_lock());
            MODEL_REQUIRE(got || got.error() == errc::stopped || got.error() == errc::timeout);
            model::record(!got ? "ended" : "notified");
        });
}

TEST_CASE("stoppable_wait: an item is received, or still there", "[promise.release-or-stop]") {
    check("stoppable_wait: recv", {0, 1}, {}, [](std::size_t n) {
        basic_channel<awake> c(n);
        const source stop;
        bool sent = false;
        int got = 0;
        beside(
            stop,
            [&](const token& t) {
                auto received = c.recv(t);
                got = received ? received->take() : 0;
            },
            [&] { sent = is_sent(c.try_send(item(1)), 1); });
        MODEL_REQUIRE(got + try_recv(c) == (sent ? 1 : 0));
    });
    check("stoppable_wait: send", {0, 1}, {}, [](std::size_t n) {
        basic_channel<awake> c(n);
        const source stop;
        if (n == 1) {
            MODEL_REQUIRE(is_sent(c.try_send(item(2)), 2));
        }
        bool sent = false;
        int got = 0;
        beside(
            stop, [&](const token& t) { sent = is_sent(c.send(t, item(1)), 1); },
            [&] { got = try_recv(c); });
        MODEL_REQUIRE(got + try_recv(c) == (n == 1 ? 2 : 0) + (sent ? 1 : 0));
    });
}

// ---- Coroutines and callbacks. A stop resumes a coroutine by the service, whose threads are daemons.

void start_service() {
    auto* const service = new bide::basic_timer_service<awake>;
    model::use_service(service);
    model::daemon([service] { service->run(); });
}

using parker = bide::basic_parker<awake>;

test::detached acquire(semaphore& from, token t, bool& taken, parker& ended) {
    {
        auto got = co_await from.async_acquire().with_stop(std::move(t));
        taken = got.has_value();
        if (got) {
            got->forget();
        }
    }
    ended.unpark();
}

TEST_CASE("stoppable_wait: a coroutine is resumed once") {
    model::check("stoppable_wait: async_acquire, stopped", [] {
        start_service();
        semaphore s(0);
        source stop;
        bool taken = true;
        parker ended;
        model::thread stopping([&] { stop.request_stop(); });
        acquire(s, stop.get_token(), taken, ended);
        ended.park();
        MODEL_REQUIRE(!taken && s.waiters() == 0);
    });
    model::check("stoppable_wait: async_acquire beside a release", random(20'000), [] {
        start_service();
        semaphore s(0);
        source stop;
        bool taken = false;
        parker ended;
        model::thread stopping([&] { stop.request_stop(); });
        acquire(s, stop.get_token(), taken, ended);
        s.release();
        ended.park();
        MODEL_REQUIRE(s.available() == (taken ? 0 : 1));
    });
}

TEST_CASE("stoppable_wait: a callback_wait is granted, stopped or cancelled") {
    model::check("stoppable_wait: callback_wait", [] {
        start_service();
        semaphore s(0);
        source stop;
        bool taken = false;
        {
            model::thread stopping([&] { stop.request_stop(); });
            model::thread releasing([&] { s.release(); });
            bide::basic_callback_wait<permit, awake> w{bide::waker()};
            w.begin(s.async_acquire().with_stop(stop.get_token()));
            w.cancel();
            if (auto got = w.take()) {
                got->forget();
                taken = true;
            }
        }
        MODEL_REQUIRE(s.available() == (taken ? 0 : 1));
        MODEL_REQUIRE(s.waiters() == 0);
    });
}

} // namespace
