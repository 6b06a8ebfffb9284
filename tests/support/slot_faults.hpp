#ifndef BIDE_TESTS_SUPPORT_SLOT_FAULTS_HPP
#define BIDE_TESTS_SUPPORT_SLOT_FAULTS_HPP

// The contract of slots of servers (durable/slot.hpp) when the network or the server fails. The
// suite needs a class for the store:
//
//   using slot = bide::redis_slot;
//   std::uint16_t port();           the server's port at 127.0.0.1
//   slot open_at(std::uint16_t port, std::chrono::milliseconds retry_time);
//                                   makes a slot object for the current place
//   void fresh();                   moves to another place, where nothing is stored
//   void kill9();                   kills the server
//   void restart();                 starts it again at the same port
//   std::error_code no_server;        the error if no server listens
//   static constexpr bool greets;   true: the server sends first on a new connection

#include <bide/durable/slot.hpp>
#include <support/children.hpp>
#include <support/flaky_proxy.hpp>
#include <support/server_process.hpp>
#include <support/slot_offers.hpp>
#include <support/slot_results.hpp>
#include <support/test.hpp>

#include <fcntl.h>

namespace test {

template <class Store> class slot_faults {
public:
    using slot = typename Store::slot;

    explicit slot_faults(Store& store) : store_(store) { store_.fresh(); }

    // The value is stored, and the client gets no reply.
    void lost_reply(flaky_proxy::afterwards then) {
        for (const bool by_update : {false, locked_slot<slot>}) {
            CHECK(in_some_time(brief, [&](std::chrono::milliseconds time_given) {
                store_.fresh();
                return loses_reply(then, by_update, time_given);
            }));
        }
    }

    // A load changes nothing, so it is sent again.
    void lost_reply_to_load() {
        flaky_proxy net(store_.port());
        slot behind = store_.open_at(net.port(), long_enough);
        stores(behind, 0, "first");
        net.drop_next_reply(flaky_proxy::afterwards::is_cut);
        CHECK(has(behind, "first"));
        CHECK(net.dropped_replies() == 1);
        CHECK(net.connections() == 2);
    }

private:
    // False: the client gave up before the reply.
    bool loses_reply(flaky_proxy::afterwards then, bool by_update,
                     std::chrono::milliseconds time_given) {
        slot direct = store_.open_at(store_.port(), long_enough);
        const auto first = stores(direct, 0, "first");
        flaky_proxy net(store_.port());
        slot behind = store_.open_at(net.port(), time_given);
        REQUIRE(eventually([&] { return behind.load().has_value(); }));
        const int before = net.connections();

        const bide::cas_result lost = exchange_unheard(behind, by_update, first, [&] {
            net.drop_next_reply(then);
            return std::string("second");
        });
        if (net.dropped_replies() == 0) {
            return false;
        }
        CHECK(lost.status == bide::cas_status::indeterminate); // not a conflict with its own value
        CHECK(lost.error == (then == flaky_proxy::afterwards::stays ? std::errc::timed_out
                                                                    : std::errc::connection_reset));
        CHECK(net.dropped_replies() == 1);
        CHECK(net.connections() == before);

        const auto seen = direct.load();
        REQUIRE(seen.has_value());
        CHECK(seen->value == "second");
        CHECK(seen->version > first);
        stores(direct, seen->version, "third");
        CHECK(eventually(
            [&] { return has(behind, "third"); })); // a late reply does not count for the next call
        CHECK(net.connections() > before);
        return true;
    }

    template <class Value>
    static bide::cas_result exchange_unheard(slot& to, bool by_update, bide::slot_version version,
                                             Value value) {
        if constexpr (locked_slot<slot>) {
            if (by_update) {
                return to.update_locked([&](const auto&) { return value(); });
            }
        }
        return to.compare_exchange(version, value());
    }

public:
    // The time limit is for the whole reply, not for each part of it.
    void slow_reply() {
        CHECK(in_some_time(brief, [&](std::chrono::milliseconds time_given) {
            store_.fresh();
            return gives_up_slow_reply(time_given);
        }));
    }

    void hanging_server() {
        CHECK(in_some_time(briefer, [&](std::chrono::milliseconds time_given) {
            store_.fresh();
            return gives_up_hanging_server(time_given);
        }));
    }

private:
    // False: the client gave up before a part of a reply came.
    bool gives_up_slow_reply(std::chrono::milliseconds time_given) {
        slot direct = store_.open_at(store_.port(), long_enough);
        const auto first = stores(direct, 0, "first");
        flaky_proxy net(store_.port());
        slot behind = store_.open_at(net.port(), time_given);
        REQUIRE(eventually([&] { return behind.load().has_value(); }));

        net.trickle(time_given / 20); // each part comes in time, the whole reply does not
        const bide::cas_result late = behind.compare_exchange(first, "second");
        CHECK(late.status != bide::cas_status::stored);
        CHECK(late.error == std::errc::timed_out);
        if (net.trickled() == 0 || late.status == bide::cas_status::failed) {
            return false;
        }
        CHECK(eventually([&] { return has(direct, "second"); }));
        CHECK(behind.load().error() == std::errc::timed_out);
        net.forward();
        CHECK(eventually([&] { return has(behind, "second"); }));
        return true;
    }

    // False: the client gave up before its request left.
    bool gives_up_hanging_server(std::chrono::milliseconds time_given) {
        slot direct = store_.open_at(store_.port(), long_enough);
        const auto first = stores(direct, 0, "first");
        flaky_proxy net(store_.port());
        slot behind = store_.open_at(net.port(), time_given);
        REQUIRE(eventually([&] { return behind.load().has_value(); }));

        net.hang();
        const bide::cas_result sent = behind.compare_exchange(first, "second");
        CHECK(sent.status != bide::cas_status::stored);
        CHECK(sent.error == std::errc::timed_out);
        if (sent.status == bide::cas_status::failed) {
            return false;
        }
        const bide::cas_result next = behind.compare_exchange(first, "second");
        CHECK(next.error == std::errc::timed_out);
        if (!Store::greets && next.status == bide::cas_status::failed) {
            return false;
        }
        CHECK(next.status ==
              (Store::greets ? bide::cas_status::failed : bide::cas_status::indeterminate));
        CHECK(behind.load().error() == std::errc::timed_out);

        net.forward();
        CHECK(eventually([&] {
            const auto seen = behind.load();
            return seen && seen->value == "first" && seen->version == first;
        }));
        return true;
    }

public:
    // The client notices before it sends.
    void cut_connection() {
        flaky_proxy net(store_.port());
        slot behind = store_.open_at(net.port(), long_enough);
        const auto first = stores(behind, 0, "first");
        REQUIRE(net.connections() == 1);
        net.cut();
        stores(behind, first, "second");
        net.cut();
        CHECK(has(behind, "second"));
        CHECK(net.connections() == 3);
    }

    void killed_server() {
        slot one = store_.open_at(store_.port(), long_enough);
        const auto first = stores(one, 0, "first");
        store_.kill9();
        const bide::cas_result down = one.compare_exchange(first, "no server");
        CHECK(down.status == bide::cas_status::failed);
        CHECK(down.error == store_.no_server);
        CHECK(one.load().error() == store_.no_server);
        store_.restart();
        const auto seen = one.load();
        REQUIRE(seen.has_value());
        CHECK(seen->value == "first");
        CHECK(seen->version == first);
        store_.kill9();
        store_.restart();
        const auto second = stores(one, first, "second"); // its connection was opened before
        CHECK(second > first);
    }

    void nobody_there() {
        slot one = store_.open_at(free_port(), long_enough);
        const bide::cas_result stored = one.compare_exchange(0, "value");
        CHECK(stored.status == bide::cas_status::failed);
        CHECK(stored.error == store_.no_server);
        CHECK(one.load().error() == store_.no_server);
    }

    // The child opens its own connection. It closes the parent's without an effect on the parent.
    void forked_child() {
        flaky_proxy net(store_.port());
        slot mine = store_.open_at(net.port(), long_enough);
        const auto first = stores(mine, 0, "first");
        const int before = net.connections();
        const auto leaves = [&] {
            const slot gone = std::move(mine);
            return std::string();
        };
        children idle(1, [&](int, auto) { return leaves(); });
        CHECK(idle.reports().front() == "");
        CHECK(net.connections() == before);
        children busy(1, [&](int, auto) {
            const auto seen = mine.load();
            if (!seen ||
                mine.compare_exchange(seen->version, "child").status != bide::cas_status::stored) {
                return std::string("the child cannot store");
            }
            return leaves();
        });
        CHECK(busy.reports().front() == "");
        CHECK(net.connections() == before + 1);

        CHECK(mine.compare_exchange(first, "parent").status == bide::cas_status::conflict);
        CHECK(has(mine, "child"));
        CHECK(net.connections() == before + 1);
    }

private:
    // Longer than a reply, and shorter than a reply that trickles.
    static constexpr std::chrono::milliseconds brief{400};
    static constexpr std::chrono::milliseconds briefer{120};
    static constexpr std::chrono::milliseconds long_enough{20'000};

    static bide::slot_version stores(slot& to, bide::slot_version version, const char* value) {
        const bide::cas_result stored = to.compare_exchange(version, value);
        REQUIRE(stored.status == bide::cas_status::stored);
        return stored.version;
    }

    static bool has(slot& in, const char* value) {
        const auto seen = in.load();
        return seen && seen->value == value;
    }

    Store& store_;
};

// Call it inside a test case.
template <class Store> void check_slot_faults(Store& store) {
    slot_faults<Store> faults(store);
    SECTION("a lost reply is indeterminate, and the next load decides") {
        faults.lost_reply(flaky_proxy::afterwards::stays);
    }
    SECTION("a connection that ends before the reply is indeterminate, and the next load decides") {
        faults.lost_reply(flaky_proxy::afterwards::is_cut);
    }
    SECTION("a load whose connection ends is sent again") { faults.lost_reply_to_load(); }
    SECTION("a reply that comes byte by byte times out") { faults.slow_reply(); }
    SECTION("a server that hangs times out") { faults.hanging_server(); }
    SECTION("a closed connection is not used again") { faults.cut_connection(); }
    SECTION("an acknowledged value survives a kill of the server") { faults.killed_server(); }
    SECTION("without a server nothing is stored, and the error says why") { faults.nobody_there(); }
    SECTION("a forked child leaves the connections to its parent") { faults.forked_child(); }
}

} // namespace test

#endif
