#ifndef BIDE_DURABLE_SLOTS_DETAIL_OTHER_LANGUAGE_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_OTHER_LANGUAGE_HPP

// Finds out that only one side uses TLS. A server that speaks TLS hangs up on a client that does
// not, and many a server without it hangs up on a client that does, or says nothing. Both look like
// trouble that passes. So a second connection greets the server in the other language.

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

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
