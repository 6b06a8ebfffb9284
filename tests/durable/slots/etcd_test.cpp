#include <bide/durable/slots/etcd.hpp>

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
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <netdb.h>

using namespace std::chrono_literals;
using bide::cas_result;
using bide::cas_status;
using bide::durable_errc;
using bide::etcd_slot;
using bide::etcd_slot_options;
using test::etcd_server;
using test::flaky_proxy;

static_assert(bide::cas_slot<etcd_slot>);
static_assert(!bide::clocked_slot<etcd_slot> && !bide::watchable_slot<etcd_slot>);
static_assert(!std::is_copy_constructible_v<etcd_slot>);
static_assert(std::is_nothrow_move_constructible_v<etcd_slot>);
static_assert(etcd_slot::guarantees.keeps_acknowledged && etcd_slot::guarantees.multi_host);
static_assert(etcd_slot::guarantees.clock == bide::lock_clock::observed);

namespace {

// One for most tests, at the end of the program it is gone.
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
    etcd_slot_options options;
    options.patience = patience;
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
        return etcd_slot(url(port), key, within(patience));
    }
    std::uint16_t port() { return server.port(); }
    void fresh() { key = fresh_key(); }
    void erase() { server.posts("/v3/kv/deleterange", bide::detail::etcd_range(key)); }

    void kill9() { server.kill9(); }
    void restart() { server.restart(); }

    etcd_server& server = shared_server();
    std::string key = fresh_key();
    std::error_code nobody = system_code(ECONNREFUSED);
};

// Look-ups that hang until the test ends them, or for ten seconds.
class hanging_names {
public:
    void hang() {
        std::unique_lock lock(mutex_);
        ++waiting_;
        ended_.wait_for(lock, 10s, [this] { return is_over_; });
        --waiting_;
    }
    int end() { // how many there were
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

// A thread of libcurl's may come back to it when the program ends.
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

} // namespace

// In the system's place: there is no other name.
extern "C" int getaddrinfo(const char* name, const char*, const addrinfo*, addrinfo**) {
    if (name != nullptr && std::string_view(name) == "hangs.invalid") {
        names().hang();
    }
    return EAI_NONAME;
}

TEST_CASE("etcd_slot: base64 is what others read and write") {
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

TEST_CASE("etcd_slot: keeps what every slot promises") {
    if (!etcd_server::available()) {
        return;
    }
    etcd_store store;
    test::check_slot(store);
}

TEST_CASE("etcd_slot: says of a network and a server in trouble what is certain") {
    if (!etcd_server::available()) {
        return;
    }
    etcd_store store;
    test::check_slot_faults(store);
}

TEST_CASE("etcd_slot: refuses a place that cannot be meant") {
    CHECK_THROWS_AS(etcd_slot("http://localhost:2379", ""), std::system_error);
    CHECK_THROWS_AS(etcd_slot("", "key"), std::system_error);
    CHECK_THROWS_AS(etcd_slot(std::vector<std::string>(), "key"), std::system_error);
    CHECK(etcd_slot("http://not a name/", "key").load().error());
    CHECK(etcd_slot("gopher+://127.0.0.1:1", "key").load().error().category() ==
          bide::detail::curl_category());
}

TEST_CASE("etcd_slot: a lost reply to a load is asked for again") {
    if (!etcd_server::available()) {
        return;
    }
    const test::watchdog limit;
    flaky_proxy proxy(shared_server().port());
    etcd_slot slot(url(proxy.port()), fresh_key());
    REQUIRE(slot.compare_exchange(0, "first").status == cas_status::stored);
    proxy.drop_next_reply(flaky_proxy::afterwards::is_cut);
    const auto seen = slot.load();
    REQUIRE(seen.has_value());
    CHECK(seen->value == "first");
    CHECK(proxy.dropped_replies() == 1);
    CHECK(proxy.connections() == 2);
}

#if LIBCURL_VERSION_NUM >= 0x075700
TEST_CASE("etcd_slot: a name whose look-up hangs is given up") {
    const test::watchdog limit;
    etcd_slot slot("http://hangs.invalid:2379", "key", within(100ms));
    const cas_result stored = slot.compare_exchange(0, "value");
    CHECK(names().end() == 1); // still
    CHECK(stored.status == cas_status::failed);
    CHECK(stored.error == std::errc::timed_out);
}
#endif

TEST_CASE("etcd_slot: a name that is none says so") {
    CHECK(etcd_slot("http://no-such-name.invalid:2379", "key").load().error() ==
          std::errc::host_unreachable);
}

TEST_CASE("etcd_slot: another endpoint is tried where that stores nothing twice") {
    if (!etcd_server::available()) {
        return;
    }
    const test::watchdog limit;
    const std::string nobody = url(test::free_port());
    etcd_slot first_is_down({nobody, shared_server().endpoint() + "/"}, fresh_key());
    const cas_result stored = first_is_down.compare_exchange(0, "value");
    REQUIRE(stored.status == cas_status::stored);
    CHECK(first_is_down.load()->value == "value");
    CHECK(etcd_slot({nobody, nobody}, "key").load().error() == system_code(ECONNREFUSED));

    const std::string key = fresh_key();
    etcd_slot direct(shared_server().endpoint(), key);
    const cas_result first = direct.compare_exchange(0, "first");
    REQUIRE(first.status == cas_status::stored);
    flaky_proxy proxy(shared_server().port());
    const std::vector<std::string> both{url(proxy.port()), shared_server().endpoint()};
    etcd_slot slot(both, key, within(800ms));
    proxy.hang();
    CHECK(slot.load()->value == "first"); // of the other one
    CHECK(proxy.connections() == 1);

    etcd_slot anew(both, key, within(500ms));
    const cas_result sent = anew.compare_exchange(first.version, "swallowed");
    CHECK(sent.status == cas_status::indeterminate); // it is not for the other one
    CHECK(anew.compare_exchange(first.version, "second").status == cas_status::stored);
}

TEST_CASE("etcd_slot: an answer that is no answer says what may have been stored") {
    const test::watchdog limit;
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
    etcd_slot_options small;
    small.max_value = 1;
    test::canned_server flood({http("200 OK", std::string(5 << 20, ' '))}, &is_whole);
    etcd_slot slot(url(flood.port()), "key", small);
    CHECK(slot.load().error() == std::errc::message_size);
    CHECK(slot.compare_exchange(0, "x").status == cas_status::indeterminate);
}

TEST_CASE("etcd_slot: what the server finds too large is not stored") {
    if (!etcd_server::available()) {
        return;
    }
    const test::watchdog limit;
    etcd_slot_options options;
    options.max_value = std::size_t{8} << 20;
    etcd_slot slot(shared_server().endpoint(), fresh_key(), options);
    for (const std::size_t size : {std::size_t{1'700'000}, std::size_t{2'500'000}}) {
        const cas_result stored = slot.compare_exchange(0, std::string(size, 'x'));
        CHECK(stored.status == cas_status::failed);
        CHECK(stored.error == durable_errc::too_large);
    }
    CHECK(slot.load()->version == 0);
}

TEST_CASE("etcd_slot: logs in, and again when it was forgotten") {
    if (!etcd_server::available()) {
        return;
    }
    const test::watchdog limit;
    etcd_server server;
    const std::string endpoint = server.endpoint();
    for (const auto& [what, body] :
         {std::pair{"user/add", R"({"name":"root","password":"open \"sesame\""})"},
          std::pair{"role/add", R"({"name":"root"})"},
          std::pair{"user/grant", R"({"user":"root","role":"root"})"}, std::pair{"enable", "{}"}}) {
        REQUIRE(server.posts(std::string("/v3/auth/") + what, body).find("200 OK") !=
                std::string::npos);
    }
    etcd_slot_options options;
    const cas_result stranger = etcd_slot(endpoint, "key", options).compare_exchange(0, "value");
    CHECK(stranger.status == cas_status::failed);
    CHECK(stranger.error == std::errc::permission_denied);
    options.user = "root";
    options.password = "sesame";
    CHECK(etcd_slot(endpoint, "key", options).load().error() == std::errc::permission_denied);
    options.password = "open \"sesame\"";
    etcd_slot slot(endpoint, "key", options);
    const cas_result stored = slot.compare_exchange(0, "value");
    REQUIRE(stored.status == cas_status::stored);
    server.restart(); // it keeps no tokens
    const cas_result next = slot.compare_exchange(stored.version, "next");
    CHECK(next.status == cas_status::stored);
}

TEST_CASE("etcd_slot: speaks TLS with whom it is told to trust") {
    if (!etcd_server::available() || !test::certificate::available()) {
        return;
    }
    const test::watchdog limit;
    const test::temp_directory files("tls");
    const auto mine = test::certificate::make(files, "mine", "IP:127.0.0.1");
    REQUIRE(!mine.cert.empty());
    etcd_server server(mine);
    flaky_proxy proxy(server.port());
    const std::string endpoint = "https://127.0.0.1:" + std::to_string(proxy.port());
    etcd_slot_options options;
    const cas_result stranger = etcd_slot(endpoint, "key", options).compare_exchange(0, "value");
    CHECK(stranger.status == cas_status::failed);
    CHECK(stranger.error.category() == bide::detail::curl_category());
    options.ca_file = mine.cert;
    options.cert_file = mine.cert;
    options.key_file = mine.key;
    etcd_slot slot(endpoint, "key", options);
    const cas_result first = slot.compare_exchange(0, "first");
    REQUIRE(first.status == cas_status::stored);
    const int before = proxy.connections();

    test::children child(1, [&](int, auto) {
        const auto seen = slot.load();
        const bool is_stored =
            seen && slot.compare_exchange(seen->version, "child").status == cas_status::stored;
        etcd_slot gone = std::move(slot);
        return std::string(is_stored ? "" : "the child cannot store");
    });
    CHECK(child.reports().front() == "");
    const cas_result conflict = slot.compare_exchange(first.version, "parent");
    CHECK(conflict.status == cas_status::conflict);
    CHECK(proxy.connections() == before + 1); // the child's
}
