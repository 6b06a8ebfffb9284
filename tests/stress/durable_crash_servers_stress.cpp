// Durable locks among processes that are killed and stopped at any time, over the slots of the
// servers that are installed. durable_crash_stress.cpp says how to run it for longer.

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

test::crash_options by_liveness() {
    test::crash_options o;
    o.lease = 300ms; // a server may answer slowly
    o.waiter_ttl = 300ms;
    o.kills = 8;
    o.pauses = 1;
    o.hear_environment();
    return o;
}

test::crash_options by_lease() {
    test::crash_options o = by_liveness();
    o.process_bound = false;
    if (o.time > 0ms) {
        o.kills = 3;
    }
    return o;
}

} // namespace

TEST_CASE("durable locks: kills and pauses over a postgres_slot", "[promise.durable-kills]") {
    if (!test::crash_wants("postgres")) {
        return;
    }
    if (!test::postgres_server::is_available()) {
        std::fputs("skipped: PostgreSQL is not installed\n", stderr);
        return;
    }
    test::postgres_server server;
    REQUIRE(server.is_running());
    const auto open = [&](const char* key) {
        return bide::slot_ref(bide::postgres_slot(server.conninfo(), key));
    };
    test::check_survival("postgres,liveness", [&] { return open("liveness"); }, by_liveness());
    test::check_survival("postgres,lease", [&] { return open("lease"); }, by_lease());
}

TEST_CASE("durable locks: kills and pauses over a redis_slot") {
    if (!test::crash_wants("redis") || !test::redis_server::available()) {
        return;
    }
    test::redis_server server;
    const int port = server.port();
    const auto open = [&](const char* key) {
        return bide::slot_ref(bide::allow_relaxed, bide::redis_slot("127.0.0.1", port, key));
    };
    test::check_survival("redis,liveness", [&] { return open("liveness"); }, by_liveness());
    test::check_survival("redis,lease", [&] { return open("lease"); }, by_lease());
}

TEST_CASE("durable locks: kills and pauses over an etcd_slot") {
    if (!test::crash_wants("etcd") || !test::etcd_server::available()) {
        return;
    }
    test::etcd_server server;
    const std::string endpoint = "http://127.0.0.1:" + std::to_string(server.port());
    const auto open = [&](const char* key) {
        return bide::slot_ref(bide::etcd_slot(endpoint, key));
    };
    test::check_survival("etcd,liveness", [&] { return open("liveness"); }, by_liveness());
    test::check_survival("etcd,lease", [&] { return open("lease"); }, by_lease());
}

#else

TEST_CASE("durable locks: kills and pauses over servers are tried on Linux only") {}

#endif
