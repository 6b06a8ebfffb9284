// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_QUEUE_HOME_HPP
#define BIDE_SCHED_DETAIL_QUEUE_HOME_HPP

// The homes of tasks that pass through a queue of their own (spawn_options.hpp): high tasks, low tasks,
// and the tasks that are pinned to one thread. A home is the executor of its tasks. So the place to which
// a wake returns a task is in the executor that the task has anyway: the task has no member for it, and
// normal tasks do not ask.
//
// The scheduler's core is the home of normal tasks. It counts, registers and cancels the tasks of all
// homes.

#include <bide/core/config.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/sched/detail/lifecycle.hpp>
#include <bide/sched/detail/pool.hpp>
#include <bide/sched/spawn_options.hpp>
#include <bide/task/detail/task_cell.hpp>

namespace bide::inline BIDE_ABI {
namespace detail {

class queue_home : public task_home {
    using platform = native_platform;

public:
    using pool_type = basic_pool<platform>;
    using lifecycle = basic_lifecycle<platform, pool_type>;
    using worker = pool_type::worker;

    queue_home(task_home& core, pool_type& pool, lifecycle& life) noexcept
        : pool_(pool), core_(core), life_(life) {}
    queue_home(const queue_home&) = delete;
    queue_home& operator=(const queue_home&) = delete;

    // See basic_lifecycle.
    void start(task_header& t) noexcept final {
        life_.start(t, [this](runnable& r, worker*) noexcept { push(r); });
    }
    void post(runnable& r) noexcept final {
        life_.post(r, [this](runnable& one, worker*) noexcept { push(one); });
    }

    executor_ref executor() noexcept final { return executor_ref::to(*this); }
    unsigned registry_here() const noexcept final { return core_.registry_here(); }
    basic_task_registry<platform>& registry(unsigned number) noexcept final {
        return core_.registry(number);
    }
    bool is_here() const noexcept override { return core_.is_here(); }
    bool is_closing() const noexcept final { return core_.is_closing(); }
    void task_ended() noexcept final { core_.task_ended(); }
    const unhandled& handler() const noexcept final { return core_.handler(); }
    void enter() noexcept final { core_.enter(); }
    void leave() noexcept final { core_.leave(); }

protected:
    ~queue_home() = default;

    virtual void push(runnable& r) noexcept = 0;

    pool_type& pool_;

private:
    task_home& core_;
    lifecycle& life_;
};

class priority_home final : public queue_home {
public:
    priority_home(task_home& core, pool_type& pool, lifecycle& life, task_priority which) noexcept
        : queue_home(core, pool, life), class_(which) {}

private:
    void push(runnable& r) noexcept override { pool_.push(class_, r); }

    const task_priority class_;
};

// A pinned task also ends on its thread: there its coroutine and its function are destroyed.
class pinned_home final : public queue_home {
public:
    pinned_home(task_home& core, pool_type& pool, lifecycle& life, worker& of) noexcept
        : queue_home(core, pool, life), worker_(of) {}

    bool is_here() const noexcept override {
        return pool_type::thread_role::here().pinned == &worker_.pinned;
    }

private:
    void push(runnable& r) noexcept override { pool_.push_pinned(worker_, r); }

    worker& worker_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
