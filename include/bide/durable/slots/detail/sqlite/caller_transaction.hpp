// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SQLITE_CALLER_TRANSACTION_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SQLITE_CALLER_TRANSACTION_HPP

// Reads and writes a slot's row inside a transaction of the caller.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/sqlite/connection.hpp>
#include <bide/durable/slots/detail/sqlite/error.hpp>
#include <bide/durable/slots/detail/sqlite/path.hpp>
#include <bide/durable/slots/detail/sqlite/statement.hpp>
#include <bide/durable/slots/detail/sqlite/version_file.hpp>
#include <bide/durable/slots/sqlite_types.hpp>

#include <string>
#include <string_view>
#include <system_error>

#include <sqlite3.h>

#include <sys/stat.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

class sqlite_caller_transaction {
public:
    sqlite_caller_transaction(sqlite_connection& link, const sqlite_transaction& in)
        : link_(link), in_(in) {}

    result<slot_snapshot, std::error_code> load_snapshot() {
        if (const std::error_code error = begin()) {
            return unexpected{error};
        }
        bool is_absent = false;
        sqlite_statement select;
        sqlite_row row;
        const int code =
            sqlite_in_order([&] { return look_for_table(is_absent); },
                            [&] {
                                return sqlite_of_table(
                                    select.prepare(in_.connection, sqlite_texts{table()}.select));
                            },
                            [&] { return sqlite_read(select, link_.of().key, nullptr, row); });
        if (!is_absent && code != SQLITE_ROW && code != SQLITE_DONE) {
            return unexpected{link_.failed(extended(code), in_.connection)};
        }
        if (const std::error_code error = link_.check(row)) {
            return unexpected{error};
        }
        // A transaction that only reads may have an old snapshot. Then the known version is later
        // than that of the row, but nothing is lost. A transaction that may write has a current
        // snapshot.
        bool is_current = false;
#if SQLITE_VERSION_NUMBER >= 3034000
        is_current = ::sqlite3_txn_state(in_.connection, in_.schema.c_str()) == SQLITE_TXN_WRITE;
#endif
        if (!is_current) {
            row.there.fell_back = row.there.lost_acknowledged = false;
        }
        return std::move(row.there);
    }

    cas_result exchange(slot_version version, std::string_view value) {
        if (const std::error_code error = begin()) {
            return sqlite_failed(error);
        }
        const sqlite_texts texts{table()};
        bool is_absent = false;
        slot_version stored = 0;
        sqlite_statement change;
        const int code = sqlite_in_order(
            [&] {
                return version != 0 ? SQLITE_OK
                                    : ::sqlite3_exec(in_.connection, texts.create.c_str(), nullptr,
                                                     nullptr, nullptr);
            },
            [&] { return look_for_table(is_absent); },
            [&] {
                return sqlite_of_table(
                    change.prepare(in_.connection, version == 0 ? texts.insert : texts.update));
            },
            [&] {
                return sqlite_write(change, link_.of().key, version, link_.detector().known(),
                                    value, nullptr, stored);
            });
        cas_result r =
            link_.result_of(is_absent ? SQLITE_DONE : extended(code), stored, in_.connection);
        if (r.status == cas_status::indeterminate) {
            r.status = cas_status::failed; // nothing is stored before the caller commits
        }
        return r;
    }

private:
    std::error_code begin() {
        const std::error_code bad = durable_errc::invalid_argument;
        if (in_.connection == nullptr || !is_sqlite_name(in_.schema) ||
            ::sqlite3_get_autocommit(in_.connection) != 0) {
            return link_.failed(bad, "no transaction has begun on the caller's connection");
        }
        const char* const name = ::sqlite3_db_filename(in_.connection, in_.schema.c_str());
        if (name == nullptr) {
            return link_.failed(bad, "the caller's connection has no database attached as " +
                                         in_.schema);
        }
        struct ::stat ours{};
        struct ::stat theirs{};
        if (::stat(link_.of().path.c_str(), &ours) != 0 || ::stat(name, &theirs) != 0 ||
            !is_same_file(ours, theirs)) {
            return link_.failed(bad, std::string("the caller's transaction is on another "
                                                 "database: ") +
                                         name);
        }
        if (!link_.detector().is_open()) {
            link_.detector().open(name);
        }
        link_.detector().load_known();
        return {};
    }

    std::string table() const {
        return '"' + in_.schema + "\".\"" + link_.of().options.table + '"';
    }

    // Returns an SQLite code, or other_table.
    int look_for_table(bool& is_absent) const {
        const int code = sqlite_check_table(in_.connection, in_.schema.c_str(),
                                            link_.of().options.table.c_str());
        if (code == sqlite_code(sqlite_slot_errc::other_table)) { // or the table is missing
            sqlite_statement look;
            is_absent = look.prepare(in_.connection, "SELECT 1 FROM " + table()) == SQLITE_ERROR;
        }
        return code;
    }

    // Returns the connection's extended code, if it is of the same kind.
    int extended(int code) const noexcept {
        const int more = ::sqlite3_extended_errcode(in_.connection);
        return code > 0 && sqlite_primary(more) == sqlite_primary(code) ? more : code;
    }

    sqlite_connection& link_;
    const sqlite_transaction& in_;
};

}}} // namespace bide::BIDE_ABI::detail

#endif
