#ifndef BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_SQL_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_SQL_HPP

// The statements of a PostgreSQL slot.
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
#include <cstdint>
#include <string>
#include <string_view>

namespace bide::inline BIDE_ABI {
namespace detail {

// `name` or `schema.name`, each of letters, digits and underscores; in quotes. Nothing: it is not.
inline std::string postgres_identifier(std::string_view name) {
    std::string quoted = "\"";
    std::size_t length = 0;
    bool has_schema = false;
    for (const char c : name) {
        const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (c == '.' && length > 0 && !has_schema) {
            quoted += "\".\"";
            length = 0;
            has_schema = true;
        } else if ((is_letter || (c >= '0' && c <= '9' && length > 0)) && length < 63) {
            quoted += c;
            ++length;
        } else {
            return {};
        }
    }
    return length == 0 ? std::string() : quoted + '"';
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

    // $1: the key. One row: version, value (or nulls), the time, whether this is a standby.
    std::string load;
    // $1: the key, $2: the version, $3: the value. A row if it was stored: the version.
    std::string update;
    std::string update_in; // in a transaction that is somebody else's
    // $1: the key, $2: the value. The same.
    std::string insert;
    std::string insert_in;
    std::string now;
    std::string create;
    std::string listen;
    std::string begin; // a transaction for locked(), with its settings

    // `table` and `channel` are not to be quoted any more; no channel: nobody is told.
    postgres_sql(const std::string& table, const std::string& channel,
                 std::chrono::milliseconds patience)
        : table_(table), notify_(channel.empty() ? "" : ", pg_notify('" + channel + "', '')") {
        const std::string most = std::to_string(patience.count() / 2 + 1);
        const std::string idle = std::to_string(patience.count() / 4 + 1);
        const std::string durable = // stronger than what is needed stays
            "set_config('synchronous_commit', CASE current_setting('synchronous_commit') "
            "WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)";
        const std::string heard = ", set_config('client_min_messages', 'warning', true)";
        const std::string bounded =
            "(SELECT set_config('lock_timeout', '" + most + "', true)) IS NOT NULL";
        const std::string returning = " RETURNING version, " + durable + notify_;
        const std::string first = "INSERT INTO " + table + " (key, version, value) SELECT $1, " +
                                  std::string(microseconds) + ", $2";
        const std::string once = " ON CONFLICT (key) DO NOTHING" + returning;

        load = "SELECT l.version, l.value, " + std::string(microseconds) +
               ", pg_is_in_recovery() FROM (SELECT 1) AS one LEFT JOIN " + table +
               " AS l ON l.key = $1";
        now = "SELECT " + std::string(microseconds);
        update_in = "UPDATE " + table +
                    " SET version = version + 1, value = $3 WHERE key = $1 AND version = $2";
        update = update_in + " AND " + bounded + returning + heard;
        update_in += returning;
        insert = first + " WHERE " + bounded + once + heard;
        insert_in = first + once;
        create = "CREATE TABLE IF NOT EXISTS " + table +
                 " (key text PRIMARY KEY, version bigint NOT NULL, value bytea NOT NULL)"
                 " WITH (fillfactor = 50)"; // room for the next version beside the last
        listen = "LISTEN " + channel;
        begin = "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT " + durable + heard +
                ", set_config('lock_timeout', '" + most +
                "', true), set_config('idle_in_transaction_session_timeout', '" + idle +
                "', true); ";
    }

    // The row is this transaction's until it ends. Text, as the rest: it goes in one piece with
    // others. One row or none: version, value, the time.
    std::string locked(const std::string& key) const {
        return "SELECT version, value, " + std::string(microseconds) + " FROM " + table_ +
               " WHERE key = " + key + " FOR UPDATE";
    }

    // There is none: one of version 0 keeps its place, until the transaction ends.
    std::string place(const std::string& key) const {
        return "INSERT INTO " + table_ + " (key, version, value) VALUES (" + key +
               ", 0, '') ON CONFLICT (key) DO NOTHING; " + locked(key);
    }

    std::string commit(const std::string& key, std::int64_t version,
                       const std::string& value) const {
        return "UPDATE " + table_ + " SET version = " + std::to_string(version) +
               ", value = " + value + " WHERE key = " + key + " RETURNING version" + notify_ +
               "; COMMIT";
    }

private:
    std::string table_;
    std::string notify_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
