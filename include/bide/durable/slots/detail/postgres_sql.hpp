#ifndef BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_SQL_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_SQL_HPP

// The statements of a PostgreSQL slot.
//
// Each names the schema, so that no search_path decides which table it is, and compares the table's
// oid: a table that was dropped and made again is not taken for the one that it was. Both are part
// of the statement, as a pooler may give it to any session.
//
// A pooler may give each transaction to another session, so nothing is ever set for a session. What
// a statement needs it sets for its own transaction, by functions that it calls:
//
//   synchronous_commit   looked at when the transaction commits, after the statement: whatever the
//                        server, the role or the database says, this commit is waited for
//   client_min_messages  looked at then, too: that no standby has it is said in a warning
//   lock_timeout         looked at when a row turns out to be locked, after the subquery that the
//                        condition needs first: the server gives up before we do, and says so
//   idle_in_transaction_session_timeout
//                        looked at after each message: who stops with the row locked loses it before
//                        the others give up

#include <bide/core/config.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace bide::inline BIDE_ABI {
namespace detail {

// A schema and a table, each of letters, digits and underscores.
struct postgres_name {
    std::string schema{}; // nothing: it is not said
    std::string table{};  // nothing: the name is no name

    // In quotes.
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

// Of `name` or `schema.name`, with a schema that is said elsewhere, or nowhere.
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

// The channel of a key's changes: others may share it, which wakes somebody for nothing.
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

    // $1: the key. One row: version, value (or nulls), the time, whether this is a standby, the
    // table's oid.
    std::string load;
    // $1: the key, $2: the version, $3: the value. A row if it was stored: the version.
    std::string update;
    std::string update_in; // in a transaction that is somebody else's
    // $1: the key, $2: the value. The same.
    std::string insert;
    std::string insert_in;
    std::string begin; // a transaction for locked(), with its settings

    // `channel`: nothing, and changes are not told. A row that is locked is waited for so long; a
    // row is kept locked so long by a process that stops.
    postgres_sql(const postgres_name& table, std::int64_t oid, const std::string& channel,
                 std::chrono::milliseconds waits, std::chrono::milliseconds keeps)
        : table_(table.quoted()),
          is_same_("'" + table_ + "'::regclass::oid = " + std::to_string(oid)),
          notify_(channel.empty() ? "" : ", pg_notify('" + channel + "', '')") {
        const std::string most = std::to_string(waits.count());
        const std::string idle = std::to_string(keeps.count());
        const std::string durable = // stronger than what is needed stays
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
               " WITH (fillfactor = 50)"; // room for the next version beside the last
    }

    // The row is this transaction's until it ends. Text, as the rest: it goes in one piece with
    // others. One row or none: version, value, the time.
    std::string locked(const std::string& key) const {
        return "SELECT version, value, " + std::string(microseconds) + " FROM " + table_ +
               " WHERE key = " + key + " AND " + is_same_ + " FOR UPDATE";
    }

    // There is none: one of version 0 keeps its place, until the transaction ends.
    std::string place(const std::string& key) const {
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

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
