// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_REDIS_TARGET_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_REDIS_TARGET_HPP

// What identifies a connection to a Redis server: its address, the login, the database and TLS.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/slots/detail/server/text.hpp>
#include <bide/durable/slots/detail/server/url.hpp>

#include <compare>
#include <string>
#include <string_view>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

struct redis_target {
    std::string host{};
    int port = 0;
    std::string unix_socket{}; // if not empty: replaces host and port, without TLS
    std::string user{};
    std::string password{};
    int database = 0;
    bool uses_tls = false;
    tls_files trust{};

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

    friend auto operator<=>(const redis_target&, const redis_target&) = default;
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
        target.database = static_cast<int>(read_number(url->path, most_databases));
    }
    if (target.database < 0) {
        return unexpected{url_fault{"the URL's path is not the number of a database"}};
    }
    return target;
}

}}} // namespace bide::BIDE_ABI::detail

#endif
