// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_FILE_SETTINGS_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_FILE_SETTINGS_HPP

// The options of a file slot, in the units that the implementation uses.

#include <bide/core/config.hpp>
#include <bide/durable/slots/detail/file/page_format.hpp>

#include <cstddef>
#include <cstdint>

namespace bide::inline BIDE_ABI {
namespace detail {

struct file_settings {
    bool is_synced = true;
    std::uint32_t page_size = 4 * file_page::granule; // a multiple of the granule
    std::size_t max_value = std::size_t{64} << 20;
    std::int64_t retry_time_ns = 10'000'000'000;
    unsigned mode = 0600;
    bool any_filesystem = false;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
