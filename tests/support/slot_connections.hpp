#ifndef BIDE_TESTS_SUPPORT_SLOT_CONNECTIONS_HPP
#define BIDE_TESTS_SUPPORT_SLOT_CONNECTIONS_HPP

// Checks of the connections that the slots of a process share if they name the same server. The
// checks take a Store, as described in slot_faults.hpp.

#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/server/server_slot.hpp>

#include <support/children.hpp>
#include <support/flaky_proxy.hpp>
#include <support/on_time.hpp>
#include <support/slot_faults.hpp>
#include <support/slot_offers.hpp>
#include <support/test.hpp>

namespace test {

// `count` slots at a port, each with one for its renewals. Each has a value of its own.
template <class Store> struct sharing_slots {
    using slot = typename Store::slot;

    sharing_slots(Store& store, std::uint16_t port, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            store.fresh();
            calls.push_back(store.open_at(port, std::chrono::seconds(20)));
            renewals.push_back(calls.back().for_renewals());
        }
    }

    // Loads all slots from 16 threads. Returns how many of them have this value.
    std::size_t count_of(const std::string& value) {
        constexpr std::size_t members = 16;
        std::atomic<std::size_t> found{0};
        run_threads(static_cast<int>(members), [&](int t) {
            for (std::size_t i = static_cast<std::size_t>(t); i < calls.size(); i += members) {
                const auto seen = calls[i].load();
                found += seen && seen->value == value ? 1 : 0;
            }
        });
        return found;
    }

    std::vector<slot> calls;
    std::vector<std::unique_ptr<bide::slot>> renewals;
};

// Checks that consecutive calls use one connection, and renewals another one; that calls at the
// same time use at most the bound; and that the last slot closes all of them.
template <class Store> void check_shared_connections(Store& store) {
    flaky_proxy proxy(store.port());
    auto all = std::make_unique<sharing_slots<Store>>(store, proxy.port(), 150);
    CHECK(all->calls.front().store() == all->renewals.back()->store());
    std::size_t good = 0;
    for (std::size_t i = 0; i < all->calls.size(); ++i) {
        const bide::cas_result stored = all->calls[i].compare_exchange(0, std::to_string(i));
        const auto seen = all->renewals[i]->load();
        good += stored.status == bide::cas_status::stored && seen &&
                        seen->value == std::to_string(i) &&
                        all->renewals[i]->compare_exchange(stored.version, "renewed").status ==
                            bide::cas_status::stored
                    ? 1
                    : 0;
    }
    CHECK(good == all->calls.size());
    CHECK(proxy.connections() == 2);

    CHECK(all->count_of("renewed") == all->calls.size());
    const int most = proxy.connections();
    CHECK(most <= 1 + static_cast<int>(bide::detail::most_call_connections));

    all.reset();
    store.fresh();
    auto later = store.open_at(proxy.port(), std::chrono::seconds(20));
    CHECK(later.load().has_value());
    CHECK(proxy.connections() == most + 1);
}

// Checks that each hanging call occupies one connection, and that other calls use the remaining
// ones. If all are occupied, a further call waits until its own deadline. Renewals succeed. When
// the server answers again, so do calls.
template <class Store> void check_hanging_calls(Store& store) {
    using namespace std::chrono_literals;
    constexpr int most = static_cast<int>(bide::detail::most_call_connections);
    flaky_proxy proxy(store.port());
    store.fresh();
    auto slow = store.open_at(proxy.port(), 1h);
    auto other = store.open_at(proxy.port(), 200ms);
    auto renewal = slow.for_renewals();
    REQUIRE(eventually([&] { return slow.load() && renewal->load(); }));
    CHECK(proxy.connections() == 2);
    proxy.hang();
    std::atomic<int> returned{0};
    std::vector<std::thread> hang;
    const auto hangs = [&] {
        hang.emplace_back(
            [&, mine = std::make_shared<decltype(slow)>(store.open_at(proxy.port(), 1h))] {
                static_cast<void>(mine->load());
                ++returned;
            });
    };
    hangs();
    REQUIRE(eventually([&] { return proxy.swallowed() > 0; })); // the call has the connection
    proxy.forward();                                            // for new bytes only
    CHECK(slow.load().has_value());                             // on another connection
    CHECK(proxy.connections() == 3);
    CHECK(returned == 0);

    proxy.hang();
    for (int i = 1; i < most; ++i) {
        hangs();
    }
    REQUIRE(eventually([&] { return proxy.connections() >= 1 + most; }));
    bide::cas_result waited;
    const auto took = time_of([&] { waited = other.compare_exchange(0, "value"); });
    CHECK(waited.error == std::errc::timed_out);
    CHECK(waited.status == bide::cas_status::failed); // it had no connection
    CHECK(took <= 300ms);
    proxy.forward();
    CHECK(renewal->load().has_value());
    CHECK(returned == 0);
    proxy.cut();
    for (std::thread& each : hang) {
        each.join();
    }
    CHECK(slow.load().has_value());
}

// Checks that no operation of the slot takes longer than its retry_time while the server hangs.
template <class Slot, class Server>
void check_frozen_server(Server& server, Slot slot, std::chrono::milliseconds retry_time) {
    REQUIRE(eventually([&] { return slot.load().has_value(); }));
    server.freeze(); // it takes connections still, as the system does that
    const auto times_out = [&](auto call) {
        std::error_code error;
        const auto took = time_of([&] { error = call(); });
        return error == std::errc::timed_out && took <= retry_time + std::chrono::milliseconds(100);
    };
    for (int i = 0; i < 2; ++i) { // on a connection that was there, and on none
        CHECK(times_out([&] { return slot.load().error(); }));
        CHECK(times_out([&] { return slot.compare_exchange(0, "x").error; }));
    }
    server.thaw();
}

// Checks that no call fails if the server accepts fewer connections than the process may open.
template <class Store> void check_few_connections(Store& store) {
    sharing_slots<Store> all(store, store.port(), 64);
    REQUIRE(all.calls[0].load().has_value());
    for (int round = 0; round < 3; ++round) {
        CHECK(all.count_of("") == all.calls.size());
    }
}

} // namespace test

#endif
