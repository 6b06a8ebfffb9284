// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_DETAIL_TASK_HEADER_HPP
#define BIDE_TASK_DETAIL_TASK_HEADER_HPP

// A spawned task, without the type of its outcome: a chain of coroutines or a function
// (task_control.hpp), the home in which it ends, and the gate that opens at its end. A cell
// (task_cell.hpp, sched/detail/group.hpp) adds what the task runs and what becomes of the
// outcome. So there are four levels: control, header, the
// owner of the outcome, cell.
//
// A task is one allocation. It is destroyed with its last reference. The scheduler has a reference
// until the task has ended. A join handle has another one.

#include <bide/core/config.hpp>
#include <bide/core/detail/noted.hpp>
#include <bide/core/executor.hpp>
#include <bide/sync/detail/gate.hpp>
#include <bide/task/detail/task_control.hpp>
#include <bide/task/detail/task_registry.hpp>

#include <atomic>
#include <cstdint>

namespace bide::inline BIDE_ABI {
namespace detail {

// What a task needs of its scheduler.
template <class Platform> class basic_task_home {
public:
    // Runs `r` on a thread of this home.
    virtual void post(runnable& r) noexcept = 0;

    // Returns the same as an executor.
    virtual executor_ref executor() noexcept = 0;

    // Returns the number of the list of waiting tasks for the calling thread: its worker's, if it
    // is a worker. The numbers are those from 0 on.
    virtual unsigned registry_here() const noexcept = 0;
    virtual basic_task_registry<Platform>& registry(unsigned number) noexcept = 0;

    // Returns true if the calling thread may end tasks: the thread belongs to this home and ends
    // before the home does.
    virtual bool is_here() const noexcept = 0;

    // Returns true if the home accepts no more tasks and cancels those that it has.
    virtual bool is_closing() const noexcept = 0;

    // Counts a task that has ended. This is the task's last access to its home. The caller wakes
    // the joiners of the task afterwards.
    virtual void task_ended() noexcept = 0;

protected:
    ~basic_task_home() = default;
};

// The links are those of the list in task_registry.hpp.
template <class Platform>
class basic_task_header : public basic_task_control<Platform>,
                          public basic_task_links<Platform, basic_task_header<Platform>> {
    using control = basic_task_control<Platform>;
    using control::state_;
    using control::tag_;

public:
    using home_type = basic_task_home<Platform>;
    using gate = basic_gate<Platform>;

    // If `kept`, the maker gets a reference and may ask for the outcome.
    basic_task_header(home_type& home, bool kept) noexcept
        : control(kept ? 2 : 1, kept), home_(home) {
        BIDE_CHECKED(note_made<Platform>(this, "the end of task");)
        BIDE_PROBE(task_spawn, this);
    }

    // Ends the task without running it, because the scheduler has shut down. It is called instead
    // of the first post().
    void refuse() noexcept {
        this->never_start();
        end();
    }

    void add_reference() noexcept { state_.add_reference(); }
    void drop_reference() noexcept {
        if (state_.drop_reference()) {
            destroy();
        }
    }

    // Order: acquire; the text, which the task may have written, for a dump.
    const char* name() const noexcept override { return name_.load(std::memory_order_acquire); }
    // Order: release; as above.
    void set_name(const char* name) noexcept override {
        name_.store(name, std::memory_order_release);
    }
    // Order: acquire [task.tag]; the tag's place in the table of tags, for a dump.
    std::uint8_t tag() const noexcept override { return tag_.load(std::memory_order_acquire); }
    // Order: release [task.tag]; the same.
    void set_tag(std::uint8_t tag) noexcept override { tag_.store(tag, std::memory_order_release); }

    // The gate that opens when the task ends, if it is kept.
    gate& ended_gate() noexcept { return ended_gate_; }

    // Gives up the right to ask for the outcome, and drops the reference.
    void forgo() noexcept {
        if (!state_.forgo()) {
            discard_outcome();
            drop_reference();
        }
    }

protected:
#if defined(BIDE_DEADLOCK_CHECK)
    ~basic_task_header() { note_gone<Platform>(this); }
#else
    ~basic_task_header() = default;
#endif

    // Called at the end: takes over the outcome and destroys what computed it.
    virtual void settle() noexcept = 0;
    // Called when no handle can ask for the outcome.
    virtual void discard_outcome() noexcept = 0;
    virtual void destroy() noexcept = 0;

    home_type& home() noexcept { return home_; }

private:
    void first_wait() noexcept override {
        // If the number is too large, a list with a smaller number will do.
        this->listed_in_ = static_cast<std::uint16_t>(home_.registry_here());
        if (!home_.registry(this->listed_in_).add(*this)) {
            this->cancel(cancel_reason::shutdown);
        }
    }
    bool is_closing() const noexcept override { return home_.is_closing(); }
    bool may_finish_here() const noexcept override { return home_.is_here(); }
    void post_home() noexcept override { home_.post(this->to_run()); }
    void finish() noexcept override {
        settle();
        end();
    }

    // Publishes the outcome. Counts the task as ended before the joiners are woken. So a joiner
    // never sees a count without this task.
    void end() noexcept {
        BIDE_PROBE(task_end, this, name(), static_cast<int>(this->was_cancelled()));
        if (this->has_waited()) {
            home_.registry(this->listed_in_).remove(*this);
        }
        home_.task_ended();
        if (!state_.is_alone() && state_.finish()) {
            ended_gate_.arrive(1);
        } else {
            discard_outcome();
        }
        drop_reference();
    }

    home_type& home_;
    gate ended_gate_{1};
    typename Platform::template atomic<const char*> name_{nullptr};
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
