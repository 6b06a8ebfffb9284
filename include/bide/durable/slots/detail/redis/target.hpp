// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_REDIS_TARGET_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_REDIS_TARGET_HPP

// What identifies a connection to a Redis server: its address, the login, the database and TLS.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/slots/detail/server/url.hpp>

#include <string>
#include <string_view>
#include <tuple>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// The PEM files of TLS.
struct redis_trust {
    std::string ca_file{};   // empty: the system's authorities
    std::string cert_file{}; // empty: the client has no certificate
    std::string key_file{};  // empty: the key is in cert_file
};

struct redis_target {
    std::string host{};
    int port = 0;
    std::string unix_socket{}; // if not empty: replaces host and port, without TLS
    std::string user{};
    std::string password{};
    int database = 0;
    bool uses_tls = false;
    redis_trust trust{};

    bool has_tls() const noexcept { return uses_tls && unix_socket.empty(); }

    // Returns a text for messages, without the password.
    std::string name() const {
        const bool is_address = host.find(':') != host.npos;
        std::string text = has_tls() ? "redis (TLS) at " : "redis at ";
        text += !unix_socket.empty() ? unix_socket : is_address ? '[' + host + ']' : host;
        text += unix_socket.empty() ? ':' + std::to_string(port) : std::string();
        text += database != 0 ? ", database " + std::to_string(database) : std::string();
        return text + (user.empty() ? "" : ", user " + user);
    }

    friend bool operator<(const redis_target& a, const redis_target& b) noexcept {
        const auto all = [](const redis_target& p) {
            return std::tie(p.host, p.port, p.unix_socket, p.user, p.password, p.database,
                            p.uses_tls, p.trust.ca_file, p.trust.cert_file, p.trust.key_file);
        };
        return all(a) < all(b);
    }
};

// Reads a URL, which overrides the members of `target`. Fails with what is wrong with the URL.
inline result<redis_target, url_fault> redis_target_at(std::string_view text, redis_target target) {
    constexpr int most_databases = 1'000'000;
    auto url = read_server_url(text);
    if (!url) {
        return unexpected{url.error()};
    }
    if (url->scheme != "redis" && url->scheme != "rediss") {
        return unexpected{url_fault{"the URL begins with neither redis:// nor rediss://"}};
    }
    target.host = std::move(url->host);
    target.port = url->port == 0 ? 6379 : url->port;
    target.unix_socket.clear();
    target.uses_tls = target.uses_tls || url->scheme == "rediss";
    if (!url->user.empty()) {
        target.user = std::move(url->user);
    }
    if (!url->password.empty()) {
        target.password = std::move(url->password);
    }
    if (!target.user.empty() && target.password.empty()) {
        return unexpected{url_fault{"the URL has a user and no password; a password alone is "
                                    "written with a ':' before it"}};
    }
    if (!url->path.empty()) {
        target.database = url_number(url->path, most_databases);
    }
    if (target.database < 0) {
        return unexpected{url_fault{"the URL's path is not the number of a database"}};
    }
    return target;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
