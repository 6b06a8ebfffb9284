#ifndef BIDE_DURABLE_SLOTS_SQLITE_HPP
#define BIDE_DURABLE_SLOTS_SQLITE_HPP

// A slot in an SQLite database (3.24 or later; link -lsqlite3): many locks in one file, or locks
// beside the caller's own data, so that a lock and the work can be committed together.
//
// Each slot is a row, found by its key, of the table
//
//   key TEXT PRIMARY KEY, version INTEGER, value BLOB
//
// which is made where it is missing. A value is exchanged by one UPDATE that names the version and
// adds one to it; the first one is an INSERT that does nothing where the row is there, and begins
// with the nanoseconds since 1970, so that a row which was deleted and made again does not come to
// its old versions, as long as the clock is not set back by just so much.
//
// What is acknowledged is on the disk: with synchronous=FULL in WAL mode, and with EXTRA and a
// journal file that is kept in the other one. WAL mode is faster and is taken where it is safe, see
// sqlite_journal; who changes the mode of the database later changes it for the slot too. Everybody
// has to be on one machine, and the file on a disk of it: SQLite's locks are not to be relied on
// over a network.
//
// fork(): a slot object may go on to be used in the child, which opens a connection of its own. A
// child that was forked in the midst of a slot's operation, by an update or while another thread
// was in it, is answered sqlite_slot_errc::forked. In WAL mode no connection of the program's own
// to the same file may be open at the fork: the child would take over its notes of what is locked.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/sqlite_connection.hpp>
#include <bide/durable/slots/detail/sqlite_error.hpp>
#include <bide/durable/slots/detail/sqlite_process.hpp>
#include <bide/durable/slots/detail/sqlite_statement.hpp>
#include <bide/durable/slots/detail/sqlite_text.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <sqlite3.h>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/stat.h>
#endif

namespace bide::inline BIDE_ABI {

struct sqlite_slot_options {
    // An ASCII letter or _, then letters, digits and _, at most 64; not sqlite_...
    std::string table = "bide_lock";

    sqlite_journal journal = sqlite_journal::automatic;

    // So long an operation waits for others that use the database.
    std::chrono::milliseconds patience{10'000};

    // Larger values are refused, in bytes. SQLite itself may be set to less.
    std::size_t max_value = std::size_t{64} << 20;
};

// The caller's own connection to the database of the slot, within a transaction that he has begun
// (BEGIN IMMEDIATE, best).
struct sqlite_transaction {
    sqlite3* connection = nullptr;
    std::string schema = "main"; // as which the database is attached
};

// Synced or not: see the two names below.
template <bool Synced> class basic_sqlite_slot {
public:
    static constexpr slot_guarantees guarantees{
        .keeps_acknowledged = Synced, .multi_host = false, .clock = lock_clock::boottime};

    using transaction = sqlite_transaction;

    // Opens the database with the first operation, and makes it where it is missing; opens it anew
    // when the file was deleted or renamed, after most errors, and in a child process after fork().
    // Path: always a file's, never a URI. Key: UTF-8 without zeros.
    // Throws: std::system_error (invalid_argument) where path, key or table are not what is said
    // here; std::bad_alloc.
    basic_sqlite_slot(std::string path, std::string key, sqlite_slot_options options = {});

    // Blocks, all of them: as long as others are writing, at most `patience` (update_locked() twice
    // that, and the update), and then fails with timed_out. What else fails has a code of
    // sqlite_category(). A row that no slot can have stored is durable_errc::corrupt_record.
    // Throws, all of them: std::bad_alloc.
    result<slot_snapshot, std::error_code> load();
    cas_result compare_exchange(slot_version version, std::string_view value);

    // Requires: the update uses no slot of this database.
    // Throws: what the update throws; nothing is stored.
    cas_result update_locked(const slot_update& update);

    // In a transaction of the caller's. `stored` is not before he commits, and then as durable as
    // his connection makes it: PRAGMA synchronous=FULL in WAL mode, EXTRA otherwise. Never
    // indeterminate; the commit may be. With an error SQLite may have rolled back his transaction
    // (sqlite3_get_autocommit() says so); SQLITE_BUSY comes at once, unless he has a busy handler.
    // Fails with invalid_argument where there is no transaction, or the database is not the slot's.
    result<slot_snapshot, std::error_code> load_in(transaction& in);
    cas_result compare_exchange_in(transaction& in, slot_version version, std::string_view value);

private:
    using connection = detail::sqlite_connection;

    // An operation on the own connection; what it has begun and not committed is taken back.
    class operation;

    std::string table_in(const transaction& in) const {
        return '"' + in.schema + "\".\"" + options_.table + '"';
    }
    std::error_code check(const transaction& in) const;
    bool has_table(const transaction& in) const noexcept;

    std::string key_;
    sqlite_slot_options options_;
    std::unique_ptr<connection> link_; // it stays where it is when the slot moves
};

// Commits reach the disk before they are acknowledged.
using sqlite_slot = basic_sqlite_slot<true>;

// synchronous=NORMAL: a loss of power, though not a crash of processes, may take back what was
// acknowledged last. Much faster in WAL mode.
using relaxed_sqlite_slot = basic_sqlite_slot<false>;

// ---- implementation

template <bool Synced> class basic_sqlite_slot<Synced>::operation {
public:
    explicit operation(connection& on) noexcept : on_(on) {}
    operation(const operation&) = delete;
    operation& operator=(const operation&) = delete;
    ~operation() {
        if (is_in_) {
            if (detail::sqlite_process::here().is_still_here()) {
                on_.roll_back();
                on_.end(code);
            }
            detail::sqlite_process::here().leave();
        }
    }

    std::error_code begin() {
        is_in_ = detail::sqlite_process::here().enter();
        return is_in_ ? on_.begin() : make_error_code(sqlite_slot_errc::forked);
    }

    int code = SQLITE_OK; // what SQLite said last

private:
    connection& on_;
    bool is_in_ = false;
};

template <bool Synced>
basic_sqlite_slot<Synced>::basic_sqlite_slot(std::string path, std::string key,
                                             sqlite_slot_options options)
    : key_(std::move(key)), options_(std::move(options)) {
    if (path.empty() || path.find('\0') != path.npos || !detail::is_sqlite_name(options_.table) ||
        !detail::is_sqlite_text(key_)) {
        BIDE_THROW(std::system_error(make_error_code(durable_errc::invalid_argument),
                                     "bide::sqlite_slot"));
    }
    link_ = std::make_unique<connection>(
        connection::settings{std::move(path), "main.\"" + options_.table + '"', options_.journal,
                             options_.patience, Synced});
}

template <bool Synced> result<slot_snapshot, std::error_code> basic_sqlite_slot<Synced>::load() {
    operation now(*link_);
    if (const std::error_code error = now.begin()) {
        return unexpected{error};
    }
    slot_snapshot there;
    bool is_sound = true;
    now.code = link_->read(key_, there, is_sound);
    if (now.code != SQLITE_ROW && now.code != SQLITE_DONE) {
        return unexpected{detail::sqlite_code(now.code)};
    }
    if (!is_sound) {
        return unexpected{make_error_code(durable_errc::corrupt_record)};
    }
    return there;
}

template <bool Synced>
cas_result basic_sqlite_slot<Synced>::compare_exchange(slot_version version,
                                                       std::string_view value) {
    if (value.size() > options_.max_value) {
        return detail::sqlite_failed(make_error_code(durable_errc::too_large));
    }
    operation now(*link_);
    if (const std::error_code error = now.begin()) {
        return detail::sqlite_failed(error);
    }
    return link_->write(key_, version, value, now.code);
}

template <bool Synced>
cas_result basic_sqlite_slot<Synced>::update_locked(const slot_update& update) {
    operation now(*link_);
    if (const std::error_code error = now.begin()) {
        return detail::sqlite_failed(error);
    }
    now.code = link_->execute("BEGIN IMMEDIATE");
    if (now.code != SQLITE_OK) {
        return detail::sqlite_failed(detail::sqlite_code(now.code));
    }
    slot_snapshot there;
    bool is_sound = true;
    now.code = link_->read(key_, there, is_sound);
    if (now.code != SQLITE_ROW && now.code != SQLITE_DONE) {
        return detail::sqlite_failed(detail::sqlite_code(now.code));
    }
    if (!is_sound) {
        return detail::sqlite_failed(make_error_code(durable_errc::corrupt_record));
    }
    const std::optional<std::string> value = update(there);
    if (!detail::sqlite_process::here().is_still_here()) {
        return detail::sqlite_failed(make_error_code(sqlite_slot_errc::forked));
    }
    if (!value) {
        return {cas_status::stored, there.version, {}, {}};
    }
    if (value->size() > options_.max_value) {
        return detail::sqlite_failed(make_error_code(durable_errc::too_large));
    }
    link_->renew_patience();
    cas_result r = link_->write(key_, there.version, *value, now.code);
    if (r.status != cas_status::stored) {
        r.status = r.status == cas_status::indeterminate ? cas_status::failed : r.status;
        return r;
    }
    now.code = link_->execute("COMMIT");
    return now.code == SQLITE_OK ? r : detail::sqlite_failed_with(now.code);
}

// ---- In a transaction of the caller's

template <bool Synced>
std::error_code basic_sqlite_slot<Synced>::check(const transaction& in) const {
    const auto bad = make_error_code(durable_errc::invalid_argument);
    if (in.connection == nullptr || !detail::is_sqlite_name(in.schema) ||
        ::sqlite3_get_autocommit(in.connection) != 0) {
        return bad;
    }
    const char* const name = ::sqlite3_db_filename(in.connection, in.schema.c_str());
    if (name == nullptr) {
        return bad;
    }
#if defined(__unix__) || defined(__APPLE__)
    struct ::stat ours{};
    struct ::stat his{};
    if (::stat(link_->path().c_str(), &ours) != 0 || ::stat(name, &his) != 0 ||
        ours.st_dev != his.st_dev || ours.st_ino != his.st_ino) {
        return bad;
    }
#endif
    return {};
}

template <bool Synced>
bool basic_sqlite_slot<Synced>::has_table(const transaction& in) const noexcept {
    return ::sqlite3_table_column_metadata(in.connection, in.schema.c_str(), options_.table.c_str(),
                                           nullptr, nullptr, nullptr, nullptr, nullptr,
                                           nullptr) == SQLITE_OK;
}

template <bool Synced>
result<slot_snapshot, std::error_code> basic_sqlite_slot<Synced>::load_in(transaction& in) {
    if (const std::error_code error = check(in)) {
        return unexpected{error};
    }
    const detail::sqlite_texts texts(table_in(in));
    detail::sqlite_statement select;
    int code = select.prepare(in.connection, texts.select);
    if (code == SQLITE_ERROR && !has_table(in)) {
        return slot_snapshot();
    }
    slot_snapshot there;
    bool is_sound = true;
    if (code == SQLITE_OK) {
        code = detail::sqlite_read(select, key_, nullptr, there, is_sound);
    }
    if (code != SQLITE_ROW && code != SQLITE_DONE) {
        return unexpected{detail::sqlite_code(::sqlite3_extended_errcode(in.connection))};
    }
    if (!is_sound) {
        return unexpected{make_error_code(durable_errc::corrupt_record)};
    }
    return there;
}

template <bool Synced>
cas_result basic_sqlite_slot<Synced>::compare_exchange_in(transaction& in, slot_version version,
                                                          std::string_view value) {
    if (value.size() > options_.max_value) {
        return detail::sqlite_failed(make_error_code(durable_errc::too_large));
    }
    if (const std::error_code error = check(in)) {
        return detail::sqlite_failed(error);
    }
    const detail::sqlite_texts texts(table_in(in));
    int code = SQLITE_OK;
    if (version == 0) {
        code = ::sqlite3_exec(in.connection, texts.create.c_str(), nullptr, nullptr, nullptr);
    }
    detail::sqlite_statement change;
    if (code == SQLITE_OK) {
        code = change.prepare(in.connection, version == 0 ? texts.insert : texts.update);
    }
    if (code == SQLITE_ERROR && version != 0 && !has_table(in)) {
        return {cas_status::conflict, 0, {}, {}};
    }
    if (code != SQLITE_OK) {
        return detail::sqlite_failed(
            detail::sqlite_code(::sqlite3_extended_errcode(in.connection)));
    }
    cas_result r = detail::sqlite_write(change, key_, version, value, nullptr, code);
    if (r.status == cas_status::indeterminate) {
        r.status = cas_status::failed; // nothing is, before he commits
    }
    return r;
}

} // namespace bide::inline BIDE_ABI

#endif
