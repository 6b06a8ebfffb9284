// What a biased_shared_mutex has that a shared_mutex has not: the bias, and readers that leave on other
// threads. shared_mutex_test.cpp has what both promise, with the bias and without.

#include "support/platforms.hpp"
#include "support/test.hpp"

#include <bide/channel/select.hpp>
#include <bide/sync/biased_shared_mutex.hpp>
#include <bide/sync/scoped_lock.hpp>
#include <bide/sync/synchronized_value.hpp>
#include <bide/task/task.hpp>

static_assert(sizeof(bide::biased_shared_mutex) == 17 * bide::cache_line_pair);
static_assert(sizeof(bide::basic_biased_shared_mutex<bide::native_platform, 1>) ==
              2 * bide::cache_line_pair);

namespace {

constexpr int slots = 16; // that many reads without a wait make it biased

void read_often(bide::biased_shared_mutex& m) {
    for (int i = 0; i < slots; ++i) {
        m.lock_shared();
        m.unlock_shared();
    }
}

// What the mutex is made of: says whether it is biased.
struct bias {
    using permits = bide::detail::basic_biased_permits<test::native, slots>;
    permits p;

    bool is_on() { return p.in_queue().available() <= permits::all / 2 + 1; }
    void write() {
        constexpr auto all = static_cast<std::uint64_t>(permits::all);
        CHECK(p.try_take_all());
        CHECK(p.in_queue().give(all, all));
    }
    void read() {
        CHECK(p.try_take_one());
        CHECK(p.give_one());
    }
};

} // namespace

TEST_CASE("biased_shared_mutex: a writer ends the bias, and reads without a wait bring it back",
          "[promise.biased-as-shared]") {
    bias b;
    CHECK(b.is_on());
    b.read();
    CHECK(b.is_on());
    b.write();
    CHECK_FALSE(b.is_on());
    for (int i = 1; i < slots; ++i) {
        b.read();
        CHECK_FALSE(b.is_on());
    }
    b.read();
    CHECK(b.is_on());
    SECTION("an attempt ends it, too, if it fails") {
        CHECK(b.p.try_take_one());
        CHECK_FALSE(b.p.try_take_all());
        CHECK_FALSE(b.is_on());
        CHECK(b.p.give_one());
    }
    SECTION("every write begins the count anew") {
        b.write();
        for (int i = 1; i < slots; ++i) {
            b.read();
        }
        b.write();
        b.read();
    }
    b.write();
    CHECK_FALSE(b.is_on());
    CHECK(b.p.in_queue().available() == b.p.all);
}

TEST_CASE("biased_shared_mutex: a reader may leave on another thread than it came",
          "[promise.biased-reader-moves]") {
    bide::biased_shared_mutex m;
    const bool biased = GENERATE(true, false);
    if (!biased) {
        m.lock();
        m.unlock();
    }
    m.lock_shared();
    m.lock_shared();
    std::shared_lock<decltype(m)> theirs;
    test::team other(1, [&](int) {
        theirs = std::shared_lock(m);
        m.unlock_shared();
        m.unlock_shared(); // more than came by its slot
    });
    other.join();
    CHECK_FALSE(m.try_lock());
    SECTION("after a writer came") { CHECK_FALSE(m.try_lock_for(1ms)); }
    SECTION("when it is biased again") { read_often(m); }
    theirs.unlock();
    CHECK(m.try_lock());
    CHECK_FALSE(m.try_lock_shared());
    m.unlock();
}

TEMPLATE_TEST_CASE("biased_shared_mutex: readers that come and leave on different threads, and "
                   "writers, lose no increment",
                   "[promise.biased-reader-moves]", test::native, test::jittery) {
    constexpr int rounds = 300;
    using mutex = bide::basic_biased_shared_mutex<TestType, 2>;
    mutex m;
    int count = 0; // plain: a sanitizer sees whether it is ordered
    std::atomic<int> wrong{0};
    std::atomic<std::shared_lock<mutex>*> handed{nullptr};
    test::run_threads(4, [&](int i) {
        for (int round = 0; round < rounds; ++round) {
            if (i == 0 && round % 16 == 0) {
                while (!m.try_lock_for(1ms)) { // its readers may be behind this writer
                    delete handed.exchange(nullptr);
                }
                ++count;
                m.unlock();
                continue;
            }
            auto mine = std::make_unique<std::shared_lock<mutex>>(m);
            wrong += count < 0 ? 1 : 0;
            // Another thread unlocks it, some time.
            const std::unique_ptr<std::shared_lock<mutex>> before(
                handed.exchange(i == 0 ? nullptr : mine.release()));
        }
        delete handed.exchange(nullptr);
    });
    CHECK(wrong == 0);
    CHECK(count == (rounds + 15) / 16);
    CHECK(m.try_lock());
    m.unlock();
}

TEST_CASE(
    "biased_shared_mutex: it is a case of a select, guards a value, and is locked with others") {
    bide::biased_shared_mutex a;
    bide::biased_shared_mutex b;
    {
        auto chosen = bide::select(bide::on_lock(a), bide::on_lock_shared(b));
        CHECK(a.try_lock() == (chosen.index() == 1));
        CHECK_FALSE((chosen.index() == 1 && b.try_lock()));
        if (chosen.index() == 1) {
            a.unlock();
        }
    }
    {
        const bide::scoped_lock both(a, b);
        CHECK_FALSE(a.try_lock_shared());
        CHECK_FALSE(b.try_lock_shared());
    }
    CHECK(a.try_lock());
    CHECK(b.try_lock());
    a.unlock();
    b.unlock();

    bide::synchronized_value<int, bide::biased_shared_mutex> value(1);
    value.with([](int& n) { ++n; });
    CHECK(bide::sync_wait([](auto& v) -> bide::task<int> {
              const auto locked = co_await v.async_lock();
              co_return *locked;
          }(value)) == 2);
}
