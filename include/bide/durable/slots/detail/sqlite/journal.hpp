// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SQLITE_JOURNAL_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SQLITE_JOURNAL_HPP

// SQLite's journal modes, and the versions of SQLite in which WAL mode is safe.

#include <bide/core/config.hpp>

namespace bide::inline BIDE_ABI {

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

namespace detail {

enum class sqlite_sync { normal = 1, full = 2, extra = 3 }; // the levels of PRAGMA synchronous

constexpr bool is_sqlite_wal_safe(int version) noexcept {
    return version >= 3'051'003 || (version >= 3'050'007 && version < 3'051'000) ||
           (version >= 3'044'006 && version < 3'045'000);
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
