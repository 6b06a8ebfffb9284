// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_IMPL_SQLITE_HPP
#define BIDE_DURABLE_SLOTS_IMPL_SQLITE_HPP

// The definitions of slots/sqlite.hpp. A code is SQLite's if it is positive, and a sqlite_slot_errc
// if it is negative.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/file/posix_file.hpp>
#include <bide/durable/slots/detail/server/text.hpp>
#include <bide/durable/slots/detail/sqlite/database_files.hpp>
#include <bide/durable/slots/sqlite.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <sqlite3.h>

#include <pthread.h>
#include <unistd.h>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

// ---- codes

// A code has three parts: SQLite's primary code in bits 0..7, its extension in bits 8..15, and for
// SQLITE_CANTOPEN the system's errno in bits 16 and up.
constexpr int sqlite_primary(int code) noexcept { return code & 0xff; }
constexpr int sqlite_system_error(int code) noexcept { return code < 0 ? 0 : code >> 16; }
constexpr int sqlite_code(sqlite_slot_errc e) noexcept { return static_cast<int>(e); }

class sqlite_category_type final : public std::error_category {
public:
    const char* name() const noexcept override { return "sqlite"; }

    std::string message(int code) const override {
        switch (static_cast<sqlite_slot_errc>(code)) {
        case sqlite_slot_errc::unsafe_wal: return "WAL mode is not safe with this SQLite";
        case sqlite_slot_errc::other_mode: return "the database does not accept the journal mode";
        case sqlite_slot_errc::forked: return "the process was forked during an operation";
        case sqlite_slot_errc::other_table: return "the table is not a table of locks";
        }
        const int of_sqlite = code & 0xffff;
        std::string text = ::sqlite3_errstr(of_sqlite);
        if (sqlite_primary(of_sqlite) != of_sqlite) {
            text += " (" + std::to_string(of_sqlite) + ")";
        }
        if (const int of_system = sqlite_system_error(code)) {
            text += ": " + std::generic_category().message(of_system);
        }
        return text;
    }

    // A permanent error maps to a permanent errc.
    std::error_condition default_error_condition(int code) const noexcept override {
        if (const int of_system = sqlite_system_error(code)) {
            return {of_system, std::generic_category()};
        }
        switch (code < 0 ? code : sqlite_primary(code)) {
        case sqlite_code(sqlite_slot_errc::unsafe_wal):
        case sqlite_code(sqlite_slot_errc::other_mode): return std::errc::operation_not_supported;
        case sqlite_code(sqlite_slot_errc::forked):
        case SQLITE_CONSTRAINT: return std::errc::operation_not_permitted;
        case sqlite_code(sqlite_slot_errc::other_table): return std::errc::invalid_argument;
        case SQLITE_BUSY:
        case SQLITE_LOCKED: return std::errc::timed_out;
        case SQLITE_FULL: return std::errc::no_space_on_device;
        case SQLITE_NOMEM: return std::errc::not_enough_memory;
        case SQLITE_IOERR: return std::errc::io_error;
        case SQLITE_PERM:
        case SQLITE_AUTH:
        case SQLITE_READONLY: return std::errc::permission_denied;
        case SQLITE_NOTADB:
        case SQLITE_FORMAT:
        case SQLITE_CORRUPT: return std::errc::protocol_error;
        case SQLITE_MISUSE: return std::errc::function_not_supported;
        default: return {code, *this};
        }
    }
};

// The one category of the process. It is always inline: a file of the program that defines
// BIDE_DURABLE_HEADER_ONLY has it in common with a file that does not.
BIDE_SHARED inline const std::error_category& only_sqlite_category() noexcept {
    static constinit bide::detail::never_destroyed<sqlite_category_type> category;
    return category.object;
}

// ---- connections

// SQLite keeps notes of the locks that its process holds on each file. A child inherits the notes
// and not the locks. While one inherited connection to a file exists, a new connection trusts the
// notes. In WAL mode the child then believes that it holds the lock that means "in use". Another
// process then concludes that it is the last user, and deletes the log that the child uses.
//
// So the first operation in a child closes all connections that the parent's slots had, before it
// opens its own. If no connection was in an operation at the fork, that is safe: a close without a
// checkpoint neither writes nor releases locks. If one was in an operation, the inherited state is
// unusable, and all operations of slots in the child fail from then on.
class BIDE_SHARED sqlite_connection {
public:
    sqlite_connection() { connections()->members.push_back(this); }
    sqlite_connection(const sqlite_connection&) = delete;
    sqlite_connection& operator=(const sqlite_connection&) = delete;
    // Closes the connection. Exception: if the connection is the parent's and may be in an
    // operation, leaves it open and never frees it.
    ~sqlite_connection() {
        bool is_usable = false;
        {
            const connections here;
            std::erase(here->members, this);
            is_usable = !here->is_unusable;
            if (is_usable && here->has_inherited) {
                close(true);
            }
        }
        if (is_usable) {
            close();
        }
    }

    sqlite3* db = nullptr;

    // Closes the connection and its statements. The last connection to a database in WAL mode writes
    // the log back and removes it. An inherited connection has no locks, so it must not do that.
    void close(bool is_inherited = false) noexcept {
        if (db != nullptr && is_inherited) {
            ::sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
        }
        while (sqlite3_stmt* const next =
                   db != nullptr ? ::sqlite3_next_stmt(db, nullptr) : nullptr) {
            ::sqlite3_finalize(next);
        }
        ::sqlite3_close_v2(std::exchange(db, nullptr));
    }

    // Begins an operation of any connection. False: the process was forked during an operation.
    static bool enter() {
        const connections here;
        if (here->is_unusable) {
            return false;
        }
        if (std::exchange(here->has_inherited, false)) {
            for (sqlite_connection* const one : here->members) {
                one->close(true);
            }
        }
        ++here->busy;
        return true;
    }
    static void leave() { --connections()->busy; }
    // Call it after an operation has called user code. Returns false if the user code has forked
    // and this is the child.
    static bool is_still_here() { return !connections()->is_unusable; }

private:
    struct all {
        std::mutex mutex;
        // The mutex guards:
        ::pid_t pid = ::getpid();
        unsigned busy = 0; // running operations; in a child, at first those of its parent
        bool is_unusable = false;
        bool has_inherited = false;
        std::vector<sqlite_connection*> members; // open or not

        // The handlers hold the mutex during a fork, so that the child can use it.
        all() {
            ::pthread_atfork([] { here().mutex.lock(); }, [] { here().mutex.unlock(); },
                             [] { here().mutex.unlock(); });
        }
        // The object of this process. It is never destroyed, because slots may be static.
        static all& here() {
            static all* const one = new all;
            return *one;
        }
    };

    // Locks the connections of this process, and notices a fork.
    class connections {
    public:
        connections() {
            if (const ::pid_t now = ::getpid(); std::exchange(of_.pid, now) != now) {
                of_.is_unusable = of_.is_unusable || of_.busy != 0;
                of_.has_inherited = true;
            }
        }
        all* operator->() const noexcept { return &of_; }

    private:
        all& of_ = all::here();
        const std::lock_guard<std::mutex> lock_{of_.mutex};
    };
};

// ---- the operations

// What was read from the row.
struct sqlite_row {
    slot_snapshot there{};    // version 0: there is no row
    slot_version claimed = 0; // the version of a damaged row, if that is valid
    std::string defect{};     // why no slot can have stored the row; empty: it is good
};

// A slot. It opens the database on demand, in a mode that keeps what is committed. A function that
// returns false has recorded the error and its text.
class sqlite_core final : public slot {
public:
    // Throws: std::system_error if an argument is not valid; std::bad_alloc.
    sqlite_core(const std::string& at, std::string of, sqlite_slot_options how, bool to_sync)
        : path_(absolute_path(at)), key_(std::move(of)), options_(std::move(how)),
          is_synced_(to_sync), versions_(options_.table, key_) {
        if (at.empty() || at.find('\0') != at.npos || !is_sqlite_name(options_.table) ||
            !is_sqlite_text(key_)) {
            BIDE_THROW(std::system_error(make_error_code(durable_errc::invalid_argument),
                                         "bide::sqlite_slot"));
        }
    }

    std::string explain() const override {
        const std::string line =
            "SQLite database " + resolved_ + ", table " + options_.table + ", key \"" + key_ + '"';
        return one_line(said_.empty() ? line : line + ": " + said_, line.npos);
    }

    result<slot_snapshot, std::error_code> load() override {
        operation now(*this);
        sqlite_row row;
        if (!now.begin() || !read(row)) {
            return unexpected{error_};
        }
        return std::move(row.there);
    }

    cas_result compare_exchange(slot_version version, std::string_view value) override {
        operation now(*this);
        for (bool is_first = true;; is_first = false) {
            if (!fits(value) || !now.begin()) {
                return failed();
            }
            const cas_result r = write(version, value);
            // If the file was deleted after begin(), tries once more.
            if (!is_first || last_ != SQLITE_READONLY_DBMOVED) {
                return acknowledged(r, value);
            }
        }
    }

    cas_result update_locked(const slot_update& update) override {
        operation now(*this);
        sqlite_row row;
        if (!now.begin_locked(row)) {
            return failed();
        }
        const std::optional<std::string> value = update(row.there);
        if (!sqlite_connection::is_still_here()) {
            fail_forked();
            return failed();
        }
        if (!value) {
            return {cas_status::stored, row.there.version, {}, {}};
        }
        begin_wait();
        return fits(*value) ? commit(write(row.there.version, *value), *value) : failed();
    }

    cas_result replace_damaged(std::string_view value) override {
        operation now(*this);
        sqlite_row row;
        if (!fits(value)) {
            return failed();
        }
        if (now.begin_locked(row)) {
            return {cas_status::conflict, 0, std::move(row.there), {}};
        }
        if (error_ != durable_errc::corrupt_record) {
            return failed();
        }
        // The new version is later than the damaged row's version, unless that is not plausible.
        const slot_version next = std::max({first_version(), known_.version + 1,
                                            row.claimed < last_version - 1 ? row.claimed + 1 : 0});
        sqlite3_stmt* change = nullptr;
        begin_wait();
        if (!prepare(change, "UPDATE " + table_ + " SET version = ?2, value = ?3 WHERE key = ?1")) {
            return failed();
        }
        const cas_result written = result_of(put(change, next, value, 0), next);
        ::sqlite3_finalize(change);
        return commit(written, value);
    }

#if defined(__linux__)
    // The marks use neither SQLite nor data of an operation. So any thread may call at any time.
    result<std::shared_ptr<slot_presence>, std::error_code> be_present() override {
        const std::string at = sqlite_resolved(path_);
        sqlite_version_file("", "").open(at); // makes it with the database's owner and mode
        constexpr unsigned mode = 0644;       // the mode that SQLite gives to a database
        auto taken = presence_file(sqlite_version_file::path_beside(at), mode).be_present();
        if (!taken && (taken.error() == std::errc::permission_denied ||
                       taken.error() == std::errc::read_only_file_system ||
                       taken.error() == std::errc::operation_not_permitted)) {
            return unexpected{std::make_error_code(std::errc::operation_not_supported)};
        }
        return taken;
    }
    presence is_present(std::int64_t mark) const override {
        return presence_file(sqlite_version_file::path_beside(sqlite_resolved(path_)), 0)
            .is_present(mark);
    }
#endif

private:
    static constexpr slot_version last_version = std::numeric_limits<std::int64_t>::max();

    // ---- results

    bool fail(int code) {
        last_ = code;
        sqlite3* const db = link_.db;
        const int of_sqlite = db == nullptr ? SQLITE_OK : ::sqlite3_extended_errcode(db);
        const bool is_said =
            of_sqlite != SQLITE_OK &&
            (of_sqlite == code || code == sqlite_code(sqlite_slot_errc::other_table));
        if (db != nullptr && code > 0 && sqlite_primary(code) == SQLITE_CANTOPEN) {
            code |= ::sqlite3_system_errno(db) << 16;
        }
        const std::error_code error(code, sqlite_category());
        const std::string more = is_said ? ::sqlite3_errmsg(db) : "";
        fail(error, error.message());
        if (said_.find(more) == said_.npos) {
            said_ += ": " + more;
        }
        return false;
    }
    bool fail(std::error_code error, std::string words) {
        error_ = error;
        said_ = std::move(words);
        return false;
    }
    bool fail_forked() { // does not use the connection
        const std::error_code error = sqlite_slot_errc::forked;
        return fail(error, error.message());
    }
    bool ok(int code) { return code == SQLITE_OK || fail(code); }
    bool fits(std::string_view value) {
        return value.size() <= options_.max_value ||
               fail(durable_errc::too_large, "the value is longer than max_value");
    }
    cas_result failed() const { return {cas_status::failed, 0, {}, error_}; }

    // Returns the result of a write or a commit that ended with this code. Version 0 means a
    // conflict. SQLite rolls back what fails. But after a system error in the last steps of a
    // commit, the disk may hold a complete transaction, which the next recovery applies. In WAL
    // mode a lack of memory can have the same effect.
    cas_result result_of(int code, slot_version stored) {
        if (code == SQLITE_DONE) {
            return {stored != 0 ? cas_status::stored : cas_status::conflict, stored, {}, {}};
        }
        fail(code);
        const int primary = sqlite_primary(code);
        const bool is_unsure =
            primary == SQLITE_IOERR || primary == SQLITE_NOMEM || primary == SQLITE_INTERNAL;
        if (primary == SQLITE_TOOBIG) {
            error_ = durable_errc::too_large;
        }
        return {is_unsure ? cas_status::indeterminate : cas_status::failed, 0, {}, error_};
    }
    cas_result acknowledged(cas_result r, std::string_view value) noexcept {
        if (r.status == cas_status::stored) {
            versions_.set({r.version, crc32c(value)});
        }
        return r;
    }

    // ---- an operation

    // The destructor rolls back what was not committed. After an error other than a busy or full
    // database, it closes the connection.
    struct operation {
        explicit operation(sqlite_core& core) noexcept
            : of(core), is_in(sqlite_connection::enter()) {}
        operation(const operation&) = delete;
        operation& operator=(const operation&) = delete;
        ~operation() {
            if (is_in) {
                if (sqlite_connection::is_still_here()) {
                    of.end();
                }
                sqlite_connection::leave();
            }
        }

        bool begin() { return is_in ? of.begin() : of.fail_forked(); }
        // Begins, locks the database and reads the row. No other connection writes or commits until
        // the end of the operation.
        bool begin_locked(sqlite_row& row) {
            return begin() && of.ok(of.execute("BEGIN IMMEDIATE")) && of.read(row);
        }

        sqlite_core& of;
        const bool is_in;
    };

    // Opens the database, unless the file that the path names is open already.
    bool begin() {
        last_ = SQLITE_OK;
        begin_wait();
        int moved = 0;
        if (link_.db != nullptr && (::sqlite3_file_control(link_.db, "main", SQLITE_FCNTL_HAS_MOVED,
                                                           &moved) != SQLITE_OK ||
                                    moved == 0)) {
            return true;
        }
        link_.close();
        if (!open()) {
            link_.close();
            return false;
        }
        if (const char* const full = ::sqlite3_db_filename(link_.db, "main");
            full != nullptr && *full != 0) {
            resolved_ = full; // the path with its symbolic links resolved
        }
        if (is_synced_) { // otherwise acknowledged versions may be lost
            versions_.open(resolved_);
        }
        return true;
    }

    void end() noexcept {
        sqlite3* const db = link_.db;
        const auto is_open = [db] { return db != nullptr && ::sqlite3_get_autocommit(db) == 0; };
        if (is_open()) {
            ::sqlite3_exec(db, "ROLLBACK", nullptr, nullptr, nullptr);
        }
        const int primary = sqlite_primary(last_);
        if (is_open() || (primary != SQLITE_OK && primary != SQLITE_BUSY &&
                          primary != SQLITE_FULL && primary != SQLITE_TOOBIG)) {
            link_.close();
        }
    }

    // ---- opening

    bool open() {
        constexpr int how = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
                            SQLITE_OPEN_PRIVATECACHE;
        if (::sqlite3_threadsafe() == 0) {
            return fail(SQLITE_MISUSE);
        }
        if (const std::error_code error = check_sqlite_path(resolved_.c_str())) {
            return fail(error, sqlite_path_error_text(error));
        }
        const int code = ::sqlite3_open_v2(resolved_.c_str(), &link_.db, how, nullptr);
        if (link_.db != nullptr) {
            ::sqlite3_extended_result_codes(link_.db, 1);
        }
        sqlite_journal taken = options_.journal;
        return ok(code) && ok(::sqlite3_busy_handler(link_.db, &on_busy, this)) &&
               ok(execute("PRAGMA mmap_size=0")) && // a disk error must be a code, not a signal
               choose_journal(taken) && synchronize(taken) &&
               // For systems where fsync() stops at the disk's cache.
               ok(execute("PRAGMA fullfsync=1; PRAGMA checkpoint_fullfsync=1")) &&
               ok_of_table(execute("CREATE TABLE IF NOT EXISTS " + table_ +
                                   " (key TEXT NOT NULL PRIMARY KEY, version INTEGER NOT NULL"
                                   " CHECK (typeof(version) = 'integer' AND version > 0),"
                                   " value BLOB NOT NULL CHECK (typeof(value) = 'blob'))"
                                   " WITHOUT ROWID")) &&
               prepare(select_, "SELECT version, value FROM " + table_ + " WHERE key = ?1") &&
               prepare(insert_, "INSERT INTO " + table_ +
                                    " (key, version, value) VALUES (?1, ?2, ?3)"
                                    " ON CONFLICT (key) DO NOTHING") &&
               prepare(update_,
                       "UPDATE " + table_ +
                           " SET version = ?2, value = ?3 WHERE key = ?1 AND version = ?4");
    }

    // `taken` is the mode asked for, and then the mode in use.
    bool choose_journal(sqlite_journal& taken) {
        if (taken != sqlite_journal::automatic) {
            return ok(become(taken));
        }
        // The page count is read first: a program that makes a database sets the mode before it adds
        // pages.
        std::string pages;
        std::string mode;
        if (!ok(execute("PRAGMA page_count", &pages)) ||
            !ok(execute("PRAGMA journal_mode", &mode))) {
            return false;
        }
        const bool is_safe = sqlite_wal_is_safe(::sqlite3_libversion_number());
        const bool is_wal = mode == "wal";
        if (is_wal || (pages == "0" && is_safe && become(sqlite_journal::wal) == SQLITE_OK)) {
            taken = sqlite_journal::wal;
            return !is_wal || is_safe || fail(sqlite_code(sqlite_slot_errc::unsafe_wal));
        }
        taken = sqlite_journal::persist;
        return ok(become(taken));
    }

    int become(sqlite_journal wanted) {
        const std::string name = wanted == sqlite_journal::wal ? "wal" : "persist";
        std::string mode;
        const int code = execute("PRAGMA journal_mode=" + name, &mode);
        return code != SQLITE_OK || mode == name ? code : sqlite_code(sqlite_slot_errc::other_mode);
    }

    bool synchronize(sqlite_journal taken) {
        const char* const level = !is_synced_                    ? "1"  // NORMAL
                                  : taken == sqlite_journal::wal ? "2"  // FULL
                                                                 : "3"; // EXTRA
        std::string has;
        return ok(execute(std::string("PRAGMA synchronous=") + level + "; PRAGMA synchronous",
                          &has)) &&
               (has == level || fail(sqlite_code(sqlite_slot_errc::other_mode)));
    }

    // SQLITE_ERROR means that the table is of another kind.
    bool ok_of_table(int code) {
        return ok(code == SQLITE_ERROR ? sqlite_code(sqlite_slot_errc::other_table) : code);
    }

    // ---- statements

    // The connection keeps the statement until it is closed.
    bool prepare(sqlite3_stmt*& to, const std::string& text) {
        return ok_of_table(::sqlite3_prepare_v3(link_.db, text.data(),
                                                static_cast<int>(text.size()),
                                                SQLITE_PREPARE_PERSISTENT, &to, nullptr));
    }

    // Runs statements without parameters. Stores the first column of their row in `to`. Returns a
    // code.
    int execute(const std::string& text, std::string* to = nullptr) {
        constexpr auto note = [](void* into, int, char** row, char**) {
            // A short text, for which no memory is needed.
            if (into != nullptr && row[0] != nullptr) {
                *static_cast<std::string*>(into) = row[0];
            }
            return 0;
        };
        int code = SQLITE_OK;
        do {
            code = ::sqlite3_exec(link_.db, text.c_str(), note, to, nullptr);
        } while (sqlite_primary(code) == SQLITE_BUSY && wait());
        return code;
    }

    // Runs one step. Repeats it while the database is busy, until the waiting time is over.
    int step(sqlite3_stmt* statement) noexcept {
        int code = SQLITE_OK;
        do {
            ::sqlite3_reset(statement);
            code = ::sqlite3_step(statement);
        } while (sqlite_primary(code) == SQLITE_BUSY && wait());
        return code;
    }

    // Pauses once while other connections use the database. Returns false if the waiting time is
    // over. SQLite's own pauses grow to 0.1 s; a waiter with long pauses loses to connections that
    // try again at once. Short pauses of random length (0.1 to 4 ms) avoid that.
    bool wait() noexcept {
        const auto left = wait_until_ - std::chrono::steady_clock::now();
        if (left <= left.zero()) {
            return false;
        }
        const std::chrono::microseconds moment(100 + random_below(3'900));
        std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(left, moment));
        return true;
    }
    static int on_busy(void* self, int) noexcept {
        return static_cast<sqlite_core*>(self)->wait() ? 1 : 0;
    }
    void begin_wait() noexcept {
        wait_until_ = std::chrono::steady_clock::now() + options_.retry_time;
    }

    int bind_key(sqlite3_stmt* to) noexcept {
        return ::sqlite3_bind_text(to, 1, key_.data(), static_cast<int>(key_.size()), nullptr);
    }
    // Ends the run of a statement, and forgets what was bound to it.
    static void reset(sqlite3_stmt* statement) noexcept {
        ::sqlite3_reset(statement);
        ::sqlite3_clear_bindings(statement);
    }

    // ---- the row

    // Reads the acknowledged version first, then the row, and compares them. So if the row has an
    // earlier version than the acknowledged one, the row has fallen back.
    bool read(sqlite_row& row) {
        const struct scope {
            sqlite3_stmt* of;
            ~scope() { reset(of); }
        } running{select_};
        known_ = versions_.get();
        int code = bind_key(select_);
        code = code == SQLITE_OK ? step(select_) : code;
        if (code != SQLITE_DONE && (code != SQLITE_ROW || !copy_row(row))) {
            return fail(code == SQLITE_ROW ? SQLITE_NOMEM : code);
        }
        slot_snapshot& there = row.there;
        if (row.defect.empty() && known_.version > there.version) {
            there.lost_acknowledged = true;
            there.fell_back = there.version != 0; // a missing row may have been deleted
        } else if (row.defect.empty() && known_.version != 0 && known_.version == there.version &&
                   known_.sum != crc32c(there.value)) {
            row.defect = "the value is not the one that was stored as version " +
                         std::to_string(there.version);
        }
        return row.defect.empty() || fail(durable_errc::corrupt_record, row.defect);
    }

    // Copies the row to which the statement has stepped. False: there is no memory.
    bool copy_row(sqlite_row& to) const {
        const auto is = [&](int column, const char* name, int type) {
            constexpr const char* types[] = {"INTEGER", "REAL", "TEXT", "BLOB", "NULL"}; // 1 to 5
            const int found = ::sqlite3_column_type(select_, column);
            if (found != type) {
                to.defect = std::string("the ") + name + " is " + types[found - 1] + " and not " +
                            types[type - 1];
            }
            return found == type;
        };
        if (!is(0, "version", SQLITE_INTEGER)) {
            return true;
        }
        const std::int64_t version = ::sqlite3_column_int64(select_, 0);
        if (version <= 0 || static_cast<slot_version>(version) + 1 >= last_version) {
            to.defect = "the version is " + std::to_string(version);
            return true;
        }
        to.claimed = static_cast<slot_version>(version);
        if (!is(1, "value", SQLITE_BLOB)) {
            return true;
        }
        const auto* const bytes = static_cast<const char*>(::sqlite3_column_blob(select_, 1));
        const auto size = static_cast<std::size_t>(::sqlite3_column_bytes(select_, 1));
        if (bytes == nullptr && size != 0) {
            return false;
        }
        to.there.version = to.claimed;
        to.there.value.assign(bytes == nullptr ? "" : bytes, size);
        return true;
    }

    // Stores the value if the row has this version. The new version is after the old one and after
    // the last acknowledged one.
    cas_result write(slot_version version, std::string_view value) {
        known_ = versions_.get();
        const slot_version least = version == 0 ? first_version() : version + 1;
        const slot_version next = std::max(least, known_.version + 1);
        if (version >= last_version || next >= last_version) {
            return result_of(SQLITE_DONE, 0);
        }
        const int code = put(version == 0 ? insert_ : update_, next, value, version);
        const bool is_stored = code == SQLITE_DONE && ::sqlite3_changes(link_.db) != 0;
        return result_of(code, is_stored ? next : 0);
    }

    // Returns the first version of a row: the time in nanoseconds since 1970. So the versions of a
    // row that was deleted and made again do not repeat.
    static slot_version first_version() noexcept {
        return std::max<slot_version>(posix_io().clock_ns(), 1);
    }

    // Stores a row; for an update, `before` is its version. Returns a code.
    int put(sqlite3_stmt* to, slot_version version, std::string_view value,
            slot_version before) noexcept {
        const void* const bytes = value.empty() ? "" : value.data();
        int code = std::max(
            {bind_key(to), ::sqlite3_bind_int64(to, 2, static_cast<sqlite3_int64>(version)),
             ::sqlite3_bind_blob64(to, 3, bytes, value.size(), nullptr),
             before == 0 ? SQLITE_OK
                         : ::sqlite3_bind_int64(to, 4, static_cast<sqlite3_int64>(before))});
        if (code == SQLITE_OK) {
            code = step(to);
        }
        reset(to);
        return code;
    }

    // Commits the transaction with this result.
    cas_result commit(cas_result written, std::string_view value) {
        if (written.status == cas_status::stored) {
            const int code = execute("COMMIT");
            written = result_of(code == SQLITE_OK ? SQLITE_DONE : code, written.version);
            return acknowledged(written, value);
        }
        return written.status == cas_status::indeterminate ? failed() : written;
    }

    const std::string path_; // absolute; any thread may read it
    const std::string key_;
    const sqlite_slot_options options_;
    const bool is_synced_;
    const std::string table_ = "main.\"" + options_.table + '"';
    std::string resolved_ = path_;
    std::chrono::steady_clock::time_point wait_until_{};
    sqlite_version_file versions_;
    sqlite_known_version known_{};
    sqlite_connection link_;
    sqlite3_stmt* select_ = nullptr; // the statements of link_, if that is open
    sqlite3_stmt* insert_ = nullptr;
    sqlite3_stmt* update_ = nullptr;
    int last_ = SQLITE_OK; // the last failure in this operation
    std::error_code error_{};
    std::string said_; // about the last failure
};

} // namespace detail

BIDE_DURABLE_INLINE const std::error_category& sqlite_category() noexcept {
    return detail::only_sqlite_category();
}

BIDE_DURABLE_INLINE
sqlite_slot_operations::sqlite_slot_operations(const std::string& path, std::string key,
                                               sqlite_slot_options options, bool is_synced)
    : slot_handle(std::make_unique<detail::sqlite_core>(path, std::move(key), std::move(options),
                                                        is_synced)) {}

}} // namespace bide::BIDE_ABI

#endif
