#include "support/coroutines.hpp"
#include "support/death.hpp"
#include "support/test.hpp"

#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/condition_variable.hpp>
#include <bide/sync/synchronized_value.hpp>
#include <bide/task/task.hpp>

namespace {

template <class V>
concept can_be_awaited = requires(V& v) { v.async_lock(); };

using number = bide::synchronized_value<int>;
static_assert(std::is_same_v<number::value_type, int>);
static_assert(std::is_same_v<number::mutex_type, bide::mutex>);
static_assert(!std::is_copy_constructible_v<number>);
static_assert(!std::is_copy_assignable_v<number> && !std::is_move_assignable_v<number>);
static_assert(!std::is_convertible_v<int, number>);
static_assert(!std::is_copy_constructible_v<number::locked>);
static_assert(std::is_nothrow_default_constructible_v<number::locked>);
static_assert(std::is_nothrow_move_constructible_v<number::locked>);
static_assert(std::is_nothrow_move_assignable_v<number::locked>);
static_assert(can_be_awaited<number>);
static_assert(can_be_awaited<bide::synchronized_value<int, bide::adaptive_mutex>>);
static_assert(!can_be_awaited<bide::synchronized_value<int, std::mutex>>);
static_assert(sizeof(bide::synchronized_value<void*>) == 24 || sizeof(void*) != 8);

// Whether it can be locked now; std::mutex must not be asked by the thread that has it.
template <class V> bool is_free(V& v) {
    bool free = false;
    test::run_threads(1, [&](int) { free = static_cast<bool>(v.try_lock()); });
    return free;
}

// Adds one under the lock.
template <class V> test::detached add_one(V& v) {
    const auto value = co_await v.async_lock();
    ++*value;
}
template <class V> test::held add_one_on(test::manual_executor& e, V& v) {
    const auto value = co_await v.async_lock().resume_on(e);
    ++*value;
}
struct point {
    point(int a, std::unique_ptr<int> b) : x(a), y(std::move(b)) {}
    int x;
    std::unique_ptr<int> y;
    int sum() const { return x + *y; }
};

struct refuses {
    explicit refuses(int) { throw std::runtime_error("no"); }
};

struct without_address {
    void operator&() const = delete;
    int n = 0;
};

} // namespace

TEMPLATE_TEST_CASE("synchronized_value: it is made of its value's arguments", "", bide::mutex,
                   std::mutex) {
    bide::synchronized_value<point, TestType> p(1, std::make_unique<int>(2));
    CHECK(p.lock()->sum() == 3);
    bide::synchronized_value<int, TestType> zero;
    CHECK(*zero.lock() == 0);
    bide::synchronized_value<std::string, TestType> s(3u, 'x');
    CHECK(*s.lock() == "xxx");
    bide::synchronized_value<std::unique_ptr<int>, TestType> moved(std::make_unique<int>(7));
    CHECK(**moved.lock() == 7);
    CHECK_THROWS_AS((std::make_unique<bide::synchronized_value<refuses, TestType>>(1)),
                    std::runtime_error);
}

TEST_CASE(
    "synchronized_value: it is constructible from exactly what its value is constructible from") {
    CHECK(std::is_constructible_v<number, int>);
    CHECK_FALSE(std::is_constructible_v<number, std::string>);
    CHECK_FALSE(std::is_constructible_v<number, int, int>);
    CHECK_FALSE(std::is_move_constructible_v<number>);
    CHECK_FALSE(std::is_constructible_v<number, number&>);
    CHECK_FALSE(std::is_default_constructible_v<bide::synchronized_value<point>>);
}

TEMPLATE_TEST_CASE("synchronized_value: with() calls f under the lock and returns its result", "",
                   bide::mutex, std::mutex) {
    bide::synchronized_value<point, TestType> p(1, std::make_unique<int>(2));
    bool was_free = true;
    const int sum = p.with([&](point& inside) {
        was_free = is_free(p);
        inside.x = 40;
        return inside.sum();
    });
    CHECK(sum == 42);
    CHECK_FALSE(was_free);
    CHECK(is_free(p));

    CHECK(p.with(&point::sum) == 42); // as std::invoke does
    CHECK(p.with(&point::x) == 40);
    const auto same = [](point& inside) -> point& { return inside; };
    STATIC_REQUIRE(std::is_same_v<decltype(p.with(same)), point&>);
    STATIC_REQUIRE(std::is_same_v<decltype(p.with([](point&) {})), void>);

    struct once {
        std::unique_ptr<int> mine;
        int operator()(point& inside) && { return inside.x + *mine; }
    };
    CHECK(p.with(once{std::make_unique<int>(1)}) == 41);
}

TEMPLATE_TEST_CASE("synchronized_value: an exception in with() releases the lock", "", bide::mutex,
                   std::mutex) {
    bide::synchronized_value<int, TestType> v(1);
    for (int i = 0; i < 3; ++i) {
        CHECK_THROWS_AS(v.with([](int& n) {
            ++n;
            throw std::runtime_error("in the middle");
        }),
                        std::runtime_error);
        CHECK(is_free(v));
    }
    CHECK(*v.lock() == 4);
}

TEMPLATE_TEST_CASE("synchronized_value: the lock is held as long as the result of lock() exists",
                   "", bide::mutex, std::mutex) {
    bide::synchronized_value<std::string, TestType> v("a");
    {
        const auto held = v.lock();
        REQUIRE(held);
        CHECK_FALSE(is_free(v));
        *held += "b";
        CHECK(held->size() == 2);
    }
    CHECK(is_free(v));
    {
        auto held = v.lock();
        held.unlock();
        CHECK_FALSE(held);
        CHECK(is_free(v));
        held.unlock(); // nothing to give back
        const auto other = v.lock();
        held.unlock();
        CHECK_FALSE(is_free(v));
        CHECK(*other == "ab");
    }
    CHECK(is_free(v));
}

TEMPLATE_TEST_CASE("synchronized_value: try_lock() is empty while it is taken", "", bide::mutex,
                   std::mutex) {
    bide::synchronized_value<int, TestType> v(1);
    {
        const auto held = v.try_lock();
        REQUIRE(held);
        *held = 2;
        bool empty = false;
        test::run_threads(1, [&](int) { empty = !v.try_lock(); });
        CHECK(empty);
    }
    const auto again = v.try_lock();
    REQUIRE(again);
    CHECK(*again == 2);
}

TEMPLATE_TEST_CASE(
    "synchronized_value: a lock that is moved is held once, and the moved-from one is empty", "",
    bide::mutex, std::mutex) {
    using value = bide::synchronized_value<int, TestType>;
    value a(1);
    value b(2);
    typename value::locked none;
    CHECK_FALSE(none);
    none.unlock();
    {
        auto first = a.lock();
        auto second = std::move(first);
        CHECK_FALSE(first); // NOLINT: what it left is looked at
        REQUIRE(second);
        CHECK(*second == 1);
        first.unlock();
        CHECK_FALSE(is_free(a));

        auto other = b.lock();
        other = std::move(second); // gives back what it had
        CHECK_FALSE(second);       // NOLINT: as above
        REQUIRE(other);
        CHECK(*other == 1);
        CHECK(is_free(b));
        CHECK_FALSE(is_free(a));

        other = typename value::locked();
        CHECK_FALSE(other);
        CHECK(is_free(a));
        none = a.lock();
        CHECK_FALSE(is_free(a));
    }
    CHECK(*none == 1);
    CHECK_FALSE(is_free(a)); // its lock outlives the others
    none.unlock();
    CHECK(is_free(a));
}

TEST_CASE("synchronized_value: a lock that is moved to itself stays locked") {
    number value(1);
    {
        auto held = value.lock();
        auto& same = held;
        held = std::move(same);
        REQUIRE(held);
        CHECK(*held == 1);
        CHECK_FALSE(is_free(value));
        std::swap(held, same);
        REQUIRE(held);
        CHECK_FALSE(is_free(value));
    }
    CHECK(is_free(value));

    number::locked empty;
    auto& same = empty;
    empty = std::move(same);
    CHECK_FALSE(empty);
}

TEST_CASE("synchronized_value: a condition takes its lock") {
    number value(0);
    bide::condition_variable changed;
    test::team other(1, [&](int) {
        value.with([](int& n) { n = 1; });
        changed.notify_one();
    });
    auto held = value.lock();
    changed.wait(held.as_lock(), [&] { return *held == 1; });
    CHECK(held);
    CHECK_FALSE(is_free(value));
}

TEMPLATE_TEST_CASE("synchronized_value: threads and coroutines count together", "", bide::mutex,
                   bide::adaptive_mutex) {
    constexpr int rounds = 2'000;
    using value = bide::synchronized_value<int, TestType>;
    value v(0);
    int tried[4] = {};
    test::run_threads(4, [&](int i) {
        for (int n = 0; n < rounds; ++n) {
            if (i == 0) {
                v.with([](int& count) { ++count; });
            } else if (i == 1) {
                ++*v.lock();
            } else if (i == 2) {
                if (const auto held = v.try_lock()) {
                    ++*held;
                    ++tried[i];
                }
            } else {
                bide::sync_wait([](value& at) -> bide::task<void> {
                    const auto held = co_await at.async_lock();
                    ++*held;
                }(v));
            }
        }
    });
    CHECK(*v.lock() == 3 * rounds + tried[2]);
}

TEST_CASE("synchronized_value: its value may have an operator& of its own") {
    bide::synchronized_value<without_address> v;
    v.lock()->n = 1;
    (*v.lock()).n += 2;
    v.with([](without_address& inside) { inside.n += 4; });
    CHECK(v.try_lock()->n == 7);
}

TEMPLATE_TEST_CASE("synchronized_value: a coroutine is handed the value and its lock", "",
                   bide::mutex, bide::adaptive_mutex) {
    bide::synchronized_value<int, TestType> v(0);
    add_one(v); // at once
    CHECK(*v.lock() == 1);

    test::manual_executor later;
    auto held = v.lock();
    auto c = add_one_on(later, v);
    c.start();
    add_one(v);
    CHECK(*held == 1);
    held.unlock();
    CHECK_FALSE(v.try_lock()); // it is the first's, which has not run yet
    CHECK(later.run_all() == 1);
    CHECK(c.done());
    CHECK(*v.lock() == 3);
}

TEMPLATE_TEST_CASE(
    "synchronized_value: a coroutine that is destroyed while it waits does not unlock", "",
    bide::mutex, bide::adaptive_mutex) {
    test::manual_executor later;
    bide::synchronized_value<int, TestType> v(0);
    auto held = v.lock();
    auto c = add_one_on(later, v);
    c.start();
    const bool granted = GENERATE(false, true);
    if (granted) {
        held.unlock();
        REQUIRE(later.size() == 1);
        CHECK_FALSE(v.try_lock());
        later.drop_all();
        c.destroy(); // gives it back
    } else {
        c.destroy();
        CHECK_FALSE(v.try_lock());
        held.unlock();
    }
    const auto now = v.try_lock();
    REQUIRE(now);
    CHECK(*now == 0);
}

#if BIDE_TESTS_CAN_DIE

TEST_CASE(
    "synchronized_value: destroying it while there are waiters terminates with the mutex's name") {
    const std::string said = test::dies([] {
        test::manual_executor later;
        std::optional<number> v(std::in_place, 0);
        auto held = std::make_unique<number::locked>(v->lock());
        auto c = add_one_on(later, *v);
        c.start();
        static_cast<void>(held.release());
        v.reset();
    });
    CHECK(test::contains(said, "mutex"));
    CHECK(test::contains(said, "1 waiting"));
}

#endif
