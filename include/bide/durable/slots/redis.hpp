// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_REDIS_HPP
#define BIDE_DURABLE_SLOTS_REDIS_HPP

/// \file
/// A slot in Redis 5 or later. Requires hiredis 0.14 or later and libcurl (link with -lhiredis
/// -lcurl). The key holds a hash of two fields, the version v and the value p. One script compares
/// the version and sets both fields. The user needs these commands: eval, evalsha, time, type,
/// hmget, hset and persist.
///
/// This slot may forget what it acknowledged, and a lock over it requires bide::allow_relaxed:
///   - Redis sends its writes to the replicas after it has acknowledged them. A replica that takes
///     over may miss the last writes, and two contenders may hold the lock.
///   - With `appendfsync everysec`, the default, a crash of the machine loses up to one second.
///   - With `maxmemory` and an eviction policy, the server may delete the key.
/// These lose the least: `appendonly yes`, `appendfsync always`, `maxmemory-policy noeviction`, and
/// with replicas `min-replicas-to-write 1`. The resource should check tokens.
///
/// A version is the server's time in microseconds when the value was stored, or the previous
/// version plus one if that is greater. So no version occurs twice, even if a key is deleted and
/// created again, or if a replica missed writes. But the server's clock must not be set back to a
/// time before the lost version. If a key is deleted while a lock is held (FLUSHALL), the next
/// contender acquires the lock at once. Its token is larger than all earlier ones.
///
/// The slot does not follow redirections of Redis Cluster and does not ask Sentinel. Give it a name
/// or a local proxy that leads to the master. On a replica, both operations fail, because its
/// values may be old; the next operation looks the name up again.
/// With TLS, the slot always verifies the server's certificate and name.

#include <bide/durable/slot.hpp>

#include <chrono>

namespace bide { inline namespace BIDE_ABI {

/// Options of a redis_slot.
struct redis_slot_options {
    /// The password, if the URL has none. Empty: no login.
    std::string password{};

    /// The PEM file of the authorities that sign the server's certificate. Empty: the system's.
    std::string ca_file{};
    /// The PEM file of the client's certificate. Empty: none.
    std::string cert_file{};
    /// The PEM file of the client's key. Empty: it is in cert_file.
    std::string key_file{};

    /// The longest time of one operation. libcurl before 7.87 does not interrupt a name look-up.
    std::chrono::milliseconds retry_time{10'000};

    /// The largest value that is stored, in bytes.
    std::size_t max_value = std::size_t{1} << 20;
};

/// A slot in a key of a Redis server.
///
/// If the server cannot be reached, sends nothing or closes the connection, the error is timed_out
/// or an error code of the operating system; if it is busy or loads its data,
/// resource_unavailable_try_again; if the key holds a value that no slot has written,
/// durable_errc::corrupt_record. Other errors last until an operator acts:
/// - permission_denied: the server denies access, or one side rejects the other's certificate
/// - protocol_error: the answer is not from Redis, or is not TLS
/// - invalid_argument: there is no such database, or a file of certificates or keys cannot be read
/// - operation_not_supported: the server lacks a command, or redirects to another node
///
/// If a request to store a value was sent completely and not answered, the status is
/// `indeterminate`. For libcurl and fork() see etcd_slot.
/// Blocks: each operation for one round trip, at most `retry_time`.
/// Throws: std::bad_alloc.
class redis_slot final : public detail::slot_handle {
public:
    /// The server's clock times the leases.
    static constexpr slot_guarantees guarantees{
        .keeps_acknowledged = false, .multi_host = true, .clock = lock_clock::server};

    /// Names the key on the server at redis://[user][:password@]host[:port][/database], or
    /// rediss:// for TLS. User and password are percent-encoded. An IPv6 address is in brackets.
    /// The default port is 6379. The first operation connects.
    /// Throws: std::system_error (invalid_argument), whose text quotes no part of the URL, if the
    /// key is empty or the URL is wrong; std::bad_alloc.
    /// Requires: only slots write to the key. If the key is deleted, the value is lost.
    redis_slot(std::string_view url, std::string key, redis_slot_options options = {});
};

}} // namespace bide::BIDE_ABI

#if defined(BIDE_DURABLE_HEADER_ONLY)
#include <bide/durable/slots/impl/redis.hpp>
#endif

#endif
