#include <bide/durable/slots/detail/server/server_slot.hpp>

#include <support/test.hpp>

using bide::detail::read_server_url;
using bide::detail::server_url;

namespace {

struct row {
    const char* url;
    server_url parts;
};

const row good[] = {
    {"redis://host", {"redis", "", "", "host", 0, ""}},
    {"REDISS://Host-1.example.:6380/", {"rediss", "", "", "Host-1.example.", 6380, ""}},
    {"redis://127.0.0.1:1/15", {"redis", "", "", "127.0.0.1", 1, "15"}},
    {"redis://[::1]:65535", {"redis", "", "", "::1", 65'535, ""}},
    {"redis://[fe80::1]/2", {"redis", "", "", "fe80::1", 0, "2"}},
    {"redis://user:secret@host:7", {"redis", "user", "secret", "host", 7, ""}},
    {"redis://:secret@host", {"redis", "", "secret", "host", 0, ""}},
    {"redis://user@host", {"redis", "user", "", "host", 0, ""}},
    {"redis://user:@host", {"redis", "user", "", "host", 0, ""}},
    {"redis://@host", {"redis", "", "", "host", 0, ""}},
    {"redis://a:b:c@host", {"redis", "a", "b:c", "host", 0, ""}},
    {"redis://%41:p%40s%2Fs%3a%3F%23%25%0a%fF@host/%31",
     {"redis", "A", "p@s/s:?#%\n\xff", "host", 0, "%31"}},
};

const char* const bad[] = {
    "",
    "redis",
    "redis:",
    "redis:/host",
    "host:6379",
    "127.0.0.1:6379/0",
    "//host",
    "://host",
    "redis://",
    "redis:///0",
    "redis://:6379",
    "redis://user:secret@",
    "redis://user:secret@:6379",
    "redis://user:secret@/0",
    "redis://host:",
    "redis://host:0",
    "redis://host:00",
    "redis://host:01",
    "redis://host:65536",
    "redis://host:99999999999999999999",
    "redis://host:-1",
    "redis://host:+1",
    "redis://host: 1",
    "redis://host:abc",
    "redis://host:1x",
    "redis://host:1:2",
    "redis://::1",
    "redis://[::1",
    "redis://::1]",
    "redis://[]",
    "redis://[host]",
    "redis://[127.0.0.1]",
    "redis://[::1]6379",
    "redis://[::1]x:6379",
    "redis://[::1]:",
    "redis://[::1%25]",
    "redis://[fe80::1%25eth0]",
    "redis://%68ost",
    "redis://[::1%00]",
    "redis://ho st",
    "redis:// host",
    "redis://host\n",
    "redis://h\xc3\xb6st",
    "redis://ho%00st",
    "redis://ho%0ast",
    "redis://ho%2fst",
    "redis://ho%zzst",
    "redis://host%",
    "redis://host%4",
    "redis://-host",
    "redis://.host",
    "redis://ho*st",
    "redis://user:se%00cret@host",
    "redis://user:se%zzcret@host",
    "redis://user:secret%@host",
    "redis://user:secret%4@host",
    "redis://us%g0er:secret@host",
    "redis://user:se cret@host",
    "redis://user:se\x01"
    "cret@host",
    "redis://user:se\xe9"
    "cret@host",
    "redis://user:se@cret@host",
    "redis://user@user:secret@host",
    "redis://good@evil@host",
    "redis://user:se/cret@host",
    "redis://user:se?cret@host",
    "redis://user:se#cret@host",
    "redis://host?db=1",
    "redis://host/0?timeout=1",
    "redis://host#0",
    "redis://host/%00",
    "redis://host/%",
    "redis://host/a b",
};

} // namespace

TEST_CASE("server_url: finds and decodes the parts of a URL") {
    for (const auto& [url, parts] : good) {
        CAPTURE(url);
        const auto read = read_server_url(url);
        REQUIRE(read.has_value());
        CHECK(read->scheme == parts.scheme);
        CHECK(read->user == parts.user);
        CHECK(read->password == parts.password);
        CHECK(read->host == parts.host);
        CHECK(read->port == parts.port);
        CHECK(read->path == parts.path);
    }
    std::string nul = "redis://host/";
    nul += '\0';
    CHECK(!read_server_url(nul));
}

TEST_CASE("server_url: refuses an ambiguous URL, and the error quotes no part of it") {
    for (const char* const url : bad) {
        CAPTURE(url);
        const auto read = read_server_url(url);
        REQUIRE(!read.has_value());
        const std::string words = read.error();
        CHECK(words.substr(0, 7) == "the URL");
        CHECK(words.find("cret") == words.npos);
    }
}

// Inserts and replaces each byte at each position, and cuts the URL at each position.
TEST_CASE("server_url: accepts any bytes as input, and a URL that it reads names a host") {
    const std::string whole = "redis://us%41er:pa%42ss@[::1]:6379/1";
    for (std::size_t at = 0; at <= whole.size(); ++at) {
        for (int byte = 0; byte < 256; ++byte) {
            std::string changed = whole;
            changed.insert(at, 1, static_cast<char>(byte));
            const auto added = read_server_url(changed);
            if (at < whole.size()) {
                changed = whole;
                changed[at] = static_cast<char>(byte);
            }
            const auto replaced = read_server_url(changed);
            const auto cut = read_server_url(whole.substr(0, at));
            for (const auto* const each : {&added, &replaced, &cut}) {
                if (each->has_value() && ((*each)->host.empty() || (*each)->port > 65'535 ||
                                          (*each)->host.find('\0') != std::string::npos)) {
                    FAIL(changed);
                }
            }
        }
    }
}

TEST_CASE("one_line: a text becomes one line of printable UTF-8") {
    using bide::detail::one_line;
    CHECK(one_line(" a\tb\r\n c\n") == "a b c");
    const std::string letters = "Schl\xc3\xbcssel \xe2\x82\xac \xf0\x9f\x94\x92";
    CHECK(one_line(letters) == letters);
    CHECK(one_line("a\x1b[31mb\xff\xc3"
                   "c\xc2\x9b"
                   "d\xe2\x82") == "a [31mb c d");
    CHECK(one_line("\xc3\xa4\xc3\xa4", 3) == "\xc3\xa4");
}
