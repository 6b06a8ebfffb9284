// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SQLITE_CONNECTION_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SQLITE_CONNECTION_HPP

// A slot's own connection. It opens the database on demand, in a mode that keeps what is committed.
// It records SQLite's text about the last failure.

#include <bide/core/config.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/sqlite/error.hpp>
#include <bide/durable/slots/detail/sqlite/journal.hpp>
#include <bide/durable/slots/detail/sqlite/path.hpp>
#include <bide/durable/slots/detail/sqlite/process.hpp>
#include <bide/durable/slots/detail/sqlite/statement.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <sqlite3.h>

namespace bide::inline BIDE_ABI {

namespace detail {

class sqlite_connection final : public sqlite_process::member {
public:
    struct settings {
        std::string path;
        std::string table;
        std::string key;
        sqlite_journal journal = sqlite_journal::automatic;
        std::chrono::milliseconds retry_time{};
        bool is_synced = true;
    };

    explicit sqlite_connection(settings s)
        : settings_(std::move(s)), texts_("main.\"" + settings_.table + '"'),
          retry_time_(settings_.retry_time) {}
    ~sqlite_connection() override {
        if (leave_list()) {
            abandon();
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

    // How many times the database was opened.
    unsigned generation() const noexcept { return generation_; }

    // Read the row, and write it. `code` receives SQLite's result. `known` is the last acknowledged
    // version.
    // Throws: std::bad_alloc.
    std::error_code read(sqlite_row& row, int& code);
    cas_result write(slot_version version, slot_version known, std::string_view value, int& code);
    // Overwrites a damaged row. Requires a transaction.
    cas_result repair(const sqlite_row& damaged, slot_version known, std::string_view value,
                      int& code);

    // Returns the error for an SQLite code or a negative sqlite_slot_errc, and records its text.
    // Throws: std::bad_alloc.
    std::error_code failed(int code) { return failed(code, db_); }
    std::error_code failed(int code, sqlite3* on);
    std::error_code corrupt(const sqlite_row& row) {
        said_ = row.defect;
        return make_error_code(durable_errc::corrupt_record);
    }
    // Records the text of an error that is not SQLite's.
    void say(std::string words) { said_ = std::move(words); }
    std::string explain() const;

    // Runs a statement without parameters. Stores the first column of its first row in `first`.
    // Throws: std::bad_alloc, if `first` is not null.
    int execute(const std::string& text, std::string* first = nullptr);

    // Rolls back a transaction that was not committed.
    void roll_back() noexcept;

    // Ends an operation. After an error other than a busy or full database, closes the connection.
    void end(int code) noexcept {
        if (!sqlite_is_harmless(code)) {
            close();
        }
    }

    void close() noexcept;
    void close_inherited() noexcept override;

    static bool is_wal_safe(int version) noexcept { return is_sqlite_wal_safe(version); }

private:
    std::error_code open();
    int set_up();
    int choose_journal(sqlite_journal& taken);
    int become(sqlite_journal wanted);
    int synchronize(sqlite_sync wanted);
    void abandon() noexcept;
    bool has_moved() const noexcept;

    settings settings_;
    const sqlite_texts texts_;
    sqlite_retry_time retry_time_;
    sqlite3* db_ = nullptr;
    sqlite_statement select_;
    sqlite_statement insert_;
    sqlite_statement update_;
    unsigned generation_ = 0;
    std::string said_; // about the last failure
};

// ---- opening

inline std::error_code sqlite_connection::begin() {
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
    ++generation_;
    return {};
}

inline std::error_code sqlite_connection::open() {
    if (::sqlite3_threadsafe() == 0) {
        return failed(SQLITE_MISUSE);
    }
    if (const std::error_code error = check_sqlite_path(settings_.path.c_str())) {
        const char* const words = sqlite_path_error_text(error);
        said_ = words != nullptr ? words : error.message();
        return error;
    }
    retry_time_.seed(reinterpret_cast<std::uintptr_t>(this));
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
    int code = ::sqlite3_busy_handler(db_, &sqlite_retry_time::on_busy, &retry_time_);
    if (code == SQLITE_OK) {
        code = execute("PRAGMA mmap_size=0"); // a disk error must be a code, not a signal
    }
    sqlite_journal taken = settings_.journal;
    if (code == SQLITE_OK) {
        code = choose_journal(taken);
    }
    if (code == SQLITE_OK) {
        code = synchronize(!settings_.is_synced           ? sqlite_sync::normal
                           : taken == sqlite_journal::wal ? sqlite_sync::full
                                                          : sqlite_sync::extra);
    }
    if (code == SQLITE_OK) {
        code = execute(texts_.create);
    }
    if (code == SQLITE_OK) {
        code = sqlite_check_table(db_, "main", settings_.table.c_str());
    }
    constexpr unsigned kept = SQLITE_PREPARE_PERSISTENT;
    if (code == SQLITE_OK) {
        code = sqlite_of_table(select_.prepare(db_, texts_.select, kept));
    }
    if (code == SQLITE_OK) {
        code = sqlite_of_table(insert_.prepare(db_, texts_.insert, kept));
    }
    return code == SQLITE_OK ? sqlite_of_table(update_.prepare(db_, texts_.update, kept)) : code;
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
    int code = execute("PRAGMA page_count", &pages);
    if (code == SQLITE_OK) {
        code = execute("PRAGMA journal_mode", &mode);
    }
    if (code != SQLITE_OK) {
        return code;
    }
    const bool is_safe = is_wal_safe(::sqlite3_libversion_number());
    if (mode == "wal") {
        taken = sqlite_journal::wal;
        return is_safe ? SQLITE_OK : static_cast<int>(sqlite_slot_errc::unsafe_wal);
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
    return code != SQLITE_OK || mode == name ? code
                                             : static_cast<int>(sqlite_slot_errc::other_mode);
}

inline int sqlite_connection::synchronize(sqlite_sync wanted) {
    const std::string level = std::to_string(static_cast<int>(wanted));
    std::string taken;
    int code = execute("PRAGMA synchronous=" + level);
    if (code == SQLITE_OK && settings_.is_synced) { // if fsync() stops at the disk's cache
        code = execute("PRAGMA fullfsync=1");
    }
    if (code == SQLITE_OK && settings_.is_synced) {
        code = execute("PRAGMA checkpoint_fullfsync=1");
    }
    if (code == SQLITE_OK) {
        code = execute("PRAGMA synchronous", &taken);
    }
    return code != SQLITE_OK || taken == level ? code
                                               : static_cast<int>(sqlite_slot_errc::other_mode);
}

// ---- operations

inline std::error_code sqlite_connection::read(sqlite_row& row, int& code) {
    code = sqlite_read(select_, settings_.key, &retry_time_, row);
    if (code != SQLITE_ROW && code != SQLITE_DONE) {
        return failed(code);
    }
    return row.defect.empty() ? std::error_code() : corrupt(row);
}

inline cas_result sqlite_connection::write(slot_version version, slot_version known,
                                           std::string_view value, int& code) {
    cas_result r = sqlite_write(version == 0 ? insert_ : update_, settings_.key, version, known,
                                value, &retry_time_, code);
    if (r.error) {
        const std::error_code error = failed(code);
        r.error = r.error.category() == sqlite_category() ? error : r.error;
    }
    return r;
}

// The new version is later than the damaged row's version, unless that is not plausible.
inline cas_result sqlite_connection::repair(const sqlite_row& damaged, slot_version known,
                                            std::string_view value, int& code) {
    const slot_version now = sqlite_first_version();
    slot_version next = std::max(now, known + 1);
    if (damaged.claimed < sqlite_last_version - 1) {
        next = std::max(next, damaged.claimed + 1);
    }
    sqlite_statement change;
    code = change.prepare(db_, texts_.repair);
    if (code == SQLITE_OK) {
        const sqlite_binding bound(change, settings_.key, static_cast<std::int64_t>(next), value);
        code = bound.code() == SQLITE_OK ? change.step(&retry_time_) : bound.code();
    }
    if (code != SQLITE_DONE) {
        return sqlite_failed(failed(code));
    }
    return {cas_status::stored, next, {}, {}};
}

inline std::error_code sqlite_connection::failed(int code, sqlite3* on) {
    const int of_sqlite = on == nullptr ? SQLITE_OK : ::sqlite3_extended_errcode(on);
    const bool is_said = code == static_cast<int>(sqlite_slot_errc::other_table)
                             ? of_sqlite != SQLITE_OK
                             : code > 0 && of_sqlite == code;
    if ((code & 0xff) == SQLITE_CANTOPEN && code > 0 && on != nullptr) {
        code |= ::sqlite3_system_errno(on) << 16;
    }
    const std::error_code error = sqlite_code(code);
    said_ = error.message();
    if (const char* const more = is_said ? ::sqlite3_errmsg(on) : nullptr;
        more != nullptr && said_.find(more) == said_.npos) {
        said_ += std::string(": ") + more;
    }
    return error;
}

inline std::string sqlite_connection::explain() const {
    std::string line = "SQLite database " + printable(settings_.path) + ", table " +
                       settings_.table + ", key \"" + printable(settings_.key) + '"';
    return said_.empty() ? line : line + ": " + printable(said_);
}

inline int sqlite_connection::execute(const std::string& text, std::string* first) {
    sqlite_statement statement;
    int code = statement.prepare(db_, text);
    while ((code & 0xff) == SQLITE_BUSY && retry_time_.wait()) { // preparing may read the schema
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

// Leaves everything open and never frees it.
inline void sqlite_connection::abandon() noexcept {
    select_.abandon();
    insert_.abandon();
    update_.abandon();
    db_ = nullptr;
}

// True if the file was deleted or renamed while it was open.
inline bool sqlite_connection::has_moved() const noexcept {
    int moved = 0;
    return db_ != nullptr &&
           ::sqlite3_file_control(db_, "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK &&
           moved != 0;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
