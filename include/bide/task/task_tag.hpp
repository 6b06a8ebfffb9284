// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_TASK_TAG_HPP
#define BIDE_TASK_TASK_TAG_HPP

/// \file
/// A mark that tasks share, for dumps and traces.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>
#include <bide/task/detail/tag_table.hpp>

#include <cstdint>
#include <stdexcept>

namespace bide::inline BIDE_ABI {

namespace detail {
struct tag_access;
} // namespace detail

/// Marks tasks that belong together, whatever their names are: those of one part of a program, or of
/// one kind of request. scheduler::dump() and a trace show the text beside the name of a task.
/// \code
/// inline const bide::task_tag database("database");
/// scheduler.spawn(query(), {.tag = database});
/// \endcode
/// A tag is one byte in a task. So a process has at most 255 of them. The children of a task have its
/// tag: those of when_all() and when_any(), and the members of a task_group or a join_set that it has
/// made. A task that is spawned on a scheduler does not have the tag of its spawner.
class task_tag {
public:
    /// Constructs an object that is no tag.
    constexpr task_tag() noexcept = default;

    /// Makes the tag of a text, or finds it: tags of equal texts are equal. Compares the text with
    /// those of all tags, so a program makes its tags once. nullptr is no tag.
    /// Requires: the text stays for ever, as a literal does; it is not copied.
    /// Throws: std::length_error if there are 255 other tags.
    /// Thread safety: any thread may call it.
    explicit task_tag(const char* text);

    /// Returns the text, or nullptr if this is no tag.
    const char* text() const noexcept;

    /// Returns true if this is a tag.
    constexpr explicit operator bool() const noexcept { return number_ != 0; }

    /// Compares tags.
    friend constexpr bool operator==(task_tag, task_tag) noexcept = default;

private:
    friend detail::tag_access;

    std::uint8_t number_ = 0; // in the table of the process
};

// ---- Implementation

namespace detail {

BIDE_SHARED inline constinit basic_tag_table<native_platform> all_tags;

// Tags are bytes in core/.
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

} // namespace bide::inline BIDE_ABI

#endif
