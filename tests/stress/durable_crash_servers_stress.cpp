// Durable locks among processes that are killed and stopped at any time, over the slots of the
// servers that are installed. durable_crash_stress.cpp says how to run it for longer, and what containers need.

#if defined(__linux__)

#include <bide/durable/slots/etcd.hpp>
#include <bide/durable/slots/postgres.hpp>
#include <bide/durable/slots/redis.hpp>
#include <support/crash_harness.hpp>
#include <support/servers.hpp>
#include <support/servers_kv.hpp>

namespace {

test::crash_options by_liveness() {
    test::crash_options o;
    o.lease = o.waiter_ttl = 300ms; // a server may answer slowly
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

// open(key) makes a slot.
template <class Open> void check_kills(const std::string& slot, Open open) {
    test::check_survival(slot + ",liveness", [&] { return open("liveness"); }, by_liveness());
    test::check_survival(slot + ",lease", [&] { return open("lease"); }, by_lease());
}
template <class Open> void check_containers(const std::string& slot, Open open) {
    if (test::has_containers()) {
        test::crash_options o = by_lease();
        o.in_containers = true;
        test::check_survival(slot + ",containers,lease", [&] { return open("lease"); }, o);
    }
}

template <class Check> void over_postgres(Check check) {
    if (!test::crash_wants("postgres")) {
        return;
    }
    if (!test::postgres_server::is_available()) {
        std::fputs("skipped: PostgreSQL is not installed\n", stderr);
        return;
    }
    test::postgres_server server;
    REQUIRE(server.is_running());
    check("postgres", [&](const char* key) {
        return bide::slot_ref(bide::postgres_slot(server.conninfo(), key));
    });
}
template <class Check> void over_redis(Check check) {
    if (!test::crash_wants("redis") || !test::redis_server::available()) {
        return;
    }
    test::redis_server server;
    const std::string url = "redis://127.0.0.1:" + std::to_string(server.port());
    check("redis", [&](const char* key) {
        return bide::slot_ref(bide::allow_relaxed, bide::redis_slot(url, key));
    });
}
template <class Check> void over_etcd(Check check) {
    if (!test::crash_wants("etcd") || !test::etcd_server::available()) {
        return;
    }
    test::etcd_server server;
    const std::string endpoint = "http://127.0.0.1:" + std::to_string(server.port());
    check("etcd", [&](const char* key) { return bide::slot_ref(bide::etcd_slot(endpoint, key)); });
}

} // namespace

TEST_CASE("durable locks: kills and pauses over servers", "[kills][promise.durable-kills]") {
    const auto check = [](const std::string& slot, auto open) { check_kills(slot, open); };
    SECTION("over a postgres_slot") { over_postgres(check); }
    SECTION("over a redis_slot") { over_redis(check); }
    SECTION("over an etcd_slot") { over_etcd(check); }
}

TEST_CASE("durable locks: kills and pauses in two containers, over servers", "[containers]") {
    const auto check = [](const std::string& slot, auto open) { check_containers(slot, open); };
    SECTION("over a postgres_slot") { over_postgres(check); }
    SECTION("over a redis_slot") { over_redis(check); }
    SECTION("over an etcd_slot") { over_etcd(check); }
}

#else

TEST_CASE("durable locks: kills over servers are tried on Linux only", "[kills][containers]") {}

#endif
