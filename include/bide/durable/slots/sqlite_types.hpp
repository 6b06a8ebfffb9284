// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_SQLITE_TYPES_HPP
#define BIDE_DURABLE_SLOTS_SQLITE_TYPES_HPP

/// \file
/// The plain types of slots/sqlite.hpp: errors, options, and a transaction of the caller.

#include <bide/core/config.hpp>

#include <chrono>
#include <cstddef>
#include <string>
#include <system_error>
#include <type_traits>

struct sqlite3; // SQLite's connection

namespace bide { inline namespace BIDE_ABI {

/// The errors that a slot itself reports. Their codes are negative. The codes of SQLite, which are
/// in the same category, are positive.
enum class sqlite_slot_errc {
    /// The database is in WAL mode, and this version of SQLite may corrupt such a database when two
    /// connections write and checkpoint at the same time. Convert the database (PRAGMA
    /// journal_mode=DELETE), link a later SQLite, or set sqlite_journal::wal if this SQLite is
    /// known to be repaired.
    unsafe_wal = -1,

    /// The database does not accept the journal mode, or this SQLite does not accept the sync mode.
    other_mode = -2,

    /// The process was forked during an operation.
    forked = -3,

    /// The table's name belongs to a view, or to a table with other columns.
    other_table = -4
};

/// Returns the category of SQLite's extended result codes and of sqlite_slot_errc. The codes
/// compare equal to these conditions:
/// \code
///   SQLITE_BUSY                    std::errc::timed_out
///   SQLITE_FULL                    no_space_on_device
///   SQLITE_READONLY, _PERM, _AUTH  permission_denied
///   SQLITE_IOERR                   io_error
///   SQLITE_NOTADB, SQLITE_CORRUPT  protocol_error
///   SQLITE_CANTOPEN                the system's errno, which is in bits 16 and up
/// \endcode
const std::error_category& sqlite_category() noexcept;

/// Makes a std::error_code of a sqlite_slot_errc.
inline std::error_code make_error_code(sqlite_slot_errc e) noexcept {
    return {static_cast<int>(e), sqlite_category()};
}

/// How the database file survives a crash.
enum class sqlite_journal {
    /// If the database is empty, uses WAL where it is safe, otherwise `persist`. WAL is safe from
    /// SQLite 3.51.3 on, in 3.50.7 and later 3.50.x, and in 3.44.6 and later 3.44.x. Leaves an
    /// existing database in its mode. If that is WAL and WAL is not safe, fails with
    /// sqlite_slot_errc::unsafe_wal. With any rollback journal, the slot's connection uses
    /// `persist`.
    automatic,

    /// A write-ahead log, which is faster. Converts the database for all its users.
    wal,

    /// A rollback journal in a file that is kept. Converts a database in WAL mode for all its
    /// users; that requires that no other connection has it open.
    persist
};

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

/// A transaction on the caller's own connection to the slot's database. The caller has begun it,
/// with BEGIN IMMEDIATE at best.
struct sqlite_transaction {
    sqlite3* connection = nullptr; ///< the caller's connection
    std::string schema = "main";   ///< the name under which the database is attached
};

}} // namespace bide::BIDE_ABI

/// \cond
template <> struct std::is_error_code_enum<bide::sqlite_slot_errc> : std::true_type {};
/// \endcond

#endif
