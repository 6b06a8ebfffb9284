// semaphore: every released permit reaches one waiter, in the order in which they came, or the count.
// No permit is made or lost, and the acquirer sees what came before the release.

#include <bide/model/linearizable.hpp>
#include <bide/sync/semaphore.hpp>
#include <model/sync_support.hpp>
#include <support/test.hpp>

using namespace sync_model;

namespace {

using semaphore = bide::basic_semaphore<platform>;
using waiter = semaphore::waiter;
using awake = model::platform_without_lock_sleep;
using permit_queue = bide::detail::basic_permit_queue<platform>;

void release_one(semaphore& s) { s.release(); }
// A waiter that is queued when the body begins.
struct queued_waiter : waiter {
    queued_waiter(semaphore& of, std::ptrdiff_t n, bide::waker wake = {}) : waiter(n, wake) {
        of.acquire_wait(*this);
    }
};
bool is_granted(const waiter& w) { return w.is_complete() && w.outcome().has_value(); }

TEST_CASE("semaphore: a release reaches the waiter, with what came before it, and the waiter may "
          "destroy it") {
    const auto one_waiter = [](bool tries) {
        auto* const s = new semaphore(0);
        var<int> data{0};
        model::thread releasing(model::after_writing(data, [s] { s->release(); }));
        if (!tries) {
            s->acquire();
        } else {
            while (!s->try_acquire()) {
                platform::pause();
            }
        }
        MODEL_REQUIRE(data == 1);
        delete s;
    };
    model::check("semaphore: one waiter", [=] { one_waiter(false); });
    model::check("semaphore: one waiter, steps that fail for no reason",
                 {.spurious = 1, .weak_failures = 1}, [=] { one_waiter(false); });
    model::check("semaphore: a thread that tries again and again", [=] { one_waiter(true); });
    model::check("semaphore: destroyed after two releases", [] {
        auto* const s = new semaphore(0);
        model::thread releasing([s] {
            s->release();
            s->release();
        });
        s->acquire(2);
        delete s;
    });
}

TEST_CASE("semaphore: permits that come in parts bring what came before each") {
    model::check("semaphore: one to three permits in parts", [] {
        const int n = 1 + model::choose(3);
        semaphore s(0);
        var<int> given{0};
        model::thread waiting([&] {
            s.acquire(n);
            MODEL_REQUIRE(given == n);
        });
        for (int rest = n; rest > 0;) {
            const int part = 1 + model::choose(rest);
            rest -= part;
            given = given + part;
            s.release(part);
        }
        waiting.join();
        MODEL_REQUIRE(s.available() == 0);
    });
    model::check("semaphore: a surplus stays", [] {
        semaphore s(1);
        model::thread waiting([&] { s.acquire(2); });
        s.release(3);
        waiting.join();
        MODEL_REQUIRE(s.available() == 2);
    });
}

TEST_CASE("semaphore: two releasers serve one wait") {
    model::check("semaphore: two releasers, one queued", [] {
        auto* const s = new semaphore(0);
        queued_waiter w(*s, 2);
        two_write_and_call(s, release_one, [&w](semaphore&) { await(w); });
    });
}

TEST_CASE("semaphore: two releasers and a thread that acquires and destroys", "[.long]") {
    model::check("semaphore: destroyed under two releasers", [] {
        two_write_and_call(new semaphore(0), release_one, [](semaphore& s) { s.acquire(2); });
    });
    model::check("semaphore: destroyed under three releasers", [] {
        auto* const s = new semaphore(0);
        queued_waiter w(*s, 3);
        model::thread a([s] { s->release(); });
        model::thread b([s] { s->release(); });
        model::thread c([s] { s->release(); });
        await(w);
        delete s;
    });
}

TEST_CASE("semaphore: the first waiter is granted first") {
    const auto newcomer = [](bool tries) {
        semaphore s(0);
        var<int> given{0};
        bool taken = true;
        queued_waiter first(s, 2);
        model::thread second([&] {
            if (tries) {
                taken = s.try_acquire();
            } else {
                s.acquire();
            }
            MODEL_REQUIRE(!taken || given == 3);
        });
        MODEL_REQUIRE(tries || !s.try_acquire());
        given = 1;
        s.release();
        given = 3;
        s.release(2);
        second.join();
        MODEL_REQUIRE(is_granted(first) && s.available() == (taken ? 0 : 1));
    };
    model::check("semaphore: a newcomer does not overtake", [=] { newcomer(false); });
    model::check("semaphore: a newcomer that tries does not overtake", [=] { newcomer(true); });
    model::check("semaphore: three queued", [] {
        semaphore s(0);
        queued_waiter a(s, 1 + model::choose(2));
        queued_waiter b(s, 1);
        queued_waiter c(s, 1);
        model::thread releasing([&] { s.release(); });
        s.release();
        releasing.join();
        MODEL_REQUIRE(is_granted(a) && !c.is_complete());
        s.release(2);
        MODEL_REQUIRE(is_granted(b) && (is_granted(c) || s.cancel_acquire(c)));
    });
}

// The owner of the only permit writes its name; both have asked for it in a known order.
TEST_CASE("semaphore: the permit goes from the first to the second") {
    model::check("semaphore: two that hand on", [] {
        semaphore s(0);
        var<int> last{0};
        queued_waiter first(s, 1);
        model::thread second([&] {
            s.acquire();
            MODEL_REQUIRE(last == 1);
            last = 2;
            s.release();
        });
        model::thread releasing([&] { s.release(); });
        await(first);
        MODEL_REQUIRE(last == 0);
        last = 1;
        s.release();
        second.join();
        releasing.join();
        MODEL_REQUIRE(s.available() == 1);
    });
}

TEST_CASE("semaphore: a wait that is cancelled while it is granted has one outcome") {
    model::check("semaphore: cancelled by its owner, which tries again", [] {
        semaphore s(0);
        var<int> data{0};
        bell rings;
        queued_waiter w(s, 1, rings.waker());
        model::thread releasing(model::after_writing(data, [&] { s.release(); }));
        const bool cancelled = s.cancel_acquire(w);
        MODEL_REQUIRE(cancelled || is_granted(w));
        while (cancelled && !s.try_acquire()) {
            platform::pause();
        }
        MODEL_REQUIRE(data == 1);
        releasing.join();
        MODEL_REQUIRE(s.available() == 0 && rings.rung == (cancelled ? 0 : 1));
    });
}

TEST_CASE("semaphore: what a cancelled wait had goes to those behind") {
    model::check("semaphore: the head is cancelled while a release comes", [] {
        const int had = model::choose(2);
        semaphore s(had);
        queued_waiter first(s, 2);
        queued_waiter second(s, 1);
        model::thread releasing([&] { s.release(); });
        const bool cancelled = s.cancel_acquire(first);
        releasing.join();
        MODEL_REQUIRE(cancelled || had == 1);
        MODEL_REQUIRE(is_granted(cancelled ? second : first));
        MODEL_REQUIRE(s.available() == (cancelled ? had : 0));
        MODEL_REQUIRE(cancelled || s.cancel_acquire(second));
    });
    model::check("semaphore: the one behind a cancelled head gets what it had", [] {
        auto* const s = new semaphore(0);
        var<int> data{0};
        queued_waiter first(*s, 2);
        queued_waiter second(*s, 1);
        model::thread releasing(model::after_writing(data, [&, s] { s->release(); }));
        model::thread cancelling([&, s] { MODEL_REQUIRE(s->cancel_acquire(first)); });
        await(second);
        MODEL_REQUIRE(data == 1);
        delete s; // though they are inside
    });
    model::check("semaphore: two in the queue are cancelled", [] {
        semaphore s(1);
        queued_waiter first(s, 3);
        queued_waiter second(s, 2);
        model::thread cancelling([&] { s.cancel_acquire(first); });
        s.cancel_acquire(second);
        cancelling.join();
        MODEL_REQUIRE(s.available() == 1 && s.waiters() == 0);
    });
}

TEST_CASE("semaphore: a time-out keeps no permit") {
    model::check("semaphore: time-out against release", {.timeouts = 1}, [] {
        semaphore s(0);
        var<int> data{0};
        bool got = false;
        model::thread waiting([&] {
            got = s.try_acquire_for(soon, 2);
            if (got) {
                MODEL_REQUIRE(data == 2);
            }
        });
        data = 1;
        s.release();
        data = 2;
        s.release();
        waiting.join();
        MODEL_REQUIRE(s.available() == (got ? 0 : 2));
    });
    model::check("semaphore: a time-out lets the next in", {.timeouts = 1}, [] {
        semaphore s(1);
        waiter next(1, {});
        model::thread waiting([&] { MODEL_REQUIRE(!s.try_acquire_for(soon, 2)); });
        s.acquire_wait(next);
        await(next);
        waiting.join();
        MODEL_REQUIRE(s.available() == 0);
    });
}

// The first one's waker cancels the second, and frees it.
template <class P> struct first_cancels_second {
    using semaphore = bide::basic_semaphore<P>;
    using waiter = typename semaphore::waiter;

    semaphore s{0};
    bell second_bell;
    std::unique_ptr<waiter> second = std::make_unique<waiter>(1, second_bell.waker());
    bool granted = false;
    waiter first{1,
                 {[](void* self) noexcept {
                      auto& me = *static_cast<first_cancels_second*>(self);
                      me.granted = !me.s.cancel_acquire(*me.second);
                      MODEL_REQUIRE(!me.granted || me.second->outcome().has_value());
                      me.second.reset();
                  },
                  this}};

    first_cancels_second() {
        s.acquire_wait(first);
        s.acquire_wait(*second);
    }
    // When all releases are over.
    void require_conserved(std::ptrdiff_t released) {
        MODEL_REQUIRE(first.is_complete() && !second);
        MODEL_REQUIRE(s.available() == released - 1 - (granted ? 1 : 0));
        MODEL_REQUIRE(s.waiters() == 0);
        MODEL_REQUIRE(granted || second_bell.rung == 0);
    }
};

TEST_CASE("semaphore: a waker cancels another waiter, of the same release or of another's") {
    model::check("semaphore: one release of two", [] {
        first_cancels_second<platform> both;
        model::thread releaser([&] { both.s.release(2); });
        MODEL_REQUIRE(!both.s.try_acquire());
        releaser.join();
        MODEL_REQUIRE(both.granted && both.second_bell.rung == 0);
        both.require_conserved(2);
    });
    model::check("semaphore: two releases of one", [] {
        first_cancels_second<awake> both;
        model::thread releaser([&] { both.s.release(); });
        both.s.release();
        releaser.join();
        both.require_conserved(2);
    });
    model::check("semaphore: two releases of one, and a thread that tries", [] {
        first_cancels_second<awake> both;
        int taken = 0;
        model::thread trying([&] { taken = both.s.try_acquire() ? 1 : 0; });
        model::thread releaser([&] { both.s.release(); });
        both.s.release();
        releaser.join();
        trying.join();
        both.require_conserved(2 - taken);
    });
}

TEST_CASE("semaphore: a foreign waker runs once, after the outcome is there") {
    model::check("semaphore: a waker and its data", [] {
        semaphore s(0);
        struct owner {
            waiter* mine;
            var<int> seen{0};
        } o{nullptr};
        waiter w(1, {[](void* self) noexcept {
                         auto& my = *static_cast<owner*>(self);
                         MODEL_REQUIRE(is_granted(*my.mine));
                         my.seen = my.seen + 1;
                     },
                     &o});
        o.mine = &w;
        var<int> data{0};
        model::thread releasing(model::after_writing(data, [&] { s.release(); }));
        const bool at_once = s.acquire_wait(w);
        await(w);
        MODEL_REQUIRE(data == 1);
        releasing.join();
        MODEL_REQUIRE(o.seen == (at_once ? 0 : 1));
    });
    model::check("semaphore: a waker that releases on", [] {
        semaphore s(0);
        waiter second(1, {});
        waiter first(1, {[](void* of) noexcept { static_cast<semaphore*>(of)->release(); }, &s});
        s.acquire_wait(first);
        s.acquire_wait(second);
        model::thread releasing([&] { s.release(); });
        MODEL_REQUIRE(!s.try_acquire());
        await(second);
    });
}

TEST_CASE("semaphore: close fails the present waiter and a later one") {
    // No lock is held where wakers run.
    model::check("semaphore: a waker that comes back to the semaphore", [] {
        semaphore s(1);
        waiter w(2, {[](void* of) noexcept {
                         auto& closed = *static_cast<semaphore*>(of);
                         MODEL_REQUIRE(closed.available() == 1 && !closed.close());
                     },
                     &s});
        s.acquire_wait(w);
        model::thread closing([&] { s.close(); });
        await(w);
        MODEL_REQUIRE(!w.outcome().has_value());
    });
    model::check("semaphore: close against an acquire", [] {
        semaphore s(0);
        var<int> data{0};
        model::thread waiting([&] {
            queued_waiter w(s, 1);
            await(w);
            MODEL_REQUIRE(!w.outcome().has_value() && data == 1);
        });
        data = 1;
        MODEL_REQUIRE(s.close());
        waiting.join();
        MODEL_REQUIRE(s.is_closed() && s.waiters() == 0);
    });
    model::check("semaphore: close against a release", [] {
        const int had = model::choose(2);
        semaphore s(had);
        bell rings;
        queued_waiter w(s, 2, rings.waker());
        var<int> data{0};
        model::thread releasing(model::after_writing(data, [&] { s.release(); }));
        MODEL_REQUIRE(s.close());
        await(w);
        const bool got = is_granted(w);
        MODEL_REQUIRE(!got || (had == 1 && data == 1));
        releasing.join();
        MODEL_REQUIRE(s.available() == (got ? 0 : had + 1));
        MODEL_REQUIRE(rings.rung == 1);
    });
    model::check("semaphore: close against close, a free permit and a release", [] {
        semaphore s(1);
        bool other = false;
        model::thread closing([&] {
            s.release();
            other = s.close();
        });
        const bool got = s.try_acquire();
        const bool mine = s.close();
        closing.join();
        MODEL_REQUIRE(mine != other);
        MODEL_REQUIRE(s.available() == (got ? 1 : 2));
        MODEL_REQUIRE(!s.try_acquire() && !s.try_acquire(0));
    });
    model::check("semaphore: close against a cancel", [] {
        semaphore s(1);
        queued_waiter first(s, 2);
        queued_waiter second(s, 2);
        model::thread closing([&] { s.close(); });
        const bool cancelled = s.cancel_acquire(first);
        closing.join();
        MODEL_REQUIRE(cancelled || !first.outcome().has_value());
        MODEL_REQUIRE(second.is_complete() && !second.outcome().has_value());
        MODEL_REQUIRE(s.available() == 1);
    });
}

TEST_CASE("semaphore: a permit is either forgotten or acquired") {
    model::check("semaphore: forget against release and acquire", [] {
        semaphore s(0);
        var<int> data{0};
        std::ptrdiff_t forgotten = 0;
        model::thread forgetting([&] {
            forgotten = s.forget_permits(2);
            if (forgotten > 0) {
                MODEL_REQUIRE(data == 2);
            }
        });
        data = 2;
        s.release(2);
        const bool got = s.try_acquire();
        forgetting.join();
        MODEL_REQUIRE(s.available() == 2 - forgotten - (got ? 1 : 0));
    });
    model::check("semaphore: no permit is forgotten while there are waiters", [] {
        semaphore s(0);
        queued_waiter w(s, 2);
        model::thread releasing([&] { s.release(3); });
        const std::ptrdiff_t forgotten = s.forget_permits(3);
        releasing.join();
        MODEL_REQUIRE(is_granted(w) && forgotten <= 1 && s.available() == 1 - forgotten);
    });
}

TEST_CASE("semaphore: no more than the limit is ever free") {
    model::check("semaphore: two releases, room for one", [] {
        permit_queue q(1);
        bool other = false;
        model::thread giving([&] { other = q.give(2, 3); });
        const bool mine = q.give(2, 3);
        giving.join();
        MODEL_REQUIRE(mine != other && q.available() == 3);
    });
    model::check("semaphore: a release past max() beside a waiter", [] {
        permit_queue q(1);
        queued w(q, 2);
        bool given = false;
        model::thread giving([&] { given = q.give(1, 1); });
        const bool cancelled = q.cancel(w, wait_status::stopped);
        giving.join();
        // To the waiter, which has the other one; or it is one too many.
        MODEL_REQUIRE(given != cancelled && q.available() == (cancelled ? 1 : 0));
    });
}

// One waits first and is cancelled, one acquires for as long as it takes, one with a time-out.
void all_at_once() {
    const int asked_first = 1 + model::choose(3);
    const int asked = 1 + model::choose(2);
    const int given = asked_first + asked + 1;
    auto* const s = new semaphore(0);
    var<int> data{0};
    bool in_time = false;
    queued_waiter first(*s, asked_first);
    {
        model::thread patient([&, s] {
            s->acquire(asked);
            MODEL_REQUIRE(data == 1);
        });
        model::thread impatient([&, s] { in_time = s->try_acquire_for(soon); });
        model::thread releasing([&, s] {
            data = 1;
            s->release();
            s->release(given - 1);
        });
        const bool cancelled = s->cancel_acquire(first);
        patient.join();
        impatient.join();
        s->acquire(1 + (cancelled ? asked_first : 0) - (in_time ? 1 : 0));
        MODEL_REQUIRE(s->available() == 0 && s->waiters() == 0);
        delete s; // though the release has not returned
    }
}

TEST_CASE("semaphore: permits are conserved, whatever happens at once", "[long]") {
    model::check("semaphore: four threads", random_or_long(10'000, {.timeouts = 1}), all_at_once);
}

TEST_CASE("semaphore: three go for the queue's lock at once", "[.long]") {
    model::check("semaphore: two acquire, one releases", [] {
        permit_queue q(0);
        var<int> data{0};
        node a(1);
        node b(1);
        const auto wait = [&](node& w) {
            if (q.enqueue(w) == wait_status::waiting) {
                await(w);
            }
            MODEL_REQUIRE(data == 1);
        };
        model::thread first([&] { wait(a); });
        model::thread second([&] { wait(b); });
        data = 1;
        q.give(2);
        first.join();
        second.join();
        MODEL_REQUIRE(q.available() == 0 && q.waiters() == 0);
    });
    model::check("semaphore: one acquires, one cancels, one releases", [] {
        permit_queue q(1);
        queued first(q, 2);
        node second(1);
        model::thread waiting([&] {
            if (q.enqueue(second) == wait_status::waiting) {
                await(second);
            }
        });
        model::thread stopping([&] { stop(q, first); });
        q.give(2);
        waiting.join();
        stopping.join();
        MODEL_REQUIRE(q.available() == (first.outcome() == wait_status::granted ? 0 : 2));
    });
}

TEST_CASE("semaphore: three threads see a count of permits") {
    const auto threads = [](int permits, auto first, auto second, auto third) {
        bide::basic_semaphore<awake> s(permits);
        model::linearizable checked(s, model::spec::semaphore(permits), "s");
        model::thread a([&] { second(checked); });
        model::thread b([&] { third(checked); });
        first(checked);
    };
    const auto acquire = [](auto& s) { s.call("acquire", [](auto& o) { o.acquire(); }); };
    const auto try_acquire = [](auto& s) {
        return s.call("try_acquire", [](auto& o) { return o.try_acquire(); });
    };
    const auto release = [](auto& s) { s.call("release", [](auto& o) { o.release(); }); };
    const auto release_two = [](auto& s) { s.call("release", [](auto& o) { o.release(2); }); };
    model::check("semaphore: its specification, one acquires, one tries",
                 [=] { threads(0, acquire, try_acquire, release_two); });
    model::check("semaphore: its specification, two release",
                 [=] { threads(0, acquire, release, release); });
}

} // namespace
