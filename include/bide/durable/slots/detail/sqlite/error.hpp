// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SQLITE_ERROR_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SQLITE_ERROR_HPP

// What SQLite's result codes mean for a connection, and for a write. A code is SQLite's if it is
// positive, and a sqlite_slot_errc if it is negative.

#include <bide/core/config.hpp>
#include <bide/durable/slots/sqlite_types.hpp>

#include <system_error>

#include <sqlite3.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// A code has three parts: SQLite's primary code in bits 0..7, its extension in bits 8..15, and for
// SQLITE_CANTOPEN the system's errno in bits 16 and up.
constexpr int sqlite_primary(int code) noexcept { return code & 0xff; }
constexpr int sqlite_system_error(int code) noexcept { return code < 0 ? 0 : code >> 16; }
constexpr int sqlite_code(sqlite_slot_errc e) noexcept { return static_cast<int>(e); }

// Returns true if certainly nothing was stored, after a write or a commit with this result. SQLite
// rolls back what fails. But after a system error in the last steps of a commit, the disk may hold
// a complete transaction, which the next recovery applies. In WAL mode a lack of memory can have
// the same effect.
constexpr bool sqlite_stored_nothing(int code) noexcept {
    const int primary = sqlite_primary(code);
    return primary != SQLITE_IOERR && primary != SQLITE_NOMEM && primary != SQLITE_INTERNAL;
}

// True if the connection can be used further after an error.
constexpr bool sqlite_is_harmless(int code) noexcept {
    const int primary = sqlite_primary(code);
    return primary == SQLITE_OK || primary == SQLITE_BUSY || primary == SQLITE_FULL ||
           primary == SQLITE_TOOBIG;
}

// Calls the steps in order, up to the first that does not return SQLITE_OK. Returns the last code.
template <class... Steps> int sqlite_in_order(Steps... step) {
    int code = SQLITE_OK;
    static_cast<void>((((code = step()) == SQLITE_OK) && ...));
    return code;
}

}}} // namespace bide::BIDE_ABI::detail

#endif
