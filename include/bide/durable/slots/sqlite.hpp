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
// sqlite_journal. If another program changes the mode of the database later, it changes for the slot
// too.
//
// All processes are on one machine, and the file is on a disk of it: SQLite's locks are not to be
// relied on over a network. Containers share the directory of the file, at whatever path: SQLite
// finds the journal and the log of a database by its path. A file with a second name (a hard link),
// or one that is mounted without its directory, is refused.
//
// Beside the database is `<path>-bide`, with marks of what was acknowledged and of which holders are
// there; see detail/sqlite_version_file.hpp. Delete it only while no lock is held. If a row is earlier than
// its mark, it fell back: the end of a log was dropped, or a copy of the database was put in its
// place. If a row is missing and has a mark, it was deleted or it fell back: the slot sets
// lost_acknowledged only. If a value differs from its mark, it is durable_errc::corrupt_record. A
// commit of the caller's own transaction leaves no mark.
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
#include <bide/durable/slots/detail/sqlite_caller_transaction.hpp>
#include <bide/durable/slots/detail/sqlite_path.hpp>
#include <bide/durable/slots/detail/sqlite_presence.hpp>
#include <bide/durable/slots/detail/sqlite_process.hpp>
#include <bide/durable/slots/detail/sqlite_statement.hpp>
#include <bide/durable/slots/detail/sqlite_text.hpp>
#include <bide/durable/slots/detail/sqlite_loss_detector.hpp>

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

struct sqlite_slot_options {
    // An ASCII letter or _, then letters, digits and _, at most 64; not sqlite_...
    std::string table = "bide_lock";

    sqlite_journal journal = sqlite_journal::automatic;

    // So long an operation waits for others that use the database.
    std::chrono::milliseconds patience{10'000};

    // Larger values are refused, in bytes. SQLite itself may be set to less.
    std::size_t max_value = std::size_t{64} << 20;
};

// Synced or not: see the two names below.
template <bool Synced> class basic_sqlite_slot {
public:
    static constexpr slot_guarantees guarantees{
        .keeps_acknowledged = Synced, .multi_host = false, .clock = lock_clock::boottime};

    using transaction = sqlite_transaction;

    // Opens the database with the first operation, and makes it where it is missing; opens it anew
    // when the file was deleted or renamed, after most errors, and in a child process after fork().
    // Path: always a file's, never a URI; from the working directory of now. Key: UTF-8 without zeros.
    // Throws: std::system_error (invalid_argument) where path, key or table are not what is said
    // here; std::bad_alloc.
    basic_sqlite_slot(std::string path, std::string key, sqlite_slot_options options = {});

    // Blocks, all of them: as long as others are writing, at most `patience` (update_locked() twice
    // that, and the update), and then fails with timed_out. What else fails has a code of
    // sqlite_category(), or for a path that cannot be a database's the system's: EISDIR, EINVAL for
    // a FIFO and its kin, EMLINK, EXDEV. A row that no slot can have stored is
    // durable_errc::corrupt_record.
    // Throws, all of them: std::bad_alloc.
    result<slot_snapshot, std::error_code> load();
    cas_result compare_exchange(slot_version version, std::string_view value);

    // Requires: the update uses no slot of this database.
    // Throws: what the update throws; nothing is stored.
    cas_result update_locked(const slot_update& update);

    // Over a row that is durable_errc::corrupt_record; else a conflict, with what is there.
    cas_result replace_damaged(std::string_view value);

    // Path, table and key, and the last failure in SQLite's words.
    std::string explain() const { return own_->link.explain(); }

#if defined(__linux__) && defined(F_OFD_SETLK)
    // By any thread at any time, also while the caller's transaction has locked the database.
    // Errors: errc::operation_not_supported where `<path>-bide` cannot be made or written.
    result<std::shared_ptr<slot_presence>, std::error_code> be_present() {
        return detail::be_present_beside(path_);
    }
    presence is_present(std::int64_t mark) { return detail::is_present_beside(path_, mark); }
#endif

    // In a transaction of the caller's. `stored` is not before he commits, and then as durable as
    // his connection makes it: PRAGMA synchronous=FULL in WAL mode, EXTRA otherwise. Never
    // indeterminate; the commit may be. With an error SQLite may have rolled back his transaction
    // (sqlite3_get_autocommit() says so); SQLITE_BUSY comes at once, unless he has a busy handler.
    // Fails with invalid_argument where there is no transaction, or the database is not the slot's.
    result<slot_snapshot, std::error_code> load_in(transaction& in) {
        return detail::sqlite_caller_transaction(own_->link, own_->detector, in).load();
    }
    cas_result compare_exchange_in(transaction& in, slot_version version, std::string_view value) {
        if (value.size() > options_.max_value) {
            return too_large();
        }
        return detail::sqlite_caller_transaction(own_->link, own_->detector, in).exchange(version, value);
    }

private:
    // It stays where it is when the slot moves.
    struct own {
        explicit own(detail::sqlite_connection::settings s)
            : link(std::move(s)), detector(link.of().table, link.of().key, Synced) {}

        detail::sqlite_connection link;
        detail::sqlite_loss_detector detector;
    };

    // An operation on the own connection; what it has begun and not committed is taken back.
    class operation;

    cas_result too_large() {
        own_->link.say("the value is longer than max_value");
        return detail::sqlite_failed(make_error_code(durable_errc::too_large));
    }

    std::string path_; // absolute
    sqlite_slot_options options_;
    std::unique_ptr<own> own_;
};

// Commits reach the disk before they are acknowledged.
using sqlite_slot = basic_sqlite_slot<true>;

// synchronous=NORMAL: a loss of power, though not a crash of processes, may take back what was
// acknowledged last. Much faster in WAL mode.
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

    // From here on others neither write nor commit.
    std::error_code lock() {
        code = on_.link.execute("BEGIN IMMEDIATE");
        return code == SQLITE_OK ? std::error_code() : on_.link.failed(code);
    }

    std::error_code read(detail::sqlite_row& row) {
        on_.detector.load_known();
        const std::error_code error = on_.link.read(row, code);
        return error || on_.detector.check(row) ? error : on_.link.corrupt(row);
    }

    // begin(), lock() and read().
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

    // What was written under lock().
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

    int code = SQLITE_OK; // what SQLite said last

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
        path_, options_.table, std::move(key), options_.journal, options_.patience,
        Synced});
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
    if (now.code == SQLITE_READONLY_DBMOVED) { // deleted since it was looked at: once more
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
    own_->link.renew_patience();
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
    own_->link.renew_patience();
    return now.commit(own_->link.repair(row, own_->detector.known(), value, now.code), value);
}

} // namespace bide::inline BIDE_ABI

#endif
