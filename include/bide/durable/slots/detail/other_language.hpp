#ifndef BIDE_DURABLE_SLOTS_DETAIL_OTHER_LANGUAGE_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_OTHER_LANGUAGE_HPP

// Finds out that only one side uses TLS, or that the server is one of another kind. A server that
// speaks TLS hangs up on a client that does not, and many a server without it hangs up on a client
// that does, or says nothing. PostgreSQL hangs up on a length that is too large, which the first
// bytes of other protocols are, and Redis on HTTP. All of this looks like trouble that passes. So
// another connection greets the server in the other language.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/durable/slots/detail/store_socket.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace bide::inline BIDE_ABI {
namespace detail {

// Whether the server answers this greeting, within a second, with one of these bytes.
inline bool answers_with(const std::string& host, int port, std::string_view greeting,
                         std::string_view firsts, deadline end) {
    const std::int64_t soon = native_platform::now() + 1'000'000'000;
    const deadline until = soon < end.steady_ns() ? deadline::at_ns(soon) : end;
    store_socket other;
    std::string ignored;
    char first = 0;
    return !other.connect_tcp(host, port, until, ignored) && !other.send(greeting, until) &&
           other.receive(&first, 1, until) && firsts.find(first) != firsts.npos;
}

// The greeting is too short to be one. A server that speaks TLS answers with an alert.
inline bool answers_tls(const std::string& host, int port, deadline end) {
    constexpr std::string_view greeting("\x16\x03\x01\x00\x04\x01\x00\x00\x00", 9);
    return answers_with(host, port, greeting, "\x15\x16", end);
}

// A request for encryption, which PostgreSQL answers with yes or no before it asks for a login.
inline bool answers_postgres(const std::string& host, int port, deadline end) {
    constexpr std::string_view greeting("\x00\x00\x00\x08\x04\xd2\x16\x2f", 8);
    return answers_with(host, port, greeting, "SN", end);
}

inline bool answers_redis(const std::string& host, int port, deadline end) {
    return answers_with(host, port, "PING\r\n", "+-", end);
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
