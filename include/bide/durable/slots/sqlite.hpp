// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_SQLITE_HPP
#define BIDE_DURABLE_SLOTS_SQLITE_HPP

/// \file
/// A slot in an SQLite database (3.24 or later; link -lsqlite3). One file holds many locks. They
/// may share a database with the caller's own data.
///
/// Requires: all processes run on one machine, and the database is on a local disk. Containers
/// share the directory of the file, at any path, and not the file alone: SQLite finds the journal
/// and the log by the path of the database. The slot refuses a file with a second name (a hard
/// link) and a file that is mounted without its directory.
///
/// The file `<path>-bide` beside the database holds the acknowledged version and checksum of each
/// row, and the marks of presence. Delete it only while no lock is held.
///
/// fork(): the child may use the slot object, which opens a new connection there. If a process
/// forks while a thread is in an operation of a slot or destroys a slot, the child's operations
/// fail with operation_not_permitted. In WAL mode, the program must have no other connection to the
/// same file open at the fork. Otherwise the child takes the parent's locks for its own.

#include <bide/durable/slot.hpp>

#include <chrono>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

constexpr bool sqlite_wal_is_safe(int version) noexcept {
    return version >= 3'051'003 || (version >= 3'050'007 && version < 3'051'000) ||
           (version >= 3'044'006 && version < 3'045'000);
}

} // namespace detail

/// Returns the category of SQLite's extended result codes. SQLITE_BUSY compares equal to
/// std::errc::timed_out, SQLITE_FULL to no_space_on_device, SQLITE_READONLY, _PERM and _AUTH to
/// permission_denied, SQLITE_IOERR to io_error, SQLITE_NOTADB and SQLITE_CORRUPT to protocol_error.
const std::error_category& sqlite_category() noexcept;

/// How the database file survives a crash.
enum class sqlite_journal {
    /// An empty database gets WAL mode if SQLite has shared memory and WAL is safe: from 3.51.3 on,
    /// in 3.50.x from 3.50.7 on, in 3.44.x from 3.44.6 on. A database in WAL mode keeps it; if WAL
    /// is not safe, operations fail with operation_not_supported. All others get `persist`.
    automatic,

    /// A write-ahead log, which is faster. Converts the database for all its users.
    wal,

    /// A rollback journal in a file that is kept. Converts a database in WAL mode for all its
    /// users, if no other connection has it open.
    persist
};

/// Options of an SQLite slot.
struct sqlite_slot_options {
    /// How the database file survives a crash.
    sqlite_journal journal = sqlite_journal::automatic;

    /// How long an operation waits while other connections use the database.
    std::chrono::milliseconds retry_time{10'000};

    /// The largest value in bytes. SQLite itself may have a lower limit.
    std::size_t max_value = std::size_t{64} << 20;
};

/// A slot in an SQLite database.
///
/// An operation waits while other connections write, at most for `retry_time`, and then fails with
/// timed_out. update_locked() waits at most twice as long, plus the time that the update takes. If
/// the update throws, update_locked() throws the same exception and stores nothing.
/// Requires: the update uses no slot of this database.
/// Throws: std::bad_alloc.
///
/// Errors have a code of sqlite_category(), or a std::errc:
/// \code
///   EISDIR, EINVAL, EMLINK, EXDEV  the path cannot name a database (or another system error)
///   operation_not_permitted        the process was forked during an operation
///   operation_not_supported        the database does not accept the journal mode; or it is in WAL
///                                  mode, and this SQLite may corrupt it when two connections write
///                                  and checkpoint at the same time: convert it (PRAGMA
///                                  journal_mode=DELETE), link a later SQLite, or set
///                                  sqlite_journal::wal if this SQLite is known to be repaired
///   invalid_argument               `bide_lock` is a view, or a table with other columns
/// \endcode
/// A row that no slot can have stored is durable_errc::corrupt_record.
///
/// be_present() takes a mark in `<path>-bide`, even while the database is locked. It returns
/// errc::operation_not_supported if that file cannot be made or written.
class sqlite_slot : public detail::slot_handle {
public:
    /// What the slot promises.
    static constexpr slot_guarantees guarantees{true, false, lock_clock::boottime};

    /// Remembers the path, the key and the options. The first operation opens the database, and
    /// makes it if it is missing. An operation opens the database again if the file was deleted or
    /// renamed, after most errors, and in a child of fork(). The path always names a file, never a
    /// URI; a relative path is resolved against the current working directory at once. The key is
    /// UTF-8 without zero bytes.
    /// Throws: std::system_error (invalid_argument) if path or key are not valid; std::bad_alloc.
    sqlite_slot(const std::string& path, std::string key, const sqlite_slot_options& options = {});
};

}} // namespace bide::BIDE_ABI

#if defined(BIDE_DURABLE_HEADER_ONLY)
#include <bide/durable/slots/impl/sqlite.hpp>
#endif

#endif
