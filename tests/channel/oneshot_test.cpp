#include "support/alloc.hpp"
#include "support/contested.hpp"
#include "support/counted.hpp"
#include "support/death.hpp"
#include "support/last_touch.hpp"
#include "support/lifetime.hpp"
#include "support/observing.hpp"
#include "support/stop.hpp"
#include "support/test.hpp"

#include <bide/channel/oneshot.hpp>
#include <bide/task/task.hpp>

static_assert(std::is_nothrow_move_constructible_v<bide::oneshot_sender<int>>);
static_assert(std::is_move_assignable_v<bide::oneshot_receiver<int>>);
static_assert(!std::is_copy_constructible_v<bide::oneshot_sender<int>>);
static_assert(!std::is_copy_constructible_v<bide::oneshot_receiver<int>>);

namespace {

using watched = test::observing<test::native>;
template <class T> using sender = bide::basic_oneshot_sender<T, watched>;
template <class T> using receiver = bide::basic_oneshot_receiver<T, watched>;
template <class T> auto oneshot() { return bide::oneshot<T, watched>(); }

template <class Result> bool is(const Result& got, bide::errc error) {
    return !got && got.error() == error;
}

constexpr int nothing_yet = 0;
constexpr int closed = -1;
constexpr int other_error = -2;

template <class T> int number(const bide::result<T>& got) {
    return got ? static_cast<int>(*got) : got.error() == bide::errc::closed ? closed : other_error;
}

template <class Receiver> test::detached note(Receiver& from, std::atomic<int>& out) {
    const auto got = co_await from.async_recv();
    out = got ? *got : closed;
}
template <class Receiver, class T> test::held take(Receiver& from, std::optional<T>& out) {
    out = co_await from.async_recv();
}
template <class Receiver, class T>
test::held take_on(test::manual_executor& on, Receiver& from, std::optional<T>& out) {
    out = co_await from.async_recv().resume_on(on);
}
template <class Receiver>
test::detached note_stopped(Receiver& from, std::stop_token stop, std::atomic<int>& out) {
    const auto got = co_await from.async_recv().with_stop(std::move(stop));
    out = got ? **got : other_error;
}
template <class Sender> test::held note_closed(Sender& of, bool& out) {
    co_await of.async_closed();
    out = true;
}

} // namespace

TEST_CASE("oneshot: a value is received once, whether the sender or the receiver comes first") {
    auto [to, from] = oneshot<std::unique_ptr<int>>();
    SECTION("the sender, then the receiver without waiting") {
        CHECK(is(from.try_recv(), bide::errc::empty));
        CHECK(std::move(to).send(std::make_unique<int>(7)));
        const auto first = from.try_recv();
        CHECK((first && **first == 7));
    }
    SECTION("the receiver, a coroutine") {
        std::optional<std::unique_ptr<int>> first;
        auto c = take(from, first);
        c.start();
        CHECK_FALSE(c.done());
        CHECK(std::move(to).send(std::make_unique<int>(7)));
        CHECK(c.done());
        CHECK((first && **first == 7));
    }
    CHECK(is(from.try_recv(), bide::errc::closed));
    CHECK(is(from.recv(), bide::errc::closed));
    CHECK(is(from.try_recv_for(1h), bide::errc::closed));
}

TEST_CASE("oneshot: every kind of wait ends with the value, and with the sender") {
    const bool sends = GENERATE(true, false);
    const int kind = GENERATE(0, 1, 2, 3);
    CAPTURE(sends, kind);
    auto [to, from] = oneshot<int>();
    std::stop_source never = test::new_stop();
    int got = nothing_yet;
    test::team threads(1, [&, f = &from](int) {
        switch (kind) {
        case 0: got = number(f->recv()); break;
        case 1: got = number(f->recv(never.get_token())); break;
        case 2: got = number(f->try_recv_for(1h)); break;
        default: got = number(f->try_recv_until(steady_clock::now() + 1h)); break;
        }
    });
    REQUIRE(test::are_asleep<test::native>(1));
    if (sends) {
        CHECK(std::move(to).send(7));
    } else {
        const auto gone = std::move(to);
    }
    threads.join();
    CHECK(got == (sends ? 7 : closed));
}

TEST_CASE("oneshot: a sender that goes without sending closes") {
    std::optional<std::pair<sender<int>, receiver<int>>> both(oneshot<int>());
    auto from = std::move(both->second);
    SECTION("for a later receive") {
        both.reset();
        CHECK(is(from.try_recv(), bide::errc::closed));
        CHECK(is(from.recv(), bide::errc::closed));
        CHECK(is(from.recv(std::stop_token()), bide::errc::closed));
        CHECK_FALSE(bide::sync_wait([](auto& f) -> bide::task<std::optional<int>> {
            co_return co_await f.async_recv();
        }(from)));
    }
    SECTION("for all waiters") {
        std::atomic<int> got[2] = {};
        note(from, got[0]);
        note(from, got[1]);
        CHECK(got[0] == nothing_yet);
        both.reset();
        CHECK(got[0] == closed);
        CHECK(got[1] == closed);
    }
    SECTION("when it is assigned to") {
        auto [to, other] = oneshot<int>();
        both->first = std::move(to);
        CHECK(is(from.try_recv(), bide::errc::closed));
        CHECK(std::move(both->first).send(3));
        CHECK(number(other.recv()) == 3);
    }
}

TEST_CASE("oneshot: of several waiters, the first gets the value and all others get closed") {
    auto [to, from] = oneshot<int>();
    std::atomic<int> got[2] = {};
    int thread_got = nothing_yet;
    const bool thread_first = GENERATE(true, false);
    CAPTURE(thread_first);
    if (!thread_first) {
        note(from, got[0]);
    }
    test::team threads(1, [&, f = &from](int) { thread_got = number(f->recv()); });
    REQUIRE(test::are_asleep<test::native>(1));
    note(from, got[1]);
    CHECK(std::move(to).send(7));
    threads.join();
    CHECK(thread_got == (thread_first ? 7 : closed));
    CHECK(got[0] == (thread_first ? nothing_yet : 7));
    CHECK(got[1] == closed);
}

TEST_CASE("oneshot: a send to a receiver that has gone brings the value back") {
    test::tally count;
    {
        auto [to, from] = oneshot<test::counted_once>();
        CHECK_FALSE(to.is_closed());
        const bool destroyed = GENERATE(true, false);
        if (destroyed) {
            const auto gone = std::move(from);
        } else {
            CHECK(from.close());
            CHECK_FALSE(from.close());
            CHECK(is(from.try_recv(), bide::errc::closed));
        }
        CHECK(to.is_closed());
        auto back = std::move(to).send(test::counted_once(count, 7));
        REQUIRE_FALSE(back);
        CHECK(back.error().code == bide::errc::closed);
        CHECK(back.error().value.number() == 7);
    }
    CHECK(count.alive() == 0);
}

TEST_CASE("oneshot: what was sent before the receiver closes is received after it") {
    auto [to, from] = oneshot<int>();
    CHECK(std::move(to).send(7));
    CHECK(from.close());
    CHECK(number(from.recv()) == 7);
    CHECK(is(from.recv(), bide::errc::closed));
}

TEST_CASE("oneshot: close() ends the receiver's own waits") {
    auto [to, from] = oneshot<int>();
    std::atomic<int> got{nothing_yet};
    int thread_got = nothing_yet;
    note(from, got);
    test::team threads(1, [&, f = &from](int) { thread_got = number(f->recv()); });
    REQUIRE(test::are_asleep<test::native>(1));
    SECTION("called") { from.close(); }
    SECTION("by the receiver's end") { // what waits keeps what it needs
        const auto gone = std::move(from);
    }
    threads.join();
    CHECK(got == closed);
    CHECK(thread_got == closed);
    CHECK(to.is_closed());
}

TEST_CASE("oneshot: a value that was not received is destroyed with the last end") {
    test::tally count;
    {
        auto [to, from] = oneshot<test::counted_once>();
        CHECK(std::move(to).send(test::counted_once(count, 1)));
        CHECK(count.alive() == 1);
        const auto gone = std::move(from);
    }
    CHECK(count.alive() == 0);
    CHECK(count.copied == 0);
}

TEST_CASE("oneshot: the sender can wait for the end of the receiver") {
    auto [to, from] = oneshot<int>();
    std::stop_source stop = test::new_stop();
    stop.request_stop();
    CHECK_FALSE(to.closed_for(0s));
    CHECK_FALSE(to.closed_for(1ms));
    CHECK_FALSE(to.closed_until(steady_clock::now() - 1s));
    CHECK(is(to.closed(stop.get_token()), bide::errc::stopped));
    bool told = false;
    auto gives_up = note_closed(to, told);
    gives_up.start();
    gives_up.destroy();
    auto c = note_closed(to, told);
    c.start();
    bool good[3] = {};
    test::team threads(3, [&, t = &to](int i) {
        if (i == 0) {
            t->closed();
            good[i] = true;
        } else {
            good[i] = i == 1 ? t->closed_for(1h) : t->closed(std::stop_token()).has_value();
        }
    });
    REQUIRE(test::are_asleep<test::native>(3));
    CHECK_FALSE(told);
    SECTION("by its end") { const auto gone = std::move(from); }
    SECTION("by close()") { from.close(); }
    threads.join();
    CHECK(told);
    CHECK((good[0] && good[1] && good[2]));
    to.closed(); // at once, from now on
    CHECK(to.closed_for(0s));
    CHECK(to.closed(stop.get_token())); // ready first
    CHECK_FALSE(std::move(to).send(1));
}

TEST_CASE(
    "oneshot: zero, negative and past times are one attempt, which gets a value that is there") {
    auto [to, from] = oneshot<int>();
    CHECK(is(from.try_recv_for(0s), bide::errc::timeout));
    CHECK(is(from.try_recv_for(-1h), bide::errc::timeout));
    CHECK(is(from.try_recv_until(steady_clock::time_point::min()), bide::errc::timeout));
    CHECK(is(from.try_recv_for(1ms), bide::errc::timeout));
    CHECK(std::move(to).send(7));
    CHECK(number(from.try_recv_for(-1h)) == 7);
}

TEST_CASE("oneshot: a wait that is stopped has no effect, and the next one gets the value") {
    auto [to, from] = oneshot<int>();
    std::stop_source stop = test::new_stop();
    std::atomic<int> ends[2] = {};
    note_stopped(from, stop.get_token(), ends[0]);
    int thread_got = nothing_yet;
    test::team threads(1, [&, f = &from](int) { thread_got = number(f->recv(stop.get_token())); });
    REQUIRE(test::are_asleep<test::native>(1));
    note(from, ends[1]);
    stop.request_stop();
    threads.join();
    CHECK(thread_got == other_error);
    REQUIRE(test::eventually([&] { return ends[0] != nothing_yet; }));
    CHECK(ends[0] == other_error);
    CHECK(is(from.recv(stop.get_token()), bide::errc::stopped)); // also before it begins
    CHECK(std::move(to).send(7));
    CHECK(ends[1] == 7);
}

TEST_CASE("oneshot: a coroutine that is destroyed leaves the value to the next") {
    auto [to, from] = oneshot<std::unique_ptr<int>>();
    std::optional<std::unique_ptr<int>> got;
    test::manual_executor later;
    auto waits = take(from, got);
    SECTION("while it waits") {
        waits.start();
        waits.destroy();
        CHECK(std::move(to).send(std::make_unique<int>(7)));
    }
    SECTION("when the value has come to it") {
        auto granted = take_on(later, from, got);
        granted.start();
        CHECK(std::move(to).send(std::make_unique<int>(7)));
        CHECK(is(from.try_recv(), bide::errc::closed)); // it is on its way
        granted.destroy();
        later.drop_all();
    }
    CHECK_FALSE(got);
    const auto value = from.try_recv();
    CHECK((value && **value == 7));
}

TEST_CASE(
    "oneshot: a value that came to a destroyed coroutine goes with the receiver at the latest") {
    test::tally t;
    {
        auto [to, from] = oneshot<test::counted_once>();
        std::optional<test::counted_once> got;
        test::manual_executor later;
        auto granted = take_on(later, from, got);
        granted.start();
        CHECK(std::move(to).send(test::counted_once(t, 7)));
        later.drop_all();
        SECTION("closed: it was sent before, so it can still be received") {
            from.close();
            granted.destroy();
            const auto value = from.try_recv();
            REQUIRE(value);
            CHECK(value->number() == 7);
            CHECK(is(from.try_recv(), bide::errc::closed));
        }
        SECTION("gone: it is destroyed with the operation") {
            {
                const auto gone = std::move(from);
            }
            CHECK(t.alive() == 1);
            granted.destroy();
            CHECK(t.alive() == 0);
        }
        SECTION("there: it goes with the receiver") {
            granted.destroy();
            CHECK(t.alive() == 1);
            {
                const auto gone = std::move(from);
            }
            CHECK(t.alive() == 0);
        }
        CHECK_FALSE(got);
    }
    CHECK(t.alive() == 0);
    CHECK(t.copied == 0);
}

TEST_CASE("oneshot: its memory stays until the wait of the receiver is over") {
    using mortal = test::observing<test::mortal>;
    std::optional ends(bide::oneshot<int, mortal>());
    test::mortal::gone = 0;
    SECTION("of a thread") {
        test::mortal::holds = true;
        test::team waiting(1, [from = &ends->second](int) { static_cast<void>(from->recv()); });
        REQUIRE(test::are_asleep<test::mortal>(1));
        ends.reset();
        const bool stayed = test::mortal::gone == 0;
        test::mortal::holds = false;
        waiting.join();
        REQUIRE(stayed);
    }
    SECTION("of a coroutine") {
        test::manual_executor later;
        auto waiting = test::await_op(ends->second.async_recv().resume_on(later));
        waiting.start();
        ends.reset();
        REQUIRE(test::mortal::gone == 0);
        CHECK(later.run_all() == 1);
        waiting.destroy();
    }
    CHECK(test::mortal::gone == 1);
}

TEST_CASE("oneshot: a receiver that is resumed inside send() may destroy everything") {
    std::optional<std::pair<sender<int>, receiver<int>>> both(oneshot<int>());
    int got = nothing_yet;
    [](auto& of, int& out) -> test::detached {
        const auto value = co_await of->second.async_recv();
        of.reset();
        out = value.value_or(closed);
    }(both, got);
    CHECK(std::move(both->first).send(7));
    CHECK(got == 7);
    CHECK_FALSE(both);
}

TEST_CASE("oneshot: a wait whose choice selected another takes no value") {
    auto [to, from] = oneshot<int>();
    auto [other_to, other_from] = oneshot<int>();
    bide::basic_choice<watched> choice;
    test::contested first(from.async_recv().as_case(), choice);
    test::contested second(other_from.async_recv().as_case(), choice);
    CHECK_FALSE(first.start());
    SECTION("queued in both") {
        CHECK_FALSE(second.start());
        std::atomic<int> next{nothing_yet};
        note(other_from, next);
        CHECK(std::move(to).send(1));
        CHECK(first.is_complete());
        CHECK(std::move(other_to).send(2));
        CHECK_FALSE(second.is_complete());
        CHECK_FALSE(second.cancel());
        CHECK(next == 2); // passed over
    }
    SECTION("on its way into the second") {
        CHECK(std::move(other_to).send(2));
        CHECK(std::move(to).send(1));
        CHECK_FALSE(second.start());
        CHECK(number(other_from.try_recv()) == 2);
    }
    auto got = first.collect();
    REQUIRE(got);
    CHECK(*got == 1);
    CHECK(choice.is_decided());
}

TEST_CASE("oneshot: an end that is told decides a choice as a value does") {
    auto [to, from] = oneshot<int>();
    bide::basic_choice<watched> choice;
    test::contested first(from.async_recv().as_case(), choice);
    CHECK_FALSE(first.start());
    {
        const auto gone = std::move(to);
    }
    CHECK(first.is_complete());
    CHECK(choice.is_decided());
    auto got = first.collect();
    CHECK((got && !*got));
}

TEST_CASE("oneshot: one allocation, and none in any wait") {
    bide::timer_service<watched>(); // its thread, once
    std::size_t before = test::allocations_here();
    auto [to, from] = oneshot<int>();
    std::size_t made = test::allocations_here() - before;
    CHECK(made <= 1); // none are counted where the sanitizer has its own operators
    std::stop_source stop = test::new_stop();
    std::optional<int> got;
    auto c = take(from, got);
    before = test::allocations_here();
    const bool late = is(from.try_recv_for(1ms), bide::errc::timeout) && !to.closed_for(1ms);
    c.start();
    const bool sent = std::move(to).send(7).has_value();
    made = test::allocations_here() - before;
    CHECK(made == 0);
    CHECK(late);
    CHECK(sent);
    CHECK(got == 7);
}

#if BIDE_TESTS_CAN_DIE

TEST_CASE("oneshot: destroying a sender while it waits in closed() terminates") {
    const std::string said = test::dies([] {
        auto [to, from] = bide::oneshot<int>();
        bool told = false;
        auto first = note_closed(to, told);
        auto second = note_closed(to, told);
        first.start();
        second.start();
        static_cast<void>(std::move(to).send(1));
    });
    CHECK(test::contains(said, "oneshot sender"));
    CHECK(test::contains(said, "2 waiting"));
}

#endif

TEST_CASE("oneshot: an end that received, or was told, may destroy all while the other end works") {
    using both = std::pair<bide::oneshot_sender<int>, bide::oneshot_receiver<int>>;
    const auto make = [](void* at, int) { return ::new (at) both(bide::oneshot<int>()); };
    const auto send = [](both& b) { static_cast<void>(std::move(b.first).send(1)); };
    const auto receive = [](both& b, int round) {
        switch (round % 4) {
        case 0: static_cast<void>(b.second.recv()); break;
        case 1: static_cast<void>(b.second.recv(std::stop_token())); break;
        case 2:
            while (!b.second.try_recv()) {
                bide::native_platform::pause();
            }
            break;
        default:
            bide::sync_wait([](both& of) -> bide::task<void> {
                const auto got = co_await of.second.async_recv();
                static_cast<void>(got);
            }(b));
        }
    };
    const auto close = [](both& b) { b.second.close(); };
    const auto be_told = [](both& b, int round) {
        if (round % 2 == 0) {
            b.first.closed();
        } else {
            while (!b.first.is_closed()) {
                bide::native_platform::pause();
            }
        }
    };
    CHECK(test::late_touches<both>(1, 1'000, make, send, receive) == 0);
    CHECK(test::late_touches<both>(1, 500, make, close, be_told) == 0);
}

TEST_CASE("oneshot: whatever both ends do at once, a sent value is received or destroyed") {
    using platform = test::jittery;
    test::tally count;
    int received = 0;
    int came_back = 0;
    const std::int64_t enough = test::native::now() + 2'000'000'000;
    const auto is_left = [&] { // on a busy machine few rounds fit into the time
        return test::native::now() < enough || received == 0 || came_back == 0;
    };
    for (std::uint32_t round = 0; round < 2'000 && is_left(); ++round) {
        auto ends = bide::oneshot<test::counted_once, platform>();
        std::stop_source stop = test::new_stop();
        bool sent = false;
        bool back = false;
        bool got = false;
        bool gives_up = false;
        test::run_threads(2, [&](int i) {
            test::jitter pause(test::run_seed() + round * 2 + static_cast<std::uint32_t>(i));
            pause();
            if (i == 0) {
                auto to = std::move(ends.first);
                const std::uint32_t kind = pause.below(8);
                if (kind == 0) {
                    stop.request_stop();
                    pause();
                }
                if (kind != 1) {
                    auto outcome = std::move(to).send(test::counted_once(count, 1));
                    sent = outcome.has_value();
                    back = !sent && outcome.error().value.number() == 1;
                }
                return;
            }
            auto from = std::move(ends.second);
            const std::uint32_t kind = pause.below(7);
            gives_up = kind >= 4;
            if (kind == 0) {
                got = from.recv().has_value();
            } else if (kind == 1) {
                got = bide::sync_wait([](auto& f) -> bide::task<bool> {
                    const auto value = co_await f.async_recv();
                    co_return value.has_value();
                }(from));
            } else if (kind == 2) {
                from.close();
                got = from.recv().has_value();
            } else if (kind == 3) { // a select that may be decided elsewhere
                bide::basic_choice<platform> choice;
                test::contested wait(from.async_recv().as_case(), choice);
                if (!wait.start()) {
                    pause();
                    if (choice.claim()) {
                        choice.commit();
                        wait.cancel();
                        got = from.recv().has_value();
                        return;
                    }
                    test::eventually([&] { return wait.is_complete(); });
                }
                auto value = wait.collect();
                got = value && *value;
            } else if (kind == 4) {
                got = from.recv(stop.get_token()).has_value();
            } else if (kind == 5) {
                got = from.try_recv_for(pause.rest(16)).has_value();
            }
        });
        received += got ? 1 : 0;
        came_back += back ? 1 : 0;
        REQUIRE((gives_up || got == sent));
        REQUIRE((sent || !got));
        REQUIRE(count.alive() == 0);
    }
    CHECK(received > 0);
    CHECK(came_back > 0);
}
