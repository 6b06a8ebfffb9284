#ifndef BIDE_DURABLE_SLOTS_DETAIL_SQLITE_JOURNAL_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SQLITE_JOURNAL_HPP

// The modes in which SQLite keeps a database whole, and which of them a version of it can be trusted
// with.

#include <bide/core/config.hpp>

namespace bide::inline BIDE_ABI {

// How the database file is kept whole.
enum class sqlite_journal {
    // A database that has nothing in it yet becomes WAL where that is safe with this SQLite, which
    // is from 3.51.3 on (and in 3.50.7 and 3.44.6), else `persist`. One that is there already is
    // left as it is: in WAL mode where that is safe, and refused with sqlite_slot_errc::unsafe_wal
    // where not; with any rollback journal the slot uses `persist` for its part.
    automatic,

    // Write-ahead log; faster. The database is converted for all who use it.
    wal,

    // Rollback journal, a file that is kept. A database in WAL mode is converted for all who use
    // it, which has to wait until nobody else has it open.
    persist
};

namespace detail {

enum class sqlite_sync { normal = 1, full = 2, extra = 3 }; // as PRAGMA synchronous says them

constexpr bool is_sqlite_wal_safe(int version) noexcept {
    return version >= 3'051'003 || (version >= 3'050'007 && version < 3'051'000) ||
           (version >= 3'044'006 && version < 3'045'000);
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
