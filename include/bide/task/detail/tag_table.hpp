// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_DETAIL_TAG_TABLE_HPP
#define BIDE_TASK_DETAIL_TAG_TABLE_HPP

// The texts of all tags (task/task_tag.hpp), by their numbers. Texts are only added, each in the first
// free place, so a caller that comes to a free place has seen all texts before it.

#include <bide/core/config.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform, std::size_t Size = 255> class BIDE_SHARED basic_tag_table {
public:
    constexpr basic_tag_table() noexcept = default;
    basic_tag_table(const basic_tag_table&) = delete;
    basic_tag_table& operator=(const basic_tag_table&) = delete;

    // Returns the number of a text: from 1 on, or 0 if the table is full of others.
    std::uint8_t find_or_add(const char* text) noexcept {
        for (std::size_t i = 0; i < Size; ++i) {
            const char* there = nullptr;
            // Order: release [task_tag.text]; the characters. Failure: acquire [task_tag.text]; those
            // of the text that is there, which are compared.
            if (texts_[i].compare_exchange_strong(there, text, std::memory_order_release,
                                                  std::memory_order_acquire) ||
                std::strcmp(there, text) == 0) {
                return static_cast<std::uint8_t>(i + 1);
            }
        }
        return 0;
    }

    // Returns nullptr for 0. Requires: find_or_add() has returned the number.
    const char* text_of(std::uint8_t number) const noexcept {
        // Order: acquire [task_tag.text]; the characters.
        return number == 0 ? nullptr : texts_[number - 1U].load(std::memory_order_acquire);
    }

private:
    static_assert(Size <= 255);

    std::array<typename Platform::template atomic<const char*>, Size> texts_{};
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
