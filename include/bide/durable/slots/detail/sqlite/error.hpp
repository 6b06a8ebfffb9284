// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SQLITE_ERROR_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SQLITE_ERROR_HPP

// SQLite's result codes as error codes, and what they tell about a write.

#include <bide/core/config.hpp>

#include <string>
#include <system_error>
#include <type_traits>

#include <sqlite3.h>

namespace bide::inline BIDE_ABI {

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

namespace detail {

// A code has three parts: SQLite's primary code in bits 0..7, its extension in bits 8..15, and for
// SQLITE_CANTOPEN the system's errno in bits 16 and up.
constexpr int sqlite_system_error(int code) noexcept { return code < 0 ? 0 : code >> 16; }

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
        if ((of_sqlite & 0xff) != of_sqlite) {
            text += " (" + std::to_string(of_sqlite) + ")";
        }
        if (const int of_system = sqlite_system_error(code)) {
            text += ": " + std::generic_category().message(of_system);
        }
        return text;
    }

    // A permanent error maps to a permanent errc.
    std::error_condition default_error_condition(int code) const noexcept override {
        if (code < 0) {
            switch (static_cast<sqlite_slot_errc>(code)) {
            case sqlite_slot_errc::forked:
                return std::make_error_condition(std::errc::operation_not_permitted);
            case sqlite_slot_errc::other_table:
                return std::make_error_condition(std::errc::invalid_argument);
            case sqlite_slot_errc::unsafe_wal:
            case sqlite_slot_errc::other_mode: break;
            }
            return std::make_error_condition(std::errc::operation_not_supported);
        }
        if (const int of_system = sqlite_system_error(code)) {
            return {of_system, std::generic_category()};
        }
        switch (code & 0xff) {
        case SQLITE_BUSY:
        case SQLITE_LOCKED: return std::make_error_condition(std::errc::timed_out);
        case SQLITE_FULL: return std::make_error_condition(std::errc::no_space_on_device);
        case SQLITE_NOMEM: return std::make_error_condition(std::errc::not_enough_memory);
        case SQLITE_IOERR: return std::make_error_condition(std::errc::io_error);
        case SQLITE_PERM:
        case SQLITE_AUTH:
        case SQLITE_READONLY: return std::make_error_condition(std::errc::permission_denied);
        case SQLITE_CONSTRAINT:
            return std::make_error_condition(std::errc::operation_not_permitted);
        case SQLITE_NOTADB:
        case SQLITE_FORMAT:
        case SQLITE_CORRUPT: return std::make_error_condition(std::errc::protocol_error);
        case SQLITE_MISUSE: return std::make_error_condition(std::errc::function_not_supported);
        default: return {code, *this};
        }
    }
};

// Returns true if certainly nothing was stored, after a write or a commit with this result. SQLite
// rolls back what fails. But after a system error in the last steps of a commit, the disk may hold
// a complete transaction, which the next recovery applies. In WAL mode a lack of memory can have
// the same effect.
inline bool sqlite_stored_nothing(int code) noexcept {
    switch (code & 0xff) {
    case SQLITE_IOERR:
    case SQLITE_NOMEM:
    case SQLITE_INTERNAL: return false;
    default: return true;
    }
}

// True if the connection can be used further.
inline bool sqlite_is_harmless(int code) noexcept {
    switch (code & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
    case SQLITE_BUSY:
    case SQLITE_FULL:
    case SQLITE_TOOBIG: return true;
    default: return false;
    }
}

} // namespace detail

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
inline const std::error_category& sqlite_category() noexcept {
    static const detail::sqlite_category_type category;
    return category;
}

inline std::error_code make_error_code(sqlite_slot_errc e) noexcept {
    return {static_cast<int>(e), sqlite_category()};
}

namespace detail {
inline std::error_code sqlite_code(int code) noexcept { return {code, sqlite_category()}; }
} // namespace detail

} // namespace bide::inline BIDE_ABI

template <> struct std::is_error_code_enum<bide::sqlite_slot_errc> : std::true_type {};

#endif
