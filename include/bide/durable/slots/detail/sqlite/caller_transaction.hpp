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
#include <bide/durable/slots/detail/sqlite/loss_detector.hpp>
#include <bide/durable/slots/detail/sqlite/path.hpp>
#include <bide/durable/slots/detail/sqlite/statement.hpp>
#include <bide/durable/slots/detail/sqlite/text.hpp>

#include <string>
#include <string_view>
#include <system_error>

#include <sqlite3.h>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/stat.h>
#endif

namespace bide::inline BIDE_ABI {

/// A transaction on the caller's own connection to the slot's database. The caller has begun it,
/// with BEGIN IMMEDIATE at best.
struct sqlite_transaction {
    sqlite3* connection = nullptr; ///< the caller's connection
    std::string schema = "main";   ///< the name under which the database is attached
};

namespace detail {

class sqlite_caller_transaction {
public:
    sqlite_caller_transaction(sqlite_connection& link, sqlite_loss_detector& detector,
                              const sqlite_transaction& in)
        : link_(link), detector_(detector), in_(in) {}

    result<slot_snapshot, std::error_code> load_snapshot() {
        if (const std::error_code error = begin()) {
            return unexpected{error};
        }
        bool is_absent = false;
        int code = look_for_table(is_absent);
        if (is_absent) {
            return checked({});
        }
        sqlite_statement select;
        if (code == SQLITE_OK) {
            code = sqlite_of_table(select.prepare(in_.connection, sqlite_texts(table()).select));
        }
        sqlite_row row;
        if (code == SQLITE_OK) {
            code = sqlite_read(select, link_.of().key, nullptr, row);
        }
        if (code != SQLITE_ROW && code != SQLITE_DONE) {
            return unexpected{failed(code)};
        }
        return row.defect.empty() ? checked(std::move(row)) : unexpected{link_.corrupt(row)};
    }

    cas_result exchange(slot_version version, std::string_view value) {
        if (const std::error_code error = begin()) {
            return sqlite_failed(error);
        }
        const sqlite_texts texts(table());
        int code = SQLITE_OK;
        if (version == 0) {
            code = ::sqlite3_exec(in_.connection, texts.create.c_str(), nullptr, nullptr, nullptr);
        }
        if (code == SQLITE_OK) {
            bool is_absent = false;
            code = look_for_table(is_absent);
            if (is_absent) {
                return {cas_status::conflict, 0, {}, {}};
            }
        }
        sqlite_statement change;
        if (code == SQLITE_OK) {
            code = sqlite_of_table(
                change.prepare(in_.connection, version == 0 ? texts.insert : texts.update));
        }
        if (code != SQLITE_OK) {
            return sqlite_failed(failed(code));
        }
        cas_result r =
            sqlite_write(change, link_.of().key, version, detector_.known(), value, nullptr, code);
        if (r.status == cas_status::indeterminate) {
            r.status = cas_status::failed; // nothing is stored before the caller commits
        }
        if (r.error) {
            const std::error_code error = failed(code);
            r.error = r.error.category() == sqlite_category() ? error : r.error;
        }
        return r;
    }

private:
    std::error_code begin() {
        const auto bad = make_error_code(durable_errc::invalid_argument);
        if (in_.connection == nullptr || !is_sqlite_name(in_.schema) ||
            ::sqlite3_get_autocommit(in_.connection) != 0) {
            link_.say("no transaction has begun on the caller's connection");
            return bad;
        }
        const char* const name = ::sqlite3_db_filename(in_.connection, in_.schema.c_str());
        if (name == nullptr) {
            link_.say("the caller's connection has no database attached as " +
                      printable(in_.schema));
            return bad;
        }
#if defined(__unix__) || defined(__APPLE__)
        struct ::stat ours{};
        struct ::stat theirs{};
        if (::stat(link_.of().path.c_str(), &ours) != 0 || ::stat(name, &theirs) != 0 ||
            ours.st_dev != theirs.st_dev || ours.st_ino != theirs.st_ino) {
            link_.say("the caller's transaction is on another database: " + printable(name));
            return bad;
        }
#endif
        detector_.open_for_caller(name);
        detector_.load_known();
        return {};
    }

    // A transaction that only reads may have an old snapshot. Then the known version is later than
    // that of the row, but nothing is lost. A transaction that may write has a current snapshot.
    result<slot_snapshot, std::error_code> checked(sqlite_row row) {
        bool is_current = false;
#if SQLITE_VERSION_NUMBER >= 3034000
        is_current = ::sqlite3_txn_state(in_.connection, in_.schema.c_str()) == SQLITE_TXN_WRITE;
#endif
        if (!detector_.check(row)) {
            return unexpected{link_.corrupt(row)};
        }
        if (!is_current) {
            row.there.fell_back = row.there.lost_acknowledged = false;
        }
        return std::move(row.there);
    }

    std::string table() const { return '"' + in_.schema + "\".\"" + link_.of().table + '"'; }

    // Returns an SQLite code, or other_table.
    int look_for_table(bool& is_absent) const {
        const int code =
            sqlite_check_table(in_.connection, in_.schema.c_str(), link_.of().table.c_str());
        if (code == static_cast<int>(sqlite_slot_errc::other_table)) { // or the table is missing
            sqlite_statement look;
            is_absent = look.prepare(in_.connection, "SELECT 1 FROM " + table()) == SQLITE_ERROR;
        }
        return code;
    }

    std::error_code failed(int code) {
        const int extended = ::sqlite3_extended_errcode(in_.connection);
        const bool is_same = code > 0 && (extended & 0xff) == (code & 0xff);
        return link_.failed(is_same ? extended : code, in_.connection);
    }

    sqlite_connection& link_;
    sqlite_loss_detector& detector_;
    const sqlite_transaction& in_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
