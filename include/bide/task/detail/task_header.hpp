#ifndef BIDE_TASK_DETAIL_TASK_HEADER_HPP
#define BIDE_TASK_DETAIL_TASK_HEADER_HPP

// A spawned task, whatever it computes: a chain of coroutines or a function (task_control.hpp), the
// home that it ends in, and how its end is waited for. One allocation, which the typed cell
// (task_cell.hpp) makes; it goes with the last reference: the scheduler's, until the task has ended,
// and the join handle's.

#include <bide/core/config.hpp>
#include <bide/core/executor.hpp>
#include <bide/sync/detail/gate.hpp>
#include <bide/task/detail/task_control.hpp>
#include <bide/task/detail/task_registry.hpp>

namespace bide::inline BIDE_ABI {
namespace detail {

// Where tasks live: what a header needs of its scheduler.
template <class Platform> class basic_task_home {
public:
    virtual void post(runnable& r) noexcept = 0;

    // The same as an executor.
    virtual executor_ref executor() noexcept = 0;

    // The list of tasks of the worker that this thread is, or of another one.
    virtual basic_task_registry<Platform>& registry() noexcept = 0;

    // Whether this thread may end tasks: it is one of this home's, and goes before it does.
    virtual bool is_here() const noexcept = 0;

    // It takes no more tasks, and cancels those that it has.
    virtual bool is_closing() const noexcept = 0;

    // One more task has ended, but for telling who joins it, which this thread does next; the last
    // touch of the home.
    virtual void task_ended() noexcept = 0;

protected:
    ~basic_task_home() = default;
};

template <class Platform> class basic_task_header : public basic_task_control<Platform> {
    using control = basic_task_control<Platform>;
    using control::state_;

public:
    using home_type = basic_task_home<Platform>;
    using gate = basic_gate<Platform>;

    // Kept: somebody has a reference and may ask for the outcome.
    basic_task_header(home_type& home, const char* name, bool kept) noexcept
        : control(kept ? 2 : 1, kept), home_(home), name_(name) {}

    // It will not run: the scheduler is at its end. Instead of the first post().
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

    const char* name() const noexcept override { return name_; }

    // Opens at its end, if somebody may ask.
    gate& ended_gate() noexcept { return ended_gate_; }

    // Nobody will ask for the outcome. Drops the reference.
    void forgo() noexcept {
        if (!state_.forgo()) {
            discard_outcome();
            drop_reference();
        }
    }

    // The list's (task_registry.hpp), under its lock:
    typename Platform::template var<basic_task_header*> registry_next{nullptr};
    typename Platform::template var<basic_task_header*> registry_prev{nullptr};

protected:
    ~basic_task_header() = default;

    // What the typed part does at the end: takes the outcome over and destroys what computed it.
    virtual void settle() noexcept = 0;
    // An exception that nobody asked for is reported.
    virtual void discard_outcome() noexcept = 0;
    virtual void destroy() noexcept = 0;

    home_type& home() noexcept { return home_; }

private:
    void first_wait() noexcept override {
        registry_ = &home_.registry();
        if (!registry_->add(*this)) {
            this->cancel();
        }
    }
    bool is_closing() const noexcept override { return home_.is_closing(); }
    bool may_finish_here() const noexcept override { return home_.is_here(); }
    void post_home() noexcept override { home_.post(this->to_run()); }
    void finish() noexcept override {
        settle();
        end();
    }

    // Its outcome stands. It is counted before anybody is told: who has joined it finds it counted.
    void end() noexcept {
        if (registry_ != nullptr) {
            registry_->remove(*this);
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
    basic_task_registry<Platform>* registry_ = nullptr;
    const char* name_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
