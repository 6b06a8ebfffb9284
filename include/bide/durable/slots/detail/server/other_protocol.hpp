// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SERVER_OTHER_PROTOCOL_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SERVER_OTHER_PROTOCOL_HPP

// Finds out whether only one side uses TLS, or whether the server speaks another protocol.
//
// In these cases a server closes the connection or sends nothing. That looks like an error that may
// pass: a TLS server closes it for a client without TLS; a server without TLS closes it, or waits,
// for a client with TLS; PostgreSQL closes it if the first bytes, read as a length, are too large;
// Redis closes it for HTTP. Therefore the client opens another connection and sends a request of
// the other protocol.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/durable/slots/detail/server/store_socket.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace bide::inline BIDE_ABI {
namespace detail {

// Whether the server answers this request within one second, with one of these bytes first.
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

// Whether the server speaks TLS: it answers a client hello that is too short with an alert.
inline bool answers_tls(const std::string& host, int port, deadline end) {
    constexpr std::string_view greeting("\x16\x03\x01\x00\x04\x01\x00\x00\x00", 9);
    return answers_with(host, port, greeting, "\x15\x16", end);
}

// Returns true if the server speaks PostgreSQL's protocol: before the login it answers a request
// for encryption with S (yes) or N (no).
inline bool answers_postgres(const std::string& host, int port, deadline end) {
    constexpr std::string_view greeting("\x00\x00\x00\x08\x04\xd2\x16\x2f", 8);
    return answers_with(host, port, greeting, "SN", end);
}

// Whether the server speaks Redis's protocol: it answers PING with '+' or an error.
inline bool answers_redis(const std::string& host, int port, deadline end) {
    return answers_with(host, port, "PING\r\n", "+-", end);
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
