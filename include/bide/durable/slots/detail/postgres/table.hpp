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
#include <bide/durable/slots/detail/postgres/errors.hpp>
#include <bide/durable/slots/detail/postgres/sql.hpp>
#include <bide/durable/slots/detail/postgres/wire.hpp>
#include <bide/durable/slots/detail/server/connection_pool.hpp>
#include <bide/sync/mutex.hpp>

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

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

    // Whether the table is known and was looked for on this connection.
    bool is_verified(const postgres_connection& on) const {
        const std::lock_guard held(lock_);
        return found_.oid != 0 && std::count(verified_.begin(), verified_.end(), on.id()) != 0;
    }
    void verify(const postgres_connection& on) {
        const std::lock_guard held(lock_);
        verified_[next_++ % verified_.size()] = on.id();
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
    // Under lock_: the last connections that looked for the table, as many as can be open at a time
    // (those for calls, and one for renewals).
    std::array<postgres_connection::identity, most_call_connections + 1> verified_{};
    std::size_t next_ = 0;
};

// One search for the table. `Ask` runs a statement with parameters and returns a postgres_reply.
class postgres_table_search {
public:
    postgres_table_search(const postgres_name& name, const postgres_found& known)
        : name_(name), known_(known) {}

    // Searches. Changes nothing in the database. If the error is not the server's, error_text() has
    // the reason.
    template <class Ask> postgres_reply run(Ask ask) {
        using parameter = postgres_parameter;
        postgres_reply rows =
            ask(by_name(), {{parameter::text, name_.table}, {parameter::text, name_.schema}});
        if (!rows.error) {
            rows.error = judge(rows);
        }
        return rows;
    }

    const postgres_found& found() const noexcept { return found_; }
    const std::string& error_text() const noexcept { return error_text_; }

    // There is no such table, and this process has not seen one: it may be created.
    bool is_missing() const noexcept { return is_missing_; }

    // The name under which the table is created.
    static postgres_name wanted(const postgres_name& name) {
        return {name.schema.empty() ? "public" : name.schema, name.table};
    }

    static std::string another(const postgres_name& name) {
        return "the table " + name.plain() +
               " is not the one that this process began with: it was dropped and made again, or "
               "moved; end all processes that use it, then start them anew";
    }
    static std::string dropped(const postgres_name& name) {
        return "the table " + name.plain() +
               " was dropped while this process used it; end all processes that use it, then "
               "start them anew";
    }

private:
    // Parameters: $1 the table, $2 the schema or an empty string. Rows: one a table, those with a
    // slot's columns first: oid, schema, how many of a slot's columns it has.
    static const std::string& by_name() {
        static const std::string sql =
            "SELECT c.oid::bigint, n.nspname::text, (SELECT count(*) FROM pg_catalog.pg_attribute "
            "AS a WHERE a.attrelid = c.oid AND NOT a.attisdropped AND a.attname IN ('key', "
            "'version', 'value')) AS columns FROM pg_catalog.pg_class AS c JOIN "
            "pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE c.relname = $1 AND "
            "($2 = '' OR n.nspname = $2) AND c.relkind IN ('r', 'p') AND c.relpersistence <> 't' "
            "ORDER BY columns DESC, n.nspname";
        return sql;
    }

    std::error_code judge(const postgres_reply& rows) {
        int count = 0;
        std::string schemas;
        bool is_known_there = false;
        bool is_in_the_way = false; // a table without a slot's columns has the wanted name
        for (int row = 0; row < rows.count(); ++row) {
            const auto bytes = [&](int column) {
                return std::string_view(
                    ::PQgetvalue(rows.rows.get(), row, column),
                    static_cast<std::size_t>(::PQgetlength(rows.rows.get(), row, column)));
            };
            const std::string schema(bytes(1));
            if (postgres_int8::read(bytes(2).data()) < 3) {
                is_in_the_way = is_in_the_way || schema == wanted(name_).schema;
                continue;
            }
            const postgres_found one{postgres_int8::read(bytes(0).data()), {schema, name_.table}};
            is_known_there = is_known_there || one.oid == known_.oid;
            found_ = one;
            schemas += (count++ == 0 ? "" : ", ") + schema;
        }
        if (count > 1) {
            error_text_ = "the schemas " + schemas + " have a table " + name_.table +
                          " each, and each would be another lock: name the schema in the slot's "
                          "options, the same one for all";
            return postgres_error("ZB002");
        }
        if (known_.oid != 0 && count == 0) {
            error_text_ = dropped(known_.name);
            return postgres_error("42P01");
        }
        if (known_.oid != 0 && (!is_known_there || found_.name.schema != known_.name.schema)) {
            error_text_ = another(known_.name);
            return postgres_error("ZB001");
        }
        if (count == 0 && is_in_the_way) {
            error_text_ = "the table " + wanted(name_).plain() + " lacks columns of a lock's table";
            return postgres_error("ZB005");
        }
        if (count == 0) {
            is_missing_ = true;
            error_text_ = "there is no table " + wanted(name_).plain();
            return postgres_error("42P01");
        }
        return {};
    }

    const postgres_name name_;
    const postgres_found known_;
    postgres_found found_{};
    std::string error_text_{};
    bool is_missing_ = false;
};

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

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
