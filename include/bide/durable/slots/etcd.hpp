// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_ETCD_HPP
#define BIDE_DURABLE_SLOTS_ETCD_HPP

/// \file
/// A slot in a key of etcd 3.4 or later. One transaction compares and sets the key, through the
/// JSON gateway that etcd serves at its client port. Requires libcurl (link with -lcurl).
///
/// A version is the revision of the cluster in which the key was last changed (mod_revision). The
/// revision counts every change of every key, and continues when a key is deleted. It goes back
/// only if the cluster loses history: if a backup is restored or, in versions before 3.4.32 or
/// 3.5.13, if a member is killed in a compaction whose last revision is a deletion. The token of a
/// grant is the next token of the lock's record, or the revision of the cluster if that is larger.
///
/// The slot deletes no key. If another program deletes the key of a lock, the next contender
/// acquires the lock, even if it is held.
///
/// A restored backup forgets what came after it: two contenders may hold a lock, and versions and
/// tokens repeat. So end all holders before a restore, restore with a raised revision (etcdutl 3.6:
/// snapshot restore --bump-revision --mark-compacted), and delete the keys of locks.
///
/// Both operations ask the majority of the members, so load() returns committed values. etcd offers
/// no clock, so contenders observe how long a record stays unchanged.

#include <bide/durable/slot.hpp>

#include <chrono>
#include <vector>

namespace bide { inline namespace BIDE_ABI {

/// Options of an etcd_slot.
struct etcd_slot_options {
    /// The PEM file of the authorities that sign the server's certificate. Empty: the system's.
    std::string ca_file{};
    /// The PEM file of the client's certificate. Empty: none.
    std::string cert_file{};
    /// The PEM file of the client's key.
    std::string key_file{};

    /// The longest time of one operation. libcurl before 7.87 does not interrupt a name look-up.
    std::chrono::milliseconds retry_time{10'000};

    /// The largest value that is stored, in bytes. etcd accepts 1.5 MiB by default.
    std::size_t max_value = std::size_t{1} << 20;
};

/// A slot in a key of an etcd cluster.
///
/// If no endpoint can be reached, the error is timed_out, storage_error or an error code of the
/// operating system; explain() has libcurl's text. Other errors last until an operator acts:
///   - permission_denied: the cluster denies access, or one side rejects the other's certificate
///   - protocol_error: the answer is not from etcd's gateway, or is not TLS. (A server that
///     closes the connection without an answer is not recognised: connection_reset.)
///   - invalid_argument: a file of certificates or keys is missing or cannot be read
///
/// An exchange is `indeterminate` if the request was sent and not answered, or answered with an
/// error after which the value may still be stored (no leader, timed out).
///
/// An operation tries one endpoint after the other until one answers. A child of fork() connects
/// again and leaks one handle of libcurl. The first operation initialises libcurl. If the program
/// uses libcurl elsewhere, and libcurl is older than 7.84, call curl_global_init() before the
/// program starts threads. Sockets to etcd are close-on-exec; libcurl's own pairs may not be.
/// Blocks: each operation for one round trip to the majority, at most `retry_time`.
/// Throws: std::bad_alloc.
class etcd_slot final : public detail::slot_handle {
public:
    /// Contenders time leases by observation.
    static constexpr slot_guarantees guarantees{
        .keeps_acknowledged = true, .multi_host = true, .clock = lock_clock::observed};

    /// Names the key. All endpoints belong to one cluster: URLs such as "http://10.0.0.1:2379" or
    /// "https://user:password@host:2379". User and password are percent-encoded; they are not sent
    /// in the URL. The gateway accepts no certificate as a login.
    /// Throws: std::system_error (invalid_argument) if the key is empty or an endpoint is not such
    /// a URL, with a text that quotes no part of it; std::bad_alloc.
    /// Requires: only slots write to the key.
    etcd_slot(std::vector<std::string> endpoints, std::string key, etcd_slot_options options = {});
    /// \overload
    etcd_slot(std::string endpoint, std::string key, etcd_slot_options options = {})
        : etcd_slot(std::vector<std::string>{std::move(endpoint)}, std::move(key),
                    std::move(options)) {}
};

}} // namespace bide::BIDE_ABI

#if defined(BIDE_DURABLE_HEADER_ONLY)
#include <bide/durable/slots/impl/etcd.hpp>
#endif

#endif
