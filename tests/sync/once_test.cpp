#include "support/death.hpp"
#include "support/foreign_wait.hpp"
#include "support/last_touch.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/test.hpp"

#include <bide/sync/once.hpp>

static_assert(sizeof(bide::once_flag) == 16 || sizeof(void*) != 8);
static_assert(!std::is_copy_constructible_v<bide::once_flag>);
static_assert(!std::is_move_constructible_v<bide::once_flag>);
static_assert(!std::is_copy_constructible_v<bide::once_flag::turn>);
static_assert(!std::is_copy_constructible_v<bide::once_cell<int>>);

namespace {

constinit bide::once_flag flag_at_start;
constinit bide::once_cell<int> cell_at_start;

// The outcome of a wait for the turn.
enum class what { nothing_yet, mine, is_set, stopped, timeout };

template <class Turn> what of(const bide::result<Turn>& got) {
    return got                                  ? (*got ? what::mine : what::is_set)
           : got.error() == bide::errc::stopped ? what::stopped
                                                : what::timeout;
}

template <class Op> test::detached note_end(Op op, std::atomic<what>& end) {
    auto got = co_await std::move(op).as_result();
    end = of(got);
}
template <class Flag> test::held hold_turn(Flag& f, bool& mine) {
    auto turn = co_await f.async_begin();
    mine = static_cast<bool>(turn);
    co_await std::suspend_always();
}

struct immovable {
    explicit immovable(int n) : value(n) {}
    immovable(const immovable&) = delete;
    immovable& operator=(const immovable&) = delete;
    int value;
};

template <class T, class... Args>
constexpr bool is_settable_from =
    requires(typename bide::once_cell<T>::turn& turn, Args... args) { turn.set(args...); };

struct counted_value {
    explicit counted_value(int n, std::atomic<int>& alive) : value(n), of(alive) { ++of; }
    counted_value(counted_value&& other) noexcept : value(other.value), of(other.of) { ++of; }
    ~counted_value() { --of; }
    int value;
    std::atomic<int>& of;
};

} // namespace

TEST_CASE("once_flag: the first caller has the turn, and set() lets all others through") {
    bide::once_flag f;
    CHECK_FALSE(f.is_set());
    auto turn = f.begin();
    REQUIRE(turn);
    CHECK_FALSE(f.try_begin());
    const auto late = f.begin_for(1ms);
    CHECK((!late && late.error() == bide::errc::timeout));
    const auto at_once = f.begin_for(0s);
    CHECK((!at_once && at_once.error() == bide::errc::timeout));
    std::stop_source stop;
    stop.request_stop();
    const auto stopped = f.begin(stop.get_token());
    CHECK((!stopped && stopped.error() == bide::errc::stopped));
    turn.set();
    CHECK_FALSE(turn);
    CHECK(f.is_set());
    CHECK_FALSE(f.begin());
    CHECK_FALSE(f.try_begin());
    CHECK((f.begin_for(0s) && !*f.begin_for(0s)));
    CHECK((f.begin_until(std::chrono::steady_clock::now()) && true));
    CHECK((f.begin(stop.get_token()) && !*f.begin(stop.get_token())));
    bool mine = true;
    auto c = hold_turn(f, mine);
    c.start();
    CHECK_FALSE(mine);
}

TEST_CASE("once_flag: it can be constant-initialised") {
    flag_at_start.call([] {});
    CHECK(flag_at_start.is_set());
    CHECK(cell_at_start.get() == nullptr);
    CHECK(cell_at_start.get_or_init([] { return 3; }) == 3);
}

TEST_CASE("once_flag: set() lets waiters of every kind through, and none of them has the turn",
          "[promise.once]") {
    using platform = test::observing<test::native>;
    bide::basic_once_flag<platform> f;
    auto turn = f.begin();
    REQUIRE(turn);
    std::stop_source never;
    test::journal turns;
    std::atomic<what> ends[4] = {};
    note_end(f.async_begin(), ends[0]);
    note_end(f.async_begin().with_stop(never.get_token()), ends[1]);
    note_end(f.async_begin().with_timeout(1h), ends[2]);
    test::foreign_wait foreign(f.async_begin().as_result().as_case(), turns, 2);
    CHECK_FALSE(foreign.start());
    test::team thread(1, [&](int) { ends[3] = of(f.begin(never.get_token())); });
    REQUIRE(test::are_asleep<test::native>(1));
    turn.set();
    thread.join();
    for (const auto& end : ends) {
        CHECK(end == what::is_set);
    }
    CHECK(of(foreign.collect()) == what::is_set);
    CHECK(f.is_set());
}

TEST_CASE("once_flag: if the function throws, the next caller calls its own") {
    bide::once_flag f;
    int calls = 0;
    CHECK_THROWS_AS(f.call([&] {
        ++calls;
        throw std::runtime_error("no");
    }),
                    std::runtime_error);
    CHECK_FALSE(f.is_set());
    f.call([&](int n) { calls += n; }, 10);
    f.call([&] { ++calls; });
    CHECK(calls == 11);
}

TEMPLATE_TEST_CASE("once_flag: of many callers one initialises, and all see what it did",
                   "[promise.once]", test::native, test::jittery) {
    for (int round = 0; round < 200; ++round) {
        bide::basic_once_flag<TestType> f;
        int calls = 0; // plain: a sanitizer sees whether it is ordered
        int seen[4] = {};
        test::run_threads(4, [&](int i) {
            if (i == round % 5) {
                try {
                    f.call([] { throw 1; });
                } catch (int) {
                }
            }
            i == 3 && f.is_set() ? void() : f.call([&] { ++calls; });
            seen[i] = calls;
        });
        REQUIRE(calls == 1);
        for (const int s : seen) {
            REQUIRE(s == 1);
        }
    }
}

TEST_CASE("once_cell: the value is made once, in place, and destroyed with the cell") {
    std::atomic<int> alive{0};
    {
        bide::once_cell<counted_value> cell;
        CHECK(cell.get() == nullptr);
        CHECK(std::as_const(cell).get() == nullptr);
        auto turn = cell.begin();
        REQUIRE(turn);
        CHECK_FALSE(cell.try_begin());
        counted_value& made = turn.set(7, alive);
        CHECK_FALSE(turn);
        CHECK(&made == cell.get());
        CHECK(&made == std::as_const(cell).get());
        CHECK(made.value == 7);
        CHECK(&cell.get_or_init([&] { return counted_value(8, alive); }) == &made);
        CHECK_FALSE(cell.begin());
        CHECK((cell.begin_for(1h) && !*cell.begin_for(1h)));
        CHECK(alive == 1);
    }
    CHECK(alive == 0);
    const bide::once_cell<counted_value> never;
    CHECK(never.get() == nullptr);
}

TEST_CASE("once_cell: the value need not be movable, and may be const") {
    bide::once_cell<immovable> cell;
    CHECK(cell.get_or_init([] { return immovable(3); }).value == 3);
    bide::once_cell<immovable> other;
    CHECK(other.begin().set(4).value == 4);
    bide::once_cell<immovable> third;
    auto turn = third.begin();
    CHECK(turn.set_by([] { return immovable(5); }).value == 5);
    CHECK_FALSE(turn);
    bide::once_cell<const int> constant;
    CHECK(constant.get_or_init([] { return 3; }) == 3);
    CHECK(*constant.get() == 3);
}

TEST_CASE("once_cell: set() makes no conversion that an initialisation does not make") {
    CHECK(is_settable_from<int*, int*>);
    CHECK(is_settable_from<const int*, int*>);
    CHECK_FALSE(is_settable_from<int*, long>);
    CHECK_FALSE(is_settable_from<int*, const int*>);
    CHECK_FALSE(is_settable_from<immovable>);
}

TEST_CASE("once_cell: if a constructor or a function throws, the next caller makes the value") {
    struct picky {
        explicit picky(int n) : value(n) {
            if (n < 0) {
                throw std::invalid_argument("n");
            }
        }
        int value;
    };
    bide::once_cell<picky> cell;
    {
        auto turn = cell.begin();
        CHECK_THROWS_AS(turn.set(-1), std::invalid_argument);
        CHECK(turn); // it may try again
        CHECK_FALSE(cell.try_begin());
    }
    CHECK_THROWS_AS(cell.get_or_init([]() -> picky { throw 1; }), int);
    CHECK(cell.get() == nullptr);
    CHECK(cell.get_or_init([] { return picky(2); }).value == 2);
}

#if BIDE_TESTS_CAN_DIE

TEST_CASE("once: misuse terminates with its name", "[promise.misuse-refused]") {
    const std::string waiting = test::dies([] {
        std::optional<bide::once_flag> f(std::in_place);
        auto turn = f->begin();
        bool mine = false;
        auto c = hold_turn(*f, mine);
        c.start();
        f.reset();
    });
    CHECK(test::contains(waiting, "once_flag"));
    CHECK(test::contains(waiting, "1 waiting"));
    const std::string busy = test::dies([] {
        std::optional<bide::once_cell<int>> cell(std::in_place);
        auto turn = cell->begin();
        cell.reset();
    });
    CHECK(test::contains(busy, "once_cell"));
    CHECK(test::contains(busy, "destroyed while it is being initialised"));
    CHECK(test::contains(test::dies([] { bide::once_flag::turn().set(); }), "turn that is empty"));
}

#endif

TEST_CASE("once_flag: a caller that finds it set may destroy it before set() returns") {
    using flag = bide::once_flag;
    const auto make = [](void* at, int) { return ::new (at) flag; };
    const auto set = [](flag& f) { f.call([] {}); };
    const auto wait = [](flag& f, int round) {
        switch (round % 2) {
        case 0:
            while (!f.is_set()) {
                bide::native_platform::pause();
            }
            break;
        default:
            while (!f.is_set()) {
                auto got = f.begin_for(std::chrono::nanoseconds(round % 1'000));
            }
        }
    };
    CHECK(test::late_touches<flag>(1, 3'000, make, set, wait) == 0);
}
