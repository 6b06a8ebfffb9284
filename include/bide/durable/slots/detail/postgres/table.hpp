// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_TABLE_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_TABLE_HPP

// Finds a slot's table. Two tables would be two locks. Therefore the result depends on the database
// alone, and never on the role, its rights or its search_path:
//
//   a schema is named    the table of that schema
//   none is named        the only table of that name with a slot's columns, in any schema;
//                        if there is none, `public`; if there are several, an error
//
// The search reads the system catalog. Every role may read it, and it also lists the tables that
// the role may not use.
//
// All slots of a process use the table that the first slot found, by its oid. Each new connection
// looks for the table again, and each statement compares the oid.

#include <bide/core/config.hpp>
#include <bide/durable/slots/detail/postgres/connection.hpp>
#include <bide/durable/slots/detail/postgres/sql.hpp>
#include <bide/durable/slots/detail/postgres/wire.hpp>
#include <bide/durable/slots/detail/server/shared_connections.hpp>
#include <bide/durable/slots/postgres_errors.hpp>
#include <bide/sync/mutex.hpp>

#include <compare>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

struct postgres_found {
    std::int64_t oid = 0; // 0: none
    postgres_name name{};
};

// The table that all slots of a process with the same connection string and table name share.
class postgres_table {
public:
    struct key {
        std::string conninfo;
        std::string environment;
        std::string schema; // empty: none is named
        std::string table;
        friend auto operator<=>(const key&, const key&) = default;
    };

    explicit postgres_table(const key&) {}
    void leave() noexcept {}

    postgres_found found() const {
        const std::lock_guard held(lock_);
        return found_;
    }

    // Sets the table. If one is set already, does nothing.
    void keep(const postgres_found& one) {
        const std::lock_guard held(lock_);
        if (found_.oid == 0) {
            found_ = one;
        }
    }

private:
    mutable mutex lock_;
    postgres_found found_{}; // under lock_
};

// The name under which the table is created.
inline postgres_name postgres_wanted(const postgres_name& name) {
    return {name.schema.empty() ? "public" : name.schema, name.table};
}
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

// Parameters: $1 the table, $2 the schema or an empty string. Rows: one a table, those with a
// slot's columns first: oid, schema, how many of a slot's columns it has.
inline constexpr const char* postgres_tables_by_name =
    "SELECT c.oid::bigint, n.nspname::text, (SELECT count(*) FROM pg_catalog.pg_attribute "
    "AS a WHERE a.attrelid = c.oid AND NOT a.attisdropped AND a.attname IN ('key', "
    "'version', 'value')) AS columns FROM pg_catalog.pg_class AS c JOIN "
    "pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE c.relname = $1 AND "
    "($2 = '' OR n.nspname = $2) AND c.relkind IN ('r', 'p') AND c.relpersistence <> 't' "
    "ORDER BY columns DESC, n.nspname";

// The result of a search for the table: the table, or what is wrong.
struct postgres_search {
    postgres_found found{};
    std::error_code error{};
    std::string error_text{};
    bool is_missing = false; // there is none, and this process has not seen one: it may be created
};

// Judges the rows of a search for the table `name`, of which the process knows `known`.
inline postgres_search postgres_judge(const postgres_reply& rows, const postgres_name& name,
                                      const postgres_found& known) {
    postgres_search one;
    int count = 0;
    std::string schemas;
    bool is_known_there = false;
    bool is_in_the_way = false; // a table without a slot's columns has the wanted name
    for (int row = 0; row < rows.count(); ++row) {
        const std::string schema(rows.bytes(1, row));
        if (rows.int8(2, row) < 3) {
            is_in_the_way = is_in_the_way || schema == postgres_wanted(name).schema;
            continue;
        }
        one.found = {rows.int8(0, row), {schema, name.table}};
        is_known_there = is_known_there || one.found.oid == known.oid;
        schemas += (count++ == 0 ? "" : ", ") + schema;
    }
    const auto wrong = [&one](const char* state, std::string error_text) {
        one.error = postgres_error(state);
        one.error_text = std::move(error_text);
    };
    if (count > 1) {
        wrong("ZB002", "the schemas " + schemas + " have a table " + name.table +
                           " each, and each would be another lock: name the schema in the slot's "
                           "options, the same one for all");
    } else if (known.oid != 0 && count == 0) {
        wrong("42P01", postgres_dropped(known.name));
    } else if (known.oid != 0 && (!is_known_there || one.found.name.schema != known.name.schema)) {
        wrong("ZB001", postgres_another(known.name));
    } else if (count == 0 && is_in_the_way) {
        wrong("ZB005",
              "the table " + postgres_wanted(name).plain() + " lacks columns of a lock's table");
    } else if (count == 0) {
        one.is_missing = true;
        wrong("42P01", "there is no table " + postgres_wanted(name).plain());
    }
    return one;
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
