#include "support/death.hpp"
#include "support/foreign_wait.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/test.hpp"

#include <bide/channel/select.hpp>
#include <bide/sync/object_pool.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/task.hpp>

static_assert(!std::is_copy_constructible_v<bide::object_pool<int>>);
static_assert(!std::is_move_constructible_v<bide::object_pool<int>>);
static_assert(!std::is_copy_constructible_v<bide::object_lease<int>>);
static_assert(std::is_nothrow_move_constructible_v<bide::object_lease<int>>);
static_assert(std::is_nothrow_move_assignable_v<bide::object_lease<int>>);

namespace {

// Counts the objects, and the most at a time.
struct census {
    std::atomic<int> made{0};
    std::atomic<int> gone{0};
    std::atomic<int> alive{0};
    std::atomic<int> most{0};

    void add() noexcept {
        ++made;
        const int now = ++alive;
        for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
        }
    }
    void remove() noexcept {
        ++gone;
        --alive;
    }
};

// Cannot be moved. Its number is that of its construction.
class connection {
public:
    explicit connection(census& in) : in_(in), number_(in.made + 1) { in_.add(); }
    connection(const connection&) = delete;
    connection& operator=(const connection&) = delete;
    ~connection() { in_.remove(); }

    int number() const noexcept { return number_; }
    bool is_open() const noexcept { return open_; }
    void close() noexcept { open_ = false; }

private:
    census& in_;
    const int number_;
    bool open_ = true;
};

// A platform with a clock that the test sets.
struct clocked : test::native {
    inline static std::atomic<std::int64_t> at{0};
    inline static std::atomic<int> reads{0};
    static std::int64_t now() noexcept {
        ++reads;
        return at;
    }
    static void pass(std::chrono::nanoseconds time) noexcept { at += time.count(); }
};

template <class Platform> using pool_on = bide::object_pool<connection, Platform>;
bide::object_pool_options of(std::size_t limit) {
    bide::object_pool_options options;
    options.limit = limit;
    return options;
}

enum class what { nothing_yet, got, stopped, timeout, closed };
template <class R> what what_of(const R& got) {
    if (got) {
        return what::got;
    }
    return got.error() == bide::errc::stopped   ? what::stopped
           : got.error() == bide::errc::timeout ? what::timeout
                                                : what::closed;
}
template <class Op> test::detached note_end(Op op, std::atomic<what>& end) {
    const auto got = co_await std::move(op).as_result();
    end = what_of(got);
}
template <class Pool> test::held hold(Pool& p, bool& mine) {
    const auto held = co_await p.async_acquire();
    mine = true;
    co_await std::suspend_always();
}

template <class Pool>
test::held_on<test::manual_executor> hold_on(test::manual_executor&, Pool& p, bool& mine) {
    const auto held = co_await p.async_acquire();
    mine = true;
}

// Its destructor, its factory and its check use the pool, which must hold no lock then.
struct inquisitive {
    bide::object_pool<inquisitive>** of;
    std::size_t* seen;

    inquisitive(bide::object_pool<inquisitive>** pool, std::size_t* sum) : of(pool), seen(sum) {}
    inquisitive(const inquisitive&) = delete;
    inquisitive& operator=(const inquisitive&) = delete;
    ~inquisitive() { look(); }
    bool look() const {
        *seen += (*of)->size() + (*of)->idle() + (*of)->trim();
        return true;
    }
};

// Overloads what a pool might use by mistake.
struct hostile {
    explicit hostile(int n) : number(n) {}
    hostile(hostile&&) = delete;
    hostile* operator&() = delete;
    const hostile* operator&() const = delete;
    template <class U> void operator,(U&&) const = delete;
    static void* operator new(std::size_t) = delete;
    static void operator delete(void*) = delete;
    int number;
};
// A check with an answer that is not a bool, and a callable that cannot be copied.
struct yes {
    explicit operator bool() const noexcept { return true; }
};
struct check_once {
    std::unique_ptr<int> counted = std::make_unique<int>(0);
    yes operator()(hostile& h) {
        *counted += h.number;
        return {};
    }
};
int global_number() { return 7; }

} // namespace

TEST_CASE("object_pool: objects are made on demand, lent again, the last returned first") {
    census all;
    {
        pool_on<test::native> p(of(2), [&] { return connection(all); });
        CHECK(p.limit() == 2);
        CHECK(all.made == 0);
        auto one = p.acquire();
        CHECK(all.made == 1);
        auto two = p.try_acquire();
        REQUIRE(two);
        CHECK((one->number() == 1 && (*two).number() == 2 && two.get()->number() == 2));
        CHECK(p.size() == 2);
        CHECK_FALSE(p.try_acquire());
        CHECK_FALSE(p.try_acquire_for(1ms));
        CHECK_FALSE(p.try_acquire_for(0s));
        CHECK_FALSE(p.try_acquire_until(std::chrono::steady_clock::now() + 1ms));
        std::stop_source stop;
        stop.request_stop();
        const auto stopped = p.acquire(stop.get_token());
        CHECK((!stopped && stopped.error() == bide::errc::stopped));
        one.reset();
        CHECK_FALSE(one);
        CHECK(one.get() == nullptr);
        one.reset();
        CHECK(p.idle() == 1);
        two = decltype(two)(); // returns 2
        CHECK(p.idle() == 2);
        CHECK(p.acquire()->number() == 2);
        CHECK(p.acquire(stop.get_token()).value()->number() == 2); // free
        auto moved = p.acquire();
        one = std::move(moved);
        CHECK_FALSE(moved);
        CHECK(one->number() == 2);
        CHECK(p.acquire()->number() == 1);
        CHECK(p.idle() == 1);
    }
    CHECK(all.made == 2);
    CHECK(all.gone == 2);
}

TEST_CASE("object_pool: a select borrows from one pool, and the other one makes nothing") {
    census all[2];
    pool_on<test::native> a(of(1), [&] { return connection(all[0]); });
    pool_on<test::native> b(of(1), [&] { return connection(all[1]); });
    {
        auto held = a.acquire();
        auto chosen = bide::select(bide::on_acquire(a), bide::on_acquire(b));
        REQUIRE(chosen.index() == 1);
        CHECK(chosen.get<1>().value()->number() == 1);
        CHECK(bide::select(bide::on_acquire(a), bide::on_acquire(&b), bide::on_timeout(1ms))
                  .index() == 2);
        CHECK(bide::select(bide::on_acquire(static_cast<decltype(&a)>(nullptr)),
                           bide::on_timeout(1ms))
                  .index() == 1);
    }
    CHECK(bide::select(bide::on_acquire(a), bide::on_acquire(b)).index() < 2);
    CHECK((a.acquire() && b.acquire()));
    CHECK(all[0].made + all[1].made == 2);
    bide::semaphore s(1); // on_acquire() with and without a count
    CHECK(bide::select(bide::on_acquire(s), bide::on_timeout(1h)).index() == 0);
    CHECK(bide::select(bide::on_acquire(s, 2), bide::on_timeout(1ms)).index() == 1);
}

TEST_CASE(
    "object_pool: an operation that is not awaited, or whose frame is destroyed, makes none") {
    census all;
    pool_on<test::native> p(of(1), [&] { return connection(all); });
    static_cast<void>(p.async_acquire());
    bool mine = false;
    {
        auto held = p.acquire();
        auto gone = hold(p, mine);
        gone.start();
        held.discard();
        CHECK(mine); // it got the next object
        CHECK(all.made == 2);
        CHECK_FALSE(p.try_acquire());
        gone.destroy();
    }
    CHECK(p.idle() == 1);
    {
        test::manual_executor loop;
        auto held = p.acquire();
        auto gone = hold_on(loop, p, mine = false);
        gone.start();
        held.discard(); // grants the room, in which the coroutine would make an object
        CHECK(p.waiters() == 0);
        gone.destroy();
        loop.drop_all();
        CHECK_FALSE(mine);
        CHECK(all.made == 2);
        CHECK(p.acquire()->number() == 3);
    }
    {
        test::journal turns;
        auto held = p.acquire();
        test::foreign_wait wait(p.async_acquire().as_result().as_case(), turns, 0);
        CHECK_FALSE(wait.start());
        CHECK(wait.cancel());
    }
    CHECK(all.made == 3);
    CHECK(p.try_acquire());
}

#if BIDE_EXCEPTIONS

TEST_CASE("object_pool: a factory that throws loses no room and wakes the next waiter",
          "[promise.object-pool]") {
    census all;
    std::atomic<int> failures{0};
    pool_on<test::observing<test::native>> p(of(1), [&] {
        if (failures.fetch_sub(1) > 0) {
            throw std::runtime_error("no connection");
        }
        return connection(all);
    });
    failures = 1;
    CHECK_THROWS_AS(p.acquire(), std::runtime_error);
    failures = 1;
    CHECK_THROWS_AS(p.try_acquire(), std::runtime_error);
    failures = 1;
    CHECK_THROWS_AS(p.acquire(std::stop_token()), std::runtime_error);
    failures = 1;
    CHECK_THROWS_AS(bide::select(bide::on_acquire(p)), std::runtime_error);
    failures = 1;
    CHECK_THROWS_AS(bide::sync_wait([](auto& from) -> bide::task<> {
                        const auto held = co_await from.async_acquire();
                    }(p)),
                    std::runtime_error);
    CHECK(p.size() == 0);
    {
        auto held = p.acquire();
        std::atomic<int> thrown{0};
        std::atomic<int> got{0};
        test::team two(2, [&](int) {
            try {
                const auto mine = p.acquire();
                ++got;
            } catch (const std::runtime_error&) {
                ++thrown;
            }
        });
        REQUIRE(test::are_asleep<test::native>(2));
        failures = 1;
        held.discard(); // the first waiter's factory throws; the second one gets its turn
        two.join();
        CHECK(thrown == 1);
        CHECK(got == 1);
    }
    CHECK(p.size() == 1);
    CHECK(all.most == 1);
}

TEST_CASE("object_pool: a check that throws destroys the object and loses no room",
          "[promise.object-pool][promise.user-exception]") {
    census all;
    bool fails = false;
    {
        pool_on<test::native> p(
            of(1), [&] { return connection(all); },
            [&](connection&) -> bool { return fails ? throw std::runtime_error("bad") : true; });
        p.acquire().reset();
        fails = true;
        CHECK_THROWS_AS(p.acquire(), std::runtime_error);
        CHECK(all.alive == 0);
        CHECK(p.size() == 0);
        CHECK(p.acquire()->number() == 2); // a new object is not checked
        CHECK_THROWS_AS(p.try_acquire(), std::runtime_error);
        fails = false;
        CHECK(p.acquire()->number() == 3);
    }
    CHECK(all.gone == all.made);
}

TEST_CASE("object_pool: misuse of its options is answered with its name",
          "[promise.misuse-refused]") {
    const auto make = [] { return 1; };
    const auto said = [&](bide::object_pool_options options) {
        try {
            const bide::object_pool<int> p(options, make);
        } catch (const std::invalid_argument& e) {
            return std::string(e.what());
        }
        return std::string("nothing");
    };
    bide::object_pool_options options;
    CHECK(test::contains(said(options), "bide::object_pool: limit"));
    options.limit = (std::numeric_limits<std::size_t>::max)();
    CHECK(test::contains(said(options), "bide::object_pool: limit"));
    options.limit = 2;
    options.keep = 3;
    CHECK(test::contains(said(options), "bide::object_pool: keeps more"));
    options.keep = 2;
    options.idle_time = -1ns;
    CHECK(test::contains(said(options), "bide::object_pool: negative idle time"));
    options.idle_time = 0ns;
    CHECK(said(options) == "nothing");
}

#endif

TEST_CASE("object_pool: an object that fails its check is destroyed and replaced") {
    census all;
    int checked = 0;
    pool_on<test::native> p(
        of(3), [&] { return connection(all); },
        [&](connection& c) {
            ++checked;
            return c.is_open();
        });
    {
        auto a = p.acquire();
        auto b = p.acquire();
        auto c = p.acquire();
        b->close();
        c->close();
        CHECK(checked == 0); // new ones are not checked
        a.reset();
    }
    CHECK(p.idle() == 3);
    {
        auto good = p.acquire(); // 2 was returned last, 3 before it, 1 first
        CHECK(good->number() == 1);
        CHECK(checked == 3);
        CHECK(p.size() == 1);
        CHECK(all.alive == 1);
        good->close();
    }
    CHECK(p.acquire()->number() == 4);
    CHECK(checked == 4);
    CHECK(all.alive == 1);
    CHECK(all.most == 3);
}

TEST_CASE("object_pool: a broken object is discarded, and its room is free") {
    census all;
    pool_on<test::native> p(of(1), [&] { return connection(all); });
    auto one = p.acquire();
    one.discard();
    CHECK_FALSE(one);
    one.discard();
    CHECK(all.alive == 0);
    CHECK(p.size() == 0);
    CHECK(p.acquire()->number() == 2);
}

TEST_CASE("object_pool: objects expire, but for those that it keeps", "[promise.object-pool]") {
    census all;
    bide::object_pool_options options;
    options.limit = 4;
    options.keep = 1;
    options.idle_time = 10s;
    pool_on<clocked> p(options, [&] { return connection(all); });
    {
        auto a = p.acquire();
        auto b = p.acquire();
        auto c = p.acquire();
        auto d = p.acquire();
    } // returned in the order 4, 3, 2, 1
    clocked::pass(9s);
    CHECK(p.trim() == 0);
    CHECK(p.acquire()->number() == 1);
    clocked::pass(1s);
    {
        auto fresh = p.acquire(); // the last returned has not expired, and acquire looks no further
        CHECK(fresh->number() == 1);
        CHECK(p.size() == 4);
    } // the return destroys the others
    CHECK(p.size() == 1);
    CHECK(all.alive == 1);
    clocked::pass(1h);
    CHECK(p.trim() == 0);
    CHECK(p.acquire()->number() == 1); // kept
    {
        auto a = p.acquire();
        auto b = p.acquire();
    }
    clocked::pass(10s);
    CHECK(p.acquire()->number() == 5); // 1 was returned last: it expires, and then 5 is kept
    CHECK(all.alive == 1);
    {
        auto a = p.acquire();
        auto b = p.acquire();
        auto c = p.acquire();
        clocked::pass(10s);
        b.reset();
        clocked::pass(10s);
        CHECK(p.trim() == 1);
    }
    {
        auto a = p.acquire();
        auto b = p.acquire();
        auto c = p.acquire();
        auto d = p.acquire();
        CHECK(p.trim() == 0); // all are lent
    }
    clocked::pass(10s);
    CHECK(p.trim() == 3);
    CHECK(p.idle() == 1);
    CHECK(all.most == 4);
}

TEST_CASE("object_pool: without an idle time, the clock is not read") {
    census all;
    pool_on<clocked> p(of(1), [&] { return connection(all); });
    const int before = clocked::reads;
    p.acquire().reset();
    clocked::pass(std::chrono::hours(1));
    CHECK(p.trim() == 0);
    CHECK(p.acquire()->number() == 1);
    CHECK(clocked::reads == before);
}

TEST_CASE("object_pool: with an idle time of zero, no object is lent twice") {
    census all;
    auto options = of(1);
    options.idle_time = 0ns;
    pool_on<clocked> p(options, [&] { return connection(all); });
    CHECK(p.acquire()->number() == 1);
    CHECK(all.alive == 0);
    CHECK(p.acquire()->number() == 2);
}

TEST_CASE("object_pool: close ends waits and idle objects, and leases when they return") {
    using platform = test::observing<test::native>;
    census all;
    pool_on<platform> p(of(2), [&] { return connection(all); });
    auto a = p.acquire();
    p.acquire().reset();
    p.close();
    CHECK(p.is_closed());
    CHECK(all.alive == 1);
    CHECK(p.size() == 1);
    CHECK_FALSE(p.try_acquire());
    CHECK_FALSE(p.try_acquire_for(1h));
    CHECK(p.acquire(std::stop_token()).error() == bide::errc::closed);
    std::atomic<what> end{};
    note_end(p.async_acquire(), end);
    CHECK(end == what::closed);
    CHECK(p.trim() == 0);
#if BIDE_EXCEPTIONS
    CHECK_THROWS_AS(p.acquire(), bide::closed_error);
#endif
    CHECK(a->number() == 1); // it is still valid
    a.reset();
    CHECK(all.alive == 0);
    p.close();

    pool_on<platform> q(of(1), [&] { return connection(all); });
    auto b = q.acquire();
    std::atomic<what> ends[3] = {};
    note_end(q.async_acquire(), ends[0]);
    test::team thread(2, [&](int i) {
        ends[i + 1] = i == 0 ? what_of(q.acquire(std::stop_token()))
                             : (q.try_acquire_for(1h) ? what::got : what::closed);
    });
    REQUIRE(test::are_asleep<test::native>(2));
    q.close();
    thread.join();
    CHECK((ends[0] == what::closed && ends[1] == what::closed && ends[2] == what::closed));
    b.discard();
    CHECK(all.alive == 0);
}

TEST_CASE("object_pool: an object that is granted before the close is refused after it") {
    census all;
    pool_on<test::native> p(of(1), [&] { return connection(all); });
    auto held = p.acquire();
    test::journal turns;
    test::foreign_wait wait(p.async_acquire().as_result().as_case(), turns, 0);
    CHECK_FALSE(wait.start());
    held.reset(); // grants
    CHECK(wait.is_complete());
    p.close();
    CHECK(all.alive == 0);
    CHECK(wait.collect().error() == bide::errc::closed);
    CHECK(all.made == 1);
}

TEST_CASE("object_pool: its callables and destructors run without a lock") {
    std::size_t seen = 0;
    bide::object_pool<inquisitive>* at = nullptr;
    {
        bide::object_pool<inquisitive> p(
            of(2),
            [&] {
                seen += at->size();
                auto other = at->try_acquire(); // makes the second object, whose factory gets none
                return inquisitive(&at, &seen);
            },
            [](const inquisitive& i) { return i.look(); });
        at = &p;
        {
            auto a = p.acquire();
            CHECK(p.size() == 2);
            auto b = p.acquire();
            b.discard();
        }
        p.acquire().reset();
        p.close();
        p.close();
    }
    CHECK(seen != 0);
}

TEST_CASE("object_pool: its objects and callables may be of any type") {
    bide::object_pool<hostile> p(
        of(1), [n = std::make_unique<int>(3)] { return hostile(*n); }, check_once());
    CHECK(p.acquire()->number == 3);
    CHECK(p.acquire().get()->number == 3);
    bide::object_pool deduced(of(2), &global_number);
    static_assert(std::is_same_v<decltype(deduced), bide::object_pool<int>>);
    CHECK(*deduced.acquire() == 7);
    bide::object_pool<std::string> converted(of(1), [] { return "text"; });
    CHECK(*converted.acquire() == "text");
    bide::object_pool aggregate({.limit = 1, .keep = 1, .idle_time = 1min}, &global_number);
    CHECK(*aggregate.acquire() == 7);
}

#if BIDE_TESTS_CAN_DIE

TEST_CASE("object_pool: destroying it while an object is borrowed terminates with its name") {
    const auto destroy = [](bool close) {
        return test::dies([close] {
            std::optional<bide::object_pool<int>> p;
            p.emplace(of(2), [] { return 1; });
            auto held = p->acquire();
            if (close) {
                p->close();
            }
            p.reset();
        });
    };
    for (const bool close : {false, true}) {
        const std::string said = destroy(close);
        CHECK(test::contains(said, "object_pool"));
        CHECK(test::contains(said, "destroyed while an object is borrowed"));
    }
}

TEST_CASE("object_pool: destroying it while a coroutine waits terminates with its name") {
    const std::string said = test::dies([] {
        std::optional<bide::object_pool<int>> p;
        p.emplace(of(1), [] { return 1; });
        auto held = p->acquire();
        std::atomic<what> end{};
        note_end(p->async_acquire(), end);
        p.reset();
    });
    CHECK(test::contains(said, "object_pool"));
    CHECK(test::contains(said, "destroyed with 1 waiting"));
}

#endif
