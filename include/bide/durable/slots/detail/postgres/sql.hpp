// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_SQL_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_SQL_HPP

// The statements of a PostgreSQL slot.
//
// Each statement names the schema: no search_path decides which table it means. Each statement
// compares the table's oid: it refuses a table that was dropped and created again. Both are part of
// the statement, because a pooler may run it in any session.
//
// A pooler may run each transaction in another session. Therefore no statement sets anything for a
// session. A statement sets what it needs for its own transaction, by functions that it calls:
//
//   synchronous_commit   The server reads it when the transaction commits, after the statement. For
//                        every setting of the server, role or database, this commit is waited for.
//   client_min_messages  The server reads it at the commit. If no standby confirms the commit, the
//                        server reports that in a warning.
//   lock_timeout         The server reads it when it finds the row locked. The condition evaluates
//                        the subquery that sets it before that. The server gives up before the
//                        client does, and reports it.
//   idle_in_transaction_session_timeout
//                        The server reads it after each message. A client that stops with the row
//                        locked loses the lock before the waiting clients give up.

#include <bide/core/config.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// A schema and a table, each of letters, digits and underscores.
struct postgres_name {
    std::string schema{}; // empty: not named
    std::string table{};  // empty: the name is invalid

    std::string quoted() const { return '"' + schema + "\".\"" + table + '"'; }
    std::string plain() const { return schema + "." + table; }
};

inline bool postgres_is_identifier(std::string_view name) noexcept {
    for (const char c : name) {
        const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!is_letter && (c < '0' || c > '9')) {
            return false;
        }
    }
    return !name.empty() && name.size() <= 63 && (name[0] < '0' || name[0] > '9');
}

// Reads `name` or `schema.name`. If `schema` is not empty, `name` must not name one.
inline postgres_name postgres_name_of(std::string_view name, std::string_view schema) {
    const std::size_t dot = name.find('.');
    if (dot != name.npos && schema.empty()) {
        schema = name.substr(0, dot);
        name.remove_prefix(dot + 1);
        if (schema.empty()) {
            return {};
        }
    }
    if (!postgres_is_identifier(name) || (!schema.empty() && !postgres_is_identifier(schema))) {
        return {};
    }
    return {std::string(schema), std::string(name)};
}

// Returns the channel on which changes of a key are notified. If several keys share a channel, a
// watch also signals changes of the other keys.
inline std::string postgres_channel(std::string_view table, std::string_view key) {
    std::uint64_t hash = 14695981039346656037U; // FNV-1a
    const auto add = [&hash](char c) {
        hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
    };
    for (const char c : table) {
        add(c);
    }
    add('\0');
    for (const char c : key) {
        add(c);
    }
    std::string name = "bide_";
    for (int shift = 60; shift >= 0; shift -= 4) {
        name += "0123456789abcdef"[hash >> shift & 15];
    }
    return name;
}

struct postgres_sql {
    static constexpr std::string_view microseconds =
        "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

    static constexpr const char* now = "SELECT (extract(epoch FROM clock_timestamp()) * "
                                       "1000000)::bigint";

    // Parameter: $1 the key. One row: version, value (or nulls), the time, whether the server is a
    // standby, the table's oid.
    std::string load;
    // Parameters: $1 the key, $2 the version, $3 the value. If it was stored, one row: the version.
    std::string update;
    std::string update_in; // the same, inside the caller's transaction
    // Parameters: $1 the key, $2 the value. If it was stored, one row: the version.
    std::string insert;
    std::string insert_in; // the same, inside the caller's transaction
    std::string begin;     // begins a transaction for locked(), with its settings

    // `channel`: the channel to notify, or empty. `waits`: how long a statement waits for a locked
    // row. `keeps`: how long a process that stops keeps a row locked.
    postgres_sql(const postgres_name& table, std::int64_t oid, const std::string& channel,
                 std::chrono::milliseconds waits, std::chrono::milliseconds keeps)
        : table_(table.quoted()),
          is_same_("'" + table_ + "'::regclass::oid = " + std::to_string(oid)),
          notify_(channel.empty() ? "" : ", pg_notify('" + channel + "', '')") {
        const std::string most = std::to_string(waits.count());
        const std::string idle = std::to_string(keeps.count());
        const std::string durable = // keeps a stronger setting
            "set_config('synchronous_commit', CASE current_setting('synchronous_commit') "
            "WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)";
        const std::string heard = ", set_config('client_min_messages', 'warning', true)";
        const std::string bounded =
            "(SELECT set_config('lock_timeout', '" + most + "', true)) IS NOT NULL";
        const std::string returning = " RETURNING version, " + durable + notify_;
        const std::string first = "INSERT INTO " + table_ + " (key, version, value) SELECT $1, " +
                                  std::string(microseconds) + ", $2 WHERE " + is_same_;
        const std::string once = " ON CONFLICT (key) DO NOTHING" + returning;

        load = "SELECT l.version, l.value, " + std::string(microseconds) +
               ", pg_is_in_recovery(), '" + table_ +
               "'::regclass::oid::bigint FROM (SELECT 1) AS one LEFT JOIN " + table_ +
               " AS l ON l.key = $1";
        update_in = "UPDATE " + table_ +
                    " SET version = version + 1, value = $3 WHERE key = $1 AND version = $2 AND " +
                    is_same_;
        update = update_in + " AND " + bounded + returning + heard;
        update_in += returning;
        insert = first + " AND " + bounded + once + heard;
        insert_in = first + once;
        begin = "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT " + durable + heard +
                ", set_config('lock_timeout', '" + most +
                "', true), set_config('idle_in_transaction_session_timeout', '" + idle +
                "', true); ";
    }

    static std::string create(const postgres_name& table) {
        return "CREATE TABLE IF NOT EXISTS " + table.quoted() +
               " (key text PRIMARY KEY, version bigint NOT NULL, value bytea NOT NULL)"
               " WITH (fillfactor = 50)"; // leaves room on the page for the next version of a row
    }

    // Locks the row until the transaction ends. The statement has no parameters, so that one
    // message can carry several statements. Returns one row or none: version, value, the time.
    std::string locked(const std::string& key) const {
        return "SELECT version, value, " + std::string(microseconds) + " FROM " + table_ +
               " WHERE key = " + key + " AND " + is_same_ + " FOR UPDATE";
    }

    // Inserts a row of version 0 and locks it: other transactions that insert it wait for this one.
    std::string insert_and_lock(const std::string& key) const {
        return "INSERT INTO " + table_ + " (key, version, value) SELECT " + key +
               ", 0, ''::bytea WHERE " + is_same_ + " ON CONFLICT (key) DO NOTHING; " + locked(key);
    }

    std::string commit(const std::string& key, std::int64_t version,
                       const std::string& value) const {
        return "UPDATE " + table_ + " SET version = " + std::to_string(version) +
               ", value = " + value + " WHERE key = " + key + " RETURNING version" + notify_ +
               "; COMMIT";
    }

private:
    std::string table_;
    std::string is_same_;
    std::string notify_;
};

}}} // namespace bide::BIDE_ABI::detail

#endif
