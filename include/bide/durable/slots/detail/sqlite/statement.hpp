// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SQLITE_STATEMENT_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SQLITE_STATEMENT_HPP

// Reads and writes a slot's row, on the slot's connection or on the caller's.

#include <bide/core/config.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/file/posix_file.hpp>
#include <bide/durable/slots/detail/sqlite/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <sqlite3.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// How long one operation waits for other connections, and how long it pauses between attempts.
// SQLite's own pauses grow to 0.1 s; a waiter with long pauses loses to connections that try again
// at once. Short pauses of random length (0.1 to 4 ms) avoid that.
class sqlite_retry_time {
public:
    explicit sqlite_retry_time(std::chrono::milliseconds whole) noexcept : whole_(whole) {}

    void begin() noexcept { end_ = std::chrono::steady_clock::now() + whole_; }

    // Pauses once. False: the waiting time is over.
    bool wait() noexcept {
        const auto left = end_ - std::chrono::steady_clock::now();
        if (left <= left.zero()) {
            return false;
        }
        const auto moment = std::chrono::microseconds(shortest_us + random_.below(spread_us));
        std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(left, moment));
        return true;
    }

    static int on_busy(void* self, int) noexcept {
        return static_cast<sqlite_retry_time*>(self)->wait() ? 1 : 0;
    }

private:
    static constexpr std::int64_t shortest_us = 100;
    static constexpr std::int64_t spread_us = 3'900;

    std::chrono::milliseconds whole_;
    std::chrono::steady_clock::time_point end_{};
    random_numbers random_;
};

class sqlite_statement {
public:
    sqlite_statement() = default;
    sqlite_statement(const sqlite_statement&) = delete;
    sqlite_statement& operator=(const sqlite_statement&) = delete;
    ~sqlite_statement() { drop(); }

    // Returns an SQLite code.
    int prepare(sqlite3* db, const std::string& text, unsigned flags = 0) noexcept {
        drop();
        return ::sqlite3_prepare_v3(db, text.data(), static_cast<int>(text.size()), flags, &held_,
                                    nullptr);
    }
    void drop() noexcept { ::sqlite3_finalize(std::exchange(held_, nullptr)); }
    void abandon() noexcept { held_ = nullptr; }

    // Runs one step. Repeats it while the database is busy, until the waiting time is over. If
    // `retry_time` is nullptr, runs the step once; a statement in a transaction of the caller needs
    // that. Returns an SQLite code.
    int step(sqlite_retry_time* retry_time) noexcept {
        for (;;) {
            const int code = ::sqlite3_step(held_);
            if ((code & 0xff) != SQLITE_BUSY || retry_time == nullptr || !retry_time->wait()) {
                return code;
            }
            ::sqlite3_reset(held_);
        }
    }

    sqlite3_stmt* get() const noexcept { return held_; }
    int bind_key(std::string_view key) noexcept {
        return ::sqlite3_bind_text(held_, 1, key.data(), static_cast<int>(key.size()), nullptr);
    }
    // Ends the run of a statement, and forgets what was bound to it.
    void reset() noexcept {
        ::sqlite3_reset(held_);
        ::sqlite3_clear_bindings(held_);
    }

    // Stores a row; for an update, `before` is its version. Returns an SQLite code.
    int store(std::string_view key, slot_version version, std::string_view value,
              slot_version before, sqlite_retry_time* retry_time) noexcept {
        const int code = sqlite_in_order(
            [&] { return bind_key(key); },
            [&] { return ::sqlite3_bind_int64(held_, 2, static_cast<sqlite3_int64>(version)); },
            [&] {
                return value.empty()
                           ? ::sqlite3_bind_zeroblob(held_, 3, 0)
                           : ::sqlite3_bind_blob64(held_, 3, value.data(), value.size(), nullptr);
            },
            [&] {
                return before == 0
                           ? SQLITE_OK
                           : ::sqlite3_bind_int64(held_, 4, static_cast<sqlite3_int64>(before));
            },
            [&] { return step(retry_time); });
        reset();
        return code;
    }

private:
    sqlite3_stmt* held_ = nullptr;
};

// The statements for the table with this name, which is quoted.
struct sqlite_texts {
    std::string table;
    std::string create =
        "CREATE TABLE IF NOT EXISTS " + table +
        " (key TEXT NOT NULL PRIMARY KEY,"
        " version INTEGER NOT NULL CHECK (typeof(version) = 'integer' AND version > 0),"
        " value BLOB NOT NULL CHECK (typeof(value) = 'blob')) WITHOUT ROWID";
    std::string select = "SELECT version, value FROM " + table + " WHERE key = ?1";
    std::string insert = "INSERT INTO " + table +
                         " (key, version, value) VALUES (?1, ?2, ?3) ON CONFLICT (key) DO NOTHING";
    std::string repair = "UPDATE " + table + " SET version = ?2, value = ?3 WHERE key = ?1";
    std::string update = repair + " AND version = ?4";
};

// Maps the result of preparing a statement: SQLITE_ERROR means that the table is of another kind.
inline int sqlite_of_table(int code) noexcept {
    return code == SQLITE_ERROR ? sqlite_code(sqlite_slot_errc::other_table) : code;
}

// Checks that the table has the columns of a slot. Returns an SQLite code. Returns other_table if
// the columns differ or if there is no table.
inline int sqlite_check_table(sqlite3* db, const char* schema, const char* table) noexcept {
    for (const char* const column : {"key", "version", "value"}) { // fails for a view
        const int code = ::sqlite3_table_column_metadata(db, schema, table, column, nullptr,
                                                         nullptr, nullptr, nullptr, nullptr);
        if (code != SQLITE_OK) {
            return sqlite_of_table(code);
        }
    }
    return SQLITE_OK;
}

// What was read from the row.
struct sqlite_row {
    slot_snapshot there{};    // version 0: there is no row
    slot_version claimed = 0; // the version of a damaged row, if that is valid
    std::string defect{};     // why no slot can have stored the row; empty: it is good
};

inline constexpr slot_version sqlite_last_version = std::numeric_limits<std::int64_t>::max();

inline cas_result sqlite_failed(std::error_code error) noexcept {
    return {cas_status::failed, 0, {}, error};
}

// Copies the row to which the statement has stepped. Returns an SQLite code.
// Throws: std::bad_alloc.
inline int sqlite_copy_row(sqlite3_stmt* row, sqlite_row& to) {
    const auto is = [&](int column, const char* name, int type) {
        constexpr const char* types[] = {"INTEGER", "REAL", "TEXT", "BLOB", "NULL"}; // 1 to 5
        const int found = ::sqlite3_column_type(row, column);
        if (found != type) {
            to.defect = std::string("the ") + name + " is " + types[found - 1] + " and not " +
                        types[type - 1];
        }
        return found == type;
    };
    if (!is(0, "version", SQLITE_INTEGER)) {
        return SQLITE_ROW;
    }
    const std::int64_t version = ::sqlite3_column_int64(row, 0);
    if (version <= 0 || static_cast<slot_version>(version) + 1 >= sqlite_last_version) {
        to.defect = "the version is " + std::to_string(version);
        return SQLITE_ROW;
    }
    to.claimed = static_cast<slot_version>(version);
    if (!is(1, "value", SQLITE_BLOB)) {
        return SQLITE_ROW;
    }
    const void* const bytes = ::sqlite3_column_blob(row, 1);
    const int size = ::sqlite3_column_bytes(row, 1);
    if (bytes == nullptr && size != 0) {
        return SQLITE_NOMEM;
    }
    to.there.version = to.claimed;
    to.there.value.assign(static_cast<const char*>(bytes == nullptr ? "" : bytes),
                          static_cast<std::size_t>(size));
    return SQLITE_ROW;
}

// Reads the row. Returns an SQLite code; SQLITE_ROW and SQLITE_DONE mean success.
// Throws: std::bad_alloc.
inline int sqlite_read(sqlite_statement& select, std::string_view key,
                       sqlite_retry_time* retry_time, sqlite_row& to) {
    const struct scope {
        ~scope() { of.reset(); }
        sqlite_statement& of;
    } running{select};
    const int code = sqlite_in_order([&] { return select.bind_key(key); },
                                     [&] { return select.step(retry_time); });
    return code == SQLITE_ROW ? sqlite_copy_row(select.get(), to) : code;
}

// Returns the first version of a row: the time in nanoseconds since 1970. So the versions of a row
// that was deleted and made again do not repeat.
inline slot_version sqlite_first_version() noexcept {
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    const std::int64_t ns = std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
    return static_cast<slot_version>(std::max<std::int64_t>(ns, 1));
}

// Stores the value in the row with this version. `change` is the INSERT if the version is 0,
// otherwise the UPDATE. The new version is after the old one and after the last acknowledged
// version `known`. Returns an SQLite code; after SQLITE_DONE `stored` is the new version, or 0 if
// the row has another version.
inline int sqlite_write(sqlite_statement& change, std::string_view key, slot_version version,
                        slot_version known, std::string_view value, sqlite_retry_time* retry_time,
                        slot_version& stored) noexcept {
    stored = 0;
    const slot_version next =
        version >= sqlite_last_version
            ? version
            : std::max(version == 0 ? sqlite_first_version() : version + 1, known + 1);
    if (next >= sqlite_last_version) {
        return SQLITE_DONE;
    }
    const int code = change.store(key, next, value, version, retry_time);
    if (code == SQLITE_DONE && ::sqlite3_changes(::sqlite3_db_handle(change.get())) != 0) {
        stored = next;
    }
    return code;
}

}}} // namespace bide::BIDE_ABI::detail

#endif
