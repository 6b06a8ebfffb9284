#ifndef BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_TABLE_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_TABLE_HPP

// Which table a slot means. Two tables would be two locks, so the answer depends on the database
// alone, and never on the role, its rights or its search_path:
//
//   a schema is named    the table of that schema
//   none is named        the only table of that name with a slot's columns, whatever its schema;
//                        in `public`, where there is none yet; an error, where there are several
//
// An earlier version made its table where the search_path said: one such table is found, and two
// are refused. The system catalog, which every role may read, lists tables that the role may not
// use, too.
//
// All slots of a process keep to the table that the first of them found, by its oid. It is looked
// for again on each new connection, and each statement compares the oid.

#include <bide/core/config.hpp>
#include <bide/durable/slots/detail/connection_pool.hpp>
#include <bide/durable/slots/detail/postgres_connection.hpp>
#include <bide/durable/slots/detail/postgres_errors.hpp>
#include <bide/durable/slots/detail/postgres_sql.hpp>
#include <bide/durable/slots/detail/postgres_wire.hpp>
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

// What all slots of a process know of it.
class postgres_table {
public:
    struct key {
        std::string conninfo;
        std::string environment;
        std::string schema; // nothing: none is named
        std::string table;
        friend auto operator<=>(const key&, const key&) = default;
    };

    explicit postgres_table(const key&) {}
    void leave() noexcept {}

    postgres_found found() const {
        const std::lock_guard held(lock_);
        return found_;
    }

    // It was found, and looked for on this connection.
    bool is_verified(const postgres_connection& on) const {
        const std::lock_guard held(lock_);
        return found_.oid != 0 && std::count(verified_.begin(), verified_.end(), on.id()) != 0;
    }
    void verify(const postgres_connection& on) {
        const std::lock_guard held(lock_);
        verified_[next_++ % verified_.size()] = on.id();
    }

    // The first one stays.
    void keep(const postgres_found& one) {
        const std::lock_guard held(lock_);
        if (found_.oid == 0) {
            found_ = one;
        }
    }

private:
    mutable mutex lock_;
    postgres_found found_{}; // under lock_
    // Under lock_: the latest ones, as many as can be open at a time.
    std::array<postgres_connection::identity, most_call_connections + 1> verified_{};
    std::size_t next_ = 0;
};

// A search for it. `Ask` runs a statement with parameters and answers a postgres_reply.
class postgres_table_search {
public:
    postgres_table_search(const postgres_name& name, const postgres_found& known)
        : name_(name), known_(known) {}

    // Nothing was done if this fails: what is wrong, and why in words where the server has none.
    template <class Ask> postgres_reply run(Ask ask) {
        using parameter = postgres_parameter;
        postgres_reply rows = ask(by_name(), {{parameter::text, name_.table},
                                              {parameter::text, name_.schema}});
        if (!rows.error) {
            rows.error = judge(rows);
        }
        return rows;
    }

    const postgres_found& found() const noexcept { return found_; }
    const std::string& words() const noexcept { return words_; }

    // There is none, and there never was one: it may be made, here.
    bool is_missing() const noexcept { return is_missing_; }

    // Where it would be made.
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
    // $1: the table, $2: the schema, or nothing. A row for each, those with a slot's columns first:
    // its oid, its schema, how many of those columns it has.
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
        bool is_in_the_way = false; // without a slot's columns, where it would be made
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
            words_ = "the schemas " + schemas + " have a table " + name_.table +
                     " each, and each would be another lock: name the schema in the slot's "
                     "options, the same one for all";
            return postgres_error("ZB002");
        }
        if (known_.oid != 0 && count == 0) {
            words_ = dropped(known_.name);
            return postgres_error("42P01");
        }
        if (known_.oid != 0 && (!is_known_there || found_.name.schema != known_.name.schema)) {
            words_ = another(known_.name);
            return postgres_error("ZB001");
        }
        if (count == 0 && is_in_the_way) {
            words_ = "the table " + wanted(name_).plain() + " lacks columns of a lock's table";
            return postgres_error("ZB005");
        }
        if (count == 0) {
            is_missing_ = true;
            words_ = "there is no table " + wanted(name_).plain();
            return postgres_error("42P01");
        }
        return {};
    }

    const postgres_name name_;
    const postgres_found known_;
    postgres_found found_{};
    std::string words_{};
    bool is_missing_ = false;
};

// What a role lacks, and what gives it that.
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
