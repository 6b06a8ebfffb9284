// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_IMPL_SQLITE_HPP
#define BIDE_DURABLE_SLOTS_IMPL_SQLITE_HPP

// The definitions of slots/sqlite.hpp. Each slot is one row, found by its key, of the table
//
//   bide_lock (key TEXT PRIMARY KEY, version INTEGER, value BLOB)
//
// The first version of a row is the time in nanoseconds since 1970. So the versions of a row that
// was deleted and made again do not repeat, unless the clock was set back meanwhile.

#include <bide/durable/slots/detail/file/posix_file.hpp>
#include <bide/durable/slots/sqlite.hpp>

#include <mutex>

#include <pthread.h>
#include <sqlite3.h>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// ---- codes

constexpr int sqlite_primary(int code) noexcept { return code & 0xff; }

class sqlite_category_type final : public std::error_category {
public:
    const char* name() const noexcept override { return "sqlite"; }

    std::string message(int code) const override {
        return std::string(::sqlite3_errstr(code)) + " (" + std::to_string(code) + ")";
    }

    // A permanent error maps to a permanent errc.
    std::error_condition default_error_condition(int code) const noexcept override {
        switch (sqlite_primary(code)) {
        case SQLITE_CONSTRAINT: return std::errc::operation_not_permitted;
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

// Returns the only category object of the process, even if only some of its source files define
// BIDE_DURABLE_HEADER_ONLY.
BIDE_SHARED inline const std::error_category& only_sqlite_category() noexcept {
    static constinit bide::detail::never_destroyed<sqlite_category_type> category;
    return category.object;
}

// ---- paths

// SQLite finds the log of a database by the path. If processes reach one file by two paths, each
// path has its own log, and each process reads and writes a different database, without an error.
//
// No function below opens the database: to close a descriptor of it drops this process's locks.

// Returns the error of check_kind(), EXDEV for a file that is mounted without its directory, or the
// system's error for the path. A missing file is no error.
inline std::error_code check_sqlite_path(const char* path) noexcept {
    struct ::stat facts{};
    if (::stat(path, &facts) != 0) {
        return errno == ENOENT ? std::error_code() : system_error_code();
    }
    const std::error_code wrong = check_kind(facts);
#if defined(__linux__) && defined(STATX_ATTR_MOUNT_ROOT)
    struct ::statx more{};
    if (!wrong && ::statx(AT_FDCWD, path, 0, STATX_TYPE, &more) == 0 &&
        (more.stx_attributes & more.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0) {
        return system_error_code(EXDEV);
    }
#endif
    return wrong;
}

// ---- the file of acknowledged versions
//
// The file `<database>-bide` has an entry for each row: the last version that a slot acknowledged,
// and a checksum of its value. A slot writes the entry after the commit, and reads it before it
// reads the row. The file is not synced; if an entry is lost or late, fewer losses are detected.
//
// If the row is older than its entry, acknowledged values are lost: SQLite found a wrong checksum
// in a log and dropped the rest of it, which it does without an error; or another file replaced the
// database; or the row was deleted or the database truncated. If a row has the version of its entry
// and another checksum, the disk damaged it: SQLite's pages have no checksums.
//
// The file has 1,024 buckets of four entries; a hash selects the bucket. An entry, little-endian:
//
//   bytes  0..7   the hash of table and key
//          8..15  the version
//         16..19  CRC-32C of the value
//         20..23  zeros
//         24..27  CRC-32C of bytes 0..23
//         28..31  zeros
//
// In a full bucket a new entry replaces the one with the earliest version. Two writers may
// overwrite each other's entries in a bucket. A half-written entry has a wrong checksum.

struct sqlite_known_version {
    slot_version version = 0; // 0: none
    std::uint32_t sum = 0;    // of the value
};

class sqlite_version_file {
public:
    static constexpr std::size_t entry_size = 32;
    static constexpr std::size_t entries_per_bucket = 4;
    static constexpr std::size_t bucket_size = entry_size * entries_per_bucket;
    static constexpr std::uint64_t buckets = 1'024;

    explicit sqlite_version_file(std::string_view key) : hash_(hash_of(key)) {}

    // Follows symbolic links to the database, as SQLite does for its own files.
    // Throws: std::bad_alloc.
    static std::string path_of(const std::string& database) {
        char* const real = ::realpath(database.c_str(), nullptr);
        const std::string path = (real == nullptr ? database : real) + "-bide";
        std::free(real);
        return path;
    }

    // Opens the file of the database that the path names now. Makes a missing file with the
    // database's owner and mode.
    // Throws: std::bad_alloc.
    void open(const std::string& database) {
        struct ::stat facts{};
        const bool has_facts = ::stat(database.c_str(), &facts) == 0;
        const mode_t mode = facts.st_mode & 0666;
        if (!file_.open(path_of(database).c_str(), false, has_facts ? O_CREAT : 0, mode) &&
            has_facts && file_.facts.st_size == 0) { // it is new: the umask does not count
            posix_io().copy_owner_and_mode(file_.get(), facts);
        }
    }

    // Finds the entry of the row, or the entry that set() replaces.
    sqlite_known_version get() noexcept {
        char bytes[bucket_size] = {};
        place_ = 0;
        if (!file_ || posix_io().read_at(file_.get(), bytes, bucket_size, bucket()) < 0) {
            return {};
        }
        constexpr slot_version most_believed = slot_version{1} << 62;
        slot_version earliest = most_believed;
        for (std::size_t i = 0; i < entries_per_bucket; ++i) {
            const char* const at = bytes + i * entry_size;
            const bool is_good = load_little<std::uint32_t>(at + 24) == crc32c({at, 24});
            const slot_version version = is_good ? load_little<std::uint64_t>(at + 8) : 0;
            const bool is_mine = is_good && load_little<std::uint64_t>(at) == hash_;
            if (is_mine || version < earliest) {
                place_ = i;
                earliest = version;
            }
            if (is_mine && version < most_believed) {
                return {version, load_little<std::uint32_t>(at + 16)};
            }
        }
        return {};
    }

    // Requires: get() was called before.
    void set(sqlite_known_version known) noexcept {
        if (!file_) {
            return;
        }
        char bytes[entry_size] = {};
        store_little(bytes, hash_);
        store_little(bytes + 8, std::uint64_t{known.version});
        store_little(bytes + 16, known.sum);
        store_little(bytes + 24, crc32c({bytes, 24}));
        posix_io().write_at(file_.get(), bytes, entry_size, bucket() + place_ * entry_size);
    }

private:
    // FNV-1a (Fowler, Noll, Vo), mixed, of the table's name, a zero byte, and the key.
    static std::uint64_t hash_of(std::string_view key) {
        std::uint64_t hash = 0xcbf29ce484222325;
        const std::string text = std::string("bide_lock", 10).append(key);
        for (const char c : text) {
            hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
        }
        return std::max<std::uint64_t>(mixed_bits(hash), 1);
    }

    std::uint64_t bucket() const noexcept { return hash_ % buckets * bucket_size; }

    const std::uint64_t hash_;
    std::size_t place_ = 0;
    file_descriptor<posix_io> file_;
};

// ---- connections

// SQLite keeps notes of the locks that its process holds on each file. A child inherits the notes
// and not the locks. While one inherited connection to a file exists, a new connection trusts the
// notes. In WAL mode the child then believes that it holds the lock that means "in use". Another
// process then concludes that it is the last user, and deletes the log that the child uses.
//
// So the first use in a child closes all connections that the parent's slots had. If none was in an
// operation at the fork, that is safe: a close without a checkpoint neither writes nor releases
// locks. If one was in an operation or being closed, all operations of slots in the child fail.
class BIDE_SHARED sqlite_process {
    struct state {
        std::mutex mutex;
        // The mutex guards:
        ::pid_t pid = ::getpid();
        unsigned busy = 0; // running operations and closes; in a child, at first its parent's
        bool is_unusable = false;
        std::vector<sqlite3*> open;

        // The handlers hold the mutex during a fork, so that the child can use it.
        state() {
            ::pthread_atfork([] { here().mutex.lock(); }, [] { here().mutex.unlock(); },
                             [] { here().mutex.unlock(); });
        }
        // The object of this process. It is never destroyed, because slots may be static.
        static state& here() {
            static state* const one = new state;
            return *one;
        }
    };

public:
    // Locks the state of this process, and notices a fork.
    sqlite_process() {
        if (const ::pid_t now = ::getpid(); std::exchange(of_.pid, now) != now) {
            of_.is_unusable = of_.is_unusable || of_.busy != 0;
            for (sqlite3* const one : std::exchange(of_.open, {})) {
                if (!of_.is_unusable) {
                    ::sqlite3_db_config(one, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
                    close(one);
                }
            }
        }
    }
    state* operator->() const noexcept { return &of_; }

    static void close(sqlite3* db) noexcept {
        while (sqlite3_stmt* const next = ::sqlite3_next_stmt(db, nullptr)) {
            ::sqlite3_finalize(next);
        }
        ::sqlite3_close_v2(db);
    }

private:
    state& of_ = state::here();
    const std::lock_guard<std::mutex> lock_{of_.mutex};
};

// ---- the operations

// A slot. It opens the database on demand. A function that returns false has called fail().
class sqlite_core final : public locking_slot<sqlite_core> {
public:
    // Throws: std::system_error if an argument is not valid; std::bad_alloc.
    sqlite_core(const std::string& at, std::string of, const sqlite_slot_options& how)
        : path_(absolute_path(at)), key_(std::move(of)), options_(how), versions_(key_) {
        if (!is_file_name(at) || !durable::detail::is_text(key_, 0, key_.npos) ||
            key_.find('\0') != key_.npos) {
            BIDE_THROW(std::system_error(make_error_code(durable_errc::invalid_argument),
                                         "bide::sqlite_slot"));
        }
    }
    ~sqlite_core() override { close(); }

    std::string explain() const override {
        const std::string line =
            "SQLite database " + path_ + ", table bide_lock, key \"" + key_ + '"';
        return one_line(said_.empty() ? line : line + ": " + said_, line.npos);
    }

    cas_result update_locked(const slot_update& update) override {
        return locking_slot::update_locked([&](const slot_snapshot& there) {
            std::optional<std::string> value = update(there);
            begin_wait();
            return value;
        });
    }

    // The marks use neither SQLite nor data of an operation. So any thread may call both functions.
    result<std::shared_ptr<slot_presence>, std::error_code> be_present() override {
        sqlite_version_file("").open(path_); // makes it with the database's owner and mode
        constexpr unsigned mode = 0644;      // the mode that SQLite gives to a database
        auto taken = presence_file::be_present(sqlite_version_file::path_of(path_), mode);
        if (!taken && (taken.error() == std::errc::permission_denied ||
                       taken.error() == std::errc::read_only_file_system ||
                       taken.error() == std::errc::operation_not_permitted)) {
            return unexpected{std::make_error_code(std::errc::operation_not_supported)};
        }
        return taken;
    }
    presence is_present(std::int64_t mark) const override {
        return presence_file::is_present(sqlite_version_file::path_of(path_), mark);
    }
    bool watch(int inotify) const override {
        return presence_file::watch(sqlite_version_file::path_of(path_), inotify);
    }

private:
    friend locking_slot;

    // ---- results

    bool fail(std::error_code error, std::string words) {
        error_ = error;
        said_ = std::move(words);
        return false;
    }
    bool fail(int code) {
        last_ = code;
        const std::error_code error(code, sqlite_category());
        const bool has_words = db_ != nullptr && ::sqlite3_extended_errcode(db_) == code;
        fail(error, has_words ? ::sqlite3_errmsg(db_) : error.message());
        const int of_system = db_ != nullptr && sqlite_primary(code) == SQLITE_CANTOPEN
                                  ? ::sqlite3_system_errno(db_)
                                  : 0;
        if (of_system != 0) {
            error_ = system_error_code(of_system);
            said_ += ": " + error_.message();
        }
        return false;
    }
    bool ok(int code) { return code == SQLITE_OK || fail(code); }

    // ---- an operation

    slot_version version() const noexcept { return there_.version; }
    slot_snapshot snapshot() noexcept { return std::move(there_); } // keeps the version

    bool is_usable(const sqlite_process& here = {}) {
        return !here->is_unusable || fail(std::make_error_code(std::errc::operation_not_permitted),
                                          "the process was forked during an operation");
    }
    bool enter(bool /* to_change */) {
        const sqlite_process here;
        if (!is_usable(here)) {
            return false;
        }
        ++here->busy;
        if (std::exchange(owner_, here->pid) != here->pid) {
            db_ = nullptr; // the parent's, which is closed
        }
        return true;
    }
    // Rolls back. After an error other than a busy or full database, closes the connection.
    void leave() {
        if (!sqlite_process()->is_unusable) {
            const auto is_in_transaction = [&] {
                return db_ != nullptr && ::sqlite3_get_autocommit(db_) == 0;
            };
            if (is_in_transaction()) {
                ::sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
            }
            const int primary = sqlite_primary(last_);
            if (is_in_transaction() || (primary != SQLITE_OK && primary != SQLITE_BUSY &&
                                        primary != SQLITE_FULL && primary != SQLITE_TOOBIG)) {
                close();
            }
        }
        --sqlite_process()->busy;
    }

    // ---- opening

    // Opens the database, unless the file that the path names is open already.
    bool begin() {
        last_ = SQLITE_OK;
        begin_wait();
        int moved = 0;
        if (db_ != nullptr &&
            (::sqlite3_file_control(db_, "main", SQLITE_FCNTL_HAS_MOVED, &moved) != SQLITE_OK ||
             moved == 0)) {
            return true;
        }
        close();
        last_ = SQLITE_NOMEM; // if this throws, leave() closes what it has opened
        if (!open()) {
            close();
            return false;
        }
        versions_.open(path_);
        last_ = SQLITE_OK;
        return true;
    }

    // Closes the connection, which counts as an operation (see sqlite_process). The mutex is not
    // held meanwhile, so that a slow disk does not delay the slots of other databases.
    void close() {
        sqlite3* const ended = std::exchange(db_, nullptr);
        if (ended == nullptr) {
            return;
        }
        {
            const sqlite_process here;
            if (owner_ != here->pid) {
                return;
            }
            std::erase(here->open, ended);
            ++here->busy;
        }
        sqlite_process::close(ended);
        --sqlite_process()->busy;
    }

    bool open() {
        constexpr int how = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
                            SQLITE_OPEN_PRIVATECACHE;
        if (::sqlite3_threadsafe() == 0) {
            return fail(SQLITE_MISUSE);
        }
        if (const std::error_code error = check_sqlite_path(path_.c_str())) {
            return fail(error, file_error_text(error, path_));
        }
        const int code = ::sqlite3_open_v2(path_.c_str(), &db_, how, nullptr);
        if (db_ != nullptr) {
            ::sqlite3_extended_result_codes(db_, 1);
            sqlite_process()->open.push_back(db_);
        }
        return ok(code) && ok(::sqlite3_busy_handler(db_, &on_busy, this)) &&
               // Without mmap, a disk error is a code and no signal. With fullfsync, syncs do not
               // stop at the disk's cache, as fsync() does on some systems.
               ok(execute("PRAGMA mmap_size=0; PRAGMA fullfsync=1;"
                          " PRAGMA checkpoint_fullfsync=1")) &&
               choose_journal() &&
               ok_of_table(execute("CREATE TABLE IF NOT EXISTS main.bide_lock"
                                   " (key TEXT NOT NULL PRIMARY KEY, version INTEGER NOT NULL"
                                   " CHECK (typeof(version) = 'integer' AND version > 0),"
                                   " value BLOB NOT NULL CHECK (typeof(value) = 'blob'))"
                                   " WITHOUT ROWID")) &&
               prepare(select_, "SELECT version, value FROM main.bide_lock WHERE key = ?1") &&
               prepare(store_,
                       "INSERT INTO main.bide_lock (key, version, value) VALUES (?1, ?2, ?3)"
                       " ON CONFLICT (key) DO UPDATE SET version = ?2, value = ?3");
    }

    // Sets the journal mode, and the sync mode that keeps what is committed.
    bool choose_journal() {
        const bool is_safe = sqlite_wal_is_safe(::sqlite3_libversion_number());
        const bool is_automatic = options_.journal == sqlite_journal::automatic;
        std::string pages;
        std::string mode;
        // The page count is read before the mode, because another program that makes the database
        // sets the mode before it adds pages.
        if (is_automatic && (!ok(execute("PRAGMA page_count", &pages)) ||
                             !ok(execute("PRAGMA journal_mode", &mode)))) {
            return false;
        }
        if (mode == "wal" && !is_safe) {
            return fail(std::make_error_code(std::errc::operation_not_supported),
                        "WAL mode is not safe with this SQLite");
        }
        const bool tries_wal = is_automatic && is_safe && pages == "0"; // WAL needs shared memory
        const bool wants_wal = options_.journal == sqlite_journal::wal || mode == "wal";
        const std::string persist = "PRAGMA journal_mode=persist";
        if (!ok(execute(wants_wal || tries_wal ? "PRAGMA journal_mode=wal" : persist, &mode)) ||
            (tries_wal && mode != "wal" && !ok(execute(persist, &mode)))) {
            return false;
        }
        const bool is_wal = mode == "wal";
        const std::string level = is_wal ? "2" : "3"; // FULL, EXTRA
        std::string has;
        return ok(execute("PRAGMA synchronous=" + level + "; PRAGMA synchronous", &has)) &&
               ((has == level && (is_wal || mode == "persist") &&
                 (tries_wal || is_wal == wants_wal)) ||
                fail(std::make_error_code(std::errc::operation_not_supported),
                     "the database does not accept the journal mode"));
    }

    // SQLITE_ERROR means that the table is of another kind.
    bool ok_of_table(int code) {
        return code == SQLITE_ERROR ? fail(std::make_error_code(std::errc::invalid_argument),
                                           std::string("the table is not a table of locks: ") +
                                               ::sqlite3_errmsg(db_))
                                    : ok(code);
    }

    // ---- statements

    // Prepares a statement with the key as its first parameter. The connection keeps the statement.
    bool prepare(sqlite3_stmt*& to, std::string_view text) {
        return ok_of_table(::sqlite3_prepare_v3(db_, text.data(), static_cast<int>(text.size()),
                                                SQLITE_PREPARE_PERSISTENT, &to, nullptr)) &&
               ok(::sqlite3_bind_text(to, 1, key_.data(), static_cast<int>(key_.size()), nullptr));
    }

    // Runs statements without parameters. Some do not call the busy handler, so this function waits
    // and repeats them. Stores the first column of their row in `to`. Returns a code.
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
            code = ::sqlite3_exec(db_, text.c_str(), note, to, nullptr);
        } while (sqlite_primary(code) == SQLITE_BUSY && wait());
        return code;
    }

    // Pauses once, for 0.1 to 4 ms. Returns false if the waiting time is over. SQLite's own pauses
    // grow to 0.1 s: a waiter would lose to connections that try again at once.
    bool wait() noexcept {
        const auto left = wait_until_ - std::chrono::steady_clock::now();
        if (left <= left.zero()) {
            return false;
        }
        const std::chrono::microseconds moment(100 + jitter(3'900));
        std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(left, moment));
        return true;
    }
    static int on_busy(void* self, int) noexcept {
        return static_cast<sqlite_core*>(self)->wait() ? 1 : 0;
    }
    void begin_wait() noexcept {
        wait_until_ = std::chrono::steady_clock::now() + options_.retry_time;
    }

    // ---- the row

    // Reads the acknowledged version, and then the row. If the row has an earlier version,
    // acknowledged values are lost. If `to_change` is set, locks the database first: no other
    // connection writes or commits until the end of the operation.
    bool read(bool to_change) {
        there_ = {};
        if (!begin() || (to_change && !ok(execute("BEGIN IMMEDIATE")))) {
            return false;
        }
        const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> running(select_,
                                                                            &::sqlite3_reset);
        known_ = versions_.get();
        const int code = ::sqlite3_step(select_);
        if (code == SQLITE_ROW ? !copy_row() : code != SQLITE_DONE && !fail(code)) {
            return false;
        }
        if (known_.version > version()) {
            there_.lost_acknowledged = true;
            there_.fell_back = version() != 0; // a missing row may have been deleted
        }
        return known_.version == 0 || known_.version != version() ||
               known_.sum == crc32c(there_.value) ||
               fail(durable_errc::corrupt_record,
                    "the value is not the one that was stored as version " +
                        std::to_string(version()));
    }

    // Copies the row to which the statement has stepped. Fails if no slot can have stored it.
    bool copy_row() {
        constexpr const char* types[] = {"", "INTEGER", "REAL", "TEXT", "BLOB", "NULL"};
        const int of_version = ::sqlite3_column_type(select_, 0);
        const int of_value = ::sqlite3_column_type(select_, 1);
        const std::int64_t number = ::sqlite3_column_int64(select_, 0);
        const bool is_valid = of_version == SQLITE_INTEGER && number > 0 &&
                              number < std::numeric_limits<std::int64_t>::max() - 1;
        there_.version = is_valid ? static_cast<slot_version>(number) : 0;
        if (!is_valid || of_value != SQLITE_BLOB) {
            const std::string given =
                of_version != SQLITE_INTEGER ? types[of_version] : std::to_string(number);
            return fail(durable_errc::corrupt_record,
                        "the version is " + given + ", the value is " + types[of_value]);
        }
        const auto* const bytes = static_cast<const char*>(::sqlite3_column_blob(select_, 1));
        const auto size = static_cast<std::size_t>(::sqlite3_column_bytes(select_, 1));
        if (bytes == nullptr && size != 0) {
            return fail(SQLITE_NOMEM);
        }
        there_.value = std::string_view(bytes, size);
        return true;
    }

    // Stores the value in the transaction, and commits it. The new version is after that of the row
    // and the acknowledged one, and not before `least`.
    cas_result put(std::string_view value, slot_version least = 0) {
        if (!is_usable()) { // an update has forked, and this is the child
            return failed();
        }
        if (value.size() > options_.max_value) {
            fail(durable_errc::too_large, "the value is longer than max_value");
            return failed();
        }
        const slot_version next = std::max(
            {least, known_.version + 1, version() + 1, version() == 0 ? posix_io().clock_ns() : 0});
        const void* const bytes = value.empty() ? "" : value.data();
        int code = std::max({::sqlite3_bind_int64(store_, 2, static_cast<sqlite3_int64>(next)),
                             ::sqlite3_bind_blob64(store_, 3, bytes, value.size(), nullptr)});
        code = code == SQLITE_OK ? ::sqlite3_step(store_) : code;
        ::sqlite3_reset(store_);
        if (code != SQLITE_DONE) {
            fail(code);
            error_ = code == SQLITE_TOOBIG ? durable_errc::too_large : error_;
            return failed();
        }
        if (!ok(execute("COMMIT"))) {
            // SQLite rolls back a transaction that fails. After a system error, or in WAL mode a
            // lack of memory, the disk may hold all its changes: the next recovery applies them.
            const int primary = sqlite_primary(last_);
            return failed(primary == SQLITE_IOERR || primary == SQLITE_NOMEM ||
                          primary == SQLITE_INTERNAL);
        }
        versions_.set({next, crc32c(value)});
        return {cas_status::stored, next, {}, {}};
    }

    cas_result mend(std::string_view value) { return put(value, posix_io().clock_ns()); }

    const std::string path_; // absolute; any thread may read it
    const std::string key_;
    const sqlite_slot_options options_;
    std::chrono::steady_clock::time_point wait_until_{};
    sqlite_version_file versions_;
    ::pid_t owner_ = 0; // the process that opened the connection
    sqlite3* db_ = nullptr;
    sqlite3_stmt* select_ = nullptr; // the statements of the connection, if that is open
    sqlite3_stmt* store_ = nullptr;
    slot_snapshot there_{};        // the row that was read last; if corrupt, at most its version
    sqlite_known_version known_{}; // its acknowledged version
    int last_ = SQLITE_OK;         // the last failure in this operation
    std::string said_;             // about the last failure
};

} // namespace detail

BIDE_DURABLE_INLINE const std::error_category& sqlite_category() noexcept {
    return detail::only_sqlite_category();
}

BIDE_DURABLE_INLINE sqlite_slot::sqlite_slot(const std::string& path, std::string key,
                                             const sqlite_slot_options& options)
    : slot_handle(std::make_unique<detail::sqlite_core>(path, std::move(key), options)) {}

}} // namespace bide::BIDE_ABI

#endif
