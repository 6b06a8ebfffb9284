// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_POSTGRES_HPP
#define BIDE_DURABLE_SLOTS_POSTGRES_HPP

/// \file
/// A slot in a row of a PostgreSQL table (9.5 or later), for locks that several machines share.
/// Requires libpq: link with -lpq; <libpq-fe.h> must be in the include path.
///
/// Table: public.bide_lock (key text primary key, version bigint not null, value bytea not null).
/// The table does not depend on the role or its search_path: see postgres_slot_options::schema. All
/// slots of a process use the table that the first slot found. If that table is dropped and created
/// again, the slots refuse the new table until all of them are destroyed.
///
/// A load is one SELECT. A compare-and-swap is one UPDATE ... WHERE version = .... Each is a
/// transaction of its own, without session state or prepared statements. So the slot works behind a
/// pooler that pools transactions. The first version of a row is the server's time in microseconds,
/// and each change adds one. Therefore a row that is deleted and created again gets other versions,
/// unless the server's clock was set back meanwhile.
///
/// All slots of a process with the same connection string share at most 8 connections. A connection
/// is opened when no connection is idle. The end of a call closes the other connections that were
/// idle for 10 s. Slots from for_renewals() share one further connection.
///
/// An acknowledged value is on the server's disk, and on its synchronous standbys if it has any,
/// for every setting of `synchronous_commit`. This does not hold, and a lock may have two holders,
/// after a failover to a standby that was not synchronous, and on a server with fsync = off. If the
/// connection string names several hosts, add target_session_attrs=read-write. libpq tries the
/// hosts in turn, from the first one on. The slot gives each host an equal share of the time in
/// which it is the first one. The slot refuses the answers of a standby in any case.
///
/// Every operation ends within `retry_time`: waiting for a connection, connecting, logging in,
/// sending and waiting for the answer. libpq does not bound these: looking up names of hosts and
/// services, Kerberos, LDAP. If another transaction has locked the row, an operation gives up after
/// half of `retry_time`, and a renewal after 100 ms; the answer is `failed`, and nothing was
/// stored. A lock on the whole table has no such limit. If a connection fails or does not answer
/// after the statement was sent, the answer is `indeterminate`.
///
/// Errors: SQLSTATE in postgres_category(); explain() has the server's text. std::errc::timed_out:
/// no answer in time. 08001: no connection, and no text of the server. 08006: the connection was
/// lost. 01000: committed, but a synchronous standby did not confirm it. Codes of the slot: ZB001
/// another table than before, ZB002 tables in several schemas, ZB003 not a PostgreSQL server (which
/// is not noticed if the server sends nothing), ZB004 no such host, ZB005 a table without a slot's
/// columns. If the program has translated texts of libpq, ZB003, ZB004 and an invalid option of the
/// connection string are reported as 08001. Errors that last until an operator acts
/// compare equal to std::errc::permission_denied, no_such_file_or_directory, invalid_argument,
/// operation_not_permitted or protocol_error. All other errors may pass, for example: the server
/// starts, has too many connections, or cannot be reached.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/postgres_errors.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

namespace bide { inline namespace BIDE_ABI {
namespace detail {
struct postgres_core;
} // namespace detail

/// Options of a postgres_slot.
struct postgres_slot_options {
    /// The table: `name` or `schema.name`, of letters, digits and underscores, case-sensitive.
    /// search_path is not used. If no schema is named, the slot takes the only table of that name in
    /// the database, of any role. If there is none, the slot creates it in `public`. If several
    /// schemas have one, the error is ZB002: each table would be another lock.
    std::string table = "bide_lock";

    /// Creates the table if it is missing. This needs CREATE on the schema: from PostgreSQL 15 on,
    /// not every role has that on `public`. An existing table needs only SELECT, INSERT and UPDATE.
    bool create_table = true;

    /// The longest time of one operation, including connecting. It does not bound the look-up of a
    /// host name: set `hostaddr` or the resolver's own timeout.
    std::chrono::milliseconds retry_time{10'000};

    /// The largest value that is stored, in bytes; at most 256 MiB.
    std::size_t max_value = std::size_t(64) << 20;

    /// Sends NOTIFY with each change, and enables watch(). All users of the slot must set the same.
    /// Leave it off unless needed: in the whole database, transactions that notify commit one at a
    /// time.
    bool notify = false;

    /// The connection string of watches. It must not lead to a pooler that pools transactions,
    /// which does not forward LISTEN. Empty: the slot's own.
    std::string listen_conninfo{};
};

/// A slot in a row of a PostgreSQL table.
/// Thread safety: one object is used by one thread at a time.
class postgres_slot final : public slot {
public:
    /// Acknowledged values are kept, several machines may share the slot, leases are timed by the
    /// server's clock.
    static constexpr slot_guarantees guarantees{true, true, lock_clock::server};

    /// Names the row; connects with the first operation. `conninfo` is libpq's: key words or a URI.
    /// `key` has 1 to 1,024 bytes of UTF-8, none of them zero. If an argument is wrong, every
    /// operation answers durable_errc::invalid_argument.
    postgres_slot(std::string conninfo, std::string key, postgres_slot_options options = {});

    /// Reads the value and its version.
    /// Blocks: for one round trip, and for connecting if needed. If all connections are in use,
    /// also for the earlier calls of other slots of this process.
    result<slot_snapshot, std::error_code> load() override;
    /// Stores the value if `version` is the current version of the row. Version 0 means that there
    /// is no value.
    /// Blocks: like load().
    cas_result compare_exchange(slot_version version, std::string_view value) override;

    /// Returns the server's clock, in milliseconds since 1970.
    /// Blocks: like load().
    result<std::int64_t, std::error_code> server_now() override;

    /// Makes a watch of the value's changes, with a connection of its own. A process has at most 8
    /// of them; further ones fail with too_many_files_open. Requires: options.notify.
    /// Blocks: like load().
    result<std::unique_ptr<slot_watch>, std::error_code> watch() override;

    /// Returns the name of the server and the user.
    std::string store() const override;

    /// Returns a slot for the same row, on the connection that this process's renewals share.
    std::unique_ptr<slot> for_renewals() const override;

    /// Returns where the slot is and, if the last operation failed, why: "postgres at
    /// db.example:5432, database app: FATAL: ...".
    std::string explain() const override;

private:
    explicit postgres_slot(std::shared_ptr<detail::postgres_core> core) noexcept;

    std::shared_ptr<detail::postgres_core> core_; // of this slot alone
};

}} // namespace bide::BIDE_ABI

#if defined(BIDE_DURABLE_HEADER_ONLY)
#include <bide/durable/slots/impl/postgres.hpp>
#endif

#endif
