// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_SQLITE_HPP
#define BIDE_DURABLE_SLOTS_SQLITE_HPP

/// \file
/// A slot in an SQLite database (3.24 or later; link -lsqlite3). One file holds many locks. A lock
/// may also share a database with the caller's own data; one transaction then commits the lock and
/// the work.
///
/// All processes run on one machine, and the database is on a local disk. SQLite's locks are not
/// reliable over a network. Containers share the directory of the file, at any path: SQLite finds
/// the journal and the log by the path of the database. The slot refuses a file with a second name
/// (a hard link) and a file that is mounted without its directory.
///
/// fork(): the child may use the slot object, which opens a new connection there. If a process
/// forks during an operation of a slot (inside an update, or while another thread is in an
/// operation), the child's operations fail with sqlite_slot_errc::forked. In WAL mode the program
/// must have no other connection to the same file open at the fork: the child would inherit
/// SQLite's notes of the parent's locks.
//
// Each slot is one row, found by its key, of the table
//
//   key TEXT PRIMARY KEY, version INTEGER, value BLOB
//
// If the table is missing, the slot makes it. One UPDATE exchanges a value: it names the old
// version and stores the next. The first value is stored by an INSERT that does nothing if the row
// exists. The first version is the time in nanoseconds since 1970. So the versions of a row that
// was deleted and made again do not repeat, unless the clock was set back by exactly that time.
//
// An acknowledged value is on the disk: the connection uses synchronous=FULL in WAL mode, and EXTRA
// with a persistent journal in the other mode. WAL mode is faster and is used where it is safe; see
// sqlite_journal. If another program changes the mode of the database later, the slot follows.
//
// The file `<path>-bide` beside the database holds the acknowledged version and checksum of each
// row, and the marks of presences; see detail/sqlite/version_file.hpp. Delete it only while no lock
// is held. If a row is older than its acknowledged version, it fell back: SQLite dropped the end of
// a log, or an older copy replaced the database. If the row is missing, it was deleted or it fell
// back: the slot sets lost_acknowledged only. If a value differs from its checksum, load() fails
// with durable_errc::corrupt_record. A commit of the caller's own transaction does not update the
// file.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/sqlite/caller_transaction.hpp>
#include <bide/durable/slots/detail/sqlite/connection.hpp>
#include <bide/durable/slots/detail/sqlite/error.hpp>
#include <bide/durable/slots/detail/sqlite/loss_detector.hpp>
#include <bide/durable/slots/detail/sqlite/path.hpp>
#include <bide/durable/slots/detail/sqlite/presence.hpp>
#include <bide/durable/slots/detail/sqlite/process.hpp>
#include <bide/durable/slots/detail/sqlite/statement.hpp>
#include <bide/durable/slots/detail/sqlite/text.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <sqlite3.h>

namespace bide::inline BIDE_ABI {

/// Options of an SQLite slot.
struct sqlite_slot_options {
    /// The table: an ASCII letter or _, then letters, digits and _; at most 64 characters; not
    /// "sqlite_" at the beginning.
    std::string table = "bide_lock";

    /// How the database file survives a crash.
    sqlite_journal journal = sqlite_journal::automatic;

    /// How long an operation waits while other connections use the database.
    std::chrono::milliseconds retry_time{10'000};

    /// The largest value in bytes. SQLite itself may have a lower limit.
    std::size_t max_value = std::size_t{64} << 20;
};

/// A slot in an SQLite database. Synced: see sqlite_slot and relaxed_sqlite_slot below.
template <bool Synced> class basic_sqlite_slot {
public:
    /// What the slot promises.
    static constexpr slot_guarantees guarantees{
        .keeps_acknowledged = Synced, .multi_host = false, .clock = lock_clock::boottime};

    /// A transaction of the caller.
    using transaction = sqlite_transaction;

    /// Remembers the path, the key and the options. The first operation opens the database, and
    /// makes it if it is missing. An operation opens the database again if the file was deleted or
    /// renamed, after most errors, and in a child of fork(). The path always names a file, never a
    /// URI; a relative path is resolved against the current working directory at once. The key is
    /// UTF-8 without zero bytes.
    /// Throws: std::system_error (invalid_argument) if path, key or table are not valid;
    /// std::bad_alloc.
    basic_sqlite_slot(std::string path, std::string key, sqlite_slot_options options = {});

    /// Reads the row.
    /// Blocks: while other connections write, at most for `retry_time`; then the call fails with
    /// timed_out. This holds for all operations; update_locked() waits at most twice as long, and
    /// while the update runs.
    /// Returns: other errors have a code of sqlite_category(). A path that cannot name a database
    /// has the system's code: EISDIR, EINVAL (not a regular file), EMLINK or EXDEV. A row that no
    /// slot can have stored is durable_errc::corrupt_record.
    /// Throws: std::bad_alloc, as do all operations.
    result<slot_snapshot, std::error_code> load();

    /// Stores the value if the version is still the current one.
    cas_result compare_exchange(slot_version version, std::string_view value);

    /// Calls the update while the database is locked, and stores what it returns.
    /// Requires: the update uses no slot of this database.
    /// Throws: what the update throws; nothing is stored then.
    cas_result update_locked(const slot_update& update);

    /// Replaces a row that load() reports as durable_errc::corrupt_record. If the row is good, the
    /// result is a conflict with the current value.
    cas_result replace_damaged(std::string_view value);

    /// Returns path, table, key, and the last failure in SQLite's words.
    std::string explain() const { return own_->link.explain(); }

#if defined(__linux__) && defined(F_OFD_SETLK)
    /// Takes a mark in `<path>-bide`.
    /// Returns: errc::operation_not_supported, if that file cannot be made or written.
    /// Thread safety: any thread may call at any time, also while the caller's transaction has
    /// locked the database.
    result<std::shared_ptr<slot_presence>, std::error_code> be_present() {
        return detail::be_present_beside(path_);
    }
    /// Looks for a mark.
    /// Thread safety: any thread may call at any time.
    presence is_present(std::int64_t mark) { return detail::is_present_beside(path_, mark); }
#endif

    /// Reads the row in a transaction of the caller.
    /// Returns: invalid_argument, if there is no transaction, or if its database is not the slot's.
    /// After an error SQLite may have rolled back the transaction; ask sqlite3_get_autocommit().
    /// SQLITE_BUSY returns immediately, unless the caller's connection has a busy handler.
    result<slot_snapshot, std::error_code> load_in(transaction& in) {
        return detail::sqlite_caller_transaction(own_->link, own_->detector, in).load_snapshot();
    }
    /// Stores the value in a transaction of the caller if the version is still the current one. The
    /// value is stored when the caller commits, and is as durable as the caller's connection makes
    /// it: that takes PRAGMA synchronous=FULL in WAL mode, and EXTRA otherwise. The result is never
    /// `indeterminate`; the result of the commit may be. Errors are those of load_in().
    cas_result compare_exchange_in(transaction& in, slot_version version, std::string_view value) {
        if (value.size() > options_.max_value) {
            return too_large();
        }
        return detail::sqlite_caller_transaction(own_->link, own_->detector, in)
            .exchange(version, value);
    }

private:
    // Does not move in memory when the slot moves.
    struct own {
        explicit own(detail::sqlite_connection::settings s)
            : link(std::move(s)), detector(link.of().table, link.of().key, Synced) {}

        detail::sqlite_connection link;
        detail::sqlite_loss_detector detector;
    };

    // One operation on the slot's connection. The destructor rolls back what was not committed.
    class operation;

    cas_result too_large() {
        own_->link.say("the value is longer than max_value");
        return detail::sqlite_failed(make_error_code(durable_errc::too_large));
    }

    std::string path_; // absolute
    sqlite_slot_options options_;
    std::unique_ptr<own> own_;
};

/// A slot that acknowledges a commit after it has reached the disk.
using sqlite_slot = basic_sqlite_slot<true>;

/// A slot with synchronous=NORMAL. A loss of power may take back the last acknowledged commits; a
/// crash of a process does not. Much faster in WAL mode.
using relaxed_sqlite_slot = basic_sqlite_slot<false>;

// ---- implementation

template <bool Synced> class basic_sqlite_slot<Synced>::operation {
public:
    explicit operation(own& on) noexcept : on_(on) {}
    operation(const operation&) = delete;
    operation& operator=(const operation&) = delete;
    ~operation() {
        if (is_in_) {
            if (detail::sqlite_process::here().is_still_here()) {
                on_.link.roll_back();
                on_.link.end(code);
            }
            detail::sqlite_process::here().leave();
        }
    }

    std::error_code begin() {
        if (!is_in_) {
            is_in_ = detail::sqlite_process::here().enter();
        }
        if (!is_in_) {
            return forked();
        }
        if (const std::error_code error = on_.link.begin()) {
            return error;
        }
        on_.detector.open(on_.link.of().path, on_.link.generation());
        return {};
    }

    // Locks the database. No other connection writes or commits until the end of the operation.
    std::error_code lock() {
        code = on_.link.execute("BEGIN IMMEDIATE");
        return code == SQLITE_OK ? std::error_code() : on_.link.failed(code);
    }

    std::error_code read(detail::sqlite_row& row) {
        on_.detector.load_known();
        const std::error_code error = on_.link.read(row, code);
        return error || on_.detector.check(row) ? error : on_.link.corrupt(row);
    }

    // Calls begin(), lock() and read().
    std::error_code begin_locked(detail::sqlite_row& row) {
        if (const std::error_code error = begin()) {
            return error;
        }
        if (const std::error_code error = lock()) {
            return error;
        }
        return read(row);
    }

    cas_result write(slot_version version, std::string_view value) {
        on_.detector.load_known(version);
        return on_.link.write(version, on_.detector.known(), value, code);
    }

    // Commits what was written under lock().
    cas_result commit(cas_result written, std::string_view value) {
        if (written.status != cas_status::stored) {
            if (written.status == cas_status::indeterminate) {
                written.status = cas_status::failed;
            }
            return written;
        }
        code = on_.link.execute("COMMIT");
        if (code != SQLITE_OK) {
            const std::error_code error = on_.link.failed(code);
            return detail::sqlite_failed_with(code, error);
        }
        return acknowledge(std::move(written), value);
    }

    cas_result acknowledge(cas_result written, std::string_view value) {
        if (written.status == cas_status::stored) {
            on_.detector.acknowledge(written.version, value);
        }
        return written;
    }

    std::error_code forked() {
        const std::error_code error = make_error_code(sqlite_slot_errc::forked);
        on_.link.say(error.message());
        return error;
    }

    int code = SQLITE_OK; // SQLite's last result

private:
    own& on_;
    bool is_in_ = false;
};

template <bool Synced>
basic_sqlite_slot<Synced>::basic_sqlite_slot(std::string path, std::string key,
                                             sqlite_slot_options options)
    : options_(std::move(options)) {
    if (path.empty() || path.find('\0') != path.npos || !detail::is_sqlite_name(options_.table) ||
        !detail::is_sqlite_text(key)) {
        BIDE_THROW(std::system_error(make_error_code(durable_errc::invalid_argument),
                                     "bide::sqlite_slot"));
    }
    path_ = detail::sqlite_absolute(std::move(path));
    own_ = std::make_unique<own>(detail::sqlite_connection::settings{
        path_, options_.table, std::move(key), options_.journal, options_.retry_time, Synced});
}

template <bool Synced> result<slot_snapshot, std::error_code> basic_sqlite_slot<Synced>::load() {
    operation now(*own_);
    if (const std::error_code error = now.begin()) {
        return unexpected{error};
    }
    detail::sqlite_row row;
    if (const std::error_code error = now.read(row)) {
        return unexpected{error};
    }
    return std::move(row.there);
}

template <bool Synced>
cas_result basic_sqlite_slot<Synced>::compare_exchange(slot_version version,
                                                       std::string_view value) {
    if (value.size() > options_.max_value) {
        return too_large();
    }
    operation now(*own_);
    if (const std::error_code error = now.begin()) {
        return detail::sqlite_failed(error);
    }
    cas_result r = now.write(version, value);
    if (now.code == SQLITE_READONLY_DBMOVED) { // the file was deleted after begin(): try once more
        if (const std::error_code error = now.begin()) {
            return detail::sqlite_failed(error);
        }
        r = now.write(version, value);
    }
    return now.acknowledge(std::move(r), value);
}

template <bool Synced>
cas_result basic_sqlite_slot<Synced>::update_locked(const slot_update& update) {
    operation now(*own_);
    detail::sqlite_row row;
    const std::error_code error = now.begin_locked(row);
    if (error) {
        return detail::sqlite_failed(error);
    }
    const std::optional<std::string> value = update(row.there);
    if (!detail::sqlite_process::here().is_still_here()) {
        return detail::sqlite_failed(now.forked());
    }
    if (!value) {
        return {cas_status::stored, row.there.version, {}, {}};
    }
    if (value->size() > options_.max_value) {
        return too_large();
    }
    own_->link.renew_retry_time();
    return now.commit(now.write(row.there.version, *value), *value);
}

template <bool Synced>
cas_result basic_sqlite_slot<Synced>::replace_damaged(std::string_view value) {
    if (value.size() > options_.max_value) {
        return too_large();
    }
    operation now(*own_);
    detail::sqlite_row row;
    const std::error_code error = now.begin_locked(row);
    if (!error) {
        return {cas_status::conflict, 0, std::move(row.there), {}};
    }
    if (error != durable_errc::corrupt_record) {
        return detail::sqlite_failed(error);
    }
    own_->link.renew_retry_time();
    return now.commit(own_->link.repair(row, own_->detector.known(), value, now.code), value);
}

} // namespace bide::inline BIDE_ABI

#endif
