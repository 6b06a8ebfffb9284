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
// A key that is deleted under its holder, by FLUSHALL say, admits another holder at once. Versions
// and tokens go on from the server's clock all the same: a stale token stays a stale one.
//
// A version is the server's time in microseconds when the value was stored, or one more than the
// version before where the clock lags behind that. So a key that was deleted and made again, or a
// replica that missed writes, does not come to a version for the second time, as long as the clocks
// of the servers are not set back by as much. Versions end below 2^53.
//
// Not for Redis Cluster's redirections or Sentinel's addresses: give it a name or a local proxy that
// leads to the master. A replica answers neither operation, its values may be old; its connection
// is closed, so that the next operation looks the name up again.
//
// TLS takes OpenSSL (link -lssl -lcrypto) and the macro BIDE_DURABLE_OPENSSL in all files of the
// program; the CMake component bide::durable_redis has both where OpenSSL was found. Elsewhere a
// slot that is to use TLS answers function_not_supported. The server's certificate and its name are
// always verified.
//
// A user with few rights needs these commands: eval, evalsha, script, time, type, hmget, hset,
// persist, and publish and subscribe where changes are told.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/connection_pool.hpp>
#include <bide/durable/slots/detail/redis_client.hpp>
#include <bide/durable/slots/detail/redis_place.hpp>
#include <bide/durable/slots/detail/redis_record.hpp>
#include <bide/durable/slots/detail/redis_script.hpp>
#include <bide/durable/slots/detail/redis_watch.hpp>
#include <bide/durable/slots/detail/store_words.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace bide::inline BIDE_ABI {

struct redis_slot_options {
    // Connects to this socket, without TLS, and the host and the port are not looked at.
    std::string unix_socket{};

    // Of Redis 6 and later; empty: the default user. No password: nobody logs in.
    std::string user{};
    std::string password{};

    int database = 0;

    // PEM files. Empty: the system's authorities, no certificate of our own, and its key beside it.
    bool uses_tls = false;
    std::string ca_file{};
    std::string cert_file{};
    std::string key_file{};

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

    // The same at redis://[user][:password@]host[:port][/database], or rediss:// for TLS. User and
    // password are percent-encoded; an IPv6 address is in brackets; the port is 6379 where there is
    // none. What the URL says goes before the options.
    // Throws: std::system_error (invalid_argument) whose words say what is wrong with the URL and
    // quote nothing of it; std::bad_alloc.
    redis_slot(std::string_view url, std::string key, redis_slot_options options = {});

    redis_slot(redis_slot&&) noexcept = default;
    redis_slot& operator=(redis_slot&&) noexcept = default;

    // Blocks, all of them: for a round trip, at most `patience`. A server that cannot be reached
    // answers the system's error, or timed_out; one that is busy or loading its data
    // resource_unavailable_try_again. Where the key holds anything that no slot has written it is
    // durable_errc::corrupt_record. These last until somebody changes something:
    //   permission_denied        the server does not let us in, or one side refuses the other's
    //                            certificate
    //   protocol_error           it is no Redis, or only one side uses TLS
    //   invalid_argument         there is no such database
    //   operation_not_supported  it lacks a command, or is a cluster's and sends us elsewhere
    // Throws, all of them: std::bad_alloc.
    result<slot_snapshot, std::error_code> load();

    // A conflict brings the current value along. Indeterminate is what was sent whole and not
    // answered.
    cas_result compare_exchange(slot_version version, std::string_view value);

    result<std::int64_t, std::error_code> server_now();

    // The watches of a store share one more connection, and a thread that listens there. Fails with
    // operation_not_supported where the options do not say notify. It belongs to the process that
    // made it: in a child its drain() fails.
    result<std::unique_ptr<slot_watch>, std::error_code> watch();

    // The server and the database, for people. Its slots share 8 connections for calls at most,
    // opened when they are needed, and one for renewals.
    std::string store() const { return client_.of().place.name(); }
    redis_slot for_renewals() const { return redis_slot(*this, for_renewals_t()); }

    // Where this is, and what was said of the last operation that failed.
    std::string explain() const;

private:
    struct for_renewals_t {};

    redis_slot(const redis_slot& of, for_renewals_t)
        : key_(of.key_), options_(of.options_), client_({of.client_.of().place, true}) {}

    static detail::redis_place place_of(std::string host, int port, redis_slot_options& options);
    static detail::redis_place place_at(std::string_view url, redis_slot_options& options);
    redis_slot(detail::redis_place place, std::string key, redis_slot_options options);

    std::string channel() const { return options_.notify ? key_ + ".changed" : std::string(); }
    template <class Ask> detail::redis_answer answer_to(Ask ask);
    detail::redis_answer run(std::initializer_list<std::string_view> arguments) {
        return answer_to([&](detail::redis_client& to, deadline end) {
            return to.run(key_, arguments, end);
        });
    }

    // What explain() is to say, from here on.
    std::error_code failed(std::error_code error, std::string words = {});

    std::string key_;
    redis_slot_options options_; // what makes the place is with the client
    detail::shared_connection<detail::redis_client> client_;
    std::string said_; // of the last operation that failed
};

// ---- implementation

inline detail::redis_place redis_slot::place_of(std::string host, int port,
                                                redis_slot_options& o) {
    return {std::move(host),
            port,
            std::move(o.unix_socket),
            std::move(o.user),
            std::move(o.password),
            o.database,
            o.uses_tls,
            {std::move(o.ca_file), std::move(o.cert_file), std::move(o.key_file)}};
}

inline detail::redis_place redis_slot::place_at(std::string_view url, redis_slot_options& options) {
    auto place = detail::redis_place_at(url, place_of({}, 0, options));
    if (!place) {
        BIDE_THROW(std::system_error(std::make_error_code(std::errc::invalid_argument),
                                     std::string("bide::redis_slot: ") + place.error().words));
    }
    return *std::move(place);
}

inline redis_slot::redis_slot(detail::redis_place place, std::string key,
                              redis_slot_options options)
    : key_(std::move(key)), options_(std::move(options)), client_({std::move(place), false}) {
    const detail::redis_place& there = client_.of().place;
    const char* const words =
        key_.empty() ? "the key is empty"
        : there.unix_socket.empty() && (there.port < 1 || there.port > 65'535)
            ? "the port is not from 1 to 65535"
            : nullptr;
    if (words != nullptr) {
        BIDE_THROW(std::system_error(std::make_error_code(std::errc::invalid_argument),
                                     std::string("bide::redis_slot: ") + words));
    }
}

inline redis_slot::redis_slot(std::string host, int port, std::string key,
                              redis_slot_options options)
    : redis_slot(place_of(std::move(host), port, options), std::move(key), options) {}

inline redis_slot::redis_slot(std::string_view url, std::string key, redis_slot_options options)
    : redis_slot(place_at(url, options), std::move(key), options) {}

inline std::string redis_slot::explain() const {
    return detail::one_line(store() + ", key " + key_ + (said_.empty() ? "" : ": " + said_), 1'000);
}

inline std::error_code redis_slot::failed(std::error_code error, std::string words) {
    said_ = !words.empty() ? std::move(words) : error.message();
    return error;
}

template <class Ask> detail::redis_answer redis_slot::answer_to(Ask ask) {
    const deadline end = deadline::after(options_.patience);
    const auto got = client_.get().take(end);
    if (!got.of) {
        return {{}, got.error, false, "the connections are in use"};
    }
    return got.error ? got.of->lost(got.error, false) : ask(*got.of, end);
}

inline result<slot_snapshot, std::error_code> redis_slot::load() {
    detail::redis_answer got = run({});
    if (got.error) {
        return unexpected{failed(got.error, std::move(got.words))};
    }
    detail::redis_record read = detail::read_redis_record(*got.reply);
    if (read.error) {
        return unexpected{failed(read.error, std::move(read.words))};
    }
    return std::move(read.seen);
}

inline cas_result redis_slot::compare_exchange(slot_version version, std::string_view value) {
    if (value.size() > options_.max_value) {
        return {cas_status::failed, 0, {}, failed(durable_errc::too_large)};
    }
    detail::redis_answer got = run({std::to_string(version), value, channel()});
    if (got.error) {
        const std::error_code error = failed(got.error, std::move(got.words));
        if (!got.may_have_stored) {
            return {cas_status::failed, 0, {}, error};
        }
        const bool says_no = error == durable_errc::storage_error;
        return {cas_status::indeterminate,
                0,
                {},
                says_no ? make_error_code(durable_errc::indeterminate) : error};
    }
    detail::redis_record read = detail::read_redis_record(*got.reply);
    if (read.error) {
        const bool unread = read.error == std::errc::protocol_error;
        const std::error_code error = failed(read.error, std::move(read.words));
        return {unread ? cas_status::indeterminate : cas_status::failed, 0, {}, error};
    }
    if (read.found == detail::redis_found::stored) {
        return {cas_status::stored, read.seen.version, {}, {}};
    }
    return {cas_status::conflict, 0, std::move(read.seen), {}};
}

inline result<std::int64_t, std::error_code> redis_slot::server_now() {
    detail::redis_answer got = answer_to([](detail::redis_client& to, deadline end) {
        return to.ask({"TIME"}, end);
    });
    if (got.error) {
        return unexpected{failed(got.error, std::move(got.words))};
    }
    if (const auto ms = detail::redis_time(*got.reply)) {
        return *ms;
    }
    return unexpected{
        failed(std::make_error_code(std::errc::protocol_error), "not an answer to TIME")};
}

inline result<std::unique_ptr<slot_watch>, std::error_code> redis_slot::watch() {
    if (!options_.notify) {
        return unexpected{failed(std::make_error_code(std::errc::operation_not_supported),
                                 "its options do not say notify")};
    }
    detail::redis_watch_made made = detail::make_redis_watch(
        client_.of().place, channel(), deadline::after(options_.patience));
    if (made.error) {
        return unexpected{failed(made.error, std::move(made.words))};
    }
    return std::move(made.watch);
}

} // namespace bide::inline BIDE_ABI

#endif
