// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SQLITE_PRESENCE_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SQLITE_PRESENCE_HPP

// The presences of holders, in the file beside a database. A call uses neither SQLite nor data of
// another call. So any thread may call at any time, also while a transaction of the caller has
// locked the database.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/file/presence_file.hpp>
#include <bide/durable/slots/detail/sqlite/path.hpp>
#include <bide/durable/slots/detail/sqlite/version_file.hpp>

#if defined(__linux__) && defined(F_OFD_SETLK)

#include <cstdint>
#include <memory>
#include <string>
#include <system_error>

namespace bide::inline BIDE_ABI {
namespace detail {

// Takes a mark of presence in the file beside the database.
// Returns: errc::operation_not_supported, if the file cannot be made or written.
// Throws: std::bad_alloc.
inline result<std::shared_ptr<slot_presence>, std::error_code>
be_present_beside(const std::string& database) {
    const std::string path = sqlite_resolved(database);
    sqlite_version_file("", "").open(path); // makes it with the database's owner and mode
    constexpr unsigned mode = 0644;         // the mode that SQLite gives to a database
    auto taken = presence_file(sqlite_version_file::path_beside(path), mode).be_present();
    if (!taken) {
        for (const std::errc e : {std::errc::permission_denied, std::errc::read_only_file_system,
                                  std::errc::operation_not_permitted}) {
            if (taken.error() == e) {
                return unexpected{std::make_error_code(std::errc::operation_not_supported)};
            }
        }
    }
    return taken;
}

// Throws: std::bad_alloc.
inline presence is_present_beside(const std::string& database, std::int64_t mark) {
    return presence_file(sqlite_version_file::path_beside(sqlite_resolved(database)), 0)
        .is_present(mark);
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif

#endif
