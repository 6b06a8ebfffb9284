// When the thread of the renewals starts. (guard_test tests the renewals, hung_store_test stores
// that hang.)

#include <bide/durable/detail/acquisition.hpp>

#include <bide/durable/locks.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/slots/memory.hpp>

#include <support/children.hpp>
#include <support/durable_locks.hpp>

using namespace bide;
using test::renewals;

namespace {

durable_options with_lease(std::chrono::milliseconds lease) {
    durable_options o{.lease = lease};
    return o;
}

int renewal_threads() { return test::threads_called("bide-lease"); }

// Starts the thread of the lease monitor.
void start_lease_monitor() {
    durable_mutex m(memory_slot{}, with_lease(1h));
    const auto g = m.acquire();
}

// A slot of a store that several locks share.
struct sharing_slot : memory_slot {
    std::string store() const override { return "a store"; }
    std::unique_ptr<slot> for_renewals() const override {
        return std::make_unique<sharing_slot>(*this);
    }
};

template <class Slot> void renews_without_its_lock() {
    REQUIRE(test::in_some_time(100ms, [&](std::chrono::milliseconds lease) {
        const Slot slot;
        durable_mutex seen{memory_slot(slot)};
        std::optional<durable_guard> held;
        {
            durable_mutex lock(slot, with_lease(lease));
            auto got = lock.acquire();
            held.emplace(std::move(*got));
        }
        test::eventually([&] { return renewals(seen) > 2 || !held->is_held(); });
        return held->is_held();
    }));
}

} // namespace

TEST_CASE("renewer: no thread runs before the first renewal is due") {
    REQUIRE(test::in_child([] {
                std::vector<std::unique_ptr<durable_mutex>> locks;
                std::vector<durable_guard> held;
                for (int i = 0; i < 50; ++i) {
                    locks.push_back(std::make_unique<durable_mutex>(memory_slot{}, with_lease(1h)));
                    held.push_back(std::move(*locks.back()->acquire()));
                }
                return renewal_threads();
            }) == 0);
}

TEST_CASE("renewer: a grant that ended starts no thread") {
    const bool was_in_time = test::in_some_time(60ms, [](std::chrono::milliseconds lease) {
        const int threads = test::in_child([&] {
            durable_mutex m(memory_slot{}, with_lease(lease));
            for (int i = 0; i < 100; ++i) {
                {
                    const auto g = m.acquire();
                }
            }
            durable_mutex later(memory_slot{}, with_lease(lease));
            const auto g = later.acquire(); // its renewal comes after those
            const std::stop_token lost = g->lost();
            test::eventually([&] { return renewals(later) > 0 || lost.stop_requested(); });
            return renewal_threads();
        });
        REQUIRE(threads >= 0);
        return threads == 1;
    });
    REQUIRE(was_in_time);
}

TEST_CASE("renewer: a shorter lease is renewed in time beside longer ones") {
    // The locks share a store, so they share the queue of renewals.
    struct shared_slot : memory_slot {
        explicit shared_slot(memory_slot of) : memory_slot(std::move(of)) {}
        std::string store() const override { return "renewer"; }
        std::unique_ptr<slot> for_renewals() const override {
            return std::make_unique<shared_slot>(*this);
        }
    };
    const auto make = [](const memory_slot& memory, std::chrono::milliseconds lease) {
        const auto engine =
            std::make_shared<bide::detail::lock_engine>(shared_slot(memory), 1, with_lease(lease));
        durable_ticket t{"a", bide::detail::fresh_nonce(), 1, false, 0};
        const auto got = engine->acquire(t, bide::detail::intent::queue, engine->terms());
        t.fence = got->outcome.fence;
        auto made =
            std::make_shared<bide::detail::grant>(engine, t, got->outcome.lane, got->good_until_ms);
        made->begin();
        return made;
    };
    const auto slow = make(memory_slot(), 1h);
    REQUIRE(test::in_some_time(100ms, [&](std::chrono::milliseconds lease) {
        const memory_slot memory;
        durable_mutex seen(memory);
        const auto quick = make(memory, lease);
        test::eventually([&] { return renewals(seen) > 0 || !quick->is_held(); });
        const bool was_kept = quick->is_held();
        quick->leave();
        return was_kept;
    }));
    slow->leave();
}

TEST_CASE("renewer: a guard is renewed though its lock object has ended") {
    renews_without_its_lock<memory_slot>();
    renews_without_its_lock<sharing_slot>();
}

TEST_CASE("renewer: calls that hang do not delay renewals, however many they are") {
    const bool was_kept = test::in_some_time(300ms, [](std::chrono::milliseconds lease) {
        return test::in_child([&] {
                   static event never_set; // the calls end with the process
                   static std::array<runnable, bide::detail::store_threads::most + 1> calls;
                   for (runnable& call : calls) {
                       call.run = waker([](void*) noexcept { never_set.wait(); }, nullptr);
                       if (bide::detail::store_threads::post(call)) {
                           return 2;
                       }
                   }
                   durable_mutex m(memory_slot{}, with_lease(lease));
                   const auto g = m.acquire();
                   const std::stop_token lost = g->lost();
                   const std::int64_t until = bide::durable::boottime_ms() + 2 * lease.count();
                   test::eventually([&] {
                       return lost.stop_requested() || bide::durable::boottime_ms() >= until;
                   });
                   return lost.stop_requested() ? 1 : 0;
               }) == 0;
    });
    REQUIRE(was_kept);
}

TEST_CASE("renewer: if its thread cannot be started, the renewal is tried again") {
    const bool was_kept = test::in_some_time(600ms, [](std::chrono::milliseconds lease) {
        return test::in_child([&] {
                   start_lease_monitor();
                   durable_mutex m(memory_slot{}, with_lease(lease));
                   auto refused = std::make_unique<test::no_new_threads>();
                   const auto g = m.acquire();
                   const std::int64_t half_ms = bide::durable::boottime_ms() + lease.count() / 2;
                   test::eventually([&] { return bide::durable::boottime_ms() >= half_ms; });
                   if (renewal_threads() != 0) {
                       return 2;
                   }
                   refused.reset();
                   const std::stop_token lost = g->lost();
                   test::eventually([&] { return renewals(m) > 0 || lost.stop_requested(); });
                   return lost.stop_requested() ? 1 : 0;
               }) == 0;
    });
    REQUIRE(was_kept);
}

TEST_CASE("renewer: if its thread can never be started, the grant is lost when the lease ends") {
    REQUIRE(test::in_child([] {
                start_lease_monitor();
                durable_mutex m(memory_slot{}, with_lease(200ms));
                const test::no_new_threads refused;
                const auto g = m.acquire();
                const std::stop_token lost = g->lost();
                return test::eventually([&] { return lost.stop_requested(); }) && !g->is_held() ? 0
                                                                                                : 1;
            }) == 0);
}
