#include <bide/durable/acquire_all.hpp>

#include <bide/durable/slots/memory.hpp>
#include <bide/sched/scheduler.hpp>

#include <support/durable_locks.hpp>
#include <support/unhurried.hpp>

using namespace bide;
using test::unhurried;
using test::within;

namespace {

constexpr std::size_t count = 3;

static_assert(std::is_constructible_v<keyed_lock, std::string, durable_mutex, std::int64_t>);
static_assert(!std::is_constructible_v<keyed_lock, std::string, durable_shared_mutex, int>);
static_assert(
    !std::is_convertible_v<durable_shared_mutex*, durable_semaphore*>); // which would be a reader

std::string key_of(std::size_t i) { return std::string(1, static_cast<char>('a' + i)); }

// The locks in a random order; the first is named last.
template <class Locks> std::vector<keyed_lock> shuffled(Locks& locks, std::minstd_rand& random) {
    std::vector<std::size_t> order(locks.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
        order[i] = i;
    }
    std::shuffle(order.begin(), order.end(), random);
    std::vector<keyed_lock> all;
    for (const std::size_t i : order) {
        all.emplace_back(key_of(i), locks[i]);
    }
    return all;
}

} // namespace

TEST_CASE("acquire_all: threads that name the locks in any order never wait for each other",
          "[promise.durable-several-locks]") {
    const std::array<memory_slot, count> slots;
    std::atomic<int> inside{0};
    std::atomic<int> wrong{0};
    int done = 0; // under the locks
    test::run_threads(4, [&](int i) {
        std::minstd_rand random(static_cast<unsigned>(i + 1));
        std::array<durable_mutex, count> locks{durable_mutex(slots[0], unhurried()),
                                               durable_mutex(slots[1], unhurried()),
                                               durable_mutex(slots[2], unhurried())};
        for (int k = 0; k < 20; ++k) {
            auto held = acquire_all(shuffled(locks, random), within(test::patience));
            if (!held || inside.fetch_add(1) != 0 || held->size() != count) {
                ++wrong;
                continue;
            }
            ++done;
            inside.fetch_sub(1);
            if (!held->release()) {
                ++wrong;
            }
        }
    });
    REQUIRE(wrong == 0);
    REQUIRE(done == 80);
}

TEST_CASE("acquire_all: acquires all locks or none", "[promise.durable-several-locks]") {
    durable_mutex a(memory_slot(), unhurried());
    durable_semaphore b(memory_slot(), 3, unhurried());
    durable_shared_mutex c(memory_slot(), unhurried());
    const auto all = [&] {
        return std::vector<keyed_lock>{keyed_lock::shared("c", c), {"b", b, 2}, {"a", a}};
    };
    {
        const auto writer = c.acquire();
        REQUIRE(acquire_all(all(), within(0ns)).error() == errc::timeout);
        REQUIRE(acquire_all(all(), within(10ms)).error() == errc::timeout);
        REQUIRE(a.try_acquire());
        REQUIRE(b.try_acquire(3));
    }
    const auto reader = c.acquire_shared();
    auto held = acquire_all(all(), within(0ns));
    REQUIRE(held);
    REQUIRE(held->size() == 3);
    REQUIRE((*held)[0].fence() > reader->fence());
    REQUIRE((*held)[1].ticket().weight == 2);
    REQUIRE((*held)[2].ticket().weight == 1);
    REQUIRE(held->is_held());
    REQUIRE_FALSE(held->lost().stop_requested());
    REQUIRE_FALSE(a.try_acquire());
    REQUIRE_FALSE(b.try_acquire(2));
    REQUIRE(b.try_acquire(1));
    REQUIRE(held->release());
    REQUIRE(a.try_acquire());
    {
        auto one = acquire_all(all(), within(0ns));
        auto other = std::move(one); // moves the grants
        REQUIRE(other->is_held());
    }
    REQUIRE(b.try_acquire(3));
}

TEST_CASE("acquire_all: a lock that is in the list twice is an error") {
    const memory_slot slot;
    durable_mutex a(slot, unhurried());
    durable_mutex same(slot, unhurried());
    REQUIRE(acquire_all({{"a", a}, {"a", a}}).error() == durable_errc::invalid_argument);
    REQUIRE(acquire_all({{"a", a}, {"b", same}}).error() == durable_errc::invalid_argument);
    REQUIRE(acquire_all({{"", a}}).error() == durable_errc::invalid_argument);
    REQUIRE(acquire_all({}).error() == durable_errc::invalid_argument);
    acquire_request mine;
    mine.ticket = a.ticket("me");
    REQUIRE(acquire_all({{"a", a}}, mine).error() == durable_errc::invalid_argument);
    REQUIRE(a.try_acquire());
}

TEST_CASE("acquire_all: if a lock is lost while it waits for the next one, it gives up") {
    durable_options brief = unhurried();
    brief.lease = 300ms; // renewed after 100 ms, which finds that the grant is gone
    durable_mutex a(memory_slot(), brief);
    durable_mutex b(memory_slot(), unhurried());
    auto held = b.acquire();
    std::error_code error;
    test::team waiter(1, [&](int) { error = acquire_all({{"a", a}, {"b", b}}).error(); });
    REQUIRE(test::comes_to_wait(b));
    const auto seen = a.inspect();
    if (!(*seen)->live.holders.empty()) { // on a busy machine its lease may have ended
        static_cast<void>(
            a.admin("test").force_release((*seen)->live.holders.front().fence, "lost"));
    }
    waiter.join();
    REQUIRE(error == durable_errc::lock_lost);
    REQUIRE(held->release());
    REQUIRE(b.try_acquire());
}

// Two locks, acquired together. The lease of `b` is short, so its loss is found soon. A busy machine may sleep
// through a short lease before the grants are there: then a longer one is tried.
struct pair_of_locks {
    pair_of_locks() {
        REQUIRE(test::in_some_time(300ms, [&](std::chrono::milliseconds lease) {
            durable_options brief = unhurried();
            brief.lease = lease;
            b.emplace(memory_slot(), brief);
            if (auto got = acquire_all({{"a", a}, {"b", *b}})) {
                held.emplace(std::move(*got));
            }
            return held.has_value();
        }));
    }

    // Takes `b` away, unless its lease has ended before.
    void lose(std::int64_t fence) {
        static_cast<void>(b->admin("test").force_release(fence, "lost"));
    }

    durable_mutex a{memory_slot(), unhurried()};
    std::optional<durable_mutex> b;
    std::optional<durable_guards> held;
};

TEST_CASE("acquire_all: the loss of one lock stops the token of all") {
    pair_of_locks all;
    all.lose((*all.held)[1].fence());
    REQUIRE(test::eventually([&] { return all.held->lost().stop_requested(); }));
    REQUIRE_FALSE(all.held->is_held());
    REQUIRE(all.held->release().error() == durable_errc::lock_lost);
    REQUIRE(all.a.try_acquire());
}

TEST_CASE("acquire_all: a callback of the common token may release the locks") {
    pair_of_locks all;
    const std::stop_token lost = all.held->lost();
    const auto fence = (*all.held)[1].fence();
    std::atomic<bool> is_over{false};
    {
        const auto release = [&] {
            all.held.reset();
            is_over = true;
        };
        const std::stop_callback on_loss(lost, release);
        all.lose(fence);
        REQUIRE(test::eventually([&] { return is_over.load(); }));
    }
    REQUIRE(all.a.try_acquire());
    REQUIRE(all.b->try_acquire());
}

TEST_CASE("acquire_all: a stop ends the wait and not the grants") {
    durable_mutex a(memory_slot(), unhurried());
    durable_mutex b(memory_slot(), unhurried());
    std::stop_source stop;
    const acquire_request request = test::until_stop(stop);
    auto all = acquire_all({{"a", a}, {"b", b}}, request);
    REQUIRE(all);
    std::error_code error;
    test::team waiter(1, [&](int) { error = acquire_all({{"b", b}}, request).error(); });
    REQUIRE(test::comes_to_wait(b));
    stop.request_stop();
    waiter.join();
    REQUIRE(error == errc::stopped);
    REQUIRE(all->is_held());
    REQUIRE_FALSE(all->lost().stop_requested());
}

TEST_CASE("acquire_all: coroutines acquire all locks, and are cancelled") {
    scheduler workers;
    std::array<durable_mutex, count> locks{durable_mutex(memory_slot(), unhurried()),
                                           durable_mutex(memory_slot(), unhurried()),
                                           durable_mutex(memory_slot(), unhurried())};
    std::atomic<int> inside{0};
    const auto body = [&](unsigned seed) -> task<bool> {
        std::minstd_rand random(seed);
        bool good = true;
        for (int k = 0; k < 10; ++k) {
            auto acquiring = async_acquire_all(shuffled(locks, random));
            auto held = co_await std::move(acquiring);
            good = good && held && inside.fetch_add(1) == 0;
            inside.fetch_sub(1);
            auto releasing = held->async_release();
            good = good && co_await std::move(releasing);
        }
        co_return good;
    };
    std::vector<join_handle<bool>> tasks;
    for (unsigned i = 1; i < 5; ++i) {
        tasks.push_back(workers.spawn(body(i)));
    }
    for (auto& t : tasks) {
        REQUIRE(std::move(t).join());
    }
    const auto last = locks[2].acquire();
    const auto waits = [&]() -> task<std::error_code> {
        std::minstd_rand random;
        auto acquiring = async_acquire_all(shuffled(locks, random));
        const auto held = co_await std::move(acquiring);
        co_return held ? std::error_code() : held.error();
    };
    auto waiter = workers.spawn(waits());
    REQUIRE(test::comes_to_wait(locks[2]));
    waiter.cancel();
    REQUIRE(std::move(waiter).join() == errc::stopped);
    REQUIRE(test::eventually([&] { return locks[0].try_acquire().has_value(); }));
    const auto twice = [&]() -> task<std::error_code> {
        std::vector<keyed_lock> same{{"a", locks[1]}, {"b", locks[1]}};
        auto acquiring = async_acquire_all(std::move(same));
        const auto held = co_await std::move(acquiring);
        co_return held ? std::error_code() : held.error();
    };
    REQUIRE(workers.spawn(twice()).join() == durable_errc::invalid_argument);
}
