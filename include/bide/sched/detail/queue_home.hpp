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
#include <bide/sched/detail/lifecycle.hpp>
#include <bide/sched/detail/pool.hpp>
#include <bide/sched/spawn_options.hpp>
#include <bide/task/detail/task_cell.hpp>
#include <bide/task/detail/task_header.hpp>
#include <bide/task/detail/task_registry.hpp>

namespace bide::inline BIDE_ABI {
namespace detail {

// `Home` is task_home, or that of a model.
template <class Platform, class Home> class basic_queue_home : public Home {
public:
    using pool_type = basic_pool<Platform>;
    using lifecycle = basic_lifecycle<Platform, pool_type>;
    using worker = typename pool_type::worker;

    basic_queue_home(Home& core, pool_type& its_pool, lifecycle& life) noexcept
        : pool_(its_pool), core_(core), life_(life) {}
    basic_queue_home(const basic_queue_home&) = delete;
    basic_queue_home& operator=(const basic_queue_home&) = delete;

    // See basic_lifecycle.
    void start(basic_task_header<Platform>& t) noexcept final {
        life_.start(t, [this](runnable& one, worker*) noexcept { push(one); });
    }
    void post(runnable& r) noexcept final {
        life_.post(r, [this](runnable& one, worker*) noexcept { push(one); });
    }

    executor_ref executor() noexcept final { return executor_ref::to(*this); }
    unsigned registry_here() const noexcept final { return core_.registry_here(); }
    basic_task_registry<Platform>& registry(unsigned number) noexcept final {
        return core_.registry(number);
    }
    bool is_here() const noexcept override { return core_.is_here(); }
    bool is_closing() const noexcept final { return core_.is_closing(); }
    void task_ended() noexcept final { core_.task_ended(); }
    const unhandled& handler() const noexcept final { return core_.handler(); }
    void enter() noexcept final { core_.enter(); }
    void leave() noexcept final { core_.leave(); }

protected:
    ~basic_queue_home() = default;

    virtual void push(runnable& r) noexcept = 0;

    pool_type& pool_;

private:
    Home& core_;
    lifecycle& life_;
};

template <class Platform, class Home>
class basic_priority_home final : public basic_queue_home<Platform, Home> {
    using base = basic_queue_home<Platform, Home>;

public:
    basic_priority_home(Home& core, typename base::pool_type& its_pool,
                        typename base::lifecycle& life, task_priority which) noexcept
        : base(core, its_pool, life), class_(which) {}

private:
    void push(runnable& r) noexcept override { this->pool_.push(class_, r); }

    const task_priority class_;
};

// A pinned task also ends on its thread: there its coroutine and its function are destroyed.
template <class Platform, class Home>
class basic_pinned_home final : public basic_queue_home<Platform, Home> {
    using base = basic_queue_home<Platform, Home>;
    using pool_type = typename base::pool_type;

public:
    basic_pinned_home(Home& core, pool_type& its_pool, typename base::lifecycle& life,
                      typename pool_type::worker& of) noexcept
        : base(core, its_pool, life), worker_(of) {}

    bool is_here() const noexcept override {
        return pool_type::thread_role::here().pinned == &worker_.pinned;
    }

private:
    void push(runnable& r) noexcept override { this->pool_.push_pinned(worker_, r); }

    typename pool_type::worker& worker_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
