#ifndef BIDE_DURABLE_SLOTS_POSTGRES_HPP
#define BIDE_DURABLE_SLOTS_POSTGRES_HPP

// A slot in a row of a PostgreSQL table (9.5 or later), for locks that several machines share. Needs
// libpq: include <libpq-fe.h>, link with -lpq.
//
//   public.bide_lock (key text primary key, version bigint not null, value bytea not null)
//
// Which table that is does not depend on the role or its search_path: see `schema` below. All slots
// of a process keep to the table that the first of them found. If that table is dropped and made
// again, the slots refuse the new one until all of them are gone, or the process is started anew.
//
// A load is one SELECT and a compare-and-swap one UPDATE ... WHERE version = ..., each a transaction
// of its own. No session state and no prepared statements: it works behind a pooler that lends its
// connections by the transaction. The first version of a row is the server's time in microseconds,
// and each change adds one: what is deleted and made again has other versions, unless the server's
// clock was set back meanwhile.
//
// All slots of a process with the same connection string share their connections: 8 at most, each
// opened when no other one is idle, and closed when it is idle for 10 s while another one is open.
// Those of for_renewals() share one more.
//
// What was acknowledged is on the server's disk, and on its synchronous standbys if it has any,
// whatever `synchronous_commit` is set to elsewhere. It is not, and the same lock may have two
// holders,
//   - after a failover to a standby that was not synchronous;
//   - if the server runs with fsync = off.
// With several hosts in the connection string add target_session_attrs=read-write. A standby's
// answers are refused in any case.
//
// Every operation ends within its patience: waiting for a connection, connecting, logging in,
// sending and waiting for the answer. Not bounded, as libpq does them in one go: looking up names of
// hosts and services, Kerberos, LDAP. An operation gives up waiting for a row that another
// transaction has locked after half the patience: the answer is `failed` then, and certain. A
// renewal waits for 100 ms. A lock on the whole table has no such limit. A connection that fails,
// or does not answer, after the statement was sent: `indeterminate`.
//
// Errors: SQLSTATE in postgres_category(), and explain() has the server's words;
// std::errc::timed_out when there was no answer in time. No connection and no word of the server:
// 08001; connection lost: 08006; committed, but a synchronous standby did not confirm it: 01000.
// The slot's own: ZB001 another table than before, ZB002 tables in several schemas, ZB003 not a
// PostgreSQL server, ZB004 no such host, ZB005 a table that is none of a slot's. Errors that stay
// until a person does something compare equal to std::errc::permission_denied,
// no_such_file_or_directory, invalid_argument, operation_not_permitted or protocol_error. Others
// may pass: a server that starts, that has too many connections, or that is not there.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/postgres_access.hpp>
#include <bide/durable/slots/detail/postgres_connection.hpp>
#include <bide/durable/slots/detail/postgres_errors.hpp>
#include <bide/durable/slots/detail/postgres_locked.hpp>
#include <bide/durable/slots/detail/postgres_sql.hpp>
#include <bide/durable/slots/detail/postgres_watch.hpp>
#include <bide/durable/slots/detail/postgres_wire.hpp>

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

struct postgres_slot_options {
    // `name` or `schema.name`: letters, digits and underscores, as written.
    std::string table = "bide_lock";

    // The table's schema; search_path does not count. Nothing, and none in `table`: the slot takes
    // the only table of that name which is in the database, made by any role, and if there is none
    // yet it is made in `public`. If several schemas have one, each of which would be another lock,
    // the answer is ZB002.
    std::string schema{};

    // Make the table where it is missing, which takes CREATE on the schema: from PostgreSQL 15 on,
    // not every role has that on `public`. Once the table is there, SELECT, INSERT and UPDATE are
    // all the rights that are needed.
    bool create_table = true;

    // For one operation, connecting included. Only looking up a host's name is not bounded: give
    // `hostaddr`, or see to the resolver's own timeout.
    std::chrono::milliseconds patience{10'000};

    // At most 256 MiB.
    std::size_t max_value = std::size_t(64) << 20;

    // Tell watches of each change by NOTIFY, and offer watch(). To be the same for all who share the
    // slot. Off where it is not needed: transactions that notify commit one after the other in the
    // whole database.
    bool notify = false;

    // How a watch connects: directly, for no transaction-pooling pooler passes LISTEN on. Nothing:
    // as the slot.
    std::string listen_conninfo{};
};

class postgres_slot {
public:
    static constexpr slot_guarantees guarantees{true, true, lock_clock::server};

    // `conninfo`: as libpq takes it, key words or URI. `key`: 1 to 1,024 bytes of UTF-8, no zeros.
    // Connects when first used; what is wrong with the arguments is answered then, with
    // durable_errc::invalid_argument.
    postgres_slot(std::string conninfo, std::string key, postgres_slot_options options = {});

    // Blocks: for a round trip, for what connecting takes, and, if all connections are in use, for
    // the calls of other slots of this process that came before.
    result<slot_snapshot, std::error_code> load();
    cas_result compare_exchange(slot_version version, std::string_view value);

    // The row is locked while `update` runs, which is called at most once for each transaction that
    // got so far: again after the server rolled one back. It must not use another slot of the same
    // connection string, which might wait for a connection that is held for the update. A process
    // that stops in the middle keeps all others waiting until the server ends its transaction,
    // after a quarter of the patience.
    // Blocks: for two round trips, and for those who came before.
    cas_result update_locked(const slot_update& update);

    // The server's clock.
    result<std::int64_t, std::error_code> server_now();

    // All watches of a process with the same connection string share one more connection, which
    // listens for them. Needs options.notify.
    result<std::unique_ptr<slot_watch>, std::error_code> watch();

    // On a connection of the caller's, with the caller's own patience, inside its transaction; it
    // becomes one that waits for its commit to be durable. `stored` holds once that is committed.
    // Outside of a transaction: 25001. The table must be there: see create_table(). Keys beyond
    // ASCII need client_encoding = UTF8. Under REPEATABLE READ and above, a conflict may show as
    // 40001 instead.
    using transaction = PGconn;
    result<slot_snapshot, std::error_code> load_in(transaction& in);
    cas_result compare_exchange_in(transaction& in, slot_version version, std::string_view value);

    // Makes the table, if it is missing.
    std::error_code create_table();

    // The server and the user.
    std::string store() { return access_.store_name(); }

    // On the connection that renewals of this process use.
    postgres_slot for_renewals() {
        return {access_.of().conninfo, key_, options_, detail::postgres_connection::key::renewals};
    }

    // "postgres at db.example:5432, database app: FATAL: ...": where it is, and why the last
    // operation failed, if it did.
    std::string explain() { return access_.explain(); }

    // The second half of that alone.
    const std::string& last_message() const noexcept { return access_.words(); }

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

// ---- Its life

inline postgres_slot::postgres_slot(std::string conninfo, std::string key,
                                    postgres_slot_options options)
    : postgres_slot(std::move(conninfo), std::move(key), std::move(options), link::key::calls) {}

inline postgres_slot::postgres_slot(std::string conninfo, std::string key,
                                    postgres_slot_options options, link::key::purpose what_for)
    : options_(std::move(options)), key_(std::move(key)),
      access_({std::move(conninfo), what_for,
               detail::postgres_name_of(options_.table, options_.schema), options_.create_table,
               std::clamp(options_.patience, std::chrono::milliseconds(1),
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

// A question, twice where the connection may have been lost long ago.
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

// ---- Load and store

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
        detail::postgres_locked_row row(to, *of, key_, end);
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

// ---- Besides

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
    std::string words;
    if (const std::error_code error = watch->begin(end, words)) {
        access_.note(std::move(words));
        return unexpected{error};
    }
    return std::unique_ptr<slot_watch>(std::move(watch));
}

// ---- In a transaction of the caller's

inline result<slot_snapshot, std::error_code> postgres_slot::load_in(transaction& in) {
    if (invalid_) {
        return unexpected{invalid_};
    }
    return snapshot_of(access_.fresh(
        access_.run_in(in, &detail::postgres_sql::load, {{parameter::text, key_}})));
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
