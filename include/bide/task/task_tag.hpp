// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_TASK_TAG_HPP
#define BIDE_TASK_TASK_TAG_HPP

/// \file
/// A label that several tasks share, for dumps and traces.

#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>

#include <array>
#include <cstring>
#include <stdexcept>

namespace bide { inline namespace BIDE_ABI {

namespace detail {
struct tag_access;
} // namespace detail

/// Labels tasks that belong together, such as those of one part of a program or of one kind of
/// request. dump() (sched/report.hpp) and a trace show the text beside the name of a task.
/// \code
/// inline const bide::task_tag database("database");
/// scheduler.spawn(query(), {.tag = database});
/// \endcode
/// A tag is one byte in a task. So a process has at most 255 tags. The children of a task have its
/// tag: the children of when_all() and when_any(), and the members of a task_group or a join_set
/// that the task has made. A task that is spawned on a scheduler does not have the tag of the task
/// that spawned it.
class task_tag {
public:
    /// Constructs an empty object: no tag.
    constexpr task_tag() noexcept = default;

    /// Makes the tag of a text, or finds the tag of an equal text. The call compares the text with
    /// those of all tags. So a program should make its tags once. nullptr makes an empty tag.
    /// Requires: the text exists until the process ends, as a literal does. The text is not copied.
    /// Throws: std::length_error if there are 255 other tags.
    /// Thread safety: any thread may call it.
    explicit task_tag(const char* text);

    /// Returns the text, or nullptr if this object is empty.
    const char* text() const noexcept;

    /// Returns true if this object is not empty.
    constexpr explicit operator bool() const noexcept { return number_ != 0; }

    /// Compares tags.
    friend constexpr bool operator==(task_tag, task_tag) noexcept = default;

private:
    friend detail::tag_access;

    std::uint8_t number_ = 0; // in the table of the process
};

// ---- Implementation

namespace detail {

// The texts of all tags. The tag in place i has the number i + 1. Texts are only added, each in the
// first free place. So a caller that reaches a free place has compared its text with all others.
template <class Platform, std::size_t Size = 255> class BIDE_SHARED basic_tag_table {
public:
    // Returns the number of a text, from 1 on. Returns 0 if the table is full of other texts.
    std::uint8_t find_or_add(const char* text) noexcept {
        for (std::size_t i = 0; i < Size; ++i) {
            const char* there = nullptr;
            // Order: release [task_tag.text]; publishes the characters. Failure: acquire
            // [task_tag.text]; sees the characters of the text in this place, which are compared.
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
        // Order: acquire [task_tag.text]; sees the characters.
        return number == 0 ? nullptr : texts_[number - 1U].load(std::memory_order_acquire);
    }

private:
    static_assert(Size <= 255);

    std::array<typename Platform::template atomic<const char*>, Size> texts_{};
};

BIDE_SHARED inline constinit basic_tag_table<native_platform> all_tags;

// Converts tags to numbers and back, because tags are bytes in core/.
struct tag_access {
    static std::uint8_t number_of(task_tag tag) noexcept { return tag.number_; }
    static task_tag of(std::uint8_t number) noexcept {
        task_tag tag;
        tag.number_ = number;
        return tag;
    }
};

} // namespace detail

inline task_tag::task_tag(const char* text) {
    if (text != nullptr) {
        number_ = detail::all_tags.find_or_add(text);
        if (number_ == 0) {
            BIDE_THROW(std::length_error("bide::task_tag: more than 255 tags"));
        }
    }
}

inline const char* task_tag::text() const noexcept { return detail::all_tags.text_of(number_); }

}} // namespace bide::BIDE_ABI

#endif
