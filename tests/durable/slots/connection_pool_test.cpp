#include <bide/core/deadline.hpp>
#include <bide/durable/slots/detail/server/server_slot.hpp>

#include <support/fake_clock.hpp>
#include <support/jitter.hpp>
#include <support/test.hpp>

namespace {

using steady = std::chrono::steady_clock;
using clock = test::fake_clock<struct pool_clock>;

// A server that accepts at most `most` connections at a time.
struct server {
    std::atomic<int> most{1'000};
    std::atomic<bool> is_down{false};
    std::atomic<int> open{0};
    std::atomic<int> opened{0};
    std::atomic<int> refused{0};
    std::atomic<int> lives{0}; // connections of an earlier life are broken
    std::atomic<int> closed{0};
    std::atomic<int> used_twice{0};     // at the same time
    std::atomic<std::int64_t> until{0}; // the deadline of the last connect

    std::function<void()> on_hang{}; // if set: too many connections hang and call it

    void close() {
        --open;
        ++closed;
    }
    bool connect() {
        if (is_down || ++open > most) {
            open -= is_down ? 0 : 1;
            ++refused;
            return false;
        }
        ++opened;
        return true;
    }
    // Ends all connections. Clients notice it without a call only if `tells`.
    void restart(bool tells) {
        open = 0;
        ++lives;
        is_silent = !tells;
    }
    std::atomic<bool> is_silent{false};
};

struct connection {
    using target = server*;

    explicit connection(server* to) : at_(to) {}
    connection(const connection&) = delete;
    connection& operator=(const connection&) = delete;
    ~connection() { drop(); }

    std::error_code connect() {
        drop();
        at_->until = end_.steady_ns();
        if (!at_->connect()) {
            if (!at_->on_hang) {
                return std::make_error_code(std::errc::connection_refused);
            }
            at_->on_hang();
            return std::make_error_code(std::errc::timed_out);
        }
        is_open_ = true;
        life_ = at_->lives;
        return {};
    }
    void end_at(bide::deadline end) noexcept { end_ = end; }
    bide::deadline end() const noexcept { return end_; }
    bool is_open() const noexcept { return is_open_; }
    bool is_usable() noexcept { return is_open_ && (is_alive() || at_->is_silent); }
    void drop() noexcept {
        if (std::exchange(is_open_, false) && is_alive()) {
            at_->close();
        }
    }

    // Makes a call. Returns false if the connection was lost.
    bool call() {
        at_->used_twice += users_.fetch_add(1) != 0 ? 1 : 0;
        ++calls_;
        const bool is_done = is_alive();
        users_.fetch_sub(1);
        if (!is_done) {
            drop();
        }
        return is_done;
    }

private:
    bool is_alive() const noexcept { return life_ == at_->lives; }

    server* at_;
    bide::deadline end_ = bide::deadline::poll();
    bool is_open_ = false;
    int life_ = 0;
    std::atomic<int> users_{0};
    int calls_ = 0; // not atomic: two users at a time are a data race
};

using pool = bide::detail::connection_pool<connection, clock>;

// Takes a connection without waiting.
pool::borrowed take_now(pool& from) { return from.take(bide::deadline::poll()); }
pool::borrowed take(pool& from) { return from.take(bide::deadline::after(test::patience)); }

// Whether the pool gives n turns at the same time, each with an open connection.
bool holds(pool& from, std::size_t n) {
    std::vector<pool::borrowed> all;
    for (std::size_t i = 0; i < n; ++i) {
        all.push_back(take_now(from));
        if (!all.back() || all.back().error) {
            return false;
        }
    }
    return true;
}

// A thread that takes a turn, records its position in the order, and returns the turn.
class waiter {
public:
    explicit waiter(pool& from, std::atomic<int>& order)
        : thread_([this, &from, &order] {
              const auto got = take(from);
              has_turn_ = got && !got.error;
              place_ = order++;
          }) {}
    ~waiter() { join(); }
    void join() {
        if (thread_.joinable()) {
            thread_.join();
        }
    }
    bool had_turn() const { return has_turn_; }
    int place() const { return place_; }

private:
    bool has_turn_ = false;
    int place_ = -1;
    std::thread thread_;
};

} // namespace

TEST_CASE("connection_pool: calls at the same time get one connection each, up to the bound") {
    server s;
    pool all(&s, 3);
    for (int i = 0; i < 20; ++i) { // one after the other: they share one
        const auto got = take_now(all);
        REQUIRE(got);
        CHECK(!got.error);
        CHECK(got->call());
    }
    CHECK(s.opened == 1);
    {
        std::vector<pool::borrowed> held;
        for (int i = 0; i < 3; ++i) {
            held.push_back(take_now(all));
            REQUIRE(held.back());
            CHECK(s.opened == i + 1);
        }
        const auto none = take_now(all);
        CHECK(!none);
        CHECK(none.error == std::errc::timed_out);
        CHECK(&*held[0] != &*held[1]);
        CHECK(&*held[1] != &*held[2]);
        CHECK(all.open() == 3);
    }
    CHECK(holds(all, 3));
    CHECK(s.opened == 3);
    CHECK(take_now(all));
    CHECK(s.opened == 3);
}

TEST_CASE("connection_pool: waiting callers get their turns in order of arrival") {
    server s;
    pool all(&s, 2);
    std::optional<pool::borrowed> first(take_now(all));
    std::optional<pool::borrowed> second(take_now(all));
    std::atomic<int> order{0};
    std::vector<std::unique_ptr<waiter>> waiters;
    for (std::size_t i = 0; i < 5; ++i) {
        waiters.push_back(std::make_unique<waiter>(all, order));
        REQUIRE(test::eventually([&] { return all.waiting() == i + 1; }));
    }
    first.reset(); // the second one stays in use, so that one has the turn at a time
    for (auto& each : waiters) {
        each->join();
    }
    for (std::size_t i = 0; i < waiters.size(); ++i) {
        CHECK(waiters[i]->had_turn());
        CHECK(waiters[i]->place() == static_cast<int>(i));
    }
    CHECK(s.opened == 2);
}

TEST_CASE("connection_pool: if a server refuses a further connection, the open ones are used") {
    clock::set(0s);
    server s;
    s.most = 2;
    pool all(&s, 6);
    std::optional<pool::borrowed> first(take_now(all));
    const auto second = take_now(all);
    REQUIRE(*first);
    REQUIRE(second);
    std::atomic<int> order{0};
    std::vector<std::unique_ptr<waiter>> waiters;
    for (std::size_t i = 0; i < 4; ++i) {
        waiters.push_back(std::make_unique<waiter>(all, order));
        REQUIRE(test::eventually([&] { return all.waiting() == i + 1; }));
    }
    CHECK(s.refused == 1); // the others do not ask the server, too
    CHECK(take_now(all).error == std::errc::timed_out);
    first.reset();
    for (auto& each : waiters) {
        each->join();
        CHECK(each->had_turn());
    }
    CHECK(s.refused == 1);
    CHECK(s.opened == 2);

    // The pool tries a further connection after ask_again_after, and not before.
    first.emplace(take_now(all));
    REQUIRE(*first);
    s.most = 4;
    clock::set(pool::ask_again_after - 1ns);
    CHECK(!take_now(all));
    CHECK(s.refused == 1);
    clock::set(pool::ask_again_after);
    const auto third = take_now(all);
    REQUIRE(third);
    CHECK(!third.error);
    const auto fourth = take_now(all);
    REQUIRE(fourth);
    CHECK(!take_now(all));
    CHECK(s.refused == 2);
    CHECK(all.open() == 4);
}

TEST_CASE("connection_pool: if no connection is open, a refusal is returned to the caller") {
    server s;
    s.is_down = true;
    pool all(&s, 3);
    for (int i = 0; i < 5; ++i) {
        const auto refused = take_now(all);
        CHECK(refused);
        CHECK(refused.error == std::errc::connection_refused);
    }
    CHECK(s.refused == 5);
    s.is_down = false;
    CHECK(holds(all, 3));
}

TEST_CASE(
    "connection_pool: a further connection gets a share of the time, and its call all of it") {
    server s;
    pool all(&s, 2);
    const auto end = bide::deadline::after(1h);
    std::optional<pool::borrowed> first(all.take(end));
    CHECK(s.until == end.steady_ns()); // there is no other one
    {
        const auto second = all.take(end);
        REQUIRE(second);
        CHECK(s.until <= bide::deadline::after(pool::longest_share).steady_ns());
        CHECK(second->end().steady_ns() == end.steady_ns());
        second->drop();
    }
    s.most = 1;
    s.on_hang = [&] { first.reset(); };
    const auto third = all.take(end); // the open one, which became free
    REQUIRE(third);
    CHECK(!third.error);
    CHECK(third->end().steady_ns() == end.steady_ns());
    CHECK(s.opened == 2);
}

TEST_CASE("connection_pool: after a restart of the server all connections are used again") {
    for (const bool tells : {true, false}) {
        for (const std::size_t open : {std::size_t{1}, std::size_t{2}, std::size_t{5}}) {
            server s;
            pool all(&s, 5);
            REQUIRE(holds(all, open));
            s.restart(tells);
            s.is_down = true;
            if (!tells) {
                CHECK(!take_now(all)->call()); // it finds out
            }
            for (int i = 0; i < 3; ++i) { // though the idle ones may look alive
                const auto refused = take_now(all);
                CHECK(refused);
                CHECK(refused.error == std::errc::connection_refused);
            }
            s.is_down = false;
            CHECK(holds(all, 5));
            CHECK(s.open == 5);
        }
    }
}

TEST_CASE("connection_pool: when a connection breaks in use, the idle ones are opened again") {
    server s;
    pool all(&s, 4);
    REQUIRE(holds(all, 4));
    s.restart(false); // idle connections seem usable
    CHECK(!take_now(all)->call());
    for (int i = 0; i < 4; ++i) {
        CHECK(take_now(all)->call());
    }
    std::vector<pool::borrowed> held;
    for (int i = 0; i < 4; ++i) {
        held.push_back(take_now(all));
        CHECK(held.back()->call());
    }
    CHECK(s.opened == 8);
}

TEST_CASE("connection_pool: if a connection broke and the server is full, idle ones make room") {
    server s;
    pool all(&s, 3);
    REQUIRE(holds(all, 3));
    take_now(all)->drop();
    s.most = 2; // another client takes its place
    for (int i = 0; i < 3; ++i) {
        const auto got = take(all);
        REQUIRE(got);
        CHECK(!got.error);
    }
    CHECK(s.refused == 0);
}

TEST_CASE("connection_pool: a caller whose connect fails after its deadline gets no turn") {
    server s;
    s.most = 1;
    pool all(&s, 4);
    std::optional<pool::borrowed> first(take_now(all));
    REQUIRE(*first);
    const auto until = steady::now() + 10ms;
    s.on_hang = [&] {
        first.reset();
        std::this_thread::sleep_until(until);
    };
    const auto late = all.take(bide::deadline::at(until));
    CHECK(!late);
    CHECK(late.error == std::errc::timed_out);
    CHECK(all.open() == 1);
    CHECK(holds(all, 1));
    CHECK(s.opened == 1);
}

TEST_CASE("connection_pool: however many callers are refused, an open connection is used") {
    server s;
    s.most = 1;
    pool all(&s, 3);
    std::optional<pool::borrowed> first(take_now(all));
    REQUIRE(*first);
    int refused = 0;
    s.on_hang = [&] {
        if (++refused == 1) {
            CHECK(!take_now(all)); // another caller is refused meanwhile
        } else {
            first.reset(); // and then the open connection is idle
        }
    };
    const auto got = take(all);
    CHECK(got);
    CHECK(!got.error);
    CHECK(refused == 2);
}

TEST_CASE(
    "connection_pool: if the open connections break, a refusal is returned to the caller, too") {
    server s;
    s.most = 1;
    pool all(&s, 4);
    std::optional<pool::borrowed> first(take_now(all));
    REQUIRE(*first);
    s.on_hang = [&] {
        (*first)->drop();
        first.reset();
    };
    const auto until = steady::now() + 1h;
    const auto got = all.take(bide::deadline::at(until));
    CHECK(got); // the server's refusal, which no other connection outlived
    CHECK(got.error == std::errc::timed_out);
    CHECK(s.refused == 1);
}

TEST_CASE("connection_pool: the end of a call closes the others that were idle for long") {
    clock::set(0s);
    server s;
    pool all(&s, 4);
    REQUIRE(holds(all, 4));
    clock::set(pool::keep_idle - 1ns);
    take_now(all);
    CHECK(s.open == 4);
    {
        const auto used = take_now(all);
        const auto too = take_now(all);
    }
    clock::set(pool::keep_idle);
    take_now(all);
    CHECK(s.open == 2);
    CHECK(all.open() == 2);
    clock::set(3 * pool::keep_idle);
    {
        const auto used = take_now(all);
        CHECK(used->call());
    }
    CHECK(s.open == 1);
    clock::set(5 * pool::keep_idle);
    take_now(all);
    CHECK(s.open == 1); // the one that was in use
    CHECK(holds(all, 4));
    CHECK(s.opened == 7);
}

TEST_CASE("connection_pool: no connection has two users, and every turn is returned") {
    constexpr int members = 8;
    constexpr int rounds = 2'000;
    server s;
    s.most = 3;
    pool all(&s, 5);
    std::atomic<int> calls{0};
    std::atomic<int> most_open{0};
    std::atomic<int> unserved{0};
    test::run_threads(members + 1, [&](int i) {
        test::jitter chance(static_cast<std::uint32_t>(i) + 1);
        for (int n = 0; n < rounds; ++n) {
            if (i == members) { // the world around
                clock::set(std::chrono::seconds(n));
                s.most = 1 + static_cast<int>(chance.below(6));
                if (chance.below(64) == 0) {
                    s.restart(chance.below(2) == 0);
                }
                continue;
            }
            const auto got = chance.below(8) == 0 ? take_now(all) : take(all);
            if (!got || got.error) {
                ++unserved;
                continue;
            }
            most_open = std::max(most_open.load(), static_cast<int>(all.open()));
            calls += got->call() ? 1 : 0;
            if (chance.below(32) == 0) {
                got->drop();
            }
        }
    });
    CHECK(s.used_twice == 0);
    CHECK(most_open <= 5);
    CHECK(calls > 0);
    s.most = 1'000;
    s.is_silent = false;
    CHECK(test::eventually([&] {
        clock::set(clock::now().time_since_epoch() + pool::ask_again_after);
        return holds(all, 5);
    }));
    CHECK(!holds(all, 6));
}
