#ifndef BIDE_DURABLE_SLOTS_DETAIL_REDIS_CLIENT_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_REDIS_CLIENT_HPP

// A connection that comes back when it is lost, and what slots ask over it, for any key.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/slots/detail/connection_pool.hpp>
#include <bide/durable/slots/detail/redis_connection.hpp>
#include <bide/durable/slots/detail/redis_place.hpp>
#include <bide/durable/slots/detail/redis_reply.hpp>
#include <bide/durable/slots/detail/redis_script.hpp>
#include <bide/durable/slots/detail/store_words.hpp>

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

namespace bide::inline BIDE_ABI {
namespace detail {

// A reply that is no error, or why there is none, and whether the server may have acted.
struct redis_answer {
    redis_reply reply{};
    std::error_code error{};
    bool may_have_stored = false;
    std::string words{}; // the server's, where there is an error
};

// Used by one thread at a time.
class redis_client {
public:
    // The connection for renewals is another one than that for calls.
    struct key {
        redis_place place;
        bool is_for_renewals = false;

        std::size_t most_connections() const noexcept {
            return is_for_renewals ? 1 : most_call_connections;
        }
        friend bool operator<(const key& a, const key& b) noexcept {
            return std::tie(a.is_for_renewals, a.place) < std::tie(b.is_for_renewals, b.place);
        }
    };

    explicit redis_client(const key& of) : place_(of.place) {}

    // In a child of fork(): the connection is the parent's.
    void disown() noexcept { connection_.drop(); }

    // Connects, unless it is usable. An error: see lost().
    std::error_code make_ready(deadline end);
    bool is_open() const noexcept { return connection_.is_open(); }
    bool is_usable() { return connection_.is_usable(); }
    void drop() noexcept { connection_.drop(); }

    // Drops the connection. The answer that there is none, in the words that the connection has.
    redis_answer lost(std::error_code error, bool may_have_stored);

    // The script, at this key.
    // Requires, both: make_ready().
    redis_answer run(std::string_view at, std::initializer_list<std::string_view> arguments,
                     deadline end);

    // A command that changes nothing.
    redis_answer ask(const std::vector<std::string_view>& words, deadline end);

private:
    redis_answer exchange(const std::vector<std::string_view>& words, deadline end);

    redis_place place_;
    redis_connection connection_;
    std::string name_; // what the server of the connection calls the script; empty: it does not
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
    if (const std::error_code error = connection_.open(place_, {*script}, replies, end)) {
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
            without_secret(one_line(connection_.words()), place_.password)};
}

inline redis_answer redis_client::exchange(const std::vector<std::string_view>& words,
                                           deadline end) {
    const auto request = redis_connection::request(words);
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
        std::vector<std::string_view> words{"EVAL", redis_script, "1", at};
        if (!name_.empty()) {
            words[0] = "EVALSHA";
            words[1] = name_;
        }
        words.insert(words.end(), arguments);
        redis_answer got = exchange(words, end);
        if (got.error || got.reply->type != REDIS_REPLY_ERROR) {
            return got;
        }
        const std::string_view text = redis_text(*got.reply);
        if (!name_.empty() && text.starts_with("NOSCRIPT ")) {
            name_.clear(); // the server was made to forget it
            continue;
        }
        if (text.find("READONLY ") != text.npos || text.starts_with("MASTERDOWN ")) {
            connection_.drop();
        }
        return {{},
                redis_error(*got.reply),
                !is_certain_redis_error(*got.reply),
                without_secret(one_line(text), place_.password)};
    }
}

inline redis_answer redis_client::ask(const std::vector<std::string_view>& words, deadline end) {
    redis_answer got = exchange(words, end);
    if (!got.error && got.reply->type == REDIS_REPLY_ERROR) {
        return {{},
                redis_error(*got.reply),
                false,
                without_secret(one_line(redis_text(*got.reply)), place_.password)};
    }
    return got;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
