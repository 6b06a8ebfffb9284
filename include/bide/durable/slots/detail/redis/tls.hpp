// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_REDIS_TLS_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_REDIS_TLS_HPP

// The interface of TLS over a socket. The connection does not depend on the library behind it.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/slots/detail/redis/target.hpp>
#include <bide/durable/slots/detail/server/store_socket.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

namespace bide::inline BIDE_ABI {
namespace detail {

// One TLS session. The destructor sends nothing, so that a child of fork() may run it.
class redis_tls {
public:
    redis_tls() = default;
    redis_tls(const redis_tls&) = delete;
    redis_tls& operator=(const redis_tls&) = delete;
    virtual ~redis_tls() = default;

    // Shakes hands, and verifies the server's certificate and name. After timed_out, another call
    // continues the handshake.
    virtual std::error_code shake_hands(store_socket& over, deadline end) = 0;

    // Like the socket's.
    virtual std::error_code send(store_socket& over, std::string_view bytes, deadline end) = 0;
    virtual result<std::size_t, std::error_code> receive(store_socket& over, char* to,
                                                         std::size_t room, deadline end) = 0;
    virtual bool is_quiet(store_socket& over) = 0;

    // Whether the server has sent at least one byte.
    bool has_heard() const noexcept { return has_heard_; }

    // The text of the last error, or empty.
    const std::string& error_text() const noexcept { return error_text_; }

protected:
    bool has_heard_ = false;
    std::string error_text_;
};

// A session, or the error.
struct redis_tls_made {
    std::unique_ptr<redis_tls> session{};
    std::error_code error{};
    std::string error_text{};
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
