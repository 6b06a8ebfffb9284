#ifndef BIDE_DURABLE_SLOTS_POSTGRES_HPP
#define BIDE_DURABLE_SLOTS_POSTGRES_HPP

// A slot in a row of a PostgreSQL table (9.5 or later), for locks that several machines share. Needs
// libpq: include <libpq-fe.h>, link with -lpq.
//
//   bide_lock (key text primary key, version bigint not null, value bytea not null)
//
// A load is one SELECT and a compare-and-swap one UPDATE ... WHERE version = ..., each a transaction
// of its own. No session state and no prepared statements: it works behind a pooler that lends its
// connections by the transaction. The first version of a row is the server's time in microseconds,
// and each change adds one: what is deleted and made again has other versions, unless the server's
// clock was set back meanwhile.
//
// What was acknowledged is on the server's disk, and on its synchronous standbys if it has any,
// whatever `synchronous_commit` is set to elsewhere. It is not, and the same lock may have two
// holders,
//   - after a failover to a standby that was not synchronous;
//   - if the server runs with fsync = off.
// With several hosts in the connection string add target_session_attrs=read-write. A standby's
// answers are refused in any case.
//
// A statement gives up waiting for a row that somebody else's transaction has locked after half the
// patience: the answer is `failed` then, and certain. A connection that fails, or does not answer,
// after the statement was sent: `indeterminate`.
//
// Errors: SQLSTATE in postgres_category(), and last_message() has the server's words;
// std::errc::timed_out when there was no answer in time. No connection and no word of the server:
// 08001; connection lost: 08006; committed, but a synchronous standby did not confirm it: 01000.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
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

    // Make the table where it is missing. Once it is there, SELECT, INSERT and UPDATE are all the
    // rights that are needed.
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

    // Blocks: for a round trip, and what connecting takes.
    result<slot_snapshot, std::error_code> load();
    cas_result compare_exchange(slot_version version, std::string_view value);

    // The row is locked while `update` runs, which is called at most once for each transaction that
    // got so far: again after the server rolled one back. A process that stops in the middle keeps
    // all others waiting until the server ends its transaction, after a quarter of the patience.
    // Blocks: for two round trips, and for those who came before.
    cas_result update_locked(const slot_update& update);

    // The server's clock.
    result<std::int64_t, std::error_code> server_now();

    // Each watch has a connection of its own. Needs options.notify.
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

    // Of the last operation that failed, for people to read.
    const std::string& last_message() const noexcept { return link_.message(); }

private:
    using deadline_type = detail::postgres_deadline;
    using parameters = std::initializer_list<detail::postgres_parameter>;
    using reply = detail::postgres_reply;

    static constexpr int max_tries = 10; // that the server rolls back and asks to repeat

    deadline_type until() const noexcept { return std::chrono::steady_clock::now() + patience_; }
    std::error_code check(std::string_view value) const noexcept;

    template <class Once> reply repeat(deadline_type until, Once once);

    // A question to a connection that may have been lost long ago.
    static bool is_worth_another(const reply& answer) noexcept {
        return answer.is_lost && !answer.is_certain && answer.error != std::errc::timed_out;
    }
    reply create(deadline_type until);

    // Not what a standby says, which may be old.
    static reply fresh(reply row) {
        if (!row.error && row.bytes(3) != std::string_view("\0", 1)) {
            row.error = postgres_error("25006");
        }
        return row;
    }
    result<slot_snapshot, std::error_code> snapshot_of(const reply& row) const;
    static cas_result outcome_of(const reply& answer);
    template <class Run> cas_result exchange(slot_version version, std::string_view value, Run run);
    static cas_result failed(std::error_code error) { return {cas_status::failed, 0, {}, error}; }

    // Of a transaction of the caller's.
    reply run_in(transaction& in, const std::string& sql, parameters with) const;

    std::chrono::milliseconds patience_;
    std::size_t max_value_;
    bool creates_;
    bool notifies_;
    std::string key_;
    std::string listens_at_;
    detail::postgres_sql sql_;
    std::error_code invalid_{};
    detail::postgres_connection link_;
};

// ---- Its life

inline postgres_slot::postgres_slot(std::string conninfo, std::string key,
                                    postgres_slot_options options)
    : patience_(std::clamp(options.patience, std::chrono::milliseconds(1),
                           std::chrono::milliseconds(std::chrono::hours(24)))),
      max_value_(std::min(options.max_value, std::size_t(256) << 20)),
      creates_(options.create_table), notifies_(options.notify), key_(std::move(key)),
      listens_at_(options.listen_conninfo.empty() ? conninfo : std::move(options.listen_conninfo)),
      sql_(detail::postgres_identifier(options.table),
           options.notify ? detail::postgres_channel(options.table, key_) : std::string(),
           patience_),
      link_(std::move(conninfo)) {
    if (detail::postgres_identifier(options.table).empty() || key_.empty() || key_.size() > 1'024 ||
        key_.find('\0') != std::string::npos) {
        invalid_ = durable_errc::invalid_argument;
    }
}

inline std::error_code postgres_slot::check(std::string_view value) const noexcept {
    return invalid_                    ? invalid_
           : value.size() > max_value_ ? make_error_code(durable_errc::too_large)
                                       : std::error_code();
}

// Connects, and does it once more where the server rolled it back for nothing that we did.
template <class Once> detail::postgres_reply postgres_slot::repeat(deadline_type until, Once once) {
    for (int tries = 1;; ++tries) {
        if (const std::error_code error = link_.make_ready(until)) {
            return {nullptr, {}, error, true, true};
        }
        reply answer = once();
        if (answer.is("25006")) { // no longer the primary: the next time another one may be
            link_.drop();
        }
        if (answer.is("42P01") && creates_ && tries == 1 && link_.native() != nullptr) {
            reply made = create(until);
            if (made.error) {
                made.is_certain = true;
                return made;
            }
        } else if (!(answer.is("40001") || answer.is("40P01")) || !answer.is_certain ||
                   tries >= max_tries || std::chrono::steady_clock::now() >= until) {
            return answer;
        }
    }
}

// Several may make it at the same time, and all but one may be told so in one way or another.
inline detail::postgres_reply postgres_slot::create(deadline_type until) {
    reply answer = link_.run(sql_.create, {}, until);
    if (answer.is("23505") || answer.is("42P07") || answer.is("XX000")) {
        answer = link_.run(sql_.create, {}, until);
    }
    return answer;
}

inline std::error_code postgres_slot::create_table() {
    if (invalid_) {
        return invalid_;
    }
    const deadline_type end = until();
    const std::error_code error = link_.make_ready(end);
    return error ? error : create(end).error;
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
    const deadline_type end = until();
    const auto once = [&] {
        return fresh(link_.run(sql_.load, {{detail::postgres_parameter::text, key_}}, end));
    };
    reply row = repeat(end, once);
    if (is_worth_another(row)) {
        row = repeat(end, once);
    }
    return snapshot_of(row);
}

template <class Run>
cas_result postgres_slot::exchange(slot_version version, std::string_view value, Run run) {
    using parameter = detail::postgres_parameter;
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
    const deadline_type end = until();
    return exchange(version, value, [&](bool is_first, parameters with) {
        return repeat(end,
                      [&] { return link_.run(is_first ? sql_.insert : sql_.update, with, end); });
    });
}

inline cas_result postgres_slot::update_locked(const slot_update& update) {
    if (invalid_) {
        return failed(invalid_);
    }
    const deadline_type end = until();
    cas_result outcome;
    const reply last = repeat(end, [&] {
        detail::postgres_locked_row row(link_, sql_, key_, end);
        reply answer = row.lock();
        if (answer.error || row.error()) {
            outcome = failed(answer.error ? answer.error : row.error());
            return answer;
        }
        const std::optional<std::string> value = update(row.before());
        if (!value || value->size() > max_value_) {
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
    const deadline_type end = until();
    const auto once = [&] { return link_.run(sql_.now, {}, end); };
    reply row = repeat(end, once);
    if (is_worth_another(row)) {
        row = repeat(end, once);
    }
    if (row.error) {
        return unexpected{row.error};
    }
    return row.int8(0) / 1'000;
}

inline result<std::unique_ptr<slot_watch>, std::error_code> postgres_slot::watch() {
    if (invalid_ || !notifies_) {
        return unexpected{invalid_ ? invalid_
                                   : std::make_error_code(std::errc::operation_not_supported)};
    }
    auto watch = std::make_unique<detail::postgres_watch>(listens_at_);
    if (const std::error_code error = watch->begin(sql_.listen, until())) {
        return unexpected{error};
    }
    return std::unique_ptr<slot_watch>(std::move(watch));
}

// ---- In a transaction of the caller's

inline detail::postgres_reply postgres_slot::run_in(transaction& in, const std::string& sql,
                                                    parameters with) const {
    reply answer;
    const PGTransactionStatusType status = ::PQtransactionStatus(&in);
    if (invalid_ || status == PQTRANS_IDLE || status == PQTRANS_ACTIVE) {
        answer.error = invalid_ ? invalid_ : postgres_error("25001");
        return answer;
    }
    const detail::postgres_arguments a(with);
    answer.rows.reset(::PQexecParams(&in, sql.c_str(), a.count, a.types.data(), a.values.data(),
                                     a.lengths.data(), a.formats.data(), 1));
    if (::PQresultStatus(answer.rows.get()) != PGRES_TUPLES_OK) {
        answer.error = detail::postgres_error_of(answer.rows.get());
    }
    return answer; // certain: nothing of a transaction that failed or was lost is ever done
}

inline result<slot_snapshot, std::error_code> postgres_slot::load_in(transaction& in) {
    return snapshot_of(fresh(run_in(in, sql_.load, {{detail::postgres_parameter::text, key_}})));
}

inline cas_result postgres_slot::compare_exchange_in(transaction& in, slot_version version,
                                                     std::string_view value) {
    if (const std::error_code error = check(value)) {
        return failed(error);
    }
    return exchange(version, value, [&](bool is_first, parameters with) {
        return run_in(in, is_first ? sql_.insert_in : sql_.update_in, with);
    });
}

} // namespace bide::inline BIDE_ABI

#endif
