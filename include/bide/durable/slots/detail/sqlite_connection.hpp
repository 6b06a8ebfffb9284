#ifndef BIDE_DURABLE_SLOTS_DETAIL_SQLITE_CONNECTION_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SQLITE_CONNECTION_HPP

// A slot's own connection: opened when it is needed, in a mode in which what is committed is kept.

#include <bide/core/config.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/sqlite_error.hpp>
#include <bide/durable/slots/detail/sqlite_process.hpp>
#include <bide/durable/slots/detail/sqlite_statement.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <sqlite3.h>

namespace bide::inline BIDE_ABI {

// How the database file is kept whole.
enum class sqlite_journal {
    // A database that has nothing in it yet becomes WAL where that is safe with this SQLite, which
    // is from 3.51.3 on (and in 3.50.7 and 3.44.6), else `persist`. One that is there already is
    // left as it is: in WAL mode where that is safe, and refused with sqlite_slot_errc::unsafe_wal
    // where not; with any rollback journal the slot uses `persist` for its part.
    automatic,

    // Write-ahead log; faster. The database is converted for all who use it.
    wal,

    // Rollback journal, a file that is kept. A database in WAL mode is converted for all who use
    // it, which has to wait until nobody else has it open.
    persist
};

namespace detail {

enum class sqlite_sync { normal = 1, full = 2, extra = 3 }; // as PRAGMA synchronous says them

class sqlite_connection final : public sqlite_process::member {
public:
    struct settings {
        std::string path;
        std::string table; // quoted
        sqlite_journal journal = sqlite_journal::automatic;
        std::chrono::milliseconds patience{};
        bool is_synced = true;
    };

    explicit sqlite_connection(settings s)
        : settings_(std::move(s)), texts_(settings_.table), patience_(settings_.patience) {}
    ~sqlite_connection() override {
        if (leave_list()) {
            abandon();
        } else {
            close();
        }
    }

    const std::string& path() const noexcept { return settings_.path; }

    // To begin an operation with: it is open after that, on the file that has the name now.
    // Throws: std::bad_alloc.
    std::error_code begin();

    // Waits as long again.
    void renew_patience() noexcept { patience_.begin(); }

    // An SQLite code: ROW and DONE are good.
    int read(std::string_view key, slot_snapshot& to, bool& is_sound) {
        return sqlite_read(select_, key, &patience_, to, is_sound);
    }
    cas_result write(std::string_view key, slot_version version, std::string_view value,
                     int& code) noexcept {
        return sqlite_write(version == 0 ? insert_ : update_, key, version, value, &patience_,
                            code);
    }

    // A statement without values. The first column of its first row, as text, goes to `first`.
    // Throws: std::bad_alloc, if there is a `first`.
    int execute(const std::string& text, std::string* first = nullptr);

    // Takes back what was begun and not committed.
    void roll_back() noexcept;

    // To end an operation with: what has failed for more than others in the way is opened anew.
    void end(int code) noexcept {
        if (!sqlite_is_harmless(code)) {
            close();
        }
    }

    void close() noexcept;
    void close_inherited() noexcept override;

    static bool is_wal_safe(int version) noexcept {
        return version >= 3'051'003 || (version >= 3'050'007 && version < 3'051'000) ||
               (version >= 3'044'006 && version < 3'045'000);
    }

private:
    int open();
    int choose_journal(sqlite_journal& taken);
    int become(sqlite_journal wanted);
    int synchronize(sqlite_sync wanted);
    void abandon() noexcept;
    bool has_moved() const noexcept;

    settings settings_;
    const sqlite_texts texts_;
    sqlite_patience patience_;
    sqlite3* db_ = nullptr;
    sqlite_statement select_;
    sqlite_statement insert_;
    sqlite_statement update_;
};

// ---- Opening

inline std::error_code sqlite_connection::begin() {
    patience_.begin();
    if (has_moved()) {
        close();
    }
    if (update_.get() != nullptr) {
        return {};
    }
    close();
    const int code = open();
    if (code != SQLITE_OK) {
        close();
        return sqlite_code(code);
    }
    if (const char* const full = ::sqlite3_db_filename(db_, "main");
        full != nullptr && *full != 0) {
        settings_.path = full; // so that it stays the same when the working directory changes
    }
    return {};
}

// An SQLite code, or a negative one of ours.
inline int sqlite_connection::open() {
    if (::sqlite3_threadsafe() == 0) {
        return SQLITE_MISUSE;
    }
    patience_.seed(reinterpret_cast<std::uintptr_t>(this));
    // No name is anything but a file's: not a URI, not a database in memory.
    const char first = settings_.path[0];
    const std::string name = (first == ':' || first == 'f' ? "./" : "") + settings_.path;
    int code = ::sqlite3_open_v2(name.c_str(), &db_,
                                 SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
                                     SQLITE_OPEN_PRIVATECACHE,
                                 nullptr);
    if (db_ != nullptr) {
        ::sqlite3_extended_result_codes(db_, 1);
    }
    if (code == SQLITE_OK) {
        code = ::sqlite3_busy_handler(db_, &sqlite_patience::on_busy, &patience_);
    }
    if (code == SQLITE_OK) {
        code = execute("PRAGMA mmap_size=0"); // an error of the disk is to be a code, not a signal
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
    constexpr unsigned kept = SQLITE_PREPARE_PERSISTENT;
    if (code == SQLITE_OK) {
        code = select_.prepare(db_, texts_.select, kept);
    }
    if (code == SQLITE_OK) {
        code = insert_.prepare(db_, texts_.insert, kept);
    }
    return code == SQLITE_OK ? update_.prepare(db_, texts_.update, kept) : code;
}

// `taken` is what is wanted at first, and what was taken at last.
inline int sqlite_connection::choose_journal(sqlite_journal& taken) {
    if (taken != sqlite_journal::automatic) {
        return become(taken);
    }
    // In this order: who makes a database chooses its mode first and fills it then.
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
    if (code == SQLITE_OK && settings_.is_synced) { // where a plain sync does not reach the disk
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

// ---- Being open

inline int sqlite_connection::execute(const std::string& text, std::string* first) {
    sqlite_statement statement;
    int code = statement.prepare(db_, text);
    while ((code & 0xff) == SQLITE_BUSY && patience_.wait()) { // it may have to read the tables
        code = statement.prepare(db_, text);
    }
    if (code != SQLITE_OK) {
        return code;
    }
    while ((code = statement.step(&patience_)) == SQLITE_ROW) {
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

// The last one to close a database in WAL mode writes the log back and removes it, which is not for
// one to do who has no locks.
inline void sqlite_connection::close_inherited() noexcept {
    if (db_ != nullptr) {
        ::sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
        close();
    }
}

// What is open is left as it is, and never freed.
inline void sqlite_connection::abandon() noexcept {
    select_.abandon();
    insert_.abandon();
    update_.abandon();
    db_ = nullptr;
}

// Was the file deleted or renamed while it was open?
inline bool sqlite_connection::has_moved() const noexcept {
    int moved = 0;
    return db_ != nullptr &&
           ::sqlite3_file_control(db_, "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK &&
           moved != 0;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
