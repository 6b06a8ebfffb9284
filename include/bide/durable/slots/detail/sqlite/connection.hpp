// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SQLITE_CONNECTION_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SQLITE_CONNECTION_HPP

// A slot's own connection. It opens the database on demand, in a mode that keeps what is committed.
// It records SQLite's text about the last failure.

#include <bide/core/config.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/server/text.hpp>
#include <bide/durable/slots/detail/sqlite/error.hpp>
#include <bide/durable/slots/detail/sqlite/path.hpp>
#include <bide/durable/slots/detail/sqlite/process.hpp>
#include <bide/durable/slots/detail/sqlite/statement.hpp>
#include <bide/durable/slots/detail/sqlite/version_file.hpp>
#include <bide/durable/slots/sqlite_types.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <sqlite3.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

class sqlite_connection final : public sqlite_process::member {
public:
    struct settings {
        std::string path;
        std::string key;
        sqlite_slot_options options;
        bool is_synced = true;
    };

    explicit sqlite_connection(settings chosen)
        : settings_(std::move(chosen)), texts_{"main.\"" + settings_.options.table + '"'},
          retry_time_(settings_.options.retry_time),
          detector_(settings_.options.table, settings_.key, settings_.is_synced) {}
    ~sqlite_connection() override {
        if (leave_list()) { // leaves everything open and never frees it
            select_.abandon();
            insert_.abandon();
            update_.abandon();
        } else {
            close();
        }
    }

    const settings& of() const noexcept { return settings_; }

    // Begins an operation. Opens the database, unless the file that the path names is open already.
    // Throws: std::bad_alloc.
    std::error_code begin();

    // Starts the waiting time again.
    void renew_retry_time() noexcept { retry_time_.begin(); }

    sqlite_loss_detector& detector() noexcept { return detector_; }

    // Read the row, and write it.
    // Throws: std::bad_alloc.
    std::error_code read(sqlite_row& row);
    cas_result write(slot_version version, std::string_view value);
    // Overwrites a damaged row. Requires a transaction.
    cas_result repair(const sqlite_row& damaged, std::string_view value);
    // Commits the transaction with this result.
    cas_result commit(cas_result written, std::string_view value);
    // Returns the result of a write or a commit with this code on a connection. Version 0 means a
    // conflict.
    cas_result result_of(int code, slot_version stored, sqlite3* on);

    // Returns the error for an SQLite code or a negative sqlite_slot_errc, and records its text.
    // Throws: std::bad_alloc.
    std::error_code failed(int code) { return failed(last_ = code, db_); }
    std::error_code failed(int code, sqlite3* on);
    // SQLite's code of the last failure in this operation.
    int last_code() const noexcept { return last_; }
    // Compares the row with what the detector knows. Fails if the row is damaged.
    std::error_code check(sqlite_row& row) {
        if (row.defect.empty()) {
            detector_.check(row);
        }
        return row.defect.empty() ? std::error_code()
                                  : failed(durable_errc::corrupt_record, row.defect);
    }
    // Records the text of an error that is not SQLite's.
    std::error_code failed(std::error_code error, std::string words) {
        said_ = std::move(words);
        return error;
    }
    std::string explain() const;

    // Runs a statement without parameters. Stores the first column of its first row in `first`.
    // Throws: std::bad_alloc, if `first` is not null.
    int execute(const std::string& text, std::string* first = nullptr);

    // Rolls back a transaction that was not committed.
    void roll_back() noexcept;

    // Ends an operation. After an error other than a busy or full database, closes the connection.
    void end() noexcept {
        if (!sqlite_is_harmless(last_)) {
            close();
        }
    }

    void close() noexcept;
    void close_inherited() noexcept override;

    static constexpr bool is_wal_safe(int version) noexcept {
        return version >= 3'051'003 || (version >= 3'050'007 && version < 3'051'000) ||
               (version >= 3'044'006 && version < 3'045'000);
    }

private:
    std::error_code open();
    int set_up();
    int choose_journal(sqlite_journal& taken);
    int become(sqlite_journal wanted);
    int synchronize(int level);
    bool has_moved() const noexcept;

    settings settings_;
    const sqlite_texts texts_;
    sqlite_retry_time retry_time_;
    sqlite_loss_detector detector_;
    sqlite3* db_ = nullptr;
    sqlite_statement select_;
    sqlite_statement insert_;
    sqlite_statement update_;
    int last_ = SQLITE_OK;
    std::string said_; // about the last failure
};

// ---- opening

inline std::error_code sqlite_connection::begin() {
    last_ = SQLITE_OK;
    retry_time_.begin();
    if (has_moved()) {
        close();
    }
    if (update_.get() != nullptr) {
        return {};
    }
    close();
    if (const std::error_code error = open()) {
        close();
        return error;
    }
    if (const char* const full = ::sqlite3_db_filename(db_, "main");
        full != nullptr && *full != 0) {
        settings_.path = full; // the path with its symbolic links resolved
    }
    detector_.open(settings_.path);
    return {};
}

inline std::error_code sqlite_connection::open() {
    if (::sqlite3_threadsafe() == 0) {
        return failed(SQLITE_MISUSE);
    }
    if (const std::error_code error = check_sqlite_path(settings_.path.c_str())) {
        return failed(error, sqlite_path_error_text(error));
    }
    int code = ::sqlite3_open_v2(settings_.path.c_str(), &db_,
                                 SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
                                     SQLITE_OPEN_PRIVATECACHE,
                                 nullptr);
    if (db_ != nullptr) {
        ::sqlite3_extended_result_codes(db_, 1);
    }
    if (code == SQLITE_OK) {
        code = set_up();
    }
    return code == SQLITE_OK ? std::error_code() : failed(code);
}

// Returns an SQLite code or a negative sqlite_slot_errc.
inline int sqlite_connection::set_up() {
    constexpr int normal = 1;
    constexpr int full = 2;
    constexpr int extra = 3; // levels of PRAGMA synchronous
    constexpr unsigned kept = SQLITE_PREPARE_PERSISTENT;
    sqlite_journal taken = settings_.options.journal;
    return sqlite_in_order(
        [&] { return ::sqlite3_busy_handler(db_, &sqlite_retry_time::on_busy, &retry_time_); },
        [&] { return execute("PRAGMA mmap_size=0"); }, // a disk error must be a code, not a signal
        [&] { return choose_journal(taken); },
        [&] {
            return synchronize(!settings_.is_synced           ? normal
                               : taken == sqlite_journal::wal ? full
                                                              : extra);
        },
        [&] { return execute(texts_.create); },
        [&] { return sqlite_check_table(db_, "main", settings_.options.table.c_str()); },
        [&] { return sqlite_of_table(select_.prepare(db_, texts_.select, kept)); },
        [&] { return sqlite_of_table(insert_.prepare(db_, texts_.insert, kept)); },
        [&] { return sqlite_of_table(update_.prepare(db_, texts_.update, kept)); });
}

// `taken` is the mode asked for, and then the mode in use.
inline int sqlite_connection::choose_journal(sqlite_journal& taken) {
    if (taken != sqlite_journal::automatic) {
        return become(taken);
    }
    // The page count is read first: a program that makes a database sets the mode before it adds
    // pages.
    std::string pages;
    std::string mode;
    if (const int code = sqlite_in_order([&] { return execute("PRAGMA page_count", &pages); },
                                         [&] { return execute("PRAGMA journal_mode", &mode); });
        code != SQLITE_OK) {
        return code;
    }
    const bool is_safe = is_wal_safe(::sqlite3_libversion_number());
    if (mode == "wal") {
        taken = sqlite_journal::wal;
        return is_safe ? SQLITE_OK : sqlite_code(sqlite_slot_errc::unsafe_wal);
    }
    if (pages == "0" && is_safe && become(sqlite_journal::wal) == SQLITE_OK) {
        taken = sqlite_journal::wal;
        return SQLITE_OK;
    }
    taken = sqlite_journal::persist;
    return become(taken);
}

inline int sqlite_connection::become(sqlite_journal wanted) {
    const std::string name = wanted == sqlite_journal::wal ? "wal" : "persist";
    std::string mode;
    const int code = execute("PRAGMA journal_mode=" + name, &mode);
    return code != SQLITE_OK || mode == name ? code : sqlite_code(sqlite_slot_errc::other_mode);
}

inline int sqlite_connection::synchronize(int level) {
    const std::string wanted = std::to_string(level);
    std::string taken;
    const int code = sqlite_in_order(
        [&] { return execute("PRAGMA synchronous=" + wanted); },
        [&] { // if fsync() stops at the disk's cache
            return settings_.is_synced ? execute("PRAGMA fullfsync=1") : SQLITE_OK;
        },
        [&] { return settings_.is_synced ? execute("PRAGMA checkpoint_fullfsync=1") : SQLITE_OK; },
        [&] { return execute("PRAGMA synchronous", &taken); });
    return code != SQLITE_OK || taken == wanted ? code : sqlite_code(sqlite_slot_errc::other_mode);
}

// ---- operations

inline std::error_code sqlite_connection::read(sqlite_row& row) {
    detector_.load_known();
    const int code = sqlite_read(select_, settings_.key, &retry_time_, row);
    return code == SQLITE_ROW || code == SQLITE_DONE ? check(row) : failed(code);
}

inline cas_result sqlite_connection::write(slot_version version, std::string_view value) {
    detector_.load_known();
    slot_version stored = 0;
    const int code = sqlite_write(version == 0 ? insert_ : update_, settings_.key, version,
                                  detector_.known(), value, &retry_time_, stored);
    return result_of(code, stored, db_);
}

// The new version is later than the damaged row's version, unless that is not plausible.
inline cas_result sqlite_connection::repair(const sqlite_row& damaged, std::string_view value) {
    slot_version next = std::max(sqlite_first_version(), detector_.known() + 1);
    if (damaged.claimed < sqlite_last_version - 1) {
        next = std::max(next, damaged.claimed + 1);
    }
    sqlite_statement change;
    const int code =
        sqlite_in_order([&] { return change.prepare(db_, texts_.repair); },
                        [&] { return change.store(settings_.key, next, value, 0, &retry_time_); });
    return result_of(code, next, db_);
}

inline cas_result sqlite_connection::commit(cas_result written, std::string_view value) {
    if (written.status == cas_status::stored) {
        const int code = execute("COMMIT");
        written = result_of(code == SQLITE_OK ? SQLITE_DONE : code, written.version, db_);
        if (written.status == cas_status::stored) {
            detector_.acknowledge(written.version, value);
        }
    } else if (written.status == cas_status::indeterminate) {
        written.status = cas_status::failed;
    }
    return written;
}

inline cas_result sqlite_connection::result_of(int code, slot_version stored, sqlite3* on) {
    if (code == SQLITE_DONE) {
        return {stored != 0 ? cas_status::stored : cas_status::conflict, stored, {}, {}};
    }
    const std::error_code error = on == db_ ? failed(code) : failed(code, on);
    return {sqlite_stored_nothing(code) ? cas_status::failed : cas_status::indeterminate,
            0,
            {},
            sqlite_primary(code) == SQLITE_TOOBIG ? durable_errc::too_large : error};
}

inline std::error_code sqlite_connection::failed(int code, sqlite3* on) {
    const int of_sqlite = on == nullptr ? SQLITE_OK : ::sqlite3_extended_errcode(on);
    const bool is_said = code == sqlite_code(sqlite_slot_errc::other_table)
                             ? of_sqlite != SQLITE_OK
                             : code > 0 && of_sqlite == code;
    if (sqlite_primary(code) == SQLITE_CANTOPEN && code > 0 && on != nullptr) {
        code |= ::sqlite3_system_errno(on) << 16;
    }
    const std::error_code error(code, sqlite_category());
    said_ = error.message();
    if (const char* const more = is_said ? ::sqlite3_errmsg(on) : nullptr;
        more != nullptr && said_.find(more) == said_.npos) {
        said_ += std::string(": ") + more;
    }
    return error;
}

inline std::string sqlite_connection::explain() const {
    const std::string line = "SQLite database " + settings_.path + ", table " +
                             settings_.options.table + ", key \"" + settings_.key + '"';
    return one_line(said_.empty() ? line : line + ": " + said_, line.npos);
}

inline int sqlite_connection::execute(const std::string& text, std::string* first) {
    sqlite_statement statement;
    int code = statement.prepare(db_, text);
    while (sqlite_primary(code) == SQLITE_BUSY &&
           retry_time_.wait()) { // preparing may read the schema
        code = statement.prepare(db_, text);
    }
    if (code != SQLITE_OK) {
        return code;
    }
    while ((code = statement.step(&retry_time_)) == SQLITE_ROW) {
        const void* const bytes = ::sqlite3_column_text(statement.get(), 0);
        if (first != nullptr && bytes != nullptr) {
            *first = static_cast<const char*>(bytes);
            first = nullptr;
        }
    }
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

inline void sqlite_connection::roll_back() noexcept {
    if (db_ != nullptr && ::sqlite3_get_autocommit(db_) == 0) {
        ::sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
        if (::sqlite3_get_autocommit(db_) == 0) {
            close();
        }
    }
}

inline void sqlite_connection::close() noexcept {
    select_.drop();
    insert_.drop();
    update_.drop();
    ::sqlite3_close_v2(std::exchange(db_, nullptr));
}

// The last connection to a database in WAL mode writes the log back and removes it. An inherited
// connection has no locks, so it must not do that.
inline void sqlite_connection::close_inherited() noexcept {
    if (db_ != nullptr) {
        ::sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
        close();
    }
}

// True if the file was deleted or renamed while it was open.
inline bool sqlite_connection::has_moved() const noexcept {
    int moved = 0;
    return db_ != nullptr &&
           ::sqlite3_file_control(db_, "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK &&
           moved != 0;
}

}}} // namespace bide::BIDE_ABI::detail

#endif
