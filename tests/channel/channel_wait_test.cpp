// Those who wait on a channel: until they are served, and until they are not.

#include "support/alloc.hpp"
#include "support/catch.hpp"
#include "support/coroutines.hpp"
#include "support/counted.hpp"
#include "support/death.hpp"
#include "support/gate.hpp"
#include "support/jitter.hpp"
#include "support/last_touch.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/service.hpp"
#include "support/stop.hpp"
#include "support/waiting.hpp"

#include <bide/channel/channel.hpp>
#include <bide/task/task.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

using bide::errc;
using std::chrono::steady_clock;
using ints = std::vector<int>;
using channel = bide::channel<int>;
template <class T> using sent = bide::result<void, bide::send_error<T>>;

// What the options make of the three operations.
struct any {
    static channel& a() noexcept;
    static ints& out() noexcept;
    static test::manual_executor& elsewhere() noexcept;
};
template <class Op> using limited = decltype(std::declval<Op>().with_timeout(1s));
using send_op = decltype(any::a().async_send(1));
using recv_op = decltype(any::a().async_recv());
using recv_n_op = decltype(any::a().async_recv_n(any::out(), 1));
static_assert(std::is_same_v<limited<send_op>, send_op>); // its result has room for every error
static_assert(std::is_same_v<limited<recv_op>, bide::async_op<bide::result<std::optional<int>>>>);
static_assert(std::is_same_v<limited<recv_n_op>, bide::async_op<bide::result<std::size_t>>>);
static_assert(std::is_same_v<recv_n_op, bide::async_op<std::size_t>>);
static_assert(std::is_same_v<decltype(any::a().async_recv().with_stop(std::stop_token())),
                             bide::async_op<bide::result<std::optional<int>>, 1>>);
static_assert(std::is_same_v<decltype(any::a().async_recv().as_result()), limited<recv_op>>);
static_assert(std::is_same_v<decltype(any::a().async_recv().with_deadline(steady_clock::now())),
                             limited<recv_op>>);
static_assert(std::is_same_v<decltype(any::a().async_recv().resume_on(any::elsewhere())), recv_op>);

ints numbers(int from, int to) {
    ints all(static_cast<std::size_t>(to - from));
    std::iota(all.begin(), all.end(), from);
    return all;
}

template <class R> bool is(const R& got, errc why) { return !got && got.error() == why; }
template <class T> bool came_back(const sent<T>& got, errc why, const T& value) {
    return !got && got.error().code == why && got.error().value == value;
}

template <class Channel> ints take_all(Channel& ch) {
    ints out;
    while (const auto got = ch.try_recv()) {
        out.push_back(*got);
    }
    return out;
}
template <class Channel> void fill(Channel& ch) {
    for (int i = 0; ch.try_send(i); ++i) {
    }
}

// ---- Threads, in each form of a wait that lasts until it is served.

constexpr int forms_of_send = 4;
template <class Channel> sent<int> send_by(int form, Channel& ch, int value, std::stop_token stop) {
    switch (form % forms_of_send) {
    case 0: return ch.send(value);
    case 1: return ch.send(stop, value);
    case 2: return ch.try_send_for(value, 1h);
    default: return ch.try_send_until(value, steady_clock::time_point::max());
    }
}
// Nothing: closed.
constexpr int forms_of_recv = 6;
template <class Channel> std::optional<int> recv_by(int form, Channel& ch, std::stop_token stop) {
    const auto item = [](bide::result<int> got) {
        return got ? std::optional(*got) : std::nullopt;
    };
    switch (form % forms_of_recv) {
    case 0: return ch.recv();
    case 1: return item(ch.recv(stop));
    case 2: return item(ch.try_recv_for(1h));
    case 3: return item(ch.try_recv_until(std::chrono::system_clock::time_point::max()));
    case 4: {
        ints out;
        return ch.recv_n(out, 1) == 1 ? std::optional(out.at(0)) : std::nullopt;
    }
    default: {
        auto at = ch.begin();
        return at != ch.end() ? std::optional(*at) : std::nullopt;
    }
    }
}

// ---- Coroutines: one operation each, and what came of it.

template <class T> struct ending {
    std::optional<T> out;
    std::thread::id on;
    std::atomic<bool> done{false}; // the last that is written
};
template <class Op> using ending_of = ending<typename Op::value_type>;

template <class Coroutine, class Op> Coroutine await_as(Op op, ending_of<Op>& to) {
    auto got = co_await std::move(op);
    to.out.emplace(std::move(got));
    to.on = test::this_thread();
    to.done = true;
}
template <class Op> test::held hold(Op op, ending_of<Op>& to) {
    return await_as<test::held>(std::move(op), to);
}
template <class Op> void let_go(Op op, ending_of<Op>& to) {
    await_as<test::detached>(std::move(op), to);
}
template <class Coroutine, class S, class Op> Coroutine await_on(S, Op op, ending_of<Op>& to) {
    auto got = co_await std::move(op);
    to.out.emplace(std::move(got));
    to.on = test::this_thread();
    to.done = true;
}
template <class T> bool ends(const ending<T>& e) {
    return test::eventually([&] { return e.done.load(); });
}

using send_ending = ending<sent<int>>;
using recv_ending = ending<std::optional<int>>;
using limited_ending = ending<bide::result<std::optional<int>>>;

bool is_sent(const send_ending& e) { return e.done && e.out->has_value(); }
bool is_back(const send_ending& e, errc why, int value) {
    return e.done && came_back(*e.out, why, value);
}
bool has(const recv_ending& e, int value) { return e.done && *e.out == value; }
bool is_closed(const recv_ending& e) { return e.done && !e.out->has_value(); }

template <class Channel> test::detached send_each(Channel& ch, ints values) {
    for (const int value : values) {
        const auto got = co_await ch.async_send(value);
        if (!got) {
            co_return;
        }
    }
}
template <class Channel> test::detached recv_one(Channel& ch, test::journal& notes) {
    const std::optional<int> got = co_await ch.async_recv();
    notes.add(got.value_or(-1));
}

} // namespace

// ---- Order

TEMPLATE_TEST_CASE(
    "channel: those who wait to send get in in the order in which they came, threads "
    "and coroutines",
    "", test::native, test::portable) {
    using platform = test::observing<TestType>;
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 3u);
    bide::basic_channel<int, platform> ch(capacity);
    fill(ch);
    std::stop_source never = test::new_stop();
    std::deque<test::team> threads;
    std::array<std::atomic<bool>, 2 * forms_of_send> went{};
    send_ending ends[forms_of_send];
    std::vector<test::held> coroutines;
    for (int i = 0; i < forms_of_send; ++i) {
        threads.emplace_back(1, [&, i](int) {
            const auto got = send_by(i, ch, 100 + 2 * i, never.get_token());
            went[static_cast<std::size_t>(i)] = got.has_value();
        });
        REQUIRE(test::are_asleep<TestType>(i + 1));
        auto op = ch.async_send(101 + 2 * i);
        coroutines.push_back(
            i % 2 == 0
                ? hold(std::move(op), ends[i])
                : hold(std::move(op).with_stop(never.get_token()).with_timeout(1h), ends[i]));
        coroutines.back().start();
    }
    ints expected = numbers(0, static_cast<int>(capacity));
    for (const int i : numbers(100, 100 + 2 * forms_of_send)) {
        expected.push_back(i);
    }
    CHECK(take_all(ch) == expected);
    for (test::team& t : threads) {
        t.join();
    }
    for (int i = 0; i < forms_of_send; ++i) {
        CHECK(went[static_cast<std::size_t>(i)]);
        CHECK(is_sent(ends[i]));
    }
    CHECK(ch.empty());
}

TEMPLATE_TEST_CASE("channel: those who wait to receive are served in the order in which they came, "
                   "threads and coroutines",
                   "", test::native, test::portable) {
    using platform = test::observing<TestType>;
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 3u);
    bide::basic_channel<int, platform> ch(capacity);
    std::stop_source never = test::new_stop();
    std::deque<test::team> threads;
    std::array<std::optional<int>, forms_of_recv> got;
    recv_ending ends[forms_of_recv];
    std::vector<test::held> coroutines;
    for (int i = 0; i < forms_of_recv; ++i) {
        threads.emplace_back(1, [&, i](int) {
            got[static_cast<std::size_t>(i)] = recv_by(i, ch, never.get_token());
        });
        REQUIRE(test::are_asleep<TestType>(i + 1));
        coroutines.push_back(hold(ch.async_recv(), ends[i]));
        coroutines.back().start();
    }
    for (int i = 0; i < 2 * forms_of_recv; ++i) {
        REQUIRE(ch.try_send(i)); // each finds somebody who waits
        REQUIRE(ch.empty());
    }
    for (test::team& t : threads) {
        t.join();
    }
    for (int i = 0; i < forms_of_recv; ++i) {
        CHECK(got[static_cast<std::size_t>(i)] == 2 * i);
        CHECK(has(ends[i], 2 * i + 1));
    }
}

TEST_CASE("channel: receivers that come again and again get the same share") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 5u);
    channel ch(capacity);
    std::array<ints, 3> got;
    for (ints& mine : got) {
        [](channel& from, ints& out) -> test::detached {
            for (;;) {
                const std::optional<int> item = co_await from.async_recv();
                if (!item) {
                    co_return;
                }
                out.push_back(*item);
            }
        }(ch, mine);
    }
    for (int i = 0; i < 300; ++i) {
        REQUIRE(ch.try_send(i));
    }
    ch.close();
    for (int i = 0; i < 3; ++i) {
        const ints& mine = got[static_cast<std::size_t>(i)];
        REQUIRE(mine.size() == 100);
        for (int k = 0; k < 100; ++k) {
            REQUIRE(mine[static_cast<std::size_t>(k)] == 3 * k + i);
        }
    }
}

TEST_CASE("channel: who is served resumes in the order of the items") {
    const test::watchdog guard;
    channel ch(8);
    test::journal notes;
    for (int i = 0; i < 5; ++i) {
        recv_one(ch, notes);
    }
    ints items = numbers(0, 8);
    CHECK(ch.try_send_n(items) == 8);
    CHECK(notes.entries() == numbers(0, 5));
    CHECK(take_all(ch) == numbers(5, 8));
}

// ---- Closing

TEMPLATE_TEST_CASE(
    "channel: close wakes everybody: who waits to send gets the value back, who waits "
    "to receive nothing",
    "", test::native, test::portable) {
    using platform = test::observing<TestType>;
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 3u);
    std::stop_source never = test::new_stop();
    bide::basic_channel<int, platform> full(capacity);
    bide::basic_channel<int, platform> empty(capacity);
    fill(full);
    constexpr int threads = forms_of_send + forms_of_recv;
    bool good[threads] = {};
    test::team waiting(threads, [&](int i) {
        if (i < forms_of_send) {
            good[i] = came_back(send_by(i, full, i, never.get_token()), errc::closed, i);
        } else {
            good[i] = !recv_by(i - forms_of_send, empty, never.get_token());
        }
    });
    REQUIRE(test::are_asleep<TestType>(threads));
    send_ending sends[3];
    recv_ending recv;
    limited_ending limited_recv;
    ending<std::size_t> recv_n;
    ints out{7};
    let_go(full.async_send(10), sends[0]);
    let_go(full.async_send(11).with_timeout(1h), sends[1]);
    let_go(full.async_send(12).with_stop(never.get_token()).as_result(), sends[2]);
    let_go(empty.async_recv(), recv);
    let_go(empty.async_recv().with_timeout(1h).with_stop(never.get_token()), limited_recv);
    let_go(empty.async_recv_n(out, 5), recv_n);
    CHECK(full.close());
    CHECK(empty.close());
    for (int i = 0; i < 3; ++i) {
        CHECK(is_back(sends[i], errc::closed, 10 + i));
    }
    CHECK(is_closed(recv));
    REQUIRE(limited_recv.done);
    REQUIRE(limited_recv.out->has_value()); // closed is no error, it is the end
    CHECK_FALSE(limited_recv.out->value());
    REQUIRE(recv_n.done);
    CHECK(*recv_n.out == 0);
    CHECK(out == ints{7});
    waiting.join();
    for (const bool g : good) {
        CHECK(g);
    }
    CHECK(take_all(full) == numbers(0, static_cast<int>(capacity))); // what was inside stays
}

TEST_CASE("channel: who was served before close, and has not gone on, stays served") {
    const std::size_t capacity = GENERATE(0u, 1u);
    channel ch(capacity);
    test::manual_executor later;
    recv_ending recv;
    send_ending send;
    auto receiver = hold(ch.async_recv().resume_on(later), recv);
    receiver.start();
    REQUIRE(ch.try_send(1));
    fill(ch);
    auto sender = hold(ch.async_send(2).resume_on(later), send);
    sender.start();
    const auto first = ch.try_recv();
    REQUIRE(first.has_value());
    CHECK(*first == (capacity == 0 ? 2 : 0));
    ch.close();
    CHECK(later.run_all() == 2);
    CHECK(has(recv, 1));
    CHECK(is_sent(send));
    CHECK(take_all(ch) == (capacity == 0 ? ints{} : ints{2})); // it did get in
}

TEMPLATE_TEST_CASE("channel: a send at the time of close fails with its value or is received", "",
                   test::native, test::jittery) {
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    for (int round = 0; round < 300; ++round) {
        const auto capacity = static_cast<std::size_t>(round % 4);
        bide::basic_channel<int, TestType> ch(capacity);
        std::array<ints, 2> went;
        std::array<bool, 2> failed{};
        ints came;
        test::run_threads(4, [&](int i) {
            test::jitter pause(test::run_seed() + static_cast<std::uint32_t>(4 * round + i));
            pause();
            if (i < 2) {
                const auto me = static_cast<std::size_t>(i);
                for (int n = 0;; ++n) {
                    const int value = n * 2 + i;
                    const auto got = ch.send(value);
                    if (!got) {
                        failed[me] = came_back(got, errc::closed, value);
                        return;
                    }
                    went[me].push_back(value);
                }
            } else if (i == 2) {
                while (const auto got = ch.recv()) {
                    came.push_back(*got);
                }
            } else {
                pause.dawdle(16);
                ch.close();
            }
        });
        REQUIRE((failed[0] && failed[1]));
        REQUIRE(ch.empty());
        ints all = went[0];
        all.insert(all.end(), went[1].begin(), went[1].end());
        std::sort(all.begin(), all.end());
        std::sort(came.begin(), came.end());
        REQUIRE(came == all);
    }
}

// ---- Deadlines

TEMPLATE_TEST_CASE("channel: a time-out is not early, by its own clock, and leaves nothing", "",
                   test::native) {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u);
    bide::basic_channel<int, TestType> ch(capacity);
    fill(ch);
    bide::basic_channel<int, TestType> none(capacity);
    const auto start = steady_clock::now();
    CHECK(came_back(ch.try_send_for(5, 10'000'000ns), errc::timeout, 5));
    CHECK(steady_clock::now() >= start + 10ms);
    const auto system = std::chrono::system_clock::now() + 10ms;
    CHECK(came_back(ch.try_send_until(5, system), errc::timeout, 5));
    CHECK(std::chrono::system_clock::now() >= system);
    const auto steady = steady_clock::now() + 10ms;
    CHECK(is(none.try_recv_until(steady), errc::timeout));
    CHECK(steady_clock::now() >= steady);
    const auto before = steady_clock::now();
    CHECK(is(none.try_recv_for(10ms), errc::timeout));
    CHECK(steady_clock::now() >= before + 10ms);

    send_ending send;
    limited_ending recv;
    const auto now = steady_clock::now();
    let_go(ch.async_send(6).with_timeout(10ms), send);
    let_go(none.async_recv().with_deadline(now + 10ms), recv);
    REQUIRE(ends(send));
    REQUIRE(ends(recv));
    CHECK(steady_clock::now() >= now + 10ms);
    CHECK(is_back(send, errc::timeout, 6));
    CHECK(is(*recv.out, errc::timeout));
    CHECK(take_all(ch) == numbers(0, static_cast<int>(capacity)));
    CHECK(is(ch.try_recv(), errc::empty)); // nobody's value came in later
    if (capacity > 0) {
        CHECK(none.try_send(1));
        CHECK(none.size() == 1); // nobody took it
    } else {
        CHECK(came_back(none.try_send(1), errc::full, 1)); // nobody waits
    }
}

TEST_CASE(
    "channel: a time that has passed is one attempt for a coroutine, which does not suspend") {
    const std::size_t capacity = GENERATE(0u, 1u);
    using seconds = std::chrono::duration<double>;
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    for (const double rest : {nan, 0.0, -1e300}) {
        channel ch(capacity);
        limited_ending none;
        ending<bide::result<std::size_t>> none_n;
        send_ending no_room;
        ints out;
        let_go(ch.async_recv().with_timeout(seconds(rest)), none);
        let_go(ch.async_recv_n(out, 3).with_timeout(seconds(rest)), none_n);
        REQUIRE((none.done && none_n.done));
        CHECK(is(*none.out, errc::timeout));
        CHECK(is(*none_n.out, errc::timeout));
        fill(ch);
        let_go(ch.async_send(5).with_deadline(steady_clock::time_point::min()), no_room);
        CHECK(is_back(no_room, errc::timeout, 5));
        if (capacity > 0) { // an item that is there is had, late or not
            limited_ending late;
            let_go(ch.async_recv().with_timeout(seconds(rest)), late);
            REQUIRE(late.done);
            CHECK(late.out->value() == 0);
            send_ending also_late;
            let_go(ch.async_send(1).with_timeout(seconds(rest)), also_late);
            CHECK(is_sent(also_late));
        }
    }
}

TEMPLATE_TEST_CASE("channel: a huge time is for ever, and the wait ends by an item", "",
                   test::native) {
    using platform = test::observing<TestType>;
    using seconds = std::chrono::duration<double>;
    const test::watchdog guard;
    bide::basic_channel<int, platform> full(1);
    bide::basic_channel<int, platform> empty(1);
    fill(full);
    bool good[6] = {};
    test::team waiting(6, [&](int i) {
        constexpr double infinity = std::numeric_limits<double>::infinity();
        switch (i) {
        case 0: good[i] = full.try_send_for(1, std::chrono::hours::max()).has_value(); break;
        case 1: good[i] = full.try_send_for(1, seconds(infinity)).has_value(); break;
        case 2:
            good[i] = full.try_send_until(1, steady_clock::time_point::max()).has_value();
            break;
        case 3: good[i] = empty.try_recv_for(std::chrono::hours::max()).has_value(); break;
        case 4: good[i] = empty.try_recv_for(seconds(1e300)).has_value(); break;
        default:
            good[i] =
                empty.try_recv_until(std::chrono::system_clock::time_point::max()).has_value();
        }
    });
    REQUIRE(test::are_asleep<TestType>(6));
    send_ending send;
    let_go(full.async_send(9).with_timeout(std::chrono::hours::max()), send);
    for (int i = 0; i < 3; ++i) {
        CHECK(empty.try_send(i));
        CHECK(full.try_recv());
    }
    waiting.join();
    for (const bool g : good) {
        CHECK(g);
    }
    CHECK(full.try_recv());
    CHECK(is_sent(send));
    CHECK(full.size() == 1);
}

TEMPLATE_TEST_CASE("channel: who times out and tries again loses nothing and keeps the order", "",
                   test::native) {
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    for (const std::size_t capacity : {0u, 1u, 2u}) {
        bide::basic_channel<int, TestType> ch(capacity);
        constexpr int n = 400;
        ints got;
        bool back = true;
        test::run_threads(2, [&](int i) {
            test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
            for (int k = 0; k < n;) {
                chance.dawdle(15);
                if (i == 0) {
                    const auto went = ch.try_send_for(k, chance.rest(15));
                    back = back && (went || came_back(went, errc::timeout, k));
                    k += went ? 1 : 0;
                } else if (const auto came = ch.try_recv_for(chance.rest(15))) {
                    got.push_back(*came);
                    ++k;
                }
            }
        });
        CHECK(back);
        CHECK(got == numbers(0, n));
        CHECK(ch.empty());
    }
}

// ---- Stops

TEMPLATE_TEST_CASE(
    "channel: a stop ends the waits it is for and no other, and the value comes back", "",
    test::native) {
    using platform = test::observing<TestType>;
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u);
    bide::basic_channel<int, platform> full(capacity);
    bide::basic_channel<int, platform> empty(capacity);
    fill(full);
    std::stop_source stop = test::new_stop();
    std::stop_source other = test::new_stop();
    std::optional<sent<int>> by_thread[2];
    std::optional<bide::result<int>> to_thread[2];
    std::atomic<int> over{0};
    test::team threads(4, [&](int i) {
        const std::stop_token token = i % 2 == 0 ? stop.get_token() : other.get_token();
        if (i < 2) {
            by_thread[i].emplace(full.send(token, i));
        } else {
            to_thread[i - 2].emplace(empty.recv(token));
        }
        ++over;
    });
    REQUIRE(test::are_asleep<TestType>(4));
    send_ending send[2];
    limited_ending recv[2];
    ending<bide::result<std::size_t>> recv_n;
    ints out{7};
    let_go(full.async_send(10).with_stop(stop.get_token()), send[0]);
    let_go(full.async_send(11).with_stop(other.get_token()), send[1]);
    let_go(empty.async_recv().with_stop(stop.get_token()), recv[0]);
    let_go(empty.async_recv().with_stop(other.get_token()), recv[1]);
    let_go(empty.async_recv_n(out, 3).with_stop(stop.get_token()), recv_n);
    stop.request_stop();
    REQUIRE(ends(send[0]));
    REQUIRE(ends(recv[0]));
    REQUIRE(ends(recv_n));
    REQUIRE(test::eventually([&] { return over == 2; }));
    CHECK(is_back(send[0], errc::stopped, 10));
    CHECK(is(*recv[0].out, errc::stopped));
    CHECK(is(*recv_n.out, errc::stopped));
    CHECK(out == ints{7});
    test::service_thread<platform>();
    CHECK(send[0].on != std::this_thread::get_id()); // which requested the stop
    CHECK(recv[0].on != std::this_thread::get_id());
    CHECK_FALSE(send[1].done);
    CHECK_FALSE(recv[1].done);
    for (int i = 0; i < 2; ++i) { // the others are served
        CHECK(empty.try_send(i));
    }
    ints came = take_all(full);
    threads.join();
    CHECK(is_sent(send[1]));
    CHECK(recv[1].done);
    CHECK(came_back(*by_thread[0], errc::stopped, 0));
    CHECK(by_thread[1]->has_value());
    CHECK(is(*to_thread[0], errc::stopped));
    CHECK(to_thread[1]->value() == 0); // the first of those who were left
    CHECK(recv[1].out->value() == 1);
    ints expected = numbers(0, static_cast<int>(capacity));
    expected.insert(expected.end(), {1, 11});
    CHECK(came == expected);
    other.request_stop(); // too late for anything
}

TEST_CASE("channel: a stop that was requested before ends what has to wait, and nothing else") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u);
    channel ch(capacity);
    std::stop_source stop = test::new_stop();
    stop.request_stop();
    limited_ending none;
    let_go(ch.async_recv().with_stop(stop.get_token()), none);
    REQUIRE(ends(none));
    CHECK(is(*none.out, errc::stopped));
    if (capacity > 0) {
        send_ending first;
        let_go(ch.async_send(1).with_stop(stop.get_token()), first);
        CHECK(is_sent(first));
    }
    send_ending second;
    let_go(ch.async_send(2).with_stop(stop.get_token()), second);
    REQUIRE(ends(second));
    CHECK(is_back(second, errc::stopped, 2));
    if (capacity > 0) {
        limited_ending there;
        let_go(ch.async_recv().with_stop(stop.get_token()), there);
        REQUIRE(there.done);
        CHECK(there.out->value() == 1);
    }
    ch.close();
    limited_ending at_end; // closed comes before stopped
    let_go(ch.async_recv().with_stop(stop.get_token()), at_end);
    REQUIRE(at_end.done);
    CHECK((at_end.out->has_value() && !at_end.out->value()));
    send_ending closed;
    let_go(ch.async_send(3).with_stop(stop.get_token()), closed);
    CHECK(is_back(closed, errc::closed, 3));
}

TEST_CASE("channel: who was served stays served, whatever is stopped or late afterwards") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u);
    channel ch(capacity);
    test::manual_executor later;
    std::stop_source stop = test::new_stop();
    const auto when = steady_clock::now() + 300ms;
    limited_ending recv;
    send_ending send;
    auto receiver = hold(
        ch.async_recv().with_stop(stop.get_token()).with_deadline(when).resume_on(later), recv);
    receiver.start();
    REQUIRE(ch.try_send(1));
    fill(ch);
    auto sender = hold(
        ch.async_send(2).with_stop(stop.get_token()).with_deadline(when).resume_on(later), send);
    sender.start();
    REQUIRE(ch.try_recv());
    REQUIRE(later.size() == 2); // else it has taken 300 ms to come here
    SECTION("stopped") { stop.request_stop(); }
    SECTION("late") {
        REQUIRE(test::eventually([&] { return steady_clock::now() > when + 20ms; }));
        test::service_thread();
    }
    CHECK(later.run_all() == 2);
    CHECK(recv.out->value() == 1);
    CHECK(is_sent(send));
}

TEMPLATE_TEST_CASE(
    "channel: a stop, a time-out and an item at once end a wait once, and the item is "
    "received or still inside",
    "", test::native, test::jittery) {
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    for (int round = 0; round < 300; ++round) {
        const auto capacity = static_cast<std::size_t>(round % 3);
        bide::basic_channel<int, TestType> ch(capacity);
        std::stop_source stop = test::new_stop();
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(round));
        limited_ending coroutine;
        let_go(ch.async_recv().with_stop(stop.get_token()).with_timeout(chance.rest(17)),
               coroutine);
        bool went = false;
        std::optional<bide::result<int>> thread;
        test::run_threads(3, [&](int i) {
            test::jitter pause(test::run_seed() + static_cast<std::uint32_t>(round * 3 + i));
            pause.dawdle(14);
            if (i == 0) {
                went = ch.try_send(1).has_value();
            } else if (i == 1) {
                stop.request_stop();
            } else {
                thread.emplace(ch.recv(stop.get_token()));
            }
        });
        REQUIRE(ends(coroutine));
        const int got_there = thread->has_value() ? 1 : 0;
        const int got_here = coroutine.out->has_value() ? 1 : 0;
        const int inside = static_cast<int>(ch.size());
        REQUIRE(got_there + got_here + inside == (went ? 1 : 0));
        REQUIRE((got_here == 1 || coroutine.out->error() == errc::stopped ||
                 coroutine.out->error() == errc::timeout));
        REQUIRE((got_there == 1 || thread->error() == errc::stopped));
    }
}

// ---- Who leaves the queue

TEST_CASE("channel: a sender that leaves the queue is not received, and the others are, in order") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 2u);
    const int leaves = GENERATE(0, 1, 2);
    const bool by_stop = GENERATE(false, true);
    channel ch(capacity);
    fill(ch);
    std::stop_source stop = test::new_stop();
    test::manual_executor later;
    send_ending ends[3];
    std::vector<test::held> waiting;
    for (int i = 0; i < 3; ++i) {
        auto op = ch.async_send(100 + i).resume_on(later);
        waiting.push_back(i == leaves && by_stop
                              ? hold(std::move(op).with_stop(stop.get_token()), ends[i])
                              : hold(std::move(op), ends[i]));
        waiting.back().start();
    }
    if (by_stop) {
        stop.request_stop();
        CHECK(later.run_all() == 1);
        CHECK(is_back(ends[leaves], errc::stopped, 100 + leaves));
    } else {
        waiting[static_cast<std::size_t>(leaves)].destroy();
    }
    ints expected = numbers(0, static_cast<int>(capacity));
    for (int i = 0; i < 3; ++i) {
        if (i != leaves) {
            expected.push_back(100 + i);
        }
    }
    CHECK(take_all(ch) == expected);
    CHECK(later.run_all() == 2);
    for (int i = 0; i < 3; ++i) {
        CHECK(is_sent(ends[i]) == (i != leaves));
    }
}

TEST_CASE("channel: a receiver that leaves the queue takes nothing, and the others do, in order") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 2u);
    const int leaves = GENERATE(0, 1, 2);
    const bool by_stop = GENERATE(false, true);
    channel ch(capacity);
    std::stop_source stop = test::new_stop();
    test::manual_executor later;
    limited_ending ends[3];
    std::vector<test::held> waiting;
    for (int i = 0; i < 3; ++i) {
        auto op = ch.async_recv().resume_on(later);
        waiting.push_back(i == leaves && by_stop
                              ? hold(std::move(op).with_stop(stop.get_token()), ends[i])
                              : hold(std::move(op).as_result(), ends[i]));
        waiting.back().start();
    }
    if (by_stop) {
        stop.request_stop();
        CHECK(later.run_all() == 1);
        CHECK(is(*ends[leaves].out, errc::stopped));
    } else {
        waiting[static_cast<std::size_t>(leaves)].destroy();
    }
    CHECK(ch.try_send(0));
    CHECK(ch.try_send(1));
    CHECK(ch.try_send(2).has_value() == (capacity > 0)); // nobody waits any more
    CHECK(later.run_all() == 2);
    int next = 0;
    for (int i = 0; i < 3; ++i) {
        if (i != leaves) {
            REQUIRE(ends[i].done);
            CHECK(ends[i].out->value() == next++);
        }
    }
}

TEST_CASE("channel: with the last who waited gone it is as it was before") {
    const std::size_t capacity = GENERATE(0u, 1u);
    channel ch(capacity);
    recv_ending none;
    auto receiver = hold(ch.async_recv(), none);
    receiver.start();
    receiver.destroy();
    CHECK(ch.try_send(1).has_value() == (capacity > 0));
    CHECK(ch.size() == capacity);
    send_ending no_room;
    auto sender = hold(ch.async_send(2), no_room);
    sender.start();
    sender.destroy();
    CHECK(take_all(ch).size() == capacity);
    CHECK(is(ch.try_recv(), errc::empty));
}

// ---- Coroutines that are destroyed

namespace {

ints numbers_of(const std::vector<test::counted_once>& items) {
    ints out;
    for (const test::counted_once& item : items) {
        out.push_back(item.number());
    }
    return out;
}
ints numbers_inside(bide::channel<test::counted_once>& ch) {
    ints out;
    while (const auto got = ch.try_recv()) {
        out.push_back(got->number());
    }
    return out;
}

// A coroutine that waits for an item, or for many, and does not go on when it has got one.
class granted_receiver {
public:
    granted_receiver(bide::channel<test::counted_once>& ch, std::vector<test::counted_once>& out,
                     bool many)
        : frame_(many ? hold(ch.async_recv_n(out, 5).resume_on(later_), many_)
                      : hold(ch.async_recv().resume_on(later_), one_)) {
        frame_.start();
    }
    void destroy() {
        REQUIRE(later_.size() == 1);
        later_.drop_all();
        frame_.destroy();
        CHECK_FALSE(one_.done);
        CHECK_FALSE(many_.done);
    }

private:
    test::manual_executor later_;
    ending<std::optional<test::counted_once>> one_;
    ending<std::size_t> many_;
    test::held frame_;
};

} // namespace

TEST_CASE(
    "channel: an item that came to a coroutine which was destroyed goes to the next who waits") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 3u);
    test::tally in;
    {
        bide::channel<test::counted_once> ch(capacity);
        test::manual_executor later;
        ending<std::optional<test::counted_once>> ends[3];
        std::vector<test::held> waiting;
        for (auto& e : ends) {
            waiting.push_back(hold(ch.async_recv().resume_on(later), e));
            waiting.back().start();
        }
        REQUIRE(ch.try_send(test::counted_once(in, 1)));
        REQUIRE(later.size() == 1);
        later.drop_all();
        waiting[0].destroy();
        REQUIRE(later.size() == 1); // now it is the second's
        CHECK(in.alive() == 1);
        SECTION("which takes it") {
            CHECK(later.run_all() == 1);
            REQUIRE(ends[1].done);
            CHECK(ends[1].out->value().number() == 1);
            REQUIRE(ch.try_send(test::counted_once(in, 2)));
            CHECK(later.run_all() == 1);
            REQUIRE(ends[2].done);
            CHECK(ends[2].out->value().number() == 2);
        }
        SECTION("and so on; without a receiver it goes back into the channel") {
            later.drop_all();
            waiting[1].destroy();
            CHECK(later.size() == 1);
            CHECK(in.alive() == 1);
            later.drop_all();
            waiting[2].destroy();
            CHECK(later.size() == 0);
            CHECK(in.alive() == (capacity == 0 ? 0 : 1));
            CHECK(numbers_inside(ch) == (capacity == 0 ? ints{} : ints{1}));
            CHECK(ch.try_send(test::counted_once(in, 3)).has_value() == (capacity > 0));
        }
    }
    CHECK(in.alive() == 0);
    CHECK(in.copied == 0);
}

TEST_CASE("channel: an item that came to a destroyed coroutine goes back in while there is room, "
          "behind what is inside") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 2u, 3u);
    const bool many = GENERATE(false, true); // async_recv_n()
    CAPTURE(capacity, many);
    const int room = static_cast<int>(capacity);
    test::tally in;
    for (int inside = 0; inside <= room; ++inside) {
        bide::channel<test::counted_once> ch(capacity);
        std::vector<test::counted_once> out;
        out.emplace_back(in, 90);
        granted_receiver one(ch, out, many);
        REQUIRE(ch.try_send(test::counted_once(in, 50)));
        REQUIRE(ch.empty());
        for (int i = 0; i < inside; ++i) {
            REQUIRE(ch.try_send(test::counted_once(in, i)));
        }
        const bool fits = inside < room;
        one.destroy();
        CHECK(ch.size() == static_cast<std::size_t>(inside + (fits ? 1 : 0)));
        // It stays in the vector where it cannot go back.
        CHECK(in.alive() == 1 + inside + (fits || many ? 1 : 0));
        CHECK(numbers_of(out) == (!fits && many ? ints{90, 50} : ints{90}));
        ints expected = numbers(0, inside);
        if (fits) {
            expected.push_back(50);
        }
        CHECK(numbers_inside(ch) == expected);
        // Every place is free again.
        for (int i = 0; i < room; ++i) {
            CHECK(ch.try_send(test::counted_once(in, i)));
        }
        CHECK(ch.size() == capacity);
    }
    CHECK(in.alive() == 0);
    CHECK(in.copied == 0);
}

TEST_CASE("channel: an item that comes back while senders wait takes none of their places") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(1u, 2u);
    const bool many = GENERATE(false, true);
    test::tally in;
    {
        bide::channel<test::counted_once> ch(capacity);
        std::vector<test::counted_once> out;
        granted_receiver one(ch, out, many);
        REQUIRE(ch.try_send(test::counted_once(in, 50)));
        for (int i = 0; i < static_cast<int>(capacity); ++i) {
            REQUIRE(ch.try_send(test::counted_once(in, i)));
        }
        ending<sent<test::counted_once>> went;
        auto sender = hold(ch.async_send(test::counted_once(in, 60)), went);
        sender.start();
        one.destroy();
        out.clear();
        CHECK_FALSE(went.done);
        CHECK(in.alive() == static_cast<int>(capacity) + 1);
        ints expected = numbers(0, static_cast<int>(capacity));
        expected.push_back(60);
        CHECK(numbers_inside(ch) == expected);
        CHECK(went.done);
    }
    CHECK(in.alive() == 0);
}

TEST_CASE("channel: nothing comes back into a closed channel") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 3u);
    const bool many = GENERATE(false, true);
    test::tally in;
    {
        bide::channel<test::counted_once> ch(capacity);
        std::vector<test::counted_once> out;
        granted_receiver one(ch, out, many);
        REQUIRE(ch.try_send(test::counted_once(in, 50)));
        ch.close();
        REQUIRE(is(ch.try_recv(), errc::closed));
        one.destroy();
        CHECK(numbers_of(out) == (many ? ints{50} : ints{}));
        CHECK(in.alive() == (many ? 1 : 0));
        CHECK(ch.empty());
        CHECK(is(ch.try_recv(), errc::closed));
    }
    CHECK(in.alive() == 0);
}

TEST_CASE("channel: of a coroutine that received many, the first item alone is passed on") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 3u);
    test::tally in;
    {
        bide::channel<test::counted_once> ch(capacity);
        std::vector<test::counted_once> out;
        out.emplace_back(in, 90);
        out.emplace_back(in, 91);
        granted_receiver one(ch, out, true);
        ending<std::optional<test::counted_once>> ends[2];
        std::vector<test::held> waiting;
        for (auto& e : ends) {
            waiting.push_back(hold(ch.async_recv(), e));
            waiting.back().start();
        }
        REQUIRE(ch.try_send(test::counted_once(in, 50)));
        REQUIRE(numbers_of(out) == ints{90, 91, 50});
        one.destroy();
        CHECK(numbers_of(out) == ints{90, 91});
        REQUIRE(ends[0].done);
        REQUIRE(ends[0].out->has_value());
        CHECK((*ends[0].out)->number() == 50);
        CHECK_FALSE(ends[1].done);
        CHECK(in.alive() == 3);
        CHECK(ch.empty());
    }
    CHECK(in.alive() == 0);
    CHECK(in.copied == 0);
}

TEST_CASE("channel: a coroutine that is destroyed without an item leaves its vector alone") {
    channel ch(2);
    ints out{7, 8};
    SECTION("while it waits") {
        ending<std::size_t> none;
        auto waits = hold(ch.async_recv_n(out, 5), none);
        waits.start();
        waits.destroy();
    }
    SECTION("closed, before it goes on") {
        test::manual_executor later;
        ending<std::size_t> none;
        auto told = hold(ch.async_recv_n(out, 5).resume_on(later), none);
        told.start();
        ch.close();
        later.drop_all();
        told.destroy();
    }
    SECTION("none asked for, before it goes on") {
        const auto wait = ch.async_recv_n(out, 0).as_case();
        REQUIRE(wait.ops->try_now(wait.target) == bide::wait_status::granted);
        wait.ops->give_back(wait.target, bide::wait_status::granted);
    }
    CHECK(out == ints{7, 8});
    CHECK(ch.empty());
}

namespace {

template <class Channel>
test::held recv_many(Channel& ch, ints& out, std::size_t most, bool& failed) {
    try {
        static_cast<void>(co_await ch.async_recv_n(out, most));
    } catch (const std::bad_alloc&) {
        failed = true;
    }
}

} // namespace

TEST_CASE("channel: where memory runs out, each item is in the vector or inside, in order") {
    if (!test::counts_allocations()) {
        return;
    }
    const test::watchdog guard;
    const bool by_coroutine = GENERATE(false, true);
    const std::size_t room = GENERATE(0u, 1u, 2u);
    channel ch(4);
    fill(ch);
    ints out;
    out.reserve(room);
    bool failed = false;
    auto receiver = recv_many(ch, out, 9, failed);
    {
        const test::out_of_memory now;
        try {
            if (by_coroutine) {
                receiver.start();
            } else {
                static_cast<void>(ch.recv_n(out, 9));
            }
        } catch (const std::bad_alloc&) {
            failed = true;
        }
    }
    CHECK(failed);
    CHECK(out.size() == (room == 0 ? 0u : 1u)); // room for all or for the first alone
    ints all = out;
    for (const int n : take_all(ch)) {
        all.push_back(n);
    }
    CHECK(all == numbers(0, 4));
}

TEMPLATE_TEST_CASE("channel: an item that a destroyed coroutine leaves behind wakes a thread", "",
                   test::native) {
    using platform = test::observing<TestType>;
    const test::watchdog guard;
    bide::basic_channel<int, platform> ch(1);
    test::manual_executor later;
    recv_ending lost;
    auto first = hold(ch.async_recv().resume_on(later), lost);
    first.start();
    std::optional<int> got;
    test::team second(1, [&](int) { got = ch.recv(); });
    REQUIRE(test::are_asleep<TestType>(1));
    REQUIRE(ch.try_send(5));
    later.drop_all();
    first.destroy();
    second.join();
    CHECK(got == 5);
}

TEST_CASE("channel: what a coroutine sent, or put in its vector, outlives it") {
    const std::size_t capacity = GENERATE(0u, 1u);
    channel ch(capacity);
    test::manual_executor later;
    fill(ch);
    send_ending went;
    auto sender = hold(ch.async_send(9).resume_on(later), went);
    sender.start();
    REQUIRE(ch.try_recv()); // its own, where there is no capacity
    later.drop_all();
    sender.destroy();
    CHECK(take_all(ch) == (capacity == 0 ? ints{} : ints{9}));

    ints out{7};
    ending<std::size_t> came;
    auto receiver = hold(ch.async_recv_n(out, 3).resume_on(later), came);
    receiver.start();
    REQUIRE(ch.try_send(8));
    fill(ch); // so that it cannot go back
    later.drop_all();
    receiver.destroy();
    CHECK(out == ints{7, 8});
}

TEST_CASE("channel: a value that a destroyed coroutine could not send is destroyed with it") {
    test::tally in;
    bide::channel<test::counted_once> ch(0);
    ending<sent<test::counted_once>> none;
    auto waits = hold(ch.async_send(test::counted_once(in, 1)), none);
    auto never_started = hold(ch.async_send(test::counted_once(in, 2)), none);
    waits.start();
    CHECK(in.alive() == 2);
    waits.destroy();
    CHECK(in.alive() == 1);
    never_started.destroy();
    CHECK(in.alive() == 0);
    CHECK(is(ch.try_recv(), errc::empty));
}

TEST_CASE("channel: a counted value in a co_await is constructed and destroyed once each") {
    test::tally in;
    const std::size_t capacity = GENERATE(0u, 1u, 2u);
    {
        bide::channel<test::counted_once> ch(capacity);
        int went = 0;
        ints back;
        [](bide::channel<test::counted_once>& to, test::tally& t, int& ok,
           ints& n) -> test::detached {
            for (int i = 0; i < 4; ++i) {
                const auto got = co_await to.async_send(test::counted_once(t, i));
                ok += got ? 1 : 0;
                if (!got) {
                    n.push_back(got.error().value.number());
                }
            }
        }(ch, in, went, back);
        ints came;
        [](bide::channel<test::counted_once>& from, ints& out) -> test::detached {
            std::optional<test::counted_once> got = co_await from.async_recv();
            out.push_back(got->number());
            out.push_back((co_await from.async_recv())->number());
        }(ch, came);
        CHECK(came == ints{0, 1});
        ch.close();
        CHECK(went + static_cast<int>(back.size()) == 4);
        CHECK(in.alive() == static_cast<int>(ch.size()));
    }
    CHECK(in.alive() == 0);
    CHECK(in.copied == 0);
}

namespace {

// Uses the channel when it dies.
class meddler {
public:
    meddler(bide::channel<meddler>& ch, int& died) noexcept : home_(&ch), died_(&died) {}
    meddler(meddler&& other) noexcept
        : home_(std::exchange(other.home_, nullptr)), died_(other.died_) {}
    ~meddler() {
        if (home_ != nullptr) {
            ++*died_;
            static_cast<void>(home_->size());
            static_cast<void>(home_->try_recv());
            home_->close();
        }
    }

private:
    bide::channel<meddler>* home_;
    int* died_;
};

} // namespace

TEST_CASE("channel: the destructor of an item that a coroutine leaves behind may use the channel") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 2u);
    const bool full = GENERATE(false, true);
    int died = 0;
    bide::channel<meddler> ch(capacity);
    test::manual_executor later;
    ending<std::optional<meddler>> none;
    auto receiver = hold(ch.async_recv().resume_on(later), none);
    receiver.start();
    REQUIRE(ch.try_send(meddler(ch, died)));
    if (full) {
        for (std::size_t i = 0; i < capacity; ++i) {
            REQUIRE(ch.try_send(meddler(ch, died)));
        }
    } else {
        ch.close();
    }
    later.drop_all();
    receiver.destroy();
    CHECK(died == (full ? 1 + static_cast<int>(capacity) : 1)); // each takes one out
    CHECK(ch.is_closed());
    CHECK(ch.empty());
}

// ---- Where a coroutine goes on

TEST_CASE(
    "channel: a coroutine goes on where it asked to, else where its promise says, else inside "
    "the call that served it") {
    test::manual_executor asked;
    test::manual_executor named;
    channel ch(0);
    recv_ending ends[4];
    auto by_option = hold(ch.async_recv().resume_on(asked), ends[0]);
    using on = test::held_on<test::manual_executor>;
    using on_pointer = test::held_on_pointer<test::manual_executor>;
    auto by_promise = await_on<on, test::manual_executor&>(named, ch.async_recv(), ends[1]);
    auto by_pointer =
        await_on<on_pointer, test::manual_executor*>(&named, ch.async_recv(), ends[2]);
    auto nowhere = hold(ch.async_recv(), ends[3]);
    by_option.start();
    by_promise.start();
    by_pointer.start();
    nowhere.start();
    for (int i = 0; i < 4; ++i) {
        REQUIRE(ch.try_send(i));
    }
    CHECK(has(ends[3], 3));
    CHECK_FALSE((ends[0].done || ends[1].done || ends[2].done));
    CHECK(asked.run_all() == 1);
    CHECK(named.run_all() == 2);
    for (int i = 0; i < 3; ++i) {
        CHECK(has(ends[i], i));
    }
}

TEST_CASE("channel: who need not wait does not suspend") {
    test::manual_executor later;
    channel ch(2);
    send_ending send;
    recv_ending recv;
    ending<std::size_t> recv_n;
    ints out;
    let_go(ch.async_send(1).resume_on(later), send);
    let_go(ch.async_recv().resume_on(later), recv);
    CHECK(is_sent(send));
    CHECK(has(recv, 1));
    let_go(ch.async_recv_n(out, 0).resume_on(later), recv_n); // none of none
    REQUIRE(recv_n.done);
    CHECK(*recv_n.out == 0);
    CHECK(later.size() == 0);
}

TEST_CASE("channel: a coroutine receives many at once, at most as many as it asked for") {
    const std::size_t max = GENERATE(1u, 2u, 3u, 9u);
    channel ch(3);
    ints out{-1};
    ending<std::size_t> at_once;
    fill(ch);
    let_go(ch.async_recv_n(out, max), at_once);
    REQUIRE(at_once.done);
    const std::size_t first = std::min<std::size_t>(max, 3);
    CHECK(*at_once.out == first);
    CHECK(out.size() == 1 + first);
    take_all(ch);
    out.clear();
    ending<bide::result<std::size_t>> later;
    let_go(ch.async_recv_n(out, max).with_timeout(1h), later);
    CHECK_FALSE(later.done);
    ints items = numbers(0, 3);
    CHECK(ch.try_send_n(items) == 3);
    REQUIRE(later.done);
    CHECK(later.out->value() == first);
    CHECK(out == numbers(0, static_cast<int>(first)));
    CHECK(ch.size() == 3 - first);
}

TEST_CASE("channel: who is served may send, receive, close and destroy the channel there") {
    SECTION("send and receive") {
        channel ch(1);
        ints seen;
        [](channel& at, ints& out) -> test::detached {
            const std::optional<int> got = co_await at.async_recv();
            out.push_back(*got);
            out.push_back(at.try_send(*got + 1) ? 1 : 0);
            const std::optional<int> again = co_await at.async_recv();
            out.push_back(*again);
            at.close();
        }(ch, seen);
        CHECK(ch.try_send(5));
        CHECK(seen == ints{5, 1, 6});
        CHECK(ch.is_closed());
    }
    SECTION("destroy, as a receiver") {
        const std::size_t capacity = GENERATE(0u, 1u, 3u);
        auto ch = std::make_unique<channel>(capacity);
        [](std::unique_ptr<channel>& at) -> test::detached {
            const std::optional<int> got = co_await at->async_recv();
            if (got == 5) {
                at.reset();
            }
        }(ch);
        channel& here = *ch;
        CHECK(here.try_send(5));
        CHECK(ch == nullptr);
    }
    SECTION("destroy, as a sender") {
        const std::size_t capacity = GENERATE(0u, 1u, 3u);
        auto ch = std::make_unique<channel>(capacity);
        fill(*ch);
        [](std::unique_ptr<channel>& at) -> test::detached {
            const auto got = co_await at->async_send(5);
            if (got) {
                at.reset();
            }
        }(ch);
        channel& here = *ch;
        CHECK(here.try_recv());
        CHECK(ch == nullptr);
    }
    SECTION("destroy, when it is closed") {
        auto ch = std::make_unique<channel>(1u);
        [](std::unique_ptr<channel>& at) -> test::detached {
            const std::optional<int> got = co_await at->async_recv();
            if (!got) {
                at.reset();
            }
        }(ch);
        channel& here = *ch;
        CHECK(here.close());
        CHECK(ch == nullptr);
    }
}

// ---- Chains

TEST_CASE("channel: a chain of a thousand channels passes a value on, and costs no stack") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u);
    constexpr int length = 1'000;
    std::deque<channel> chain;
    for (int i = 0; i <= length; ++i) {
        chain.emplace_back(capacity);
    }
    for (std::size_t i = 0; i < length; ++i) {
        [](channel& from, channel& to) -> test::detached {
            const std::optional<int> got = co_await from.async_recv();
            const auto went = co_await to.async_send(*got + 1);
            static_cast<void>(went);
        }(chain[i], chain[i + 1]);
    }
    CHECK(chain.front().try_send(1));
    CHECK(chain.back().try_recv().value() == length + 1);
}

TEST_CASE("channel: a sieve of coroutines finds the primes") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 5u);
    std::deque<channel> between;
    between.emplace_back(capacity);
    [](channel& to) -> test::detached {
        for (int i = 2;; ++i) {
            const auto went = co_await to.async_send(i);
            if (!went) {
                co_return;
            }
        }
    }(between.back());
    ints primes;
    for (int i = 0; i < 60; ++i) {
        channel& last = between.back();
        const auto prime = last.try_recv(); // there is one: everybody has run until he waits
        REQUIRE(prime);
        primes.push_back(*prime);
        channel& next = between.emplace_back(capacity);
        [](channel& from, channel& to, int by) -> test::detached {
            for (;;) {
                const std::optional<int> got = co_await from.async_recv();
                if (!got) {
                    to.close();
                    co_return;
                }
                if (*got % by == 0) {
                    continue;
                }
                const auto went = co_await to.async_send(*got);
                if (!went) {
                    from.close();
                    co_return;
                }
            }
        }(last, next, *prime);
    }
    between.back().close(); // which closes all, one after the other
    between.front().close();
    ints expected;
    for (int n = 2; expected.size() < primes.size(); ++n) {
        if (std::none_of(expected.begin(), expected.end(), [n](int p) { return n % p == 0; })) {
            expected.push_back(n);
        }
    }
    CHECK(primes == expected);
    for (channel& ch : between) {
        take_all(ch); // and nobody is left in any
    }
}

TEMPLATE_TEST_CASE(
    "channel: threads on the one side and coroutines on the other pass all, in order", "",
    test::native) {
    const std::size_t capacity = GENERATE(0u, 1u, 3u);
    constexpr int n = 2'000;
    bide::basic_channel<int, TestType> there(capacity);
    bide::basic_channel<int, TestType> back(capacity);
    {
        test::thread_executor where;
        const auto echo = [](bide::basic_channel<int, TestType>& in,
                             bide::basic_channel<int, TestType>& out,
                             test::thread_executor& on) -> test::detached {
            for (;;) {
                const std::optional<int> got = co_await in.async_recv().resume_on(on);
                if (!got) {
                    out.close();
                    co_return;
                }
                const auto went = co_await out.async_send(*got).resume_on(on);
                if (!went) {
                    co_return;
                }
            }
        };
        echo(there, back, where);
        ints got;
        int went = 0;
        test::run_threads(2, [&](int i) {
            if (i == 0) {
                for (int k = 0; k < n; ++k) {
                    went += there.send(k) ? 1 : 0;
                }
                there.close();
            } else {
                for (const int k : back) {
                    got.push_back(k);
                }
            }
        });
        CHECK(went == n);
        CHECK(got == numbers(0, n));
    }
}

TEMPLATE_TEST_CASE("channel: what came before a send is seen by who receives", "", test::native) {
    const std::size_t capacity = GENERATE(0u, 1u, 3u);
    constexpr int n = 300;
    bide::basic_channel<int, TestType> ch(capacity);
    std::array<int, n> news{}; // plain: a sanitizer sees whether it is ordered
    bool good = true;
    test::run_threads(2, [&](int i) {
        for (int k = 0; k < n; ++k) {
            if (i == 0) {
                news[static_cast<std::size_t>(k)] = k;
                static_cast<void>(ch.send(k));
            } else {
                const std::optional<int> got = ch.recv();
                good = good && got == k && news[static_cast<std::size_t>(k)] == k;
            }
        }
    });
    CHECK(good);
}

// ---- Any sequence of steps

// A channel beside a model of it: what is inside, and two lines of those who wait. One thread, so
// everybody who waits is a coroutine, with an executor of its own that keeps what is posted.
namespace {

class mailbox {
public:
    void post(bide::waker w) noexcept { posted_ = w; }
    bool is_posted() const noexcept { return static_cast<bool>(posted_); }
    void run() noexcept { std::exchange(posted_, {}).wake(); }

private:
    bide::waker posted_;
};

class walk {
    using item = test::counted_once;
    using what = bide::wait_status;

    // One who waits; below, what the model expects of it.
    struct guest {
        guest(bool sender, int n) : sends(sender), value(n), stop(test::new_stop()) {}
        const bool sends;
        mailbox post;
        ending<sent<item>> went;
        ending<bide::result<std::optional<item>>> came;
        int value; // sent, or expected
        what state = what::waiting;
        std::stop_source stop;
        std::optional<test::held> frame;

        bool is_done() const { return sends ? went.done.load() : came.done.load(); }
        bool is_as_expected() const {
            if (sends) {
                const auto& got = *went.out;
                return state == what::granted ? got.has_value()
                                              : !got && got.error().code == bide::errc_of(state) &&
                                                    got.error().value.number() == value;
            }
            const auto& got = *came.out;
            switch (state) {
            case what::granted: return got && *got && (*got)->number() == value;
            case what::closed: return got && !*got;
            default: return !got && got.error() == bide::errc_of(state);
            }
        }
    };

public:
    walk(std::size_t capacity, std::uint32_t seed) : ch_(capacity), chance_(seed) {}

    bool step() {
        bool good = true;
        switch (chance_.below(16)) {
        case 0:
        case 1:
        case 2: good = come(true); break;
        case 3:
        case 4:
        case 5: good = come(false); break;
        case 6: good = attempt_send(); break;
        case 7: good = attempt_recv(); break;
        case 8: good = batch_send(); break;
        case 9: good = batch_recv(); break;
        case 10: good = leave(false); break;
        case 11: good = leave(true); break;
        case 12: close_seldom(); break;
        default: good = go_on(); break;
        }
        for (const auto& g : guests_) {
            good = good && g->post.is_posted() == (g->state != what::waiting);
        }
        return good && ch_.size() == inside_.size();
    }

    ~walk() { guests_.clear(); } // those who wait leave before the channel goes

    test::tally in;

private:
    // The model. False: it would have to wait.
    bool model_send(int value) {
        if (!receivers_.empty()) {
            give(value);
        } else if (inside_.size() < ch_.capacity()) {
            inside_.push_back(value);
        } else {
            return false;
        }
        return true;
    }
    void give(int value) {
        receivers_.front()->value = value;
        receivers_.front()->state = what::granted;
        receivers_.pop_front();
    }
    bool model_recv(int& value) {
        if (ch_.capacity() == 0 && !senders_.empty()) {
            value = senders_.front()->value;
        } else if (!inside_.empty()) {
            value = inside_.front();
            inside_.pop_front();
            if (!senders_.empty()) {
                inside_.push_back(senders_.front()->value);
            }
        } else {
            return false;
        }
        if (!senders_.empty()) {
            senders_.front()->state = what::granted;
            senders_.pop_front();
        }
        return true;
    }

    bool come(bool sends) {
        if (guests_.size() > 10) {
            return true;
        }
        guests_.push_back(std::make_unique<guest>(sends, sends ? next_++ : 0));
        guest& g = *guests_.back();
        const std::stop_token token = g.stop.get_token();
        bool waits = false;
        if (sends) {
            waits = !closed_ && !model_send(g.value);
            g.frame.emplace(
                hold(ch_.async_send(item(in, g.value)).with_stop(token).resume_on(g.post), g.went));
        } else {
            waits = !model_recv(g.value);
            if (waits && closed_) {
                g.state = what::closed;
                waits = false;
            } else if (!waits) {
                g.state = what::granted;
            }
            g.frame.emplace(hold(ch_.async_recv().with_stop(token).resume_on(g.post), g.came));
        }
        g.frame->start();
        if (waits) {
            (sends ? senders_ : receivers_).push_back(&g);
            return !g.is_done();
        }
        if (sends) {
            g.state = closed_ ? what::closed : what::granted;
        }
        const bool good = g.is_done() && g.is_as_expected();
        guests_.pop_back();
        return good;
    }

    bool attempt_send() {
        const bool goes = !closed_ && model_send(next_);
        const auto got = ch_.try_send(item(in, next_));
        const errc why = closed_ ? errc::closed : errc::full;
        const bool good =
            goes ? got.has_value()
                 : !got && got.error().code == why && got.error().value.number() == next_;
        ++next_;
        return good;
    }
    bool attempt_recv() {
        int value = 0;
        const bool comes = model_recv(value);
        const auto got = ch_.try_recv();
        return comes ? got && got->number() == value
                     : is(got, closed_ ? errc::closed : errc::empty);
    }
    bool batch_send() {
        std::vector<item> items;
        for (std::uint32_t n = chance_.below(6); n > 0; --n) {
            items.emplace_back(in, next_++);
        }
        std::size_t go = 0;
        while (!closed_ && go < items.size() && model_send(items[go].number())) {
            ++go;
        }
        return ch_.try_send_n(items) == go &&
               (go == items.size() ||
                items[go].number() == next_ - static_cast<int>(items.size() - go));
    }
    bool batch_recv() {
        const std::size_t most = chance_.below(6);
        ints expected;
        for (int value = 0; expected.size() < most && model_recv(value);) {
            expected.push_back(value);
        }
        std::vector<item> items;
        bool good = ch_.try_recv_n(items, most) == expected.size();
        for (std::size_t i = 0; i < expected.size() && good; ++i) {
            good = items[i].number() == expected[i];
        }
        return good;
    }

    // By its end, or by a stop, which is too late for one who has been served.
    bool leave(bool stops) {
        if (guests_.empty()) {
            return true;
        }
        const auto at =
            guests_.begin() +
            static_cast<std::ptrdiff_t>(chance_.below(static_cast<std::uint32_t>(guests_.size())));
        guest& g = **at;
        if (g.state == what::waiting) {
            auto& line = g.sends ? senders_ : receivers_;
            line.erase(std::find(line.begin(), line.end(), &g));
        } else if (!stops && !g.sends && g.state == what::granted && !closed_) {
            model_send(g.value); // what it had goes to the next, or back
        }
        if (stops) {
            g.state = g.state == what::waiting ? what::stopped : g.state;
            g.stop.request_stop();
        } else {
            guests_.erase(at);
        }
        return true;
    }

    bool go_on() {
        for (auto at = guests_.begin(); at != guests_.end(); ++at) {
            if ((*at)->state != what::waiting) {
                (*at)->post.run();
                const bool good = (*at)->is_done() && (*at)->is_as_expected();
                guests_.erase(at);
                return good;
            }
        }
        return true;
    }

    void close_seldom() {
        if (chance_.below(50) != 0) {
            return;
        }
        for (auto* line : {&senders_, &receivers_}) {
            for (guest* g : *line) {
                g->state = what::closed;
            }
            line->clear();
        }
        closed_ = true;
        ch_.close();
    }

    bide::channel<item> ch_;
    test::jitter chance_;
    int next_ = 0;
    bool closed_ = false;
    std::deque<int> inside_;
    std::deque<guest*> senders_;
    std::deque<guest*> receivers_;
    std::vector<std::unique_ptr<guest>> guests_;
};

} // namespace

TEST_CASE("channel: any sequence of steps does what a queue with two lines of waiters does") {
    const test::watchdog guard;
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    for (std::uint32_t round = 0; round < 60; ++round) {
        constexpr std::size_t capacities[] = {0, 1, 2, 3, 5};
        CAPTURE(round);
        auto w = std::make_unique<walk>(capacities[round % 5], test::run_seed() + round);
        for (int i = 0; i < 1'000; ++i) {
            CAPTURE(i);
            REQUIRE(w->step());
        }
    }
}

// ---- Allocation

TEMPLATE_TEST_CASE("channel: no wait allocates", "", test::native) {
    using platform = test::observing<TestType>;
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 3u);
    bide::basic_channel<int, platform> full(capacity);
    bide::basic_channel<int, platform> empty(capacity);
    fill(full);
    bide::timer_service<platform>(); // its thread, once
    std::stop_source stop = test::new_stop();
    std::stop_source idle = test::new_stop();

    SECTION("of a thread") {
        std::size_t made[8] = {1, 1, 1, 1, 1, 1, 1, 1};
        bool good[8] = {};
        std::atomic<int> late{0};
        test::team waiting(8, [&](int i) {
            const std::stop_token token = i % 4 == 1 ? stop.get_token() : idle.get_token();
            ints out;
            out.reserve(4);
            const std::size_t before = test::allocations_here();
            switch (i) {
            case 0: good[i] = full.send(1).has_value(); break;
            case 1: good[i] = !full.send(token, 1); break;
            case 2: good[i] = full.send(token, 1).has_value(); break;
            case 3:
                good[i] = !full.try_send_for(1, 1ms);
                ++late;
                good[i] = good[i] && full.try_send_for(1, 1h);
                break;
            case 4: good[i] = empty.recv().has_value(); break;
            case 5: good[i] = !empty.recv(token); break;
            case 6: good[i] = empty.recv_n(out, 1) == 1; break;
            default:
                good[i] = !empty.try_recv_for(1ms);
                ++late;
                good[i] = good[i] && empty.try_recv_for(1h);
                break;
            }
            made[i] = test::allocations_here() - before;
        });
        const bool all =
            test::eventually([&] { return late == 2; }) && test::are_asleep<TestType>(8);
        const std::size_t before = test::allocations_here();
        stop.request_stop();
        bool served = true;
        for (int i = 0; i < 3; ++i) {
            served = full.try_recv() && served;
            served = empty.try_send(i) && served;
        }
        const std::size_t here = test::allocations_here() - before;
        CHECK(here == 0);
        CHECK(all);
        CHECK(served);
        waiting.join();
        for (int i = 0; i < 8; ++i) {
            CAPTURE(i);
            CHECK(good[i]);
            CHECK(made[i] == 0);
        }
    }
    SECTION("of a coroutine") {
        send_ending send[3];
        recv_ending recv;
        limited_ending limited_recv[2];
        ending<std::size_t> recv_n;
        ints out;
        out.reserve(4);
        std::vector<test::held> frames;
        frames.push_back(hold(full.async_send(1), send[0]));
        frames.push_back(hold(full.async_send(1).with_timeout(1h), send[1]));
        frames.push_back(hold(full.async_send(1).with_stop(idle.get_token()), send[2]));
        frames.push_back(hold(empty.async_recv(), recv));
        frames.push_back(hold(empty.async_recv().with_timeout(1h), limited_recv[0]));
        frames.push_back(hold(empty.async_recv().with_stop(idle.get_token()), limited_recv[1]));
        frames.push_back(hold(empty.async_recv_n(out, 4), recv_n));
        bool served = true;
        const std::size_t before = test::allocations_here();
        for (test::held& frame : frames) {
            frame.start();
        }
        for (int i = 0; i < 3; ++i) {
            served = full.try_recv() && served;
        }
        for (int i = 0; i < 4; ++i) {
            served = empty.try_send(i) && served;
        }
        const std::size_t made = test::allocations_here() - before;
        CHECK(made == 0);
        CHECK(served);
        for (const test::held& frame : frames) {
            CHECK(frame.done());
        }
    }
}

// ---- Destruction

#if BIDE_TESTS_CAN_DIE

TEST_CASE("channel: to destroy it while somebody waits terminates with its name and the count") {
    const bool sends = GENERATE(false, true);
    const std::string said = test::dies([sends] {
        const std::size_t capacity = 2;
        std::optional<channel> ch(std::in_place, capacity);
        if (sends) {
            fill(*ch);
        }
        recv_ending recv[3];
        send_ending send[3];
        std::vector<test::held> waiting;
        for (int i = 0; i < 3; ++i) {
            waiting.push_back(sends ? hold(ch->async_send(i), send[i])
                                    : hold(ch->async_recv(), recv[i]));
            waiting.back().start();
        }
        waiting[1].destroy();
        ch.reset();
    });
    CHECK(test::contains(said, "channel"));
    CHECK(test::contains(said, "2 waiting"));
}

TEST_CASE("channel: to destroy it in peace is nobody's business, whatever is inside") {
    CHECK(test::contains(test::dies([] {
                             std::optional<channel> ch(std::in_place, 2u);
                             recv_ending none;
                             auto receiver = hold(ch->async_recv(), none);
                             receiver.start();
                             receiver.destroy();
                             fill(*ch);
                             ch->close();
                             ch.emplace(0u);
                             ch.reset();
                         }),
                         "[it lives on]"));
}

#endif

TEMPLATE_TEST_CASE("channel: who received what was sent may destroy it, whatever the senders do",
                   "", test::native, test::jittery) {
    using any_channel = bide::basic_channel<int, TestType>;
    constexpr int senders = 2;
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    const auto make = [](void* at, int round) {
        return ::new (at) any_channel(static_cast<std::size_t>(round % 4));
    };
    const auto help = [](any_channel& ch) {
        static thread_local int form = 0;
        if (++form % 5 == 4) {
            bide::sync_wait([](any_channel& to) -> bide::task<void> {
                const auto went = co_await to.async_send(1);
                static_cast<void>(went);
            }(ch));
        } else {
            static_cast<void>(send_by(form % 5, ch, 1, std::stop_token()));
        }
    };
    const auto receive = [](any_channel& ch, int round) {
        for (int i = 0; i < senders;) {
            const int form = (round / 4 + i) % 8;
            if (form == 6) {
                i += ch.try_recv() ? 1 : 0;
            } else if (form == 7) {
                ints out;
                bide::sync_wait([](any_channel& from, ints& to) -> bide::task<void> {
                    co_await from.async_recv_n(to, 2);
                }(ch, out));
                i += static_cast<int>(out.size());
            } else {
                i += recv_by(form, ch, std::stop_token()) ? 1 : 0;
            }
        }
    };
    CHECK(test::late_touches<any_channel>(senders, 1'500, make, help, receive) == 0);
}

TEMPLATE_TEST_CASE("channel: who knows that its item was received may destroy it, whatever the "
                   "receivers do",
                   "", test::native, test::jittery) {
    using any_channel = bide::basic_channel<int, TestType>;
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    const auto make = [](void* at, int round) {
        return ::new (at) any_channel(static_cast<std::size_t>(round % 4));
    };
    const auto help = [](any_channel& ch) { // one, and no more
        static thread_local int form = 0;
        switch (++form % 8) {
        case 6:
            while (!ch.try_recv()) {
                std::this_thread::yield();
            }
            break;
        case 7:
            bide::sync_wait([](any_channel& from) -> bide::task<void> {
                static_cast<void>(co_await from.async_recv());
            }(ch));
            break;
        default: static_cast<void>(recv_by(form % 8, ch, std::stop_token()));
        }
    };
    // The last one that fits in tells that the first was taken out.
    const auto send = [](any_channel& ch, int round) {
        for (std::size_t left = ch.capacity() + 1; left > 0; --left) {
            const int form = (round / 4 + static_cast<int>(left)) % 6;
            if (form == 4) {
                while (!ch.try_send(1)) {
                    std::this_thread::yield();
                }
            } else if (form == 5) {
                bide::sync_wait([](any_channel& to) -> bide::task<void> {
                    const auto went = co_await to.async_send(1);
                    static_cast<void>(went);
                }(ch));
            } else {
                static_cast<void>(send_by(form, ch, 1, std::stop_token()));
            }
        }
    };
    CHECK(test::late_touches<any_channel>(1, 1'500, make, help, send) == 0);
}

// The same at every step: one thread pauses after its n-th step on an atomic, and meanwhile the other
// does all that is left to do, and frees the channel, for a sanitizer to see who comes back.
namespace {

struct pausing : test::native {
    static constexpr int enough = 28; // by then a wait turns in a loop, or sleeps
    inline static std::atomic<int> paused{0};
    inline static std::atomic<bool> gone{false};

    // This thread's next pause, and the one after it.
    struct plan {
        int left = 0; // steps until then; 0: none
        std::atomic<bool>* until = nullptr;
        int then = 0; // steps from there to a pause until it is gone
    };
    static plan& mine() noexcept {
        thread_local plan p;
        return p;
    }
    static void step() noexcept {
        plan& p = mine();
        if (p.left > 0 && --p.left == 0) {
            const std::atomic<bool>& over = *p.until;
            p = {p.then, &gone, 0};
            ++paused;
            // It may hold the lock that another wants, so it does not pause for ever.
            test::eventually([&over] { return over.load(); }, 500us);
        }
    }

    template <class T> class atomic : public std::atomic<T> {
        using base = std::atomic<T>;
        using order = std::memory_order;

    public:
        using base::base;

        T load(order o) const noexcept { return stepped(base::load(o)); }
        void store(T value, order o) noexcept {
            base::store(value, o);
            step();
        }
        T exchange(T value, order o) noexcept { return stepped(base::exchange(value, o)); }
        bool compare_exchange_weak(T& seen, T value, order o, order failed) noexcept {
            return stepped(base::compare_exchange_weak(seen, value, o, failed));
        }
        bool compare_exchange_strong(T& seen, T value, order o, order failed) noexcept {
            return stepped(base::compare_exchange_strong(seen, value, o, failed));
        }
        T fetch_and(T value, order o) noexcept { return stepped(base::fetch_and(value, o)); }
        T fetch_or(T value, order o) noexcept { return stepped(base::fetch_or(value, o)); }

    private:
        template <class R> static R stepped(R result) noexcept {
            step();
            return result;
        }
    };
};
using pausing_channel = bide::basic_channel<int, pausing>;

// `first` runs on a thread that pauses, `rest` here, which then frees the channel.
template <class First, class Rest>
void free_after_each_step(std::size_t capacity, int inside, First first, Rest rest) {
    for (int n = 1; n <= pausing::enough; ++n) {
        pausing::paused = 0;
        pausing::gone = false;
        auto ch = std::make_unique<pausing_channel>(capacity);
        for (int i = 0; i < inside; ++i) {
            REQUIRE(ch->try_send(i));
        }
        test::team other(1, [&first, n, at = ch.get()](int) {
            pausing::mine() = {n, &pausing::gone, 0};
            first(*at);
            pausing::mine() = {};
            ++pausing::paused;
        });
        // One that waits may not have that many steps to take before it is served.
        test::eventually([] { return pausing::paused != 0; }, 1ms);
        rest(*ch);
        ch.reset();
        pausing::gone = true;
        other.join();
    }
}

template <class Op> bide::task<void> let_be(Op op) {
    const auto got = co_await std::move(op);
    static_cast<void>(got);
}

} // namespace

TEST_CASE("channel: no step of a send comes after its item can be received and the channel freed") {
    const test::watchdog guard;
    const int form = GENERATE(range(0, forms_of_send + 1));
    const std::size_t capacity = GENERATE(0u, 1u, 2u);
    CAPTURE(form);
    const bool waits = GENERATE(true, false);
    const int before = static_cast<int>(capacity) - (waits ? 0 : 1);
    if (before < 0) {
        return;
    }
    std::stop_source never = test::new_stop();
    const auto send = [form, &never](pausing_channel& ch) {
        if (form == forms_of_send) {
            bide::sync_wait(let_be(ch.async_send(7)));
        } else {
            static_cast<void>(send_by(form, ch, 7, never.get_token()));
        }
    };
    int last = 0;
    free_after_each_step(capacity, before, send, [&last, before](pausing_channel& ch) {
        for (int i = 0; i <= before; ++i) {
            last = ch.recv().value_or(-1);
        }
    });
    CHECK(last == 7);
}

TEST_CASE("channel: no step of a receive comes after its sender can know of it and free the "
          "channel") {
    const test::watchdog guard;
    const int form = GENERATE(range(0, forms_of_recv + 1));
    const std::size_t capacity = GENERATE(0u, 1u, 2u);
    CAPTURE(form);
    std::stop_source never = test::new_stop();
    const auto recv = [form, &never](pausing_channel& ch) {
        if (form == forms_of_recv) {
            bide::sync_wait(let_be(ch.async_recv()));
        } else {
            static_cast<void>(recv_by(form, ch, never.get_token()));
        }
    };
    bool went = true;
    free_after_each_step(capacity, 0, recv, [&went](pausing_channel& ch) {
        // Where the last one fits in, the first has been taken out.
        for (std::size_t left = ch.capacity() + 1; left > 0; --left) {
            went = ch.send(7).has_value() && went;
        }
    });
    CHECK(went);
}

TEST_CASE("channel: no step of close comes after who is told can free the channel") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 2u);
    const auto close = [](pausing_channel& ch) { ch.close(); };
    const bool waits = GENERATE(true, false);
    free_after_each_step(capacity, 0, close, [waits](pausing_channel& ch) {
        if (waits) {
            static_cast<void>(ch.recv());
        }
        while (ch.try_recv().error() != bide::errc::closed) {
        }
    });
}

// One receiver waits, so both senders see that; the one serves it, and the other comes with an item
// that nobody waits for any more: it can be received while its sender is still at work.
TEST_CASE("channel: no step of a send comes after its item is there for who does not wait") {
    const test::watchdog guard;
    for (int at = 1; at <= 6; ++at) {
        for (int then = 1; then <= 8; ++then) {
            pausing::paused = 0;
            pausing::gone = false;
            std::atomic<bool> go[2] = {};
            std::atomic<bool> over{false};
            auto ch = std::make_unique<pausing_channel>(2u);
            test::manual_executor later;
            recv_ending end;
            auto waiting = hold(ch->async_recv().resume_on(later), end);
            waiting.start();
            test::team senders(2, [&, to = ch.get()](int i) {
                if (i == 1) {
                    test::eventually([] { return pausing::paused != 0; }, 1ms);
                }
                pausing::mine() = {at, &go[i], i == 0 ? 0 : then};
                static_cast<void>(to->send(i));
                pausing::mine() = {};
                if (i == 0) {
                    over = true;
                }
            });
            test::eventually([] { return pausing::paused == 2; }, 1ms);
            go[0] = true;
            test::eventually([&] { return over.load(); }, 1ms);
            go[1] = true;
            int received = 0;
            while (received + static_cast<int>(later.size()) < 2) {
                received += ch->try_recv() ? 1 : 0;
            }
            later.run_all();
            waiting.destroy();
            ch.reset();
            pausing::gone = true;
            senders.join();
            REQUIRE(end.done == (received == 1));
        }
    }
}

// ---- The end of a thread

namespace {

template <class Channel> struct last_words {
    Channel* in = nullptr;
    Channel* out = nullptr;
    ~last_words() {
        if (in != nullptr) {
            const auto got = in->recv();
            static_cast<void>(out->send(got.value_or(-1) + 1));
            static_cast<void>(in->try_recv_for(1ms));
        }
    }
};

} // namespace

TEMPLATE_TEST_CASE("channel: a thread may wait in the destructor of a thread_local", "",
                   test::native) {
    using platform = test::observing<TestType>;
    using any_channel = bide::basic_channel<int, platform>;
    const test::watchdog guard;
    const bool waited_before =
        GENERATE(false, true); // so that what waits need is older, or younger
    any_channel in(1);
    any_channel out(0);
    test::team ending(1, [&](int) {
        if (waited_before) {
            bide::sync_wait([](any_channel& ch) -> bide::task<void> {
                static_cast<void>(co_await ch.async_recv().with_timeout(1ms));
            }(in));
        }
        thread_local last_words<any_channel> last;
        last.in = &in;
        last.out = &out;
    });
    REQUIRE(test::are_asleep<TestType>(1));
    CHECK(in.try_send(41));
    CHECK(out.recv() == 42);
    ending.join();
}
