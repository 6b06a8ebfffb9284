// Like durable_crash_servers_stress.cpp, with the processes in two containers. Neither container
// sees the other's processes, boot id or clock. Needs root and a kernel with time namespaces.

#include <support/catch.hpp>

#if defined(__linux__)

#include <bide/durable/slots/etcd.hpp>
#include <bide/durable/slots/postgres.hpp>
#include <bide/durable/slots/redis.hpp>
#include <support/crash_harness.hpp>
#include <support/servers.hpp>
#include <support/servers_kv.hpp>

#include <chrono>
#include <cstdio>
#include <string>

namespace {

using namespace std::chrono_literals;

test::crash_options by_lease() {
    test::crash_options o;
    o.in_containers = true;
    o.process_bound = false;
    o.lease = 300ms; // a server may answer slowly
    o.waiter_ttl = 300ms;
    o.kills = 4;
    o.pauses = 1;
    o.hear_environment();
    return o;
}

} // namespace

TEST_CASE("durable locks: two containers, over a postgres_slot") {
    if (!test::crash_wants("postgres") || !test::has_containers()) {
        return;
    }
    if (!test::postgres_server::is_available()) {
        std::fputs("skipped: PostgreSQL is not installed\n", stderr);
        return;
    }
    test::postgres_server server;
    REQUIRE(server.is_running());
    test::check_survival(
        "postgres,containers,lease",
        [&] { return bide::slot_ref(bide::postgres_slot(server.conninfo(), "lease")); },
        by_lease());
}

TEST_CASE("durable locks: two containers, over a redis_slot") {
    if (!test::crash_wants("redis") || !test::has_containers() ||
        !test::redis_server::available()) {
        return;
    }
    test::redis_server server;
    const int port = server.port();
    test::check_survival(
        "redis,containers,lease",
        [&] {
            return bide::slot_ref(bide::allow_relaxed,
                                  bide::redis_slot("127.0.0.1", port, "lease"));
        },
        by_lease());
}

TEST_CASE("durable locks: two containers, over an etcd_slot") {
    if (!test::crash_wants("etcd") || !test::has_containers() || !test::etcd_server::available()) {
        return;
    }
    test::etcd_server server;
    const std::string endpoint = "http://127.0.0.1:" + std::to_string(server.port());
    test::check_survival(
        "etcd,containers,lease", [&] { return bide::slot_ref(bide::etcd_slot(endpoint, "lease")); },
        by_lease());
}

#else

TEST_CASE("durable locks: kills in containers over servers are tried on Linux only") {}

#endif
