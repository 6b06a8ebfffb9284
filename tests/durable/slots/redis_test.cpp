#include <bide/durable/slots/redis.hpp>

#include <support/canned_server.hpp>
#include <support/servers.hpp>
#include <support/servers_kv.hpp>
#include <support/slot_conformance.hpp>
#include <support/slot_connections.hpp>

using namespace bide;
using test::flaky_proxy;
using test::redis_server;

static_assert(test::clocked_slot<redis_slot>);
static_assert(test::shared_store_slot<redis_slot> && test::explaining_slot<redis_slot>);
static_assert(!test::locked_slot<redis_slot>);
static_assert(!std::is_copy_constructible_v<redis_slot>);
static_assert(std::is_nothrow_move_constructible_v<redis_slot>);
static_assert(!redis_slot::guarantees.keeps_acknowledged && redis_slot::guarantees.multi_host);
static_assert(redis_slot::guarantees.clock == lock_clock::server);

namespace {

// Returns the server that most tests share. It ends with the program.
redis_server& shared_server() {
    static redis_server server;
    return server;
}

std::string fresh_key() {
    static int made = 0;
    return "lock " + std::to_string(++made);
}

redis_slot slot_at(std::uint16_t port, const std::string& key, redis_slot_options options = {}) {
    return redis_slot("redis://127.0.0.1:" + std::to_string(port), key, std::move(options));
}

redis_slot_options within(std::chrono::milliseconds patience) {
    redis_slot_options options{.retry_time = patience};
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
        return slot_at(port, key, within(patience));
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
    std::error_code no_server = system_code(ECONNREFUSED);
};

// A store that the slots reach with TLS.
struct tls_store : redis_store {
    static constexpr int scale = 8;

    slot open() { return open_at(port(), 10s); }
    slot open_at(std::uint16_t at, std::chrono::milliseconds patience) {
        redis_slot_options options = within(patience);
        options.ca_file = mine.cert;
        options.cert_file = mine.cert;
        options.key_file = mine.key;
        return redis_slot("rediss://localhost:" + std::to_string(at), key, options);
    }
    std::uint16_t port() { return server.tls_port(); }

    test::certificate mine{};
};

} // namespace

TEST_CASE("redis_slot: keeps what every slot promises", "[promise.slot-contract]") {
    if (!redis_server::available()) {
        return;
    }
    redis_store store;
    test::check_slot(store);
}

TEST_CASE("redis_slot: reports exactly what is certain when the network or the server fails") {
    if (!redis_server::available()) {
        return;
    }
    redis_store store;
    test::check_slot_faults(store);
}

TEST_CASE("redis_slot: refuses an invalid URL, and quotes no part of it") {
    for (const char* const url :
         {"", "host", "http://host", "redis://", "redis://host:0", "redis://host/one",
          "redis://host/-1", "redis://host/0/1", "redis://user@host", "redis://user:@host",
          "redis://user:hidden@host:abc", "redis://user:hidden@@host", "redis://u:%zzhidden@host",
          "redis://user:hidden@host/2147483648", "rediss://user:hidden@host/x"}) {
        CAPTURE(url);
        std::error_code error;
        std::string words;
        try {
            redis_slot(url, "key");
        } catch (const std::system_error& refused) {
            error = refused.code();
            words = refused.what();
        }
        CHECK(error == std::errc::invalid_argument);
        CHECK(words.find("bide::redis_slot: the URL") == 0);
        CHECK(words.find("hidden") == words.npos);
    }
    CHECK_THROWS_AS(redis_slot("redis://host", ""), std::system_error);
    CHECK_NOTHROW(redis_slot("redis://user@host", "key",
                             {.password = "hidden"})); // the password is elsewhere
}

TEST_CASE("redis_slot: no text has the password") {
    CHECK(redis_slot("redis://host/7", "a key", {.password = "hidden"}).explain() ==
          "redis at host:6379, database 7, key a key");
    CHECK(redis_slot("redis://me:hid%64en@[::1]:1/3", "a\nkey\x01").explain() ==
          "redis at [::1]:1, database 3, user me, key a key");
    CHECK(redis_slot("rediss://:hidden@host/0", "key").store() == "redis (TLS) at host:6379");
}

TEST_CASE("redis_slot: a value too large for the network's buffers is stored or certainly not") {
    if (!redis_server::available()) {
        return;
    }
    redis_server server;
    redis_slot_options options = within(300ms);
    options.max_value = std::size_t{64} << 20;
    redis_slot slot = slot_at(server.port(), "key", options);
    REQUIRE(test::eventually([&] { return slot.load().has_value(); }));
    server.freeze(); // it takes some of it, and the rest does not leave
    CHECK(test::fails(slot.compare_exchange(0, std::string(options.max_value, 'x')),
                      std::errc::timed_out));
    server.thaw();
    slot = slot_at(server.port(), "key");
    const auto seen = test::loaded(slot);
    CHECK(seen->version == 0);
}

TEST_CASE("redis_slot: an unknown host name is an error") {
    CHECK(redis_slot("redis://no-such-name.invalid", "key").load().error());
}

TEST_CASE("redis_slot: a key that no slot has written is corrupt, and is not changed") {
    if (!redis_server::available()) {
        return;
    }
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
        if (command == std::string("SET garbage text")) {
            CHECK(slot.explain().find("key garbage: the key holds what no slot has written: "
                                      "a string") != std::string::npos);
        }
        for (const slot_version version : {0u, 7u, 1000u}) {
            const cas_result stored = slot.compare_exchange(version, "value");
            CHECK(test::fails(stored, durable_errc::corrupt_record));
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

TEST_CASE("redis_slot: continues when the server forgets its scripts") {
    if (!redis_server::available()) {
        return;
    }
    redis_slot slot = slot_at(shared_server().port(), fresh_key());
    const cas_result first = slot.compare_exchange(0, "first");
    shared_server().says("SCRIPT FLUSH");
    const auto second = test::stored(slot, first.version, "second");
    shared_server().says("SCRIPT FLUSH");
    const auto seen = test::loaded(slot);
    CHECK(seen->value == "second");
}

TEST_CASE("redis_slot: an operation takes one round trip once the server knows the script") {
    if (!redis_server::available()) {
        return;
    }
    flaky_proxy net(shared_server().port());
    redis_slot slot = slot_at(net.port(), fresh_key());
    const auto first = test::stored(slot, 0, "first");
    const int before = net.requests();
    test::stored(slot, first.version, "second");
    CHECK(slot.load().has_value());
    CHECK(net.requests() == before + 2);
}

TEST_CASE("redis_slot: a server without memory stores nothing, and reports it") {
    if (!redis_server::available()) {
        return;
    }
    redis_slot slot = slot_at(shared_server().port(), fresh_key());
    const auto first = test::stored(slot, 0, "first");
    shared_server().says("CONFIG SET maxmemory 1");
    const cas_result second = slot.compare_exchange(first.version, "second");
    shared_server().says("CONFIG SET maxmemory 0");
    CHECK(test::fails(second, durable_errc::storage_error));
    CHECK(slot.load()->value == "first");
}

TEST_CASE("redis_slot: a server with too many clients has certainly stored nothing") {
    if (!redis_server::available()) {
        return;
    }
    redis_server server({"--maxclients", "1"});
    const std::uint16_t port = server.port();
    // Another place, and so another connection.
    redis_slot first("redis://localhost:" + std::to_string(port), "key");
    REQUIRE(test::eventually([&] { return first.load().has_value(); })); // the last one has left
    CHECK(test::fails(slot_at(port, "key").compare_exchange(0, "value"),
                      std::errc::resource_unavailable_try_again));
    CHECK(first.compare_exchange(0, "value").status == cas_status::stored);
}

TEST_CASE("redis_slot: a reply without a request is not taken for an answer") {
    const auto record = [](const std::string& value) {
        return "*4\r\n:1\r\n:5\r\n$1\r\n7\r\n$3\r\n" + value + "\r\n";
    };
    test::canned_server server(
        {"$5\r\nabcde\r\n", record("one") + record("old"), record("two"), record("two")});
    redis_slot slot = slot_at(server.port(), "key");
    REQUIRE(slot.load().value_or(slot_snapshot()).value == "one");
    CHECK(slot.load().value_or(slot_snapshot()).value == "one"); // of another connection
}

TEST_CASE("redis_slot: after an error about a part of a request the connection is not used again") {
    // The server answers while it reads the value, and reads on when the client has given up.
    static std::atomic<bool> has_given_up;
    const auto is_whole = [](std::string_view request) {
        if (request.starts_with('*')) {
            return true;
        }
        test::eventually([] { return has_given_up.load(); });
        return request.substr(request.size() - std::min<std::size_t>(request.size(), 8'192))
                   .find("EVALSHA") != request.npos;
    };
    const std::string record = "*4\r\n:1\r\n:5\r\n$1\r\n7\r\n$3\r\nold\r\n";
    CHECK(test::in_some_time(300ms, [&](std::chrono::milliseconds patience) {
        has_given_up = false;
        test::canned_server server({"$5\r\nabcde\r\n", "-LOADING it reads its data\r\n", record},
                                   is_whole);
        redis_slot_options options = within(patience);
        options.max_value = std::size_t{16} << 20;
        redis_slot slot = slot_at(server.port(), "key", options);
        const cas_result stored = slot.compare_exchange(0, std::string(options.max_value, 'x'));
        has_given_up = true;
        CHECK(stored.status == cas_status::failed);
        if (stored.error == std::errc::timed_out) { // before the server's answer
            return false;
        }
        CHECK(stored.error == std::errc::resource_unavailable_try_again);
        const auto seen = slot_at(server.port(), "key").load(); // the slots share connections
        CHECK(seen.error() == std::errc::resource_unavailable_try_again);
        return true;
    }));
}

TEST_CASE("redis_slot: an invalid answer reports whether a value may have been stored") {
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
    const auto no_such = std::make_error_code(std::errc::operation_not_supported);
    const std::error_code storage = durable_errc::storage_error;
    const std::error_code corrupt = durable_errc::corrupt_record;
    const std::vector<row> rows = {
        {"-LOADING Redis is loading the dataset in memory\r\n", sure, later, later},
        {"-BUSY Redis is busy running a script\r\n", sure, later, later},
        {"-NOPERM this user has no permissions\r\n", sure, denied, denied},
        {"-OOM command not allowed when used memory > 'maxmemory'\r\n", sure, storage, storage},
        {"-MISCONF Errors writing to the AOF file\r\n", sure, storage, storage},
        {"-NOREPLICAS Not enough good replicas to write.\r\n", sure, storage, storage},
        {"-MOVED 3999 127.0.0.1:6381\r\n", sure, no_such, no_such},
        {"-ASK 3999 127.0.0.1:6381\r\n", sure, later, later},
        {"-NOAUTH Authentication required.\r\n", sure, denied, denied},
        {"-ERR ACL failure in script: @user_script: 17\r\n", sure, denied, denied},
        {"-ERR unknown command `EVALSHA`\r\n", sure, no_such, no_such},
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
        {"*1073741824\r\n", unsure, protocol, protocol}, // hiredis would allocate 8 GiB for it
        {"*2\r\n:1\r\n*1073741824\r\n", unsure, protocol, protocol},
        {"*2\r\n:1\r\n:5\r\n", unsure, protocol, protocol},
        {"*2\r\n:3\r\n:5\r\n", unsure, protocol, protocol},
        {"*2\r\n:9\r\n:5\r\n", unsure, protocol, protocol},
        {"*2\r\n$1\r\n1\r\n:5\r\n", unsure, protocol, protocol},
        {"*4\r\n:1\r\n:5\r\n:7\r\n:7\r\n", unsure, protocol, protocol},
        {"*4\r\n:1\r\n:5\r\n$1\r\nx\r\n$1\r\n7\r\n", sure, corrupt, corrupt},
        {"*4\r\n:1\r\n:5\r\n$1\r\n7\r\n:7\r\n", unsure, protocol, protocol},
        {"*2\r\n:2\r\n:5\r\n", unsure, protocol, protocol},
        {"*4\r\n:3\r\n:5\r\n$1\r\n7\r\n$0\r\n\r\n", cas_status::stored, {}, protocol},
        {"*4\r\n:2\r\n:5\r\n$4\r\nlist\r\n$0\r\n\r\n", sure, corrupt, corrupt},
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

// The reason why keeps_acknowledged is false.
TEST_CASE("redis_slot: a replica that takes over forgets an acknowledged value that it missed") {
    if (!redis_server::available()) {
        return;
    }
    redis_server master;
    redis_server replica;
    redis_slot at_master = slot_at(master.port(), "key");
    const auto first = test::stored(at_master, 0, "free");
    REQUIRE(replica.follows(master.port()));
    redis_slot at_replica = slot_at(replica.port(), "key");
    CHECK(test::fails(at_replica.compare_exchange(first.version, "by a replica"),
                      durable_errc::storage_error));
    CHECK(at_replica.load().error() == durable_errc::storage_error); // its values may be old

    replica.freeze();
    master.says("CLIENT KILL TYPE replica");
    const auto acknowledged = test::stored(at_master, first.version, "held");
    master.kill9();
    replica.thaw();
    replica.says("REPLICAOF NO ONE");

    const auto seen = test::loaded(at_replica);
    CHECK(seen->value == "free");
    CHECK(seen->version == first.version);

    // But no other value gets the version of the lost value.
    const auto other = test::stored(at_replica, first.version, "held by another");
    CHECK(other.version != acknowledged.version);
    CHECK(at_replica.compare_exchange(acknowledged.version, "mine").status == cas_status::conflict);
}

TEST_CASE("redis_slot: accepts a URL, and reports the server's text about a wrong login") {
    if (!redis_server::available()) {
        return;
    }
    redis_server server({"--requirepass", "p@ss/word"});
    const std::string place = "127.0.0.1:" + std::to_string(server.port());
    for (const std::string login : {"", ":p@", ":hidden@", "me:hidden@", "default:hidden@"}) {
        CAPTURE(login);
        redis_slot slot("redis://" + login + place, "key");
        CHECK(slot.load().error() == std::errc::permission_denied);
        CHECK(slot.compare_exchange(0, "x").error == std::errc::permission_denied);
        CHECK(slot.compare_exchange(0, "x").status == cas_status::failed);
        const std::string words = slot.explain();
        CHECK(words.find("redis at " + place) == 0);
        CHECK(words.find("key key: " + std::string(login.empty() ? "NOAUTH " : "WRONGPASS ")) !=
              words.npos);
        CHECK(words.find("hidden") == words.npos);
    }
    redis_slot slot("redis://:p%40ss%2Fword@" + place + "/2", "key");
    CHECK(slot.compare_exchange(0, "two").status == cas_status::stored);
    const redis_slot_options options{.password = "p@ss/word"};
    CHECK(redis_slot("redis://" + place + "/2", "key", options).load()->value == "two");
    CHECK(redis_slot("redis://default@" + place + "/2", "key", options).load()->value == "two");
    CHECK(redis_slot("redis://" + place, "key", options).load()->version == 0);
    redis_slot none("redis://default:p%40ss%2Fword@" + place + "/1000", "key");
    CHECK(none.load().error() == std::errc::invalid_argument);
    CHECK(none.explain().find("DB index is out of range") != std::string::npos);

    redis_server open;
    redis_slot useless("redis://:hidden@127.0.0.1:" + std::to_string(open.port()), "key");
    CHECK(useless.load().error() == std::errc::permission_denied); // it knows no password
    CHECK(useless.explain().find("hidden") == std::string::npos);
}

TEST_CASE("redis_slot: an error about a user's missing rights is permanent") {
    if (!redis_server::available()) {
        return;
    }
    redis_server server;
    server.says("ACL SETUSER none on >hidden allkeys -@all");
    server.says("ACL SETUSER reader on >hidden allkeys +eval +evalsha +time +type +hmget");
    server.says("ACL SETUSER elsewhere on >hidden ~other +@all");
    const std::string place = "@127.0.0.1:" + std::to_string(server.port());
    for (const std::string user : {"none", "reader", "elsewhere"}) {
        CAPTURE(user);
        redis_slot slot("redis://" + user + ":hidden" + place, "key");
        CHECK(test::fails(slot.compare_exchange(0, "value"), std::errc::permission_denied));
        const std::string words = slot.explain();
        CAPTURE(words);
        CHECK(words.find(user == "reader" ? "can't run this command" : "NOPERM ") != words.npos);
        CHECK(words.find("hidden") == words.npos);
    }
    server.says("ACL SETUSER enough on >hidden ~key resetchannels +eval +evalsha +time +type "
                "+hmget +hset +persist");
    redis_slot slot("redis://enough:hidden" + place, "key");
    CHECK(slot.compare_exchange(0, "value").status == cas_status::stored);
    CHECK(slot.load()->value == "value");
}

TEST_CASE("redis_slot: a server of another protocol is reported at once, as a permanent error") {
    const std::pair<std::string, std::string> rows[] = {
        {"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n",
         "not a reply of Redis: HTTP/1.1 400 Bad Request"},
        {"220 mail.example ESMTP\r\n", "not a reply of Redis: 220 mail.example ESMTP"},
        {std::string("\x15\x03\x01\x00\x02\x02\x46", 7), "not a reply of Redis: F"},
        {"-ERR unknown command 'AUTH', with args beginning with: 'me' 'hidden' \r\n",
         "-ERR (the error text quotes the password)"},
    };
    for (const auto& [answer, words] : rows) {
        CAPTURE(words);
        test::canned_server server({answer});
        redis_slot slot("redis://me:hidden@127.0.0.1:" + std::to_string(server.port()), "key");
        const std::error_code error = slot.load().error();
        const std::string said = words[0] == '-' ? words.substr(1) : words;
        CHECK(error ==
              (words[0] == '-' ? std::errc::operation_not_supported : std::errc::protocol_error));
        CHECK(slot.explain() == slot.store() + ", key key: " + said);
    }
}

TEST_CASE("redis_slot: all slots of a process share connections to a server") {
    if (!redis_server::available()) {
        return;
    }
    redis_store store;
    SECTION("that answers") { test::check_shared_connections(store); }
    SECTION("that hangs") { test::check_hanging_calls(store); }
    SECTION("that is frozen") {
        redis_server frozen;
        redis_store of_it{frozen};
        test::check_frozen_server(frozen, of_it.open_at(frozen.port(), 250ms), 250ms);
    }
    SECTION("that takes few connections") {
        redis_server small({"--maxclients", "3"});
        redis_store few{small};
        test::check_few_connections(few);
    }
}

TEST_CASE("redis_slot: keeps what every slot promises over TLS") {
    if (!redis_server::available() || !test::certificate::available()) {
        return;
    }
    const test::temp_directory files("tls");
    const auto mine = test::certificate::make(files, "mine", "DNS:localhost");
    REQUIRE(!mine.cert.empty());
    redis_server server({}, mine);
    tls_store store{{server}, mine};
    SECTION("in peace") { test::check_slot(store); }
    SECTION("in trouble") { test::check_slot_faults(store); }
}

TEST_CASE("redis_slot: accepts only a certificate of its authorities for the server's name") {
    if (!redis_server::available() || !test::certificate::available()) {
        return;
    }
    const test::temp_directory files("tls");
    const auto mine = test::certificate::make(files, "mine", "DNS:localhost");
    const auto other = test::certificate::make(files, "other", "DNS:localhost,IP:127.0.0.1");
    REQUIRE(!mine.cert.empty());
    REQUIRE(!other.cert.empty());
    redis_server server({"--requirepass", "hidden"}, mine);
    const std::string port = std::to_string(server.tls_port());
    const std::string url = "rediss://:hidden@localhost:" + port;
    redis_slot_options good{.ca_file = mine.cert, .cert_file = mine.cert, .key_file = mine.key};
    redis_slot slot(url, "key", good);
    REQUIRE(slot.compare_exchange(0, "value").status == cas_status::stored);
    CHECK(redis_slot(url, "key", good).load()->value == "value");
    CHECK(slot.explain() == "redis (TLS) at localhost:" + port + ", key key");

    const auto fails = [&](const std::string& to, const redis_slot_options& options,
                           std::errc error, const char* words) {
        CAPTURE(words);
        redis_slot_options patient = options;
        patient.retry_time = 1h; // so it returns in the test's time for no other reason
        redis_slot one(to, "key", patient);
        CHECK(test::fails(one.compare_exchange(0, "x"), error));
        const std::string said = one.explain();
        CAPTURE(said);
        CHECK(said.find(words) != said.npos);
        CHECK(said.find("hidden") == said.npos);
    };
    const auto denied = std::errc::permission_denied;
    fails("rediss://:hidden@127.0.0.1:" + port, good, denied,
          "no alternative certificate subject name matches");
    redis_slot_options changed = good;
    changed.ca_file = other.cert;
    fails(url, changed, denied, "certificate problem: self-signed certificate");
    changed.ca_file.clear(); // the system's
    fails(url, changed, denied, "certificate problem: self-signed certificate");
    changed = good;
    changed.cert_file = other.cert;
    changed.key_file = other.key;
    fails(url, changed, denied, "alert unknown ca");
    changed.cert_file.clear();
    changed.key_file.clear();
    fails(url, changed, denied, "alert certificate required");
    changed = good;
    changed.key_file = other.key;
    fails(url, changed, std::errc::invalid_argument, "private key file");
    changed.key_file = mine.cert;
    fails(url, changed, std::errc::invalid_argument, "private key file");
    changed.key_file = files.path() + "/nothing";
    fails(url, changed, std::errc::invalid_argument, "private key file");
    changed = good;
    changed.ca_file = files.path() + "/nothing";
    fails(url, changed, std::errc::invalid_argument, "certificate file");
    changed.ca_file = mine.key;
    fails(url, changed, std::errc::invalid_argument, "certificate file");

    // Only one side uses TLS.
    const auto protocol = std::errc::protocol_error;
    test::canned_server web({"HTTP/1.0 400 Bad Request\r\n\r\n"});
    fails("rediss://localhost:" + std::to_string(web.port()), good, protocol,
          "wrong version number");
    CHECK(redis_slot("rediss://localhost:" + std::to_string(test::free_port()), "key", good)
              .load()
              .error() == std::errc::connection_refused);
}

TEST_CASE("redis_slot: a handshake that hangs ends at the deadline") {
    if (!redis_server::available() || !test::certificate::available()) {
        return;
    }
    const test::temp_directory files("tls");
    const auto mine = test::certificate::make(files, "mine", "IP:127.0.0.1");
    REQUIRE(!mine.cert.empty());
    redis_server server({}, mine);
    flaky_proxy proxy(server.tls_port());
    redis_slot_options options{.ca_file = mine.cert, .cert_file = mine.cert, .key_file = mine.key};
    const auto ends = [&](std::chrono::milliseconds patience) {
        options.retry_time = patience;
        redis_slot slot("rediss://127.0.0.1:" + std::to_string(proxy.port()), "key", options);
        proxy.hang();
        cas_result stored;
        const auto took = test::time_of([&] { stored = slot.compare_exchange(0, "x"); });
        CHECK(took <= patience + 100ms);
        CHECK(test::fails(stored, std::errc::timed_out));
        proxy.forward();
        CHECK(test::eventually([&] { return slot.load().has_value(); }));
        proxy.hang(); // the handshake is over
        const auto later = test::time_of([&] { stored = slot.compare_exchange(0, "x"); });
        CHECK(later <= patience + 100ms);
        CHECK(stored.error == std::errc::timed_out);
        const bool was_sent = stored.status == cas_status::indeterminate; // before its time was up
        CHECK((was_sent || stored.status == cas_status::failed));
        proxy.forward();
        proxy.cut();
        proxy.trickle();
        const auto slow = test::time_of([&] { CHECK(!slot.load()); });
        CHECK(slow <= patience + 100ms);
        proxy.forward();
        return was_sent;
    };
    CHECK(test::in_some_time(100ms, ends));
}
