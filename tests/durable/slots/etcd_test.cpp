#include <bide/durable/slots/etcd.hpp>

#include <bide/durable/slots/impl/etcd.hpp>

#include <support/canned_server.hpp>
#include <support/servers_kv.hpp>
#include <support/slot_conformance.hpp>
#include <support/slot_connections.hpp>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>

using namespace bide;
using test::etcd_server;
using test::flaky_proxy;

static_assert(any_slot<etcd_slot>);
static_assert(test::shared_store_slot<etcd_slot> && test::explaining_slot<etcd_slot>);
static_assert(!test::clocked_slot<etcd_slot>);
static_assert(!std::is_copy_constructible_v<etcd_slot>);
static_assert(std::is_nothrow_move_constructible_v<etcd_slot>);
static_assert(etcd_slot::guarantees.keeps_acknowledged && etcd_slot::guarantees.multi_host);
static_assert(etcd_slot::guarantees.clock == lock_clock::observed);

namespace {

// Returns the server that most tests share. It ends with the program.
etcd_server& shared_server() {
    static etcd_server server;
    return server;
}

std::string fresh_key() {
    static int made = 0;
    return "lock/" + std::to_string(++made);
}

std::string url(std::uint16_t port) { return "http://127.0.0.1:" + std::to_string(port); }

etcd_slot_options within(std::chrono::milliseconds patience) {
    etcd_slot_options options{.retry_time = patience};
    return options;
}

std::error_code system_code(int number) { return {number, std::generic_category()}; }

struct etcd_store {
    using slot = etcd_slot;
    static constexpr std::size_t limit = std::size_t{1} << 20;
    static constexpr bool processes = true;
    static constexpr int scale = 8;
    static constexpr bool greets = false;

    slot open() { return etcd_slot(server.endpoint(), key); }
    slot open_at(std::uint16_t port, std::chrono::milliseconds patience) {
        etcd_slot_options options = tls;
        options.retry_time = patience;
        return etcd_slot(scheme + "127.0.0.1:" + std::to_string(port), key, options);
    }
    std::uint16_t port() { return server.port(); }
    void fresh() { key = fresh_key(); }
    void erase() { server.posts("/v3/kv/deleterange", bide::detail::etcd_range(key)); }

    void kill9() { server.kill9(); }
    void restart() { server.restart(); }

    etcd_server& server = shared_server();
    std::string scheme = "http://";
    etcd_slot_options tls{};
    std::string key = fresh_key();
    std::error_code no_server = system_code(ECONNREFUSED);
};

// Look-ups that hang until the test ends them, or until test::patience has passed.
class hanging_names {
public:
    void hang() {
        std::unique_lock lock(mutex_);
        ++waiting_;
        ended_.wait_for(lock, test::patience, [this] { return is_over_; });
        --waiting_;
    }
    int end() { // returns how many were waiting
        const std::lock_guard lock(mutex_);
        is_over_ = true;
        ended_.notify_all();
        return waiting_;
    }

private:
    std::mutex mutex_;
    std::condition_variable ended_;
    int waiting_ = 0;
    bool is_over_ = false;
};

// Never destroyed: a thread of libcurl may still use it when the program ends.
hanging_names& names() {
    static hanging_names* const all = new hanging_names;
    return *all;
}

bool is_whole(std::string_view request) {
    const auto head = request.find("\r\n\r\n");
    const auto length = request.find("Content-Length: ");
    if (head == request.npos || length == request.npos) {
        return false;
    }
    const std::string digits(request.substr(length + 16, 20));
    return request.size() >= head + 4 + std::strtoul(digits.c_str(), nullptr, 10);
}

std::string http(const std::string& status, const std::string& body) {
    return "HTTP/1.1 " + status +
           "\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
           body;
}

std::string wrong(const std::string& status, const std::string& message) {
    return http(status,
                R"({"error":")" + message + R"(","message":")" + message + R"(","code":2})");
}

// Adds users and roles, and enables logins.
void enable_logins(etcd_server& server) {
    for (const auto& [what, body] :
         {std::pair{"user/add", R"({"name":"root","password":"hid\"den"})"},
          std::pair{"role/add", R"({"name":"root"})"},
          std::pair{"user/grant", R"({"user":"root","role":"root"})"},
          std::pair{"user/add", R"({"name":"visitor","password":"hid@den"})"},
          std::pair{"enable", "{}"}}) {
        REQUIRE(server.posts(std::string("/v3/auth/") + what, body).find("200 OK") !=
                std::string::npos);
    }
}

} // namespace

// Replaces the system's function. Only addresses and "hangs.invalid" are looked up; no other name
// exists.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* wanted,
                           addrinfo** answer) {
    using function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
    if (name != nullptr && std::string_view(name) == "hangs.invalid") {
        names().hang();
    }
    in_addr address{};
    if (name == nullptr || ::inet_pton(AF_INET, name, &address) != 1) {
        return EAI_NONAME;
    }
    const auto real = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "getaddrinfo"));
    return real == nullptr ? EAI_FAIL : real(name, service, wanted, answer);
}

TEST_CASE("etcd_slot: base64 follows RFC 4648") {
    using bide::detail::from_base64;
    using bide::detail::to_base64;
    const std::pair<const char*, const char*> pairs[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"}};
    for (const auto& [bytes, text] : pairs) {
        CHECK(to_base64(bytes) == text);
        CHECK(from_base64(text) == std::string(bytes));
    }
    std::string all;
    for (int i = 0; i < 256; ++i) {
        all.push_back(static_cast<char>(i));
        CHECK(from_base64(to_base64(all)) == all);
    }
    CHECK(to_base64("\xfb\xff\xfe") == "+//+");
    for (const char* const text : {"Z", "Zg", "Zg=", "Zg==Zg==", "====", "Z===", "Zh==", "Zm9=",
                                   "=Zm9", "Zm 9", "Zm9v\n", "-__-", "Zg=a"}) {
        CAPTURE(text);
        CHECK(!from_base64(text));
    }
}

TEST_CASE("etcd_slot: keeps what every slot promises", "[promise.slot-contract]") {
    if (!etcd_server::available()) {
        return;
    }
    etcd_store store;
    test::check_slot(store);
}

TEST_CASE("etcd_slot: reports exactly what is certain when the network or the server fails") {
    if (!etcd_server::available()) {
        return;
    }
    etcd_store store;
    test::check_slot_faults(store);
}

TEST_CASE("etcd_slot: refuses invalid endpoints and keys") {
    CHECK_THROWS_AS(etcd_slot("http://localhost:2379", ""), std::system_error);
    CHECK_THROWS_AS(etcd_slot("", "key"), std::system_error);
    CHECK_THROWS_AS(etcd_slot(std::vector<std::string>(), "key"), std::system_error);
    for (const char* const url : {"localhost",
                                  "localhost:2379",
                                  "127.0.0.1:2379",
                                  "//localhost",
                                  "http:///",
                                  "http://",
                                  "gopher+://localhost",
                                  "ftp://localhost",
                                  "http:localhost",
                                  "http://not a name/",
                                  "http://localhost:0",
                                  "http://localhost:65536",
                                  "http://localhost:abc",
                                  "http://[::1",
                                  "http://[hidden]",
                                  "http://localhost?hidden",
                                  "http://localhost#hidden",
                                  "http://user:hidden@",
                                  "http://user:hid@den@host",
                                  "http://user:hid/den@host",
                                  "http://user:hidden%00@host",
                                  "http://user:hidden%zz@host",
                                  "http://user:hidden%@host",
                                  "http://ho%00st",
                                  "http://good\\@hidden",
                                  "http://:hidden@host",
                                  "http://user:hidden@a b"}) {
        CAPTURE(url);
        std::error_code error;
        std::string words;
        try {
            etcd_slot(url, "key");
        } catch (const std::system_error& refused) {
            error = refused.code();
            words = refused.what();
        }
        CHECK(error == std::errc::invalid_argument);
        CHECK(words.find("bide::etcd_slot: ") == 0);
        CHECK(words.find("hidden") == words.npos);
        CHECK(words.find("den") == words.npos);
    }
    const std::vector<std::string> two{"http://me:hidden@one", "http://you:hidden@two"};
    CHECK_THROWS_AS(etcd_slot(two, "key"), std::system_error);
}

TEST_CASE("etcd_slot: no text has the password") {
    CHECK(etcd_slot("http://host:2379/", "a key").explain() ==
          "etcd at http://host:2379, key a key");
    const std::vector<std::string> two{"https://me:hid%64en@[::1]:1", "http://two:2"};
    CHECK(etcd_slot(two, "key\n").explain() ==
          "etcd at https://[::1]:1,http://two:2, user me, key key");
    CHECK(etcd_slot("https://me@host", "key").store() == "etcd at https://host, user me");
}

#if LIBCURL_VERSION_NUM >= 0x075700
TEST_CASE("etcd_slot: a look-up of a name that hangs ends at the deadline") {
    etcd_slot slot("http://hangs.invalid:2379", "key", within(100ms));
    const cas_result stored = slot.compare_exchange(0, "value");
    CHECK(names().end() == 1); // still
    CHECK(test::fails(stored, std::errc::timed_out));
}
#endif

TEST_CASE("etcd_slot: an error about an unknown host name says so") {
    CHECK(etcd_slot("http://no-such-name.invalid:2379", "key").load().error() ==
          std::errc::host_unreachable);
}

TEST_CASE("etcd_slot: tries another endpoint only if that cannot store a value twice") {
    if (!etcd_server::available()) {
        return;
    }
    const std::string nobody = url(test::free_port());
    etcd_slot first_is_down({nobody, shared_server().endpoint() + "/"}, fresh_key());
    const auto stored = test::stored(first_is_down, 0, "value");
    CHECK(first_is_down.load()->value == "value");
    CHECK(etcd_slot({nobody, nobody}, "key").load().error() == system_code(ECONNREFUSED));

    CHECK(test::in_some_time(800ms, [](std::chrono::milliseconds patience) {
        const std::string key = fresh_key();
        etcd_slot direct(shared_server().endpoint(), key);
        const auto first = test::stored(direct, 0, "first");
        flaky_proxy proxy(shared_server().port());
        const std::vector<std::string> both{url(proxy.port()), shared_server().endpoint()};
        etcd_slot slot(both, key, within(patience));
        proxy.hang();
        const auto seen = slot.load();
        CHECK(proxy.connections() == 1);
        if (!seen) { // the client's time was up first
            CHECK(seen.error() == std::errc::timed_out);
            return false;
        }
        CHECK(seen->value == "first"); // from the second endpoint

        // With a connection of its own, this slot tries the first endpoint first.
        const auto anew = etcd_slot(both, key, within(patience)).for_renewals();
        const cas_result sent = anew->compare_exchange(first.version, "swallowed");
        CHECK(sent.error == std::errc::timed_out);
        if (sent.status == cas_status::failed) { // the request was not sent in time
            return false;
        }
        CHECK(sent.status == cas_status::indeterminate); // it is not for the other one
        const cas_result next = anew->compare_exchange(first.version, "second");
        CHECK((next.status == cas_status::stored || next.error == std::errc::timed_out));
        return next.status == cas_status::stored;
    }));
}

TEST_CASE("etcd_slot: if an endpoint cannot log a user in, another one does") {
    test::canned_server broken({wrong("503 Service Unavailable", "etcdserver: no leader")},
                               &is_whole);
    test::canned_server good(
        {http("200 OK", R"({"header":{"revision":"7"},"token":"t","succeeded":true})")}, &is_whole);
    const auto with_login = [](std::uint16_t port) {
        return "http://me:hidden@127.0.0.1:" + std::to_string(port);
    };
    etcd_slot slot({with_login(broken.port()), with_login(good.port())}, "key");
    const auto stored = test::stored(slot, 0, "value");
    CHECK(stored.version == 7);
    CHECK(slot.load().has_value());
    CHECK(broken.requests() == 1);
    CHECK(good.requests() == 3); // the login is kept

    etcd_slot nowhere({with_login(broken.port()), with_login(test::free_port())}, "key");
    CHECK(nowhere.compare_exchange(0, "value").status == cas_status::failed);

    // No other endpoint is asked about a wrong password.
    test::canned_server strict(
        {wrong("400 Bad Request",
               "etcdserver: authentication failed, invalid user ID or password")},
        &is_whole);
    etcd_slot stranger({with_login(strict.port()), with_login(good.port())}, "key");
    CHECK(test::fails(stranger.compare_exchange(0, "value"), std::errc::permission_denied));
    CHECK(good.requests() == 3);
}

TEST_CASE("etcd_slot: an invalid answer reports whether a value may have been stored") {
    struct row {
        std::string answer;
        cas_status status;
        std::error_code exchanged;
        std::error_code loaded;
    };
    const auto protocol = std::make_error_code(std::errc::protocol_error);
    const auto later = std::make_error_code(std::errc::resource_unavailable_try_again);
    const auto timed_out = std::make_error_code(std::errc::timed_out);
    const auto denied = std::make_error_code(std::errc::permission_denied);
    const std::error_code storage = durable_errc::storage_error;
    const std::error_code large = durable_errc::too_large;
    const auto sure = cas_status::failed;
    const auto unsure = cas_status::indeterminate;
    const std::string head = R"({"header":{"revision":"7"})";
    const std::vector<row> rows = {
        {wrong("503 Service Unavailable", "etcdserver: no leader"), unsure, later, later},
        {wrong("400 Bad Request", "etcdserver: authentication is not enabled"), sure, denied,
         denied},
        {wrong("503 Service Unavailable", "etcdserver: request timed out"), unsure, later, later},
        {wrong("504 Gateway Timeout", "context deadline exceeded"), unsure, timed_out, timed_out},
        {wrong("500 Internal Server Error", "what"), unsure, storage, storage},
        {wrong("502 Bad Gateway", ""), unsure, storage, storage},
        {wrong("400 Bad Request", "etcdserver: key is not provided"), sure, storage, storage},
        {wrong("400 Bad Request", "etcdserver: request is too large"), sure, large, large},
        {wrong("429 Too Many Requests", "etcdserver: mvcc: database space exceeded"), sure, storage,
         storage},
        {wrong("429 Too Many Requests", "grpc: received message larger than max (3 vs. 2)"), sure,
         large, large},
        {wrong("400 Bad Request", "etcdserver: user name is empty"), sure, denied, denied},
        {wrong("403 Forbidden", "etcdserver: permission denied"), sure, denied, denied},
        {wrong("401 Unauthorized", "etcdserver: invalid auth token"), sure, denied, denied},
        {http("401 Unauthorized", "<html>"), sure, denied, denied},
        {http("407 Proxy Authentication Required", ""), sure, denied, denied},
        {http("400 Bad Request", "Client sent an HTTP request to an HTTPS server."), sure, protocol,
         protocol},
        {http("301 Moved Permanently", ""), sure, protocol, protocol},
        {http("405 Method Not Allowed", "{}"), sure, protocol, protocol},
        {"garbage\r\n", unsure, protocol, protocol},
        {"+PONG\r\n", unsure, protocol, protocol},
        {http("404 Not Found", "Not Found"), sure, protocol, protocol},
        {http("200 OK", ""), unsure, protocol, protocol},
        {http("200 OK", "<html>"), unsure, protocol, protocol},
        {http("200 OK", "[]"), unsure, protocol, protocol},
        {http("200 OK", "{}"), unsure, protocol, protocol},
        {http("200 OK", R"({"succeeded":true})"), unsure, protocol, protocol},
        {http("200 OK", R"({"header":{"revision":7},"succeeded":true,"kvs":{}})"), unsure, protocol,
         protocol},
        {http("200 OK", head + R"(,"kvs":[{"mod_revision":"7x"}],"responses":[]})"), unsure,
         protocol, protocol},
        {http("200 OK", head + R"(,"kvs":[{"mod_revision":"-7"}]})"), unsure, protocol, protocol},
        {http("200 OK", head + R"(,"kvs":[{"mod_revision":"7","value":"?"}]})"), unsure, protocol,
         protocol},
        {http("200 OK", head + R"(,"kvs":[{},{}],"responses":[{"response_range":{}}]})"), unsure,
         protocol, protocol},
    };
    for (const row& r : rows) {
        CAPTURE(r.answer);
        test::canned_server server({r.answer}, &is_whole);
        etcd_slot slot(url(server.port()), "key");
        const cas_result stored = slot.compare_exchange(7, "value");
        CHECK(stored.status == r.status);
        CHECK(stored.error == r.exchanged);
        CHECK(server.requests() == 1);
        CHECK(slot.load().error() == r.loaded);
    }
    for (const std::string broken : {"", "HTTP/1.1 200 OK\r\nContent-Le",
                                     "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}"}) {
        CAPTURE(broken);
        test::canned_server server({broken}, &is_whole);
        etcd_slot slot(url(server.port()), "key");
        const cas_result stored = slot.compare_exchange(7, "value");
        CHECK(stored.status == cas_status::indeterminate);
        CHECK(stored.error);
        CHECK(server.requests() == 1);
        CHECK(slot.load().error());
    }
    test::canned_server flood({http("200 OK", std::string(5 << 20, ' '))}, &is_whole);
    etcd_slot slot(url(flood.port()), "key", {.max_value = 1});
    CHECK(slot.load().error() == std::errc::message_size);
    CHECK(slot.compare_exchange(0, "x").status == cas_status::indeterminate);
}

TEST_CASE("etcd_slot: a value that the server finds too large is not stored") {
    if (!etcd_server::available()) {
        return;
    }
    etcd_slot slot(shared_server().endpoint(), fresh_key(), {.max_value = std::size_t{8} << 20});
    for (const std::size_t size : {std::size_t{1'700'000}, std::size_t{2'500'000}}) {
        CHECK(
            test::fails(slot.compare_exchange(0, std::string(size, 'x')), durable_errc::too_large));
    }
    CHECK(slot.load()->version == 0);
}

TEST_CASE("etcd_slot: accepts a user in its URL, and reports the server's text about a wrong one") {
    if (!etcd_server::available()) {
        return;
    }
    etcd_server server;
    const std::string place = "127.0.0.1:" + std::to_string(server.port());
    etcd_slot useless("http://root:hidden@" + place, "key");
    CHECK(useless.load().error() == std::errc::permission_denied);
    CHECK(useless.explain() ==
          "etcd at http://" + place +
              ", user root, key key: etcdserver: authentication is not enabled");
    enable_logins(server);
    const auto fails = [&](const std::string& login, const char* words) {
        CAPTURE(login);
        etcd_slot slot("http://" + login + place, "key");
        CHECK(slot.load().error() == std::errc::permission_denied);
        CHECK(test::fails(slot.compare_exchange(0, "x"), std::errc::permission_denied));
        const std::string said = slot.explain();
        CAPTURE(said);
        CHECK(said.find("etcd at http://" + place) == 0);
        CHECK(said.find(words) != said.npos);
        CHECK(said.find("hid") == said.npos);
    };
    fails("", "key key: etcdserver: user name is empty");
    fails("root:hid@", "authentication failed, invalid user ID or password");
    fails("stranger:hidden@", "authentication failed, invalid user ID or password");
    fails("visitor:hid%40den@", "key key: etcdserver: permission denied");
    etcd_slot slot("http://root:hid%22den@" + place, "key");
    const auto stored = test::stored(slot, 0, "value");
    server.restart(); // it keeps no tokens, so the slot logs in again
    CHECK(slot.compare_exchange(stored.version, "next").status == cas_status::stored);
}

TEST_CASE("etcd_slot: an untrusted certificate is a permanent error") {
    if (!etcd_server::available() || !test::certificate::available()) {
        return;
    }
    const test::temp_directory files("tls");
    const auto mine = test::certificate::make(files, "mine", "DNS:etcd.example");
    const auto right = test::certificate::make(files, "right", "IP:127.0.0.1");
    REQUIRE(!mine.cert.empty());
    REQUIRE(!right.cert.empty());
    etcd_server server(right);
    etcd_server elsewhere(mine);
    etcd_slot_options good{.ca_file = right.cert, .cert_file = right.cert, .key_file = right.key};
    etcd_slot works(server.endpoint(), "key", good);
    REQUIRE(works.compare_exchange(0, "value").status == cas_status::stored);
    etcd_store store{server, "https://", good};
    test::slot_faults<etcd_store>(store).forked_child();

    const auto fails = [&](const std::string& to, const etcd_slot_options& options,
                           std::errc error) {
        etcd_slot_options patient = options;
        patient.retry_time = 1h; // so it returns in the test's time for no other reason
        etcd_slot one(to, "key", patient);
        const cas_result stored = one.compare_exchange(0, "x");
        const std::string said = one.explain();
        CAPTURE(said);
        CHECK(test::fails(stored, error));
        CHECK(said.find("etcd at " + to + ", key key: ") == 0);
        CHECK(said.size() > to.size() + 30); // it has a reason
        CHECK(one.load().error() == error);
    };
    // A server that refuses a certificate closes the connection. If libcurl is still sending, only
    // a later call may find the reason.
    const auto fails_in_the_end = [&](const etcd_slot_options& options) {
        etcd_slot one(server.endpoint(), "key", options);
        CHECK(test::eventually([&] { return one.load().error() == std::errc::permission_denied; }));
        CHECK(one.explain().find("certificate") != std::string::npos);
        CHECK(one.compare_exchange(0, "x").status != cas_status::stored);
    };
    const auto denied = std::errc::permission_denied;
    fails(server.endpoint(), etcd_slot_options(), denied); // not signed by a system authority
    etcd_slot_options changed = good;
    changed.ca_file = mine.cert;
    fails(server.endpoint(), changed, denied);
    changed = good;
    changed.cert_file.clear();
    changed.key_file.clear();
    fails_in_the_end(changed); // it asks for a certificate
    changed.cert_file = mine.cert;
    changed.key_file = mine.key;
    fails_in_the_end(changed); // and trusts not this one
    changed = good;
    changed.ca_file = mine.cert;
    changed.cert_file = mine.cert;
    changed.key_file = mine.key;
    fails(elsewhere.endpoint(), changed, denied); // another host's name
    changed = good;
    changed.ca_file = files.path() + "/nothing";
    fails(server.endpoint(), changed, std::errc::invalid_argument);
    changed = good;
    changed.key_file = files.path() + "/nothing";
    fails(server.endpoint(), changed, std::errc::invalid_argument);
}

TEST_CASE("etcd_slot: returns the cluster's revision for a key and for a missing key") {
    if (!etcd_server::available()) {
        return;
    }
    etcd_slot slot(shared_server().endpoint(), fresh_key());
    const auto absent = test::loaded(slot);
    CHECK(absent->version == 0);
    REQUIRE(absent->counter.has_value());
    CHECK(*absent->counter >= 1);

    const auto first = test::stored(slot, 0, "first");
    const auto there = test::loaded(slot);
    REQUIRE(there->counter.has_value());
    CHECK(*there->counter >= static_cast<std::int64_t>(there->version));
    CHECK(*there->counter > *absent->counter);

    const cas_result conflict = slot.compare_exchange(0, "mine");
    REQUIRE(conflict.status == cas_status::conflict);
    CHECK(conflict.current.value().counter.value_or(0) >= *there->counter);

    etcd_store store;
    store.fresh();
    etcd_slot other(shared_server().endpoint(), store.key);
    REQUIRE(other.compare_exchange(0, "gone").status == cas_status::stored);
    const auto before = other.load();
    store.erase();
    const auto after = test::loaded(other);
    CHECK(after->version == 0);
    CHECK(after->counter.value_or(0) > before->counter.value_or(0));
}

// The reason for the advice about restores at the head of etcd.hpp.
TEST_CASE("etcd_slot: a restored backup forgets values, and its revisions repeat") {
    if (!etcd_server::available()) {
        return;
    }
    etcd_server server;
    etcd_slot slot(server.endpoint(), "key");
    const auto first = test::stored(slot, 0, "first");
    server.kill9();
    namespace fs = std::filesystem;
    const fs::path data = server.directory() + "/data";
    const fs::path backup = server.directory() + "/backup";
    fs::copy(data, backup, fs::copy_options::recursive);
    server.restart();
    const auto second = test::stored(slot, first.version, "second");
    server.kill9();
    fs::remove_all(data);
    fs::copy(backup, data, fs::copy_options::recursive);
    server.restart();
    const auto seen = test::loaded(slot);
    CHECK(seen->value == "first");
    CHECK(seen->version == first.version);
    CHECK(seen->counter.value_or(0) < static_cast<std::int64_t>(second.version));
    CHECK(slot.compare_exchange(second.version, "mine").status == cas_status::conflict);
    CHECK(slot.compare_exchange(first.version, "other").version == second.version); // again
}

TEST_CASE("etcd_slot: all slots of a process share connections to a server") {
    if (!etcd_server::available()) {
        return;
    }
    etcd_store store;
    SECTION("that answers") { test::check_shared_connections(store); }
    SECTION("that hangs") { test::check_hanging_calls(store); }
    SECTION("that is frozen") {
        etcd_server frozen;
        const std::string at = frozen.endpoint();
        test::check_frozen_server(frozen, etcd_slot(at, "key", within(300ms)), 300ms);
        test::check_frozen_server(frozen, etcd_slot({at, at}, "key", within(300ms)), 300ms);
    }
}
