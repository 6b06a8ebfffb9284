// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_GROUP_MEMBER_HPP
#define BIDE_SCHED_DETAIL_GROUP_MEMBER_HPP

// A member of a group (group.hpp), which is a task.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/task_context.hpp>
#include <bide/task/detail/task_header.hpp>
#include <bide/task/detail/task_registry.hpp>

#include <exception>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_group;

// A field of the cell of each member.
template <class Platform>
class basic_group_member : public basic_task_links<Platform, basic_group_member<Platform>> {
    using header = basic_task_header<Platform>;

public:
    basic_group_member(basic_group<Platform>& of, header& its_task) noexcept
        : group_(of), task_(its_task) {}
    basic_group_member(const basic_group_member&) = delete;
    basic_group_member& operator=(const basic_group_member&) = delete;

    deadline limit() const noexcept { return group_.limit(); }
    const task_binding<Platform>* values() const noexcept { return group_.values(); }

    // Called when the task has ended and its frame is destroyed. `error` is its exception;
    // `stopped` means that it never ran.
    void end(std::exception_ptr error, bool stopped) noexcept {
        group_.ended(*this, std::move(error), stopped);
    }

private:
    friend class basic_group<Platform>;

    basic_group<Platform>& group_;
    header& task_;
    typename Platform::template var<bool> linked_{false}; // guarded by the group's lock
    bool is_body_ = false;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
