#include "support/alloc.hpp"
#include "support/coroutines.hpp"
#include "support/counted.hpp"
#include "support/death.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/stop.hpp"
#include "support/test.hpp"

#include <bide/channel/watch.hpp>
#include <bide/task/task.hpp>

namespace {

using bide::errc;
using watched = test::observing<test::native>;
using watch = bide::basic_watch<int, watched>;
using receiver = watch::receiver;

enum class what { nothing_yet, changed, failed };

what of(const bide::result<void>& got) { return got ? what::changed : what::failed; }
bool is(const bide::result<void>& got, errc error) { return !got && got.error() == error; }
template <class T> bool is_error(const bide::result<T>& got, errc error) {
    return !got && got.error() == error;
}

template <class Receiver> test::held note(Receiver& r, std::atomic<what>& out) {
    const auto got = co_await r.async_changed();
    out = of(got);
}
template <class Receiver>
test::held note_on(test::manual_executor& on, Receiver& r, std::atomic<what>& out) {
    const auto got = co_await r.async_changed().resume_on(on);
    out = of(got);
}

// Its copies fail when it is told so.
struct fragile {
    explicit fragile(int v) noexcept : n(v) {}
    fragile(const fragile& other) : n(other.n) {
        if (fails) {
            throw std::runtime_error("no");
        }
    }
    fragile(fragile&& other) noexcept : n(other.n) {}
    int n;
    inline static bool fails = false;
};

// Comes back when it is copied and when it is destroyed.
struct reentrant {
    explicit reentrant(bide::watch<reentrant>*& to, int& calls) noexcept
        : of(&to), called(&calls) {}
    reentrant(const reentrant& other) noexcept : of(other.of), called(other.called) { call(); }
    reentrant(reentrant&& other) noexcept
        : of(std::exchange(other.of, nullptr)), called(other.called) {}
    ~reentrant() { call(); }
    void call() const noexcept {
        if (of != nullptr && *of != nullptr) {
            *called += static_cast<int>((*of)->receivers());
        }
    }
    bide::watch<reentrant>** of;
    int* called;
};

// Sends a newer one while it is copied, once.
struct outdated {
    outdated(bide::watch<outdated>*& to, int v) noexcept : of(&to), n(v) {}
    outdated(const outdated& other) noexcept : of(other.of), n(other.n) {
        if (*of != nullptr) {
            auto& w = *std::exchange(*of, nullptr);
            w.send(outdated(*of, n + 1));
        }
    }
    outdated(outdated&& other) noexcept = default;
    bide::watch<outdated>** of;
    int n;
};

test::held send_when_changed(bide::watch<int>& w, bool& sent) {
    auto r = w.subscribe();
    const auto changed = co_await r.async_changed();
    sent = changed.has_value() || w.send(7) || w.is_closed();
}

} // namespace

TEST_CASE("watch: a receiver has seen the version that it subscribed to, and no later one") {
    watch w(1);
    CHECK(w.send(2));
    auto r = w.subscribe();
    CHECK(w.receivers() == 1);
    CHECK(r.get() == 2);
    CHECK_FALSE(r.has_changed());
    CHECK(is(r.changed_for(0s), errc::timeout));
    CHECK(w.send(2)); // the same value is a new version
    CHECK(r.has_changed());
    CHECK(r.changed());
    CHECK_FALSE(r.has_changed());
    CHECK(r.get() == 2);
    CHECK(w.get() == 2);
}

TEST_CASE("watch: many versions are one change, and the latest is what there is") {
    watch w;
    CHECK(w.get() == 0);
    auto r = w.subscribe();
    auto other = w.subscribe();
    for (int i = 1; i <= 10; ++i) {
        w.send(i);
    }
    CHECK(r.changed());
    CHECK(r.get() == 10);
    CHECK(is(r.changed_for(0s), errc::timeout));
    CHECK(other.has_changed()); // each sees for itself
}

TEST_CASE("watch: get() does not count as seen, see() does") {
    watch w(1);
    auto r = w.subscribe();
    w.send(2);
    CHECK(r.get() == 2);
    CHECK(r.has_changed());
    CHECK(r.see() == 2);
    CHECK_FALSE(r.has_changed());
}

TEST_CASE("watch: a copy of a receiver has seen as much, and goes on by itself") {
    watch w(1);
    auto r = w.subscribe();
    w.send(2);
    auto copy = r;
    CHECK(w.receivers() == 2);
    CHECK(copy.see() == 2);
    CHECK(r.has_changed());
    auto moved = std::move(r);
    CHECK(w.receivers() == 2);
    CHECK(moved.has_changed());
    moved = copy;
    CHECK_FALSE(moved.has_changed());
    CHECK(w.receivers() == 2);
}

TEST_CASE("watch: modify() changes the latest, or nothing") {
    watch w(1);
    auto r = w.subscribe();
    CHECK(w.modify([](int& i) { i += 41; }));
    CHECK(r.has_changed());
    CHECK(r.see() == 42);
    CHECK_THROWS_AS(w.modify([](int& i) {
        i = 0;
        throw std::runtime_error("no");
    }),
                    std::runtime_error);
    CHECK_FALSE(r.has_changed());
    CHECK(w.get() == 42);
    CHECK(w.send(43)); // the turn was given back
}

TEST_CASE("watch: modify() calls its function once, however often others send",
          "[promise.watch-modify]") {
    watch w(0);
    std::atomic<int> calls{0};
    std::atomic<bool> inside{false};
    std::atomic<bool> go_on{false};
    bool modified = false;
    bool sent[2] = {};
    test::team modifying(1, [&](int) {
        modified = w.modify([&](int& i) {
            ++calls;
            inside = true;
            test::eventually([&] { return go_on.load(); });
            i += 41;
        });
    });
    REQUIRE(test::eventually([&] { return inside.load(); }));
    test::team sending(2, [&](int i) { sent[i] = w.send(i); });
    REQUIRE(test::are_asleep<test::native>(2)); // and do not spin
    auto r = w.subscribe();
    CHECK(w.get() == 0); // readers do not wait
    CHECK(r.see() == 0);
    CHECK(is(r.changed_for(0s), errc::timeout));
    go_on = true;
    modifying.join();
    sending.join();
    CHECK(modified);
    CHECK((sent[0] && sent[1]));
    CHECK(calls == 1);
    CHECK(r.has_changed());
    CHECK(w.get() < 2); // the sends came after it
}

TEST_CASE("watch: writers that wait for a modify() go on in the order in which they came") {
    watch w(1);
    std::atomic<bool> inside{false};
    std::atomic<bool> go_on{false};
    test::team modifying(1, [&](int) {
        w.modify([&](int& i) {
            inside = true;
            test::eventually([&] { return go_on.load(); });
            i = 2;
        });
    });
    REQUIRE(test::eventually([&] { return inside.load(); }));
    test::team second(1, [&](int) { w.modify([](int& i) { i = i == 2 ? 3 : -1; }); });
    REQUIRE(test::are_asleep<test::native>(1));
    test::team third(1, [&](int) { w.send(w.get() * 4); }); // its argument is made before it waits
    REQUIRE(test::are_asleep<test::native>(2));
    test::team fourth(1, [&](int) { w.modify([](int& i) { i = i == 4 ? 5 : -2; }); });
    REQUIRE(test::are_asleep<test::native>(3));
    go_on = true;
    modifying.join();
    second.join();
    third.join();
    fourth.join();
    CHECK(w.get() == 5);
}

TEST_CASE("watch: close() does not wait for a modify(), which then changes nothing") {
    watch w(1);
    auto r = w.subscribe();
    bool modified = true;
    bool sent = true;
    SECTION("called by its function") {
        modified = w.modify([&](int& i) {
            i = 2;
            w.close();
        });
        sent = w.send(3);
    }
    SECTION("called by another thread") {
        std::atomic<bool> inside{false};
        test::team modifying(1, [&](int) {
            modified = w.modify([&](int& i) {
                inside = true;
                test::eventually([&] { return w.is_closed(); });
                i = 2;
            });
        });
        REQUIRE(test::eventually([&] { return inside.load(); }));
        test::team sending(1, [&](int) { sent = w.send(3); });
        REQUIRE(test::are_asleep<test::native>(1));
        CHECK(w.close());
        modifying.join();
        sending.join();
    }
    CHECK_FALSE(modified);
    CHECK_FALSE(sent);
    CHECK(r.get() == 1);
    CHECK(is(r.changed(), errc::closed));
    bool called = false;
    CHECK_FALSE(w.modify([&](int&) { called = true; }));
    CHECK_FALSE(called);
}

TEST_CASE("watch: a function that modify() runs may read it and subscribe") {
    watch w(1);
    std::optional<receiver> r;
    CHECK(w.modify([&](int& i) {
        r.emplace(w.subscribe());
        i = w.get() + r->see();
    }));
    CHECK(r->has_changed());
    CHECK(r->see() == 2);
}

TEST_CASE("watch: a copy that throws in modify() changes nothing and gives the turn back") {
    bide::watch<fragile> w(fragile(1));
    auto r = w.subscribe();
    bool called = false;
    fragile::fails = true;
    CHECK_THROWS_AS(w.modify([&](fragile&) { called = true; }), std::runtime_error);
    CHECK_THROWS_AS(r.see(), std::runtime_error);
    fragile::fails = false;
    CHECK_FALSE(called);
    CHECK_FALSE(r.has_changed());
    CHECK(w.modify([](fragile& f) { ++f.n; }));
    fragile::fails = true;
    CHECK_THROWS_AS(r.see(), std::runtime_error);
    fragile::fails = false;
    CHECK(r.has_changed()); // what was not copied was not seen
    CHECK(r.see().n == 2);
}

TEST_CASE("watch: a change that was granted stays one, whatever comes after") {
    watch w;
    auto r = w.subscribe();
    test::manual_executor later;
    std::atomic<what> end{};
    auto c = note_on(later, r, end);
    c.start();
    w.send(1);
    w.send(2);
    w.close();
    CHECK(later.run_all() == 1);
    CHECK(end == what::changed);
    CHECK(r.get() == 2);
    CHECK(is(r.changed(), errc::closed)); // the second was seen with the first
}

TEST_CASE("watch: the last version is seen after the end, then changed() says closed") {
    std::optional<watch> w(std::in_place, 1);
    auto r = w->subscribe();
    w->send(2);
    SECTION("called") {
        CHECK_FALSE(w->is_closed());
        CHECK(w->close());
        CHECK_FALSE(w->close());
        CHECK(w->is_closed());
        CHECK_FALSE(w->send(3));
        CHECK_FALSE(w->modify([](int& i) { i = 3; }));
        CHECK(w->get() == 2);
        CHECK(is(w->subscribe().changed(), errc::closed));
    }
    SECTION("by the end of the watch") { w.reset(); }
    CHECK(r.has_changed());
    CHECK(r.changed());
    CHECK(is(r.changed(), errc::closed));
    CHECK(is(r.changed_for(0s), errc::closed));
    CHECK(is(r.changed(std::stop_token()), errc::closed));
    CHECK_FALSE(r.has_changed());
    CHECK(r.get() == 2); // it may outlive the watch
    auto copy = r;
    CHECK(copy.see() == 2);
}

TEST_CASE("watch: one value is kept, and each get() makes a copy") {
    test::tally count;
    {
        bide::watch<test::counted> w(test::counted(count, 1));
        auto r = w.subscribe();
        CHECK(w.send(test::counted(count, 2)));
        CHECK(count.alive() == 1);
        CHECK(count.copied == 0);
        CHECK(r.get().number() == 2);
        CHECK(count.copied == 1);
        w.close();
        CHECK_FALSE(w.send(test::counted(count, 3)));
        CHECK(count.alive() == 1);
    }
    CHECK(count.alive() == 0);
}

TEST_CASE("watch: a value may use it when it is copied and when it is destroyed") {
    int calls = 0;
    bide::watch<reentrant>* self = nullptr;
    bide::watch<reentrant> w(reentrant(self, calls));
    self = &w;
    auto r = w.subscribe();
    {
        const reentrant copy = r.get();
        CHECK(calls == 1);
    }
    CHECK(calls == 2);
    w.send(reentrant(self, calls)); // destroys the first
    CHECK(calls == 3);
    self = nullptr;
}

TEST_CASE("watch: a version that comes while see() copies the one before it is still new") {
    bide::watch<outdated>* sends = nullptr;
    bide::watch<outdated> w(outdated(sends, 1));
    auto r = w.subscribe();
    w.send(outdated(sends, 2));
    sends = &w;
    CHECK(r.see().n == 2);
    REQUIRE(r.has_changed());
    CHECK(r.see().n == 3);
    CHECK_FALSE(r.has_changed());
}

TEST_CASE("watch: no wait and no look allocates") {
    bide::timer_service<watched>(); // its thread, once
    watch w;
    auto r = w.subscribe();
    std::atomic<what> end{};
    auto c = note(r, end);
    w.send(1);
    const std::size_t before = test::allocations_here();
    const bool changed = r.has_changed() && r.changed().has_value() && r.get() == 1;
    const bool late = is(r.changed_for(1ms), errc::timeout);
    auto copy = r;
    c.start();
    const std::size_t made = test::allocations_here() - before;
    CHECK(made == 0);
    CHECK(changed);
    CHECK(late);
    w.send(2);
    CHECK(end == what::changed);
}

// ---- A wait for a value

TEST_CASE("watch: wait with a predicate returns at once, or after the send that makes it true") {
    watch w(1);
    auto r = w.subscribe();
    int calls = 0;
    const auto is_even = [&](const int& n) {
        ++calls;
        return n % 2 == 0;
    };
    CHECK(r.wait([](int n) { return n == 1; }) == 1); // already seen
    w.send(2);
    CHECK(r.wait(is_even) == 2);
    CHECK(calls == 1);
    CHECK_FALSE(r.has_changed()); // it counts as seen
    w.send(3);
    std::jthread sender([&] {
        for (int n = 5; n <= 101; n += 2) {
            w.send(n);
        }
        w.send(102);
    });
    CHECK(r.wait(is_even) == 102);
    sender.join();
    calls = 0;
    w.send(103);
    CHECK(is_error(r.wait_for(1ms, is_even), errc::timeout));
    CHECK(calls == 1);
    CHECK_FALSE(r.has_changed()); // 103 was seen, and is not even
    CHECK(is_error(r.wait_for(0ms, is_even), errc::timeout));
    CHECK(is_error(r.wait_until(bide::deadline::poll(), is_even), errc::timeout));
    CHECK(r.wait_for(0ms, [](int n) { return n == 103; }) == 103);
}

TEST_CASE(
    "watch: wait with a predicate ends by a stop and by the close, and a true one comes first") {
    watch w(1);
    auto r = w.subscribe();
    const auto is_one = [](int n) { return n == 1; };
    const auto is_two = [](int n) { return n == 2; };
    std::stop_source stop = test::new_stop();
    std::jthread stops([&] {
        test::are_asleep<test::native>(1);
        stop.request_stop();
    });
    CHECK(is_error(r.wait(stop.get_token(), is_two), errc::stopped));
    CHECK(r.wait(stop.get_token(), is_one) == 1);
    w.send(2);
    w.close();
    CHECK(r.wait(stop.get_token(), is_two) == 2);
    CHECK(is_error(r.wait(is_one), errc::closed));
    CHECK(r.wait(is_two) == 2);
}

TEST_CASE("watch: a wait with a predicate ends by its limit while new values come all the time") {
    watch w(1);
    auto r = w.subscribe();
    int calls = 0;
    const auto is_late = [&](int n) {
        w.send(n + 1);
        return ++calls == 1'000;
    };
    std::stop_source stop = test::new_stop();
    stop.request_stop();
    CHECK(is_error(r.wait(stop.get_token(), is_late), errc::stopped));
    CHECK(is_error(r.wait_for(0ms, is_late), errc::timeout));
    CHECK(calls == 2);
}

TEST_CASE("watch: a value counts as seen only if the predicate and the copy do not throw") {
    bide::watch<fragile> w(fragile(1));
    auto r = w.subscribe();
    w.send(fragile(2));
    CHECK_THROWS_AS(r.wait([](const fragile&) -> bool { throw std::runtime_error("no"); }),
                    std::runtime_error);
    CHECK(r.has_changed());
    fragile::fails = true;
    CHECK_THROWS_AS(r.wait([](const fragile& f) { return f.n == 2; }), std::runtime_error);
    fragile::fails = false;
    CHECK(r.has_changed());
    CHECK(r.wait([](const fragile& f) { return f.n == 2; })->n == 2);
    CHECK_FALSE(r.has_changed());
}

#if BIDE_TESTS_CAN_DIE

TEST_CASE("watch: a function that modify() runs must not write to the watch or destroy it") {
    const auto said = [](auto f) {
        return test::dies([f] {
            std::optional<bide::watch<int>> w(std::in_place, 1);
            w->modify([&](int&) { f(w); });
        });
    };
    const std::string sent = said([](auto& w) { w->send(2); });
    const std::string modified = said([](auto& w) { w->modify([](int&) {}); });
    const std::string destroyed = said([](auto& w) { w.reset(); });
    CHECK(test::contains(sent, "watch"));
    CHECK(test::contains(sent, "by a function that modify() runs"));
    CHECK(test::contains(modified, "by a function that modify() runs"));
    CHECK(test::contains(destroyed, "destroyed during a modify()"));
}

#endif

TEST_CASE("watch: a coroutine that a modify()'s function resumes may send, after the turn") {
    bide::watch<int> w;
    bool sent = false;
    auto sending = send_when_changed(w, sent);
    sending.start();
    CHECK_FALSE(w.modify([&](int&) { w.close(); })); // it resumes the coroutine
    CHECK(sent);
}
