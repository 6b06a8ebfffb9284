#ifndef BIDE_DURABLE_SLOTS_REDIS_HPP
#define BIDE_DURABLE_SLOTS_REDIS_HPP

// A slot in Redis 5 or later, through hiredis (0.14 or later; link -lhiredis): one key with a hash
// of two fields, v the version and p the value, which one script compares and sets.
//
// What it does not promise. Redis sends its writes to the replicas after it has acknowledged them:
// a replica that takes over may not have the last one, and then two hold the lock. With
// `appendfsync everysec`, the default, a crash of the machine forgets up to a second even without a
// replica; with `maxmemory` and an eviction policy the key itself may go. So the guarantees say
// that it may forget, and a lock over it has to be told bide::allow_relaxed. What makes it as good
// as it gets: `appendonly yes`, `appendfsync always`, `maxmemory-policy noeviction`,
// `min-replicas-to-write 1` where there are replicas, and fencing tokens checked by the resource.
//
// A version is the server's time in microseconds when the value was stored, or one more than the
// version before where the clock lags behind that. So a key that was deleted and made again, or a
// replica that missed writes, does not come to a version for the second time, as long as the clocks
// of the servers are not set back by as much. Versions end below 2^53.
//
// Not for Redis Cluster's redirections, Sentinel's addresses or TLS: give it a name or a local
// proxy that leads to the master. A replica answers neither operation, its values may be old; its
// connection is closed, so that the next operation looks the name up again.
//
// A user with few rights needs these commands: eval, evalsha, script, time, type, hmget, hset,
// persist, and publish and subscribe where changes are told.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/redis_connection.hpp>
#include <bide/durable/slots/detail/redis_script.hpp>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

namespace bide::inline BIDE_ABI {

struct redis_slot_options {
    // Connects to this socket, and the host and the port are not looked at.
    std::string unix_socket{};

    // Of Redis 6 and later; empty: the default user. No password: nobody logs in.
    std::string user{};
    std::string password{};

    int database = 0;

    // Each change is published on a channel, the key's name with ".changed" behind it, and watch()
    // listens there. All who share the slot set it, or none.
    bool notify = false;

    // One operation takes no longer, but for the look-up of the host's name.
    std::chrono::milliseconds patience{10'000};

    // Larger values are refused, in bytes.
    std::size_t max_value = std::size_t{1} << 20;
};

class redis_slot {
public:
    static constexpr slot_guarantees guarantees{
        .keeps_acknowledged = false, .multi_host = true, .clock = lock_clock::server};

    // Connects with the first operation, and again whenever the connection is lost, also in a child
    // process after fork(). Nothing but slots may write to the key; if it is deleted, what was
    // stored is gone.
    // Throws: std::system_error (invalid_argument) where the key is empty, or there is neither a
    // port from 1 to 65535 nor a socket; std::bad_alloc.
    redis_slot(std::string host, int port, std::string key, redis_slot_options options = {});

    // Blocks, all of them: for a round trip, at most `patience`. A server that cannot be reached
    // answers the system's error, or timed_out; one that is busy or loading its data
    // resource_unavailable_try_again; one that does not let us in permission_denied. Where the key
    // holds anything that no slot has written it is durable_errc::corrupt_record.
    // Throws, all of them: std::bad_alloc.
    result<slot_snapshot, std::error_code> load();

    // A conflict brings the current value along. Indeterminate is what was sent whole and not
    // answered.
    cas_result compare_exchange(slot_version version, std::string_view value);

    result<std::int64_t, std::error_code> server_now();

    // A connection of its own. Fails with operation_not_supported where the options do not say
    // notify. It belongs to the process that made it: in a child its drain() fails.
    result<std::unique_ptr<slot_watch>, std::error_code> watch();

private:
    class subscription;

    // A reply that is no error, or why there is none, and whether the server may have acted.
    struct answer {
        detail::redis_reply reply{};
        std::error_code error{};
        bool may_have_stored = false;
    };

    deadline end_of_patience() const noexcept { return deadline::after(options_.patience); }
    std::string channel() const { return options_.notify ? key_ + ".changed" : std::string(); }
    detail::redis_place place() const {
        return {host_,
                port_,
                options_.unix_socket,
                options_.user,
                options_.password,
                options_.database};
    }

    std::error_code ready(deadline end);
    answer ask(const std::vector<std::string_view>& words, deadline end);
    answer run(std::initializer_list<std::string_view> arguments);

    // Digits that make a version.
    static std::optional<slot_version> number_in(const redisReply& text) noexcept;
    static result<detail::redis_found, std::error_code> read(const redisReply& reply,
                                                             slot_snapshot& into);

    std::string host_;
    int port_;
    std::string key_;
    redis_slot_options options_;
    detail::redis_connection connection_;
    std::string name_; // what the server of the connection calls the script; empty: it does not
};

// ---- implementation

// Messages are thrown away unread.
class redis_slot::subscription final : public slot_watch {
public:
    explicit subscription(detail::redis_connection connection) noexcept
        : connection_(std::move(connection)) {}

    int fd() const noexcept override { return connection_.fd(); }

    std::error_code drain() noexcept override {
        if (connection_.owner() != ::getpid()) {
            return std::make_error_code(std::errc::operation_not_permitted);
        }
        for (;;) {
            char some[4096];
            const ssize_t n = ::recv(connection_.fd(), some, sizeof some, MSG_DONTWAIT);
            if (n == 0) {
                return std::make_error_code(std::errc::connection_reset);
            }
            if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
                return {};
            }
            if (n < 0 && errno != EINTR) {
                return detail::last_system_error();
            }
        }
    }

private:
    detail::redis_connection connection_;
};

inline redis_slot::redis_slot(std::string host, int port, std::string key,
                              redis_slot_options options)
    : host_(std::move(host)), port_(port), key_(std::move(key)), options_(std::move(options)) {
    if (key_.empty() || (options_.unix_socket.empty() && (port_ < 1 || port_ > 65'535))) {
        BIDE_THROW(
            std::system_error(make_error_code(durable_errc::invalid_argument), "bide::redis_slot"));
    }
}

inline std::error_code redis_slot::ready(deadline end) {
    if (connection_.is_usable()) {
        return {};
    }
    auto script = detail::redis_connection::request({"SCRIPT", "LOAD", detail::redis_script});
    if (!script) {
        return script.error();
    }
    std::vector<detail::redis_reply> replies;
    if (const std::error_code error = connection_.open(place(), {*script}, replies, end)) {
        return error;
    }
    name_ = detail::is_redis_text(*replies[0]) ? detail::redis_text(*replies[0]) : "";
    return {};
}

inline redis_slot::answer redis_slot::ask(const std::vector<std::string_view>& words,
                                          deadline end) {
    const auto request = detail::redis_connection::request(words);
    if (!request) {
        return {{}, request.error(), false};
    }
    if (const std::error_code error = connection_.send(*request, end)) {
        connection_.drop();
        return {{}, error, false};
    }
    auto reply = connection_.receive(end);
    if (!reply) {
        connection_.drop();
        return {{}, reply.error(), true};
    }
    return {*std::move(reply), {}, true};
}

inline redis_slot::answer redis_slot::run(std::initializer_list<std::string_view> arguments) {
    const deadline end = end_of_patience();
    if (const std::error_code error = ready(end)) {
        return {{}, error, false};
    }
    for (;;) {
        std::vector<std::string_view> words{"EVAL", detail::redis_script, "1", key_};
        if (!name_.empty()) {
            words[0] = "EVALSHA";
            words[1] = name_;
        }
        words.insert(words.end(), arguments);
        answer got = ask(words, end);
        if (got.error || got.reply->type != REDIS_REPLY_ERROR) {
            return got;
        }
        const std::string_view text = detail::redis_text(*got.reply);
        if (!name_.empty() && text.substr(0, 9) == "NOSCRIPT ") {
            name_.clear(); // somebody made the server forget it
            continue;
        }
        if (text.find("READONLY ") != text.npos || text.starts_with("MASTERDOWN ")) {
            connection_.drop();
        }
        return {{}, detail::redis_error(*got.reply), !detail::is_certain_redis_error(*got.reply)};
    }
}

inline std::optional<slot_version> redis_slot::number_in(const redisReply& text) noexcept {
    constexpr slot_version last = (slot_version{1} << 53) - 1;
    const std::string_view digits = detail::redis_text(text);
    slot_version version = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), version);
    if (!detail::is_redis_text(text) || error != std::errc() ||
        end != digits.data() + digits.size() || version == 0 || version > last ||
        digits.front() == '0') {
        return std::nullopt;
    }
    return version;
}

// What the script answered. An error: not what ours does, or not what a slot stores.
inline result<detail::redis_found, std::error_code> redis_slot::read(const redisReply& reply,
                                                                     slot_snapshot& into) {
    using detail::redis_found;
    const auto bad = unexpected{std::make_error_code(std::errc::protocol_error)};
    if (reply.type != REDIS_REPLY_ARRAY || reply.elements < 2 ||
        reply.element[0]->type != REDIS_REPLY_INTEGER ||
        reply.element[1]->type != REDIS_REPLY_INTEGER) {
        return bad;
    }
    const auto found = static_cast<redis_found>(reply.element[0]->integer);
    into.server_ms = reply.element[1]->integer;
    if (found == redis_found::nothing) {
        return found;
    }
    if (found == redis_found::garbage) {
        return unexpected{make_error_code(durable_errc::corrupt_record)};
    }
    const bool has_value = found == redis_found::record;
    if ((!has_value && found != redis_found::stored) || reply.elements < (has_value ? 4u : 3u)) {
        return bad;
    }
    const std::optional<slot_version> version = number_in(*reply.element[2]);
    if (!version) {
        return unexpected{make_error_code(durable_errc::corrupt_record)};
    }
    into.version = *version;
    if (has_value) {
        if (!detail::is_redis_text(*reply.element[3])) {
            return bad;
        }
        into.value = detail::redis_text(*reply.element[3]);
    }
    return found;
}

inline result<slot_snapshot, std::error_code> redis_slot::load() {
    const answer got = run({});
    if (got.error) {
        return unexpected{got.error};
    }
    slot_snapshot seen;
    if (const auto found = read(*got.reply, seen); !found) {
        return unexpected{found.error()};
    }
    return seen;
}

inline cas_result redis_slot::compare_exchange(slot_version version, std::string_view value) {
    if (value.size() > options_.max_value) {
        return {cas_status::failed, 0, {}, make_error_code(durable_errc::too_large)};
    }
    const answer got = run({std::to_string(version), value, channel()});
    if (got.error && !got.may_have_stored) {
        return {cas_status::failed, 0, {}, got.error};
    }
    if (got.error) {
        const bool says_no = got.error == durable_errc::storage_error;
        return {cas_status::indeterminate,
                0,
                {},
                says_no ? make_error_code(durable_errc::indeterminate) : got.error};
    }
    slot_snapshot seen;
    const auto found = read(*got.reply, seen);
    if (!found) {
        const bool unread = found.error() == std::errc::protocol_error;
        return {unread ? cas_status::indeterminate : cas_status::failed, 0, {}, found.error()};
    }
    if (*found == detail::redis_found::stored) {
        return {cas_status::stored, seen.version, {}, {}};
    }
    return {cas_status::conflict, 0, std::move(seen), {}};
}

inline result<std::int64_t, std::error_code> redis_slot::server_now() {
    const deadline end = end_of_patience();
    if (const std::error_code error = ready(end)) {
        return unexpected{error};
    }
    const answer got = ask({"TIME"}, end);
    if (got.error) {
        return unexpected{got.error};
    }
    const redisReply& reply = *got.reply;
    if (reply.type == REDIS_REPLY_ERROR) {
        return unexpected{detail::redis_error(reply)};
    }
    if (reply.type == REDIS_REPLY_ARRAY && reply.elements == 2) {
        const auto seconds = number_in(*reply.element[0]);
        const std::string_view rest = detail::redis_text(*reply.element[1]);
        std::int64_t us = 0;
        if (seconds &&
            std::from_chars(rest.data(), rest.data() + rest.size(), us).ec == std::errc()) {
            return static_cast<std::int64_t>(*seconds) * 1'000 + us / 1'000;
        }
    }
    return unexpected{std::make_error_code(std::errc::protocol_error)};
}

inline result<std::unique_ptr<slot_watch>, std::error_code> redis_slot::watch() {
    if (!options_.notify) {
        return unexpected{std::make_error_code(std::errc::operation_not_supported)};
    }
    auto request = detail::redis_connection::request({"SUBSCRIBE", channel()});
    if (!request) {
        return unexpected{request.error()};
    }
    detail::redis_connection listening;
    std::vector<detail::redis_reply> replies;
    if (const std::error_code error =
            listening.open(place(), {*request}, replies, end_of_patience())) {
        return unexpected{error};
    }
    if (replies[0]->type == REDIS_REPLY_ERROR) {
        return unexpected{detail::redis_error(*replies[0])};
    }
    return std::unique_ptr<slot_watch>(std::make_unique<subscription>(std::move(listening)));
}

} // namespace bide::inline BIDE_ABI

#endif
