// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_TABLE_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_TABLE_HPP

// The table of a PostgreSQL slot, and its statements.
//
// Two tables would be two locks. Therefore the table depends on the database alone, and never on the
// role, its rights or its search_path:
//
//   a schema is named    the table of that schema
//   none is named        the only table of that name with a slot's columns, in any schema;
//                        if there is none, `public`; if there are several, an error
//
// The search reads the system catalog. Every role may read it, and it also lists the tables that
// the role may not use. All slots of a process use the table that the first slot found, by its oid.
// Each new connection looks for the table again, and each statement compares the oid: it refuses a
// table that was dropped and created again.
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
#include <bide/durable/slots/detail/postgres/connection.hpp>
#include <bide/durable/slots/postgres_errors.hpp>
#include <bide/sync/mutex.hpp>

#include <algorithm>
#include <chrono>
#include <compare>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// A schema and a table, each of letters, digits and underscores.
struct postgres_name {
    std::string schema{}; // empty: not named
    std::string table{};  // empty: the name is invalid

    std::string quoted() const { return '"' + schema + "\".\"" + table + '"'; }
    std::string plain() const { return schema + "." + table; }
    // The name under which the table is created.
    postgres_name wanted() const { return {schema.empty() ? "public" : schema, table}; }
};

// Reads `name` or `schema.name`. If `schema` is not empty, `name` must not name one.
inline postgres_name postgres_name_of(std::string_view name, std::string_view schema) {
    constexpr std::string_view known =
        "_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    const auto is_good = [known](std::string_view text) {
        return !text.empty() && text.size() <= 63 && (text[0] < '0' || text[0] > '9') &&
               text.find_first_not_of(known) == text.npos;
    };
    const std::size_t dot = name.find('.');
    const bool has_dot = dot != name.npos && schema.empty();
    if (has_dot) {
        schema = name.substr(0, dot);
        name.remove_prefix(dot + 1);
    }
    return is_good(name) && (is_good(schema) || (schema.empty() && !has_dot))
               ? postgres_name{std::string(schema), std::string(name)}
               : postgres_name();
}

// Returns the channel on which changes of a key are notified. If several keys share a channel, a
// watch also signals changes of the other keys.
inline std::string postgres_channel(const std::string& table, const std::string& key) {
    std::uint64_t hash = 14695981039346656037U; // FNV-1a
    for (const char c : table + '\0' + key) {
        hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
    }
    std::string name = "bide_";
    for (int shift = 60; shift >= 0; shift -= 4) {
        name += "0123456789abcdef"[hash >> shift & 15];
    }
    return name;
}

struct postgres_found {
    std::int64_t oid = 0; // 0: none
    postgres_name name{};
};

// The statements of a table. A `key` and a `value` are SQL literals.
class postgres_sql {
public:
    static constexpr const char* microseconds =
        "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

    // A statement waits for a locked row for as long as `waits`. The server keeps the row locked for
    // a client that is silent for as long as `keeps`. `channel`: to notify, or empty.
    postgres_sql(const postgres_found& of, const std::string& channel,
                 std::chrono::milliseconds waits, std::chrono::milliseconds keeps)
        : table_(of.name.quoted()),
          is_same_("'" + table_ + "'::regclass::oid = " + std::to_string(of.oid)),
          notify_(channel.empty() ? "" : ", pg_notify('" + channel + "', '')"),
          waits_("set_config('lock_timeout', '" + std::to_string(waits.count()) + "', true)"),
          keeps_("set_config('idle_in_transaction_session_timeout', '" +
                 std::to_string(keeps.count()) + "', true)") {}

    static std::string create(const postgres_name& table) {
        return "CREATE TABLE IF NOT EXISTS " + table.quoted() +
               " (key text PRIMARY KEY, version bigint NOT NULL, value bytea NOT NULL)"
               " WITH (fillfactor = 50)"; // leaves room on the page for the next version of a row
    }

    // One row: version, value (or nulls), the time, whether the server is a standby, the table's
    // oid.
    std::string load(const std::string& key) const {
        return "SELECT l.version, l.value, " + std::string(microseconds) +
               ", pg_is_in_recovery(), '" + table_ +
               "'::regclass::oid::bigint FROM (SELECT 1) AS one LEFT JOIN " + table_ +
               " AS l ON l.key = " + key;
    }

    // One row, the new version; or none: the version is another one. Version 0: inserts the row.
    std::string exchange(const std::string& key, std::uint64_t version,
                         const std::string& value) const {
        const std::string condition = is_same_ + " AND (SELECT " + waits_ + ") IS NOT NULL";
        return (version == 0 ? "INSERT INTO " + table_ + " (key, version, value) SELECT " + key +
                                   ", " + microseconds + ", " + value + " WHERE " + condition +
                                   " ON CONFLICT (key) DO NOTHING"
                             : "UPDATE " + table_ + " SET version = version + 1, value = " + value +
                                   " WHERE key = " + key + " AND version = " +
                                   std::to_string(version) + " AND " + condition) +
               " RETURNING version, " + durable + notify_ + ", " + heard;
    }

    // Begins a transaction and locks the row. One row or none: version, value, the time.
    std::string lock(const std::string& key) const {
        return std::string("BEGIN ISOLATION LEVEL READ COMMITTED; SELECT ") + durable + ", " +
               heard + ", " + waits_ + ", " + keeps_ + "; " + locked(key);
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
    static constexpr const char* durable = // keeps a stronger setting
        "set_config('synchronous_commit', CASE current_setting('synchronous_commit') "
        "WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)";
    static constexpr const char* heard = "set_config('client_min_messages', 'warning', true)";

    std::string locked(const std::string& key) const {
        return "SELECT version, value, " + std::string(microseconds) + " FROM " + table_ +
               " WHERE key = " + key + " AND " + is_same_ + " FOR UPDATE";
    }

    std::string table_;
    std::string is_same_;
    std::string notify_;
    std::string waits_;
    std::string keeps_;
};

// The table that all slots of a process with the same connection string and table name share.
class postgres_table {
public:
    struct key {
        postgres_target target;
        std::string schema; // empty: none is named
        std::string table;
        friend auto operator<=>(const key&, const key&) = default;
    };

    explicit postgres_table(const key&) {}
    void leave() noexcept {}

    // Sets the table, if none is set. Returns the table that is set.
    postgres_found keep(const postgres_found& one = {}) {
        const std::lock_guard held(lock_);
        if (found_.oid == 0) {
            found_ = one;
        }
        return found_;
    }

private:
    mutex lock_;
    postgres_found found_{}; // under lock_
};

// ---- The search

inline std::string postgres_another(const postgres_name& name) {
    return "the table " + name.plain() +
           " is not the one that this process began with: it was dropped and made again, or "
           "moved; end all processes that use it, then start them anew";
}
inline std::string postgres_dropped(const postgres_name& name) {
    return "the table " + name.plain() +
           " was dropped while this process used it; end all processes that use it, then "
           "start them anew";
}

// Rows: one a table of the name: oid, schema, how many of a slot's columns it has; those with the
// most columns first.
inline std::string postgres_tables(const postgres_name& name) {
    return "SELECT c.oid::bigint, n.nspname::text, (SELECT count(*) FROM pg_catalog.pg_attribute "
           "AS a WHERE a.attrelid = c.oid AND NOT a.attisdropped AND a.attname IN ('key', "
           "'version', 'value')) AS columns FROM pg_catalog.pg_class AS c JOIN "
           "pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE c.relname = '" +
           name.table + "' AND ('" + name.schema +
           "' IN ('', n.nspname)) AND c.relkind IN "
           "('r', 'p') AND c.relpersistence <> 't' ORDER BY columns DESC, n.nspname";
}

// The result of a search: the table, or what is wrong.
struct postgres_search {
    postgres_found found{};
    std::error_code error{};
    std::string error_text{};
    bool is_missing = false; // there is none, and this process has not seen one: it may be created
};

// Judges the rows of a search for the table `name`, of which the process knows `known`.
inline postgres_search postgres_judge(const postgres_reply& rows, const postgres_name& name,
                                      const postgres_found& known) {
    postgres_found found;
    int count = 0;
    std::string schemas;
    bool is_in_the_way = false; // a table without a slot's columns has the wanted name
    for (int row = 0; row < rows.count(); ++row) {
        const std::string schema(rows.text(1, row));
        if (rows.int8(2, row) < 3) {
            is_in_the_way = is_in_the_way || schema == name.wanted().schema;
            continue;
        }
        found = {rows.int8(0, row), {schema, name.table}};
        schemas += (count++ == 0 ? "" : ", ") + schema;
    }
    const auto wrong = [](const char* state, std::string error_text) {
        return postgres_search{{}, postgres_error(state), std::move(error_text)};
    };
    if (count > 1) {
        return wrong("ZB002", "the schemas " + schemas + " have a table " + name.table +
                                  " each, and each would be another lock: name the schema in the "
                                  "slot's options, the same one for all");
    }
    if (count == 0 && known.oid != 0) {
        return wrong("42P01", postgres_dropped(known.name));
    }
    if (known.oid != 0 && (found.oid != known.oid || found.name.schema != known.name.schema)) {
        return wrong("ZB001", postgres_another(known.name));
    }
    if (count == 0 && is_in_the_way) {
        return wrong("ZB005",
                     "the table " + name.wanted().plain() + " lacks columns of a lock's table");
    }
    if (count == 0) {
        postgres_search none = wrong("42P01", "there is no table " + name.wanted().plain());
        none.is_missing = true;
        return none;
    }
    return {found};
}

// Returns what to do about an error: nothing, or a sentence that begins with a full stop.
inline std::string postgres_advice(const std::error_code& error, const postgres_name& table) {
    if (error == postgres_error("3F000")) {
        return ". Make the schema, or name another one in the slot's options, the same for all";
    }
    if (error != postgres_error("42501")) {
        return {};
    }
    return ". As a role that may, run: CREATE TABLE IF NOT EXISTS " + table.quoted() +
           " (key text PRIMARY KEY, version bigint NOT NULL, value bytea NOT NULL); GRANT USAGE "
           "ON SCHEMA " +
           table.schema + " and GRANT SELECT, INSERT, UPDATE ON " + table.quoted() +
           " to each role that locks. Or name another schema in the slot's options, the same for "
           "all";
}

}}} // namespace bide::BIDE_ABI::detail

#endif
