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
/// transaction of its own, without session state or prepared statements: both work behind a pooler
/// that pools transactions. The first version of a row is the server's time in microseconds, and
/// each change adds one. Therefore a row that is deleted and created again gets other versions,
/// unless the server's clock was set back meanwhile.
///
/// All slots of a process with the same connection string share at most 8 connections. A connection
/// is opened when no connection is idle, and closed after 10 s idle while another one is open.
/// Slots from for_renewals() share one further connection.
///
/// An acknowledged value is on the server's disk, and on its synchronous standbys if it has any,
/// for every setting of `synchronous_commit`. This fails, and a lock may have two holders, after a
/// failover to a standby that was not synchronous, and on a server with fsync = off.
/// If the connection string names several hosts, add target_session_attrs=read-write. The slot
/// refuses the answers of a standby in any case.
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
/// another table than before, ZB002 tables in several schemas, ZB003 not a PostgreSQL server, ZB004
/// no such host, ZB005 a table without a slot's columns. Errors that last until an operator acts
/// compare equal to std::errc::permission_denied, no_such_file_or_directory, invalid_argument,
/// operation_not_permitted or protocol_error. All other errors may pass, for example: the server
/// starts, has too many connections, or cannot be reached.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/postgres/access.hpp>
#include <bide/durable/slots/detail/postgres/connection.hpp>
#include <bide/durable/slots/detail/postgres/errors.hpp>
#include <bide/durable/slots/detail/postgres/row_transaction.hpp>
#include <bide/durable/slots/detail/postgres/sql.hpp>
#include <bide/durable/slots/detail/postgres/watch.hpp>
#include <bide/durable/slots/detail/postgres/wire.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <libpq-fe.h>

namespace bide::inline BIDE_ABI {

/// Options of a postgres_slot.
struct postgres_slot_options {
    /// The table: `name` or `schema.name`, of letters, digits and underscores, case-sensitive.
    std::string table = "bide_lock";

    /// The table's schema; search_path does not count. If this is empty and `table` names no
    /// schema, the slot takes the only table of that name in the database, of any role. If there is
    /// none, the slot creates it in `public`. If several schemas have one, the error is ZB002: each
    /// table would be another lock.
    std::string schema{};

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
class postgres_slot {
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
    result<slot_snapshot, std::error_code> load();
    /// Stores the value if the version is the row's. Version 0: if there is no value.
    /// Blocks: like load().
    cas_result compare_exchange(slot_version version, std::string_view value);

    /// Locks the row, calls `update` and stores its result in one transaction. If the server rolls
    /// the transaction back, the slot may run another one, which calls `update` once more. If the
    /// process stops inside the update, all other users wait until the server ends the transaction,
    /// after a quarter of `retry_time`.
    /// Blocks: for two round trips, and for the transactions that locked the row before.
    /// Requires: `update` uses no other slot of the same connection string, which may wait for the
    /// connection that this update holds.
    cas_result update_locked(const slot_update& update);

    /// Returns the server's clock, in milliseconds since 1970.
    /// Blocks: like load().
    result<std::int64_t, std::error_code> server_now();

    /// Makes a watch of the value's changes. All watches of a process with the same connection
    /// string share one further connection. Requires: options.notify.
    /// Blocks: like load().
    result<std::unique_ptr<slot_watch>, std::error_code> watch();

    /// The caller's connection to the database.
    using transaction = PGconn;
    /// Reads inside the caller's transaction. Its commit then waits until it is durable. The
    /// caller's own time-outs apply. Outside of a transaction the error is 25001.
    /// Requires: the table exists (see create_table()); client_encoding = UTF8 for keys beyond
    /// ASCII.
    result<slot_snapshot, std::error_code> load_in(transaction& in);
    /// Stores inside the caller's transaction; otherwise like load_in(). `stored` becomes true when
    /// the caller commits. Under REPEATABLE READ and above, a conflict may be reported as 40001.
    cas_result compare_exchange_in(transaction& in, slot_version version, std::string_view value);

    /// Creates the table if it is missing.
    /// Blocks: like load().
    std::error_code create_table();

    /// Returns the name of the server and the user.
    std::string store() { return access_.store_name(); }

    /// Returns a slot for the same row, on the connection that this process's renewals share.
    postgres_slot for_renewals() {
        return {access_.of().conninfo, key_, options_, detail::postgres_connection::key::renewals};
    }

    /// Returns where the slot is and, if the last operation failed, why: "postgres at
    /// db.example:5432, database app: FATAL: ...".
    std::string explain() { return access_.explain(); }

    /// Returns the second half of explain(): why the last operation failed, or nothing.
    const std::string& last_message() const noexcept { return access_.error_text(); }

private:
    using deadline_type = detail::postgres_deadline;
    using link = detail::postgres_connection;
    using sql = std::optional<detail::postgres_sql>;
    using parameter = detail::postgres_parameter;
    using parameters = std::initializer_list<parameter>;
    using reply = detail::postgres_reply;

    postgres_slot(std::string conninfo, std::string key, postgres_slot_options options,
                  link::key::purpose what_for);

    std::error_code check(std::string_view value) const noexcept;
    template <class Once> reply ask_twice(bool on_table, Once once);
    result<slot_snapshot, std::error_code> snapshot_of(const reply& row) const;
    static cas_result outcome_of(const reply& answer);
    template <class Run> cas_result exchange(slot_version version, std::string_view value, Run run);
    static cas_result failed(std::error_code error) { return {cas_status::failed, 0, {}, error}; }

    postgres_slot_options options_;
    std::string key_;
    detail::postgres_access access_;
    std::error_code invalid_{};
};

// ---- implementation

inline postgres_slot::postgres_slot(std::string conninfo, std::string key,
                                    postgres_slot_options options)
    : postgres_slot(std::move(conninfo), std::move(key), std::move(options), link::key::calls) {}

inline postgres_slot::postgres_slot(std::string conninfo, std::string key,
                                    postgres_slot_options options, link::key::purpose what_for)
    : options_(std::move(options)), key_(std::move(key)),
      access_({std::move(conninfo), what_for,
               detail::postgres_name_of(options_.table, options_.schema), options_.create_table,
               std::clamp(options_.retry_time, std::chrono::milliseconds(1),
                          std::chrono::milliseconds(std::chrono::hours(24))),
               options_.notify ? key_ : std::string()}) {
    options_.max_value = std::min(options_.max_value, std::size_t(256) << 20);
    const bool has_table = !access_.of().name.table.empty();
    if (!has_table || key_.empty() || key_.size() > 1'024 || key_.find('\0') != key_.npos) {
        invalid_ = durable_errc::invalid_argument;
        access_.note(has_table ? "a key has 1 to 1,024 bytes, none of them zero"
                               : "a table is name or schema.name, of letters, digits and _");
    }
}

inline std::error_code postgres_slot::check(std::string_view value) const noexcept {
    return invalid_                            ? invalid_
           : value.size() > options_.max_value ? make_error_code(durable_errc::too_large)
                                               : std::error_code();
}

/// Asks once more if the connection was lost: the server may have closed it while it was idle.
template <class Once> detail::postgres_reply postgres_slot::ask_twice(bool on_table, Once once) {
    const deadline_type end = access_.until();
    const auto with_end = [&](link& to, const sql& with) { return once(to, with, end); };
    const auto run = [&] {
        return on_table ? access_.run(end, with_end) : access_.ask(end, with_end);
    };
    reply answer = run();
    if (answer.is_lost && !answer.is_certain && answer.error != std::errc::timed_out) {
        answer = run();
    }
    return answer;
}

inline std::error_code postgres_slot::create_table() {
    if (invalid_) {
        return invalid_;
    }
    return access_.make(access_.until()).error;
}

inline result<slot_snapshot, std::error_code> postgres_slot::snapshot_of(const reply& row) const {
    if (row.error) {
        return unexpected{row.error};
    }
    slot_snapshot found;
    found.server_ms = row.int8(2) / 1'000;
    if (::PQgetisnull(row.rows.get(), 0, 0) == 0) {
        const std::int64_t version = row.int8(0);
        if (version <= 0) {
            return unexpected{make_error_code(durable_errc::corrupt_record)};
        }
        found.version = static_cast<slot_version>(version);
        found.value = row.bytes(1);
    }
    return found;
}

inline cas_result postgres_slot::outcome_of(const reply& answer) {
    if (answer.error) {
        return {answer.is_certain ? cas_status::failed : cas_status::indeterminate,
                0,
                {},
                answer.error};
    }
    if (answer.count() == 0) {
        return {cas_status::conflict, 0, {}, {}};
    }
    return {cas_status::stored, static_cast<slot_version>(answer.int8(0)), {}, {}};
}

inline result<slot_snapshot, std::error_code> postgres_slot::load() {
    if (invalid_) {
        return unexpected{invalid_};
    }
    return snapshot_of(ask_twice(true, [&](link& to, const sql& with, deadline_type end) {
        return access_.fresh(to.run(with->load, {{parameter::text, key_}}, end));
    }));
}

template <class Run>
cas_result postgres_slot::exchange(slot_version version, std::string_view value, Run run) {
    if (version > std::numeric_limits<std::int64_t>::max()) {
        return {cas_status::conflict, 0, {}, {}};
    }
    const detail::postgres_int8 number(static_cast<std::int64_t>(version));
    const parameter key{parameter::text, key_};
    const parameter bytes{parameter::bytes, value};
    return outcome_of(version == 0 ? run(true, {key, bytes})
                                   : run(false, {key, {parameter::int8, number.bytes()}, bytes}));
}

inline cas_result postgres_slot::compare_exchange(slot_version version, std::string_view value) {
    if (const std::error_code error = check(value)) {
        return failed(error);
    }
    const deadline_type end = access_.until();
    return exchange(version, value, [&](bool is_first, parameters with) {
        return access_.run(end, [&](link& to, const sql& of) {
            return to.run(is_first ? of->insert : of->update, with, end);
        });
    });
}

inline cas_result postgres_slot::update_locked(const slot_update& update) {
    if (invalid_) {
        return failed(invalid_);
    }
    const deadline_type end = access_.until();
    cas_result outcome;
    const reply last = access_.run(end, [&](link& to, const sql& of) {
        detail::postgres_row_transaction row(to, *of, key_, end);
        reply answer = row.lock();
        if (answer.error || row.error()) {
            answer.error = answer.error ? answer.error : row.error();
            return answer;
        }
        const std::optional<std::string> value = update(row.before());
        if (!value || value->size() > options_.max_value) {
            outcome = value ? failed(make_error_code(durable_errc::too_large))
                            : cas_result{cas_status::stored, row.before().version, {}, {}};
            row.roll_back();
            return answer;
        }
        outcome = row.commit(*value);
        answer.error = outcome.error;
        answer.is_certain = outcome.status != cas_status::indeterminate;
        return answer;
    });
    return last.error && last.is_certain ? failed(last.error) : outcome;
}

inline result<std::int64_t, std::error_code> postgres_slot::server_now() {
    if (invalid_) {
        return unexpected{invalid_};
    }
    const reply row = ask_twice(false, [](link& to, const sql&, deadline_type end) {
        return to.run(detail::postgres_sql::now, {}, end);
    });
    if (row.error) {
        return unexpected{row.error};
    }
    return row.int8(0) / 1'000;
}

inline result<std::unique_ptr<slot_watch>, std::error_code> postgres_slot::watch() {
    if (invalid_ || !options_.notify) {
        return unexpected{invalid_ ? invalid_
                                   : std::make_error_code(std::errc::operation_not_supported)};
    }
    const deadline_type end = access_.until();
    const reply found = access_.run(end, [](link&, const sql&) { return reply(); });
    if (found.error) {
        return unexpected{found.error};
    }
    const std::string& at =
        options_.listen_conninfo.empty() ? access_.of().conninfo : options_.listen_conninfo;
    auto watch = std::make_unique<detail::postgres_watch>(
        link::key{at, detail::postgres_target_of(at).environment, link::key::notices},
        access_.channel());
    std::string error_text;
    if (const std::error_code error = watch->begin(end, error_text)) {
        access_.note(std::move(error_text));
        return unexpected{error};
    }
    return std::unique_ptr<slot_watch>(std::move(watch));
}

inline result<slot_snapshot, std::error_code> postgres_slot::load_in(transaction& in) {
    if (invalid_) {
        return unexpected{invalid_};
    }
    return snapshot_of(
        access_.fresh(access_.run_in(in, &detail::postgres_sql::load, {{parameter::text, key_}})));
}

inline cas_result postgres_slot::compare_exchange_in(transaction& in, slot_version version,
                                                     std::string_view value) {
    if (const std::error_code error = check(value)) {
        return failed(error);
    }
    return exchange(version, value, [&](bool is_first, parameters with) {
        return access_.run_in(
            in, is_first ? &detail::postgres_sql::insert_in : &detail::postgres_sql::update_in,
            with);
    });
}

} // namespace bide::inline BIDE_ABI

#endif
