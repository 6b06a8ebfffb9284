#include <bide/durable/errors.hpp>
#include <bide/durable/options.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/record.hpp>

#include <support/test.hpp>

using bide::durable_ticket;

TEST_CASE("ticket: is the same after to_string() and parse()") {
    const durable_ticket t{"billing \"7\"\n\xc3\xa9", "9f", 3, true, 42};
    const auto read = durable_ticket::parse(t.to_string());
    REQUIRE(read.has_value());
    REQUIRE(*read == t);
    REQUIRE(t.to_string() == "{\"v\":1,\"holderId\":\"billing \\\"7\\\"\\n\xc3\xa9\","
                             "\"nonce\":\"9f\",\"weight\":3,\"fence\":42,\"bound\":true}");
    // What follows may be absent, and what is unknown is left out.
    const auto least =
        durable_ticket::parse(R"({"v":1,"holderId":"a","nonce":"n","weight":1,"later":[]})");
    REQUIRE(least.has_value());
    REQUIRE(*least == durable_ticket{"a", "n", 1, false, 0});
}

TEST_CASE("ticket: parse() refuses invalid text, and a later format with its own error") {
    for (const char* text :
         {"", "{", "[]", "{}", R"({"v":1})", R"({"v":1,"holderId":"a","nonce":"","weight":1})",
          R"({"v":1,"holderId":"a","nonce":"n","weight":0})",
          R"({"v":1,"holderId":"a","nonce":"n","weight":1,"fence":-1})",
          R"({"v":1,"holderId":"a","nonce":"n","weight":1,"fence":9007199254740993})",
          R"({"v":1,"holderId":"a","nonce":"n","weight":1,"bound":1})",
          R"({"v":"1","holderId":"a","nonce":"n","weight":1})"}) {
        CAPTURE(text);
        const auto read = durable_ticket::parse(text);
        REQUIRE_FALSE(read.has_value());
        REQUIRE(read.error() == bide::durable_errc::invalid_argument);
    }
    const auto later = durable_ticket::parse(R"({"v":2,"holderId":"a","nonce":"n","weight":1})");
    REQUIRE_FALSE(later.has_value());
    REQUIRE(later.error() == bide::durable_errc::unsupported_record_version);
}

TEST_CASE("ticket: no two nonces are the same") {
    std::set<std::string> seen;
    for (int i = 0; i < 1000; ++i) {
        const std::string nonce = bide::detail::fresh_nonce();
        REQUIRE(nonce.size() == 32);
        REQUIRE(seen.insert(nonce).second);
    }
}

TEST_CASE("ticket: is_text() accepts exactly well-formed UTF-8") {
    using bide::durable::detail::is_text;
    for (const char* good :
         {"", "a", "\"\\\n\x01", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x94\x92", "\xed\x9f\xbf"}) {
        REQUIRE(is_text(good, 0, 10));
    }
    for (const char* bad : {"\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80",
                            "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "a\xff", "\xe2\x82"}) {
        REQUIRE_FALSE(is_text(bad, 0, 10));
    }
}
