// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_REDIS_CLIENT_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_REDIS_CLIENT_HPP

// A Redis connection that connects again when it was lost, and the requests of slots, for any key.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/slots/detail/redis/connection.hpp>
#include <bide/durable/slots/detail/redis/reply.hpp>
#include <bide/durable/slots/detail/redis/script.hpp>
#include <bide/durable/slots/detail/redis/target.hpp>
#include <bide/durable/slots/detail/server/connection_key.hpp>
#include <bide/durable/slots/detail/server/store_error_text.hpp>

#include <initializer_list>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace bide::inline BIDE_ABI {
namespace detail {

// A reply that is not an error; or the error, and whether the server may have acted.
struct redis_answer {
    redis_reply reply{};
    std::error_code error{};
    bool may_have_stored = false;
    std::string error_text{}; // with an error: its text
};

// Used by one thread at a time.
class redis_client {
public:
    using key = connection_key<redis_target>;

    explicit redis_client(const key& of) : target_(of.target) {}

    // In a child of fork(): closes the descriptor, without a message to the server.
    void disown() noexcept { connection_.drop(); }

    // Connects if the connection is not usable. After an error, lost() returns the answer.
    std::error_code make_ready(deadline end);
    bool is_open() const noexcept { return connection_.is_open(); }
    bool is_usable() { return connection_.is_usable(); }
    void drop() noexcept { connection_.drop(); }

    // Drops the connection. Returns the error as an answer, with the connection's error text.
    redis_answer lost(std::error_code error, bool may_have_stored);

    // Runs the script for the key `at`.
    // Requires: make_ready() has succeeded.
    redis_answer run(std::string_view at, std::initializer_list<std::string_view> arguments,
                     deadline end);

    // Runs a command that changes nothing.
    // Requires: make_ready() has succeeded.
    redis_answer ask(const std::vector<std::string_view>& command, deadline end);

private:
    redis_answer exchange(const std::vector<std::string_view>& command, deadline end);

    redis_target target_;
    redis_connection connection_;
    std::string name_; // the script's hash on this connection's server; empty: it is not loaded
};

// ---- implementation

inline std::error_code redis_client::make_ready(deadline end) {
    if (connection_.is_usable()) {
        return {};
    }
    auto script = redis_connection::request({"SCRIPT", "LOAD", redis_script});
    if (!script) {
        return script.error();
    }
    std::vector<redis_reply> replies;
    if (const std::error_code error = connection_.open(target_, {*script}, replies, end)) {
        return error;
    }
    name_ = is_redis_text(*replies[0]) ? redis_text(*replies[0]) : "";
    return {};
}

inline redis_answer redis_client::lost(std::error_code error, bool may_have_stored) {
    connection_.drop();
    return {{},
            error,
            may_have_stored,
            without_secret(one_line(connection_.error_text()), target_.password)};
}

inline redis_answer redis_client::exchange(const std::vector<std::string_view>& command,
                                           deadline end) {
    const auto request = redis_connection::request(command);
    if (!request) {
        return {{}, request.error(), false, {}};
    }
    if (const std::error_code error = connection_.send(*request, end)) {
        return lost(error, false);
    }
    auto reply = connection_.receive(end);
    if (!reply) {
        return lost(reply.error(), true);
    }
    return {*std::move(reply), {}, true, {}};
}

inline redis_answer redis_client::run(std::string_view at,
                                      std::initializer_list<std::string_view> arguments,
                                      deadline end) {
    for (;;) {
        std::vector<std::string_view> command{"EVAL", redis_script, "1", at};
        if (!name_.empty()) {
            command[0] = "EVALSHA";
            command[1] = name_;
        }
        command.insert(command.end(), arguments);
        redis_answer got = exchange(command, end);
        if (got.error || got.reply->type != REDIS_REPLY_ERROR) {
            return got;
        }
        const std::string_view text = redis_text(*got.reply);
        if (!name_.empty() && text.starts_with("NOSCRIPT ")) {
            name_.clear(); // SCRIPT FLUSH, or a restart, has removed it
            continue;
        }
        if (text.find("READONLY ") != text.npos || text.starts_with("MASTERDOWN ")) {
            connection_.drop();
        }
        return {{},
                redis_error(*got.reply),
                !is_certain_redis_error(*got.reply),
                without_secret(one_line(text), target_.password)};
    }
}

inline redis_answer redis_client::ask(const std::vector<std::string_view>& command, deadline end) {
    redis_answer got = exchange(command, end);
    if (!got.error && got.reply->type == REDIS_REPLY_ERROR) {
        return {{},
                redis_error(*got.reply),
                false,
                without_secret(one_line(redis_text(*got.reply)), target_.password)};
    }
    return got;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
