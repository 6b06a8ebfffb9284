// keyed_mutex: one holder for each key, and no key is left in the table or freed while it is in use.
// scoped_lock: no deadlock.

#include <bide/sync/keyed_mutex.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/scoped_lock.hpp>
#include <model/sync_support.hpp>
#include <support/test.hpp>

using namespace sync_model;

namespace {

struct same_hash {
    std::size_t operator()(int) const noexcept { return 0; }
};
using keyed_mutex =
    bide::keyed_mutex<int, same_hash, std::equal_to<int>, model::platform_without_lock_sleep>;
using mutex = bide::basic_mutex<model::platform_without_lock_sleep>;

} // namespace

TEST_CASE("keyed_mutex: a key has one holder, and is freed after the last one") {
    model::check("keyed_mutex: two lock a key", [] {
        keyed_mutex m(1);
        var<int> data{0};
        const auto work = [&] {
            const auto held = m.lock(1);
            increment(data);
        };
        model::thread other(work);
        work();
        other.join();
        MODEL_REQUIRE(data == 2);
    });
    model::check("keyed_mutex: two keys in one bucket, one comes and one goes", [] {
        keyed_mutex m(1);
        auto first = m.lock(1);
        model::thread other([&] { const auto held = m.lock(2); });
        first.unlock();
    });
    model::check("keyed_mutex: a holder, and a waiter for a time", {.timeouts = 1}, [] {
        keyed_mutex m(1);
        var<int> data{0};
        auto mine = m.lock(1);
        model::thread other([&] {
            if (const auto held = m.try_lock_for(1, soon)) {
                increment(data);
            }
        });
        increment(data);
        mine.unlock();
        other.join();
        MODEL_REQUIRE(m.try_lock(1));
    });
}

TEST_CASE("keyed_mutex: three threads lock two keys") {
    model::check("keyed_mutex: three threads", random(10'000), [] {
        keyed_mutex m(1);
        var<int> data[2] = {{0}, {0}};
        const auto work = [&](int key) {
            const auto held = m.lock(key);
            increment(data[key]);
        };
        model::thread a([&] { work(0); });
        model::thread b([&] {
            work(1);
            work(0);
        });
        work(0);
        a.join();
        b.join();
        MODEL_REQUIRE(data[0] == 3 && data[1] == 1);
    });
}

TEST_CASE("scoped_lock: two that name the mutexes in other orders do not deadlock") {
    model::check("scoped_lock: two threads, two mutexes", [] {
        mutex m[2];
        var<int> data{0};
        model::thread other([&] {
            const bide::scoped_lock held(m[1], m[0]);
            increment(data);
        });
        {
            const bide::scoped_lock held(m[0], m[1]);
            increment(data);
        }
        other.join();
        MODEL_REQUIRE(data == 2);
    });
    model::find("scoped_lock: locked in other orders", failure::lost_wakeup, {}, [] {
        mutex m[2];
        model::thread other([&] {
            m[1].lock();
            m[0].lock();
            m[0].unlock();
            m[1].unlock();
        });
        m[0].lock();
        m[1].lock();
        m[1].unlock();
        m[0].unlock();
    });
}
