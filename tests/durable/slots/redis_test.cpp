#include <bide/durable/slots/redis.hpp>

#include <support/canned_server.hpp>
#include <support/catch.hpp>
#include <support/children.hpp>
#include <support/flaky_proxy.hpp>
#include <support/gate.hpp>
#include <support/servers_kv.hpp>
#include <support/slot_conformance.hpp>
#include <support/slot_faults.hpp>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using bide::cas_result;
using bide::cas_status;
using bide::durable_errc;
using bide::redis_slot;
using bide::redis_slot_options;
using test::flaky_proxy;
using test::redis_server;

static_assert(bide::clocked_slot<redis_slot> && bide::watchable_slot<redis_slot>);
static_assert(!bide::locked_slot<redis_slot>);
static_assert(!std::is_copy_constructible_v<redis_slot>);
static_assert(std::is_nothrow_move_constructible_v<redis_slot>);
static_assert(!redis_slot::guarantees.keeps_acknowledged && redis_slot::guarantees.multi_host);
static_assert(redis_slot::guarantees.clock == bide::lock_clock::server);

namespace {

// One for most tests, at the end of the program it is gone.
redis_server& shared_server() {
    static redis_server server;
    return server;
}

std::string fresh_key() {
    static int made = 0;
    return "lock " + std::to_string(++made);
}

redis_slot slot_at(std::uint16_t port, const std::string& key, redis_slot_options options = {}) {
    return redis_slot("127.0.0.1", port, key, std::move(options));
}

redis_slot_options within(std::chrono::milliseconds patience) {
    redis_slot_options options;
    options.patience = patience;
    return options;
}

std::error_code system_code(int number) { return {number, std::generic_category()}; }

struct redis_store {
    using slot = redis_slot;
    static constexpr std::size_t limit = std::size_t{1} << 20;
    static constexpr bool processes = true;
    static constexpr int scale = 2;
    static constexpr bool greets = true;

    slot open() { return open_at(port(), 10s); }
    slot open_at(std::uint16_t port, std::chrono::milliseconds patience) {
        redis_slot_options options = within(patience);
        options.notify = true;
        return slot_at(port, key, options);
    }
    std::uint16_t port() { return server.port(); }
    void fresh() { key = fresh_key(); }
    void erase() {
        server.says("*2\r\n$3\r\nDEL\r\n$" + std::to_string(key.size()) + "\r\n" + key);
    }

    void kill9() { server.kill9(); }
    void restart() { server.restart(); }

    redis_server& server = shared_server();
    std::string key = fresh_key();
    std::error_code nobody = system_code(ECONNREFUSED);
};

} // namespace

TEST_CASE("redis_slot: keeps what every slot promises") {
    if (!redis_server::available()) {
        return;
    }
    redis_store store;
    test::check_slot(store);
}

TEST_CASE("redis_slot: says of a network and a server in trouble what is certain") {
    if (!redis_server::available()) {
        return;
    }
    redis_store store;
    test::check_slot_faults(store);
}

TEST_CASE("redis_slot: refuses a place that cannot be meant") {
    CHECK_THROWS_AS(redis_slot("localhost", 0, "key"), std::system_error);
    CHECK_THROWS_AS(redis_slot("localhost", 65'536, "key"), std::system_error);
    CHECK_THROWS_AS(redis_slot("localhost", 6379, ""), std::system_error);
    redis_slot_options options;
    options.unix_socket = "/nowhere";
    CHECK_NOTHROW(redis_slot("", 0, "key", options));
}

TEST_CASE("redis_slot: a value too large for the network's buffers is stored or certainly not") {
    if (!redis_server::available()) {
        return;
    }
    const test::watchdog limit;
    redis_server server;
    redis_slot_options options = within(300ms);
    options.max_value = std::size_t{64} << 20;
    redis_slot slot = slot_at(server.port(), "key", options);
    REQUIRE(slot.load().has_value());
    server.freeze(); // it takes some of it, and the rest does not leave
    const cas_result unsent = slot.compare_exchange(0, std::string(options.max_value, 'x'));
    CHECK(unsent.status == cas_status::failed);
    CHECK(unsent.error == std::errc::timed_out);
    server.thaw();
    slot = slot_at(server.port(), "key");
    const auto seen = slot.load();
    REQUIRE(seen.has_value());
    CHECK(seen->version == 0);
}

TEST_CASE("redis_slot: a socket or a name that is not there is named as what is wrong") {
    const test::watchdog limit;
    redis_slot_options options;
    options.unix_socket = "/tmp/nobody made this socket";
    const cas_result stored = slot_at(1, "key", options).compare_exchange(0, "value");
    CHECK(stored.status == cas_status::failed);
    CHECK(stored.error == system_code(ENOENT));
    options.unix_socket = std::string(200, 'x');
    CHECK(slot_at(1, "key", options).load().error() == std::errc::filename_too_long);
    CHECK(redis_slot("no such name.invalid", 6379, "key").load().error());
}

TEST_CASE("redis_slot: a key that no slot has written is corrupt, and stays as it is") {
    if (!redis_server::available()) {
        return;
    }
    const test::watchdog limit;
    redis_server& server = shared_server();
    const std::string key = "garbage";
    for (const char* const command :
         {"SET garbage text", "RPUSH garbage a b", "HSET garbage v 7", "HSET garbage p text",
          "HSET garbage v seven p text", "HSET garbage v '' p text", "HSET garbage v 0 p text",
          "HSET garbage v 007 p text", "HSET garbage v -1 p text", "HSET garbage v 1e3 p text",
          "HSET garbage v 9007199254740992 p text",
          "HSET garbage v 99999999999999999999999 p text"}) {
        CAPTURE(command);
        server.says("DEL garbage");
        REQUIRE(server.says(command).substr(0, 1) != "-");
        const std::string before = server.says("DUMP garbage");
        redis_slot slot = slot_at(server.port(), key);
        CHECK(slot.load().error() == durable_errc::corrupt_record);
        for (const bide::slot_version version : {0u, 7u, 1000u}) {
            const cas_result stored = slot.compare_exchange(version, "value");
            CHECK(stored.status == cas_status::failed);
            CHECK(stored.error == durable_errc::corrupt_record);
        }
        CHECK(server.says("DUMP garbage") == before);
    }
    server.says("DEL garbage");
    server.says("HSET garbage v 9007199254740991 p text"); // the last version there is
    redis_slot slot = slot_at(server.port(), key);
    REQUIRE(slot.load().has_value());
    CHECK(slot.compare_exchange(slot.load()->version, "value").error ==
          durable_errc::corrupt_record);
}

TEST_CASE("redis_slot: watches only where changes are told") {
    redis_slot slot = slot_at(1, "key");
    CHECK(slot.watch().error() == std::errc::operation_not_supported);
}

TEST_CASE("redis_slot: goes on when the server forgets its scripts") {
    if (!redis_server::available()) {
        return;
    }
    const test::watchdog limit;
    redis_slot slot = slot_at(shared_server().port(), fresh_key());
    const cas_result first = slot.compare_exchange(0, "first");
    shared_server().says("SCRIPT FLUSH");
    const cas_result second = slot.compare_exchange(first.version, "second");
    CHECK(second.status == cas_status::stored);
    shared_server().says("SCRIPT FLUSH");
    const auto seen = slot.load();
    REQUIRE(seen.has_value());
    CHECK(seen->value == "second");
}

TEST_CASE("redis_slot: logs in, chooses its database, and takes a socket of the file system") {
    if (!redis_server::available()) {
        return;
    }
    const test::watchdog limit;
    redis_server server({"--requirepass", "open sesame"});
    const std::uint16_t port = server.port();
    redis_slot_options options;
    const cas_result stranger = slot_at(port, "key", options).compare_exchange(0, "value");
    CHECK(stranger.status == cas_status::failed);
    CHECK(stranger.error == std::errc::permission_denied);
    options.password = "sesame";
    CHECK(slot_at(port, "key", options).load().error() == std::errc::permission_denied);
    options.password = "open sesame";
    REQUIRE(slot_at(port, "key", options).compare_exchange(0, "zero").status == cas_status::stored);

    options.user = "default";
    options.database = 3;
    CHECK(slot_at(port, "key", options).load()->version == 0);
    CHECK(slot_at(port, "key", options).compare_exchange(0, "three").status == cas_status::stored);
    options.unix_socket = server.unix_socket();
    CHECK(redis_slot("", 0, "key", options).load()->value == "three");
    options.database = 0;
    CHECK(redis_slot("", 0, "key", options).load()->value == "zero");
    options.database = 1'000;
    CHECK(redis_slot("", 0, "key", options).load().error() == durable_errc::storage_error);
}

TEST_CASE("redis_slot: a full server stores nothing, and says so") {
    if (!redis_server::available()) {
        return;
    }
    const test::watchdog limit;
    redis_slot slot = slot_at(shared_server().port(), fresh_key());
    const cas_result first = slot.compare_exchange(0, "first");
    REQUIRE(first.status == cas_status::stored);
    shared_server().says("CONFIG SET maxmemory 1");
    const cas_result second = slot.compare_exchange(first.version, "second");
    shared_server().says("CONFIG SET maxmemory 0");
    CHECK(second.status == cas_status::failed);
    CHECK(second.error == durable_errc::storage_error);
    CHECK(slot.load()->value == "first");
}

TEST_CASE("redis_slot: a server that has too many clients was certainly not asked") {
    if (!redis_server::available()) {
        return;
    }
    const test::watchdog limit;
    redis_server server({"--maxclients", "1"});
    redis_slot first = slot_at(server.port(), "key");
    REQUIRE(test::eventually([&] { return first.load().has_value(); })); // the last one has left
    const cas_result refused = slot_at(server.port(), "key").compare_exchange(0, "value");
    CHECK(refused.status == cas_status::failed);
    CHECK(refused.error == std::errc::resource_unavailable_try_again);
    CHECK(first.compare_exchange(0, "value").status == cas_status::stored);
}

TEST_CASE("redis_slot: a reply that nobody asked for answers nothing") {
    const test::watchdog limit;
    const auto record = [](const std::string& value) {
        return "*4\r\n:1\r\n:5\r\n$1\r\n7\r\n$3\r\n" + value + "\r\n";
    };
    test::canned_server server(
        {"$5\r\nabcde\r\n", record("one") + record("old"), record("two"), record("two")});
    redis_slot slot = slot_at(server.port(), "key");
    REQUIRE(slot.load().value_or(bide::slot_snapshot()).value == "one");
    CHECK(slot.load().value_or(bide::slot_snapshot()).value == "one"); // of another connection
}

TEST_CASE("redis_slot: an answer that is no answer says what may have been stored") {
    const test::watchdog limit;
    struct row {
        std::string answer;
        cas_status status;
        std::error_code exchanged;
        std::error_code loaded;
    };
    const auto sure = cas_status::failed;
    const auto unsure = cas_status::indeterminate;
    const auto protocol = std::make_error_code(std::errc::protocol_error);
    const auto later = std::make_error_code(std::errc::resource_unavailable_try_again);
    const auto denied = std::make_error_code(std::errc::permission_denied);
    const auto gone = std::make_error_code(std::errc::connection_reset);
    const std::error_code storage = durable_errc::storage_error;
    const std::error_code corrupt = durable_errc::corrupt_record;
    const std::vector<row> rows = {
        {"-LOADING Redis is loading the dataset in memory\r\n", sure, later, later},
        {"-BUSY Redis is busy running a script\r\n", sure, later, later},
        {"-NOPERM this user has no permissions\r\n", sure, denied, denied},
        {"-OOM command not allowed when used memory > 'maxmemory'\r\n", sure, storage, storage},
        {"-MISCONF Errors writing to the AOF file\r\n", sure, storage, storage},
        {"-NOREPLICAS Not enough good replicas to write.\r\n", sure, storage, storage},
        {"-MOVED 3999 127.0.0.1:6381\r\n", sure, storage, storage},
        {"-ERR Error running script (call to f_6b): @user_script:17: -READONLY You can't\r\n", sure,
         storage, storage},
        {"-ERR somebody in between did not get an answer\r\n", unsure, durable_errc::indeterminate,
         storage},
        {"", unsure, gone, gone},
        {"*4\r\n:1\r\n:5\r\n$1\r\n7", unsure, gone, gone},
        {"nonsense\r\n", unsure, protocol, protocol},
        {"+OK\r\n", unsure, protocol, protocol},
        {"$-1\r\n", unsure, protocol, protocol},
        {"*-1\r\n", unsure, protocol, protocol},
        {"*0\r\n", unsure, protocol, protocol},
        {"*2\r\n:1\r\n:5\r\n", unsure, protocol, protocol},
        {"*2\r\n:3\r\n:5\r\n", unsure, protocol, protocol},
        {"*2\r\n:9\r\n:5\r\n", unsure, protocol, protocol},
        {"*2\r\n$1\r\n1\r\n:5\r\n", unsure, protocol, protocol},
        {"*4\r\n:1\r\n:5\r\n:7\r\n:7\r\n", sure, corrupt, corrupt},
        {"*4\r\n:1\r\n:5\r\n$1\r\n7\r\n:7\r\n", unsure, protocol, protocol},
        {"*2\r\n:2\r\n:5\r\n", sure, corrupt, corrupt},
    };
    for (const std::string greeting : {"-DENIED Redis is running in protected mode\r\n", ""}) {
        CAPTURE(greeting);
        test::canned_server server({greeting});
        const cas_result stored = slot_at(server.port(), "key").compare_exchange(7, "value");
        CHECK(stored.status == sure);
        CHECK(stored.error == (greeting.empty() ? gone : denied));
    }
    for (const row& r : rows) {
        CAPTURE(r.answer);
        test::canned_server server({"$5\r\nabcde\r\n", r.answer});
        const cas_result stored = slot_at(server.port(), "key").compare_exchange(7, "value");
        CHECK(stored.status == r.status);
        CHECK(stored.error == r.exchanged);
        CHECK(server.requests() == 2);
        CHECK(slot_at(server.port(), "key").load().error() == r.loaded);
    }
}

// Why its guarantees are what they are.
TEST_CASE("redis_slot: what was acknowledged is forgotten by a replica that had not heard of it") {
    if (!redis_server::available()) {
        return;
    }
    const test::watchdog limit;
    redis_server master;
    redis_server replica;
    redis_slot at_master = slot_at(master.port(), "key");
    const cas_result first = at_master.compare_exchange(0, "nobody holds it");
    REQUIRE(first.status == cas_status::stored);
    REQUIRE(replica.follows(master.port()));
    redis_slot at_replica = slot_at(replica.port(), "key");
    const cas_result refused = at_replica.compare_exchange(first.version, "by a replica");
    CHECK(refused.status == cas_status::failed);
    CHECK(refused.error == durable_errc::storage_error);
    CHECK(at_replica.load().error() == durable_errc::storage_error); // its values may be old

    replica.freeze();
    master.says("CLIENT KILL TYPE replica");
    const cas_result acknowledged = at_master.compare_exchange(first.version, "I hold it");
    REQUIRE(acknowledged.status == cas_status::stored);
    master.kill9();
    replica.thaw();
    replica.says("REPLICAOF NO ONE");

    const auto seen = at_replica.load();
    REQUIRE(seen.has_value());
    CHECK(seen->value == "nobody holds it");
    CHECK(seen->version == first.version);

    // But the version of what was lost is not given to another value.
    const cas_result other = at_replica.compare_exchange(first.version, "No, I do");
    REQUIRE(other.status == cas_status::stored);
    CHECK(other.version != acknowledged.version);
    CHECK(at_replica.compare_exchange(acknowledged.version, "mine").status == cas_status::conflict);
}
