// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_JOIN_SET_CHILD_HPP
#define BIDE_SCHED_DETAIL_JOIN_SET_CHILD_HPP

// The children of a join_set: the group of all, and the list of those that have ended
// (ended_children.hpp). A child in the list has two references: the list's, and that of the thread
// that has run the child. Either of them may drop the last one, and that thread may do so after the
// end of the set. So the outcome is taken or destroyed with the list's reference, not with the cell.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/platform.hpp>
#include <bide/sched/detail/ended_children.hpp>
#include <bide/sched/detail/group.hpp>
#include <bide/sched/detail/group_member.hpp>
#include <bide/task/cancel_reason.hpp>
#include <bide/task/detail/task_body.hpp>
#include <bide/task/detail/task_header.hpp>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> struct basic_join_set_state {
    void cancel(cancel_reason why) noexcept {
        ended.cancel();
        all.cancel(why);
    }

    basic_ended_children<Platform> ended;
    basic_group<Platform> all;
};

// A child. It stays in the list of ended children, with a reference, until its outcome is taken.
template <class T, class Platform>
class basic_join_set_child : public basic_task_header<Platform>,
                             public basic_ended_children<Platform>::child {
    using header = basic_task_header<Platform>;
    using ended_children = basic_ended_children<Platform>;

public:
    basic_join_set_child(typename header::home_type& home, bool kept,
                         basic_join_set_state<Platform>& of) noexcept
        : header(home, kept), member_(of.all, *this), ended_(of.ended) {
        this->set_tag(of.all.tag());
    }

    basic_group_member<Platform>& member() noexcept { return member_; }
    deadline limit() const noexcept final { return member_.limit(); }
    const task_binding<Platform>* values() const noexcept final { return member_.values(); }

    kept_outcome<T>& kept() noexcept { return kept_; }
    void settled() noexcept {}

    // Returns the outcome of the child that try_reserve() or a wait has reserved, and drops its
    // reference.
    // Throws: the exception of the task; stopped_error if it never ran.
    static T take_reserved(ended_children& from) {
        struct last_reference {
            basic_join_set_child& c;
            ~last_reference() { c.drop_reference(); }
        } const mine{static_cast<basic_join_set_child&>(from.take_reserved())};
        if (mine.c.never_ran()) {
            throw_error(errc::stopped);
        }
        return mine.c.kept_.take();
    }

    // Destroys the outcomes that are left in the list, and drops their references.
    // Requires: all children have ended, and no thread waits.
    static void drop_all(ended_children& from) noexcept {
        while (auto* const left = from.take()) {
            auto& ended = static_cast<basic_join_set_child&>(*left);
            ended.kept_.drop(); // here: the thread that ran the child may free the cell later
            ended.drop_reference();
        }
    }

protected:
    ~basic_join_set_child() = default;

private:
    // To the group, no child fails. A child that the set's cancellation has stopped has no outcome.
    void discard_outcome() noexcept final {
        if ((this->never_ran() || kept_.is_stopped()) && ended_.was_cancelled()) {
            ended_.end(nullptr);
        } else {
            this->add_reference(); // for the list
            ended_.end(this);
        }
        member_.end(nullptr, false);
    }

    basic_group_member<Platform> member_;
    ended_children& ended_;
    kept_outcome<T> kept_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
