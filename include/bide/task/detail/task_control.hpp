// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_DETAIL_TASK_CONTROL_HPP
#define BIDE_TASK_DETAIL_TASK_CONTROL_HPP

// A chain of coroutines that can be cancelled: its state (task_state.hpp), the runnable that
// resumes it, and the waker that interrupts its wait. A spawned task is one (task_header.hpp), and
// so is each child of when_all and when_any (when_state.hpp).

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/detail/task_context.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/waker.hpp>
#include <bide/task/cancel_reason.hpp>
#include <bide/task/detail/task_state.hpp>

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_group;

// The groups (sched/detail/group.hpp) that a thread cancels, one after the other.
template <class Platform> struct BIDE_SHARED cancel_round {
    basic_group<Platform>* first = nullptr;
    basic_group<Platform>* last = nullptr;

    // The round of the calling thread, or nullptr. While a cancellation calls user code, the round
    // is nullptr, because that code may wait for a group that it cancels itself.
    static cancel_round*& here() noexcept { return Platform::template local<current>().now; }

    // Sets the round of the calling thread, and restores the outer one in its destructor.
    class scope {
    public:
        explicit scope(cancel_round* round) noexcept : outer_(std::exchange(here(), round)) {}
        scope(const scope&) = delete;
        scope& operator=(const scope&) = delete;
        ~scope() { here() = outer_; }

    private:
        cancel_round* const outer_;
    };

private:
    struct current {
        cancel_round* now = nullptr;
    };
};

template <class Platform> class basic_task_control : public basic_task_context<Platform> {
    using local = worker_local<Platform>;

public:
    using state = basic_task_state<Platform>;

    basic_task_control(const basic_task_control&) = delete;
    basic_task_control& operator=(const basic_task_control&) = delete;

    // The runnable that starts the task or resumes it.
    runnable& to_run() noexcept { return run_; }

    // --- The context of its coroutines

    bool begin_wait(std::coroutine_handle<> leaf, suspension& at) noexcept override {
        leaf_ = leaf;
        at_ = &at;
        if (!has_waited_) {
            has_waited_ = true;
            first_wait();
        }
        const bool may_wait = state_.begin_wait();
        if (!may_wait) {
            request_stop(); // the canceller may not have done this yet
        }
        return may_wait;
    }
    void end_wait() noexcept override { state_.end_wait(); }
    executor_ref goes_on_at() const noexcept override {
        return state_.is_waiting() ? *at_->where : executor_ref();
    }
    void wake() noexcept override {
        if (state_.wake()) {
            post_there();
        }
    }
    bool has_begun_enough() noexcept override {
        return refused_ == local::whole_budget || ++refused_ == local::whole_budget;
    }
    runnable& resumption(std::coroutine_handle<> leaf, suspension& at) noexcept override {
        leaf_ = leaf;
        if (at_ != &at) { // else a canceller may read it now
            at_ = &at;
        }
        return run_;
    }
    bool is_cancelled() noexcept override {
        if (is_closing()) {
            cancel(cancel_reason::shutdown);
        }
        const bool cancelled = state_.is_cancelled();
        if (cancelled) {
            request_stop(); // as above: a task that knows finds its token stopped
        }
        return cancelled;
    }
    std::coroutine_handle<> ended() noexcept override {
        ended_ = true;
        local& here = local::get();
        if (here.running == this) {
            here.running = nullptr; // run() reads this
            here.over = this;
        } else {
            post_home(); // a thread resumed the chain without run()
        }
        return std::noop_coroutine();
    }

    // --- Called by any thread

    // Requests cancellation. Returns false if the task has ended.
    bool cancel(cancel_reason why = cancel_reason::requested) noexcept {
        switch (state_.cancel(why)) {
        case state::cancelling::too_late: return false;
        case state::cancelling::claimed:
            at_->interrupt.wake();
            request_stop(); // before the task learns that its wait is stopped
            if (state_.end_claim()) {
                post_there();
            }
            return true;
        case state::cancelling::noted:
            if (state_.is_cancelled()) {
                request_stop();
            }
            return true;
        }
        return true;
    }

    bool is_complete() const noexcept { return state_.is_complete(); }
    bool is_waiting() const noexcept { return state_.is_waiting(); }
    bool was_cancelled() const noexcept { return state_.was_cancelled(); }
    // Returns true if set_never_ran() was called. Requires: it has ended.
    bool never_ran() const noexcept { return never_ran_; }
    cancel_reason reason() const noexcept { return state_.reason(); }

    // --- Called by the task itself

    // Adds a shield. Returns false if there are max_shields.
    bool shield() noexcept { return state_.shield(); }
    void unshield() noexcept {
        if (state_.unshield()) {
            request_stop();
        }
    }

    // Terminates if the first call finds no memory for the stop state.
    typename Platform::stop_token get_stop_token() noexcept;

protected:
    basic_task_control(unsigned references, bool kept) noexcept : state_(references, kept) {
        run_.run =
            waker([](void* self) noexcept { static_cast<basic_task_control*>(self)->run(); }, this);
    }
    ~basic_task_control() {
        // Order: relaxed; all accesses by other threads are over.
        delete stop_.load(std::memory_order_relaxed);
    }

    // Returns the first coroutine of the chain. If the task runs a function, calls the function and
    // returns an empty handle.
    virtual std::coroutine_handle<> start() noexcept = 0;
    // Called in the place of start(), if the task was cancelled before its first run.
    virtual void never_start() noexcept = 0;
    // Called when the chain has ended. Takes over its outcome. The last access to the task.
    virtual void finish() noexcept = 0;
    // Called before the first wait.
    virtual void first_wait() noexcept {}
    // Returns true if the owner of the task cancels all its tasks.
    virtual bool is_closing() const noexcept { return false; }
    // Returns true if this thread may call finish().
    virtual bool may_finish_here() const noexcept { return true; }
    // Posts to_run() to a thread that may call finish().
    virtual void post_home() noexcept = 0;

    // Runs the chain on this thread until it waits or ends. If the chain is a child that another
    // chain awaits in place (when_state.hpp), that chain may continue and end here, too.
    void run() noexcept;

    // Starts the chain in place: the caller resumes the coroutine that this returns.
    // Requires: it has not started; a chain runs on this thread.
    std::coroutine_handle<> start_in_place(local& here) noexcept {
        fresh_ = false;
        here.running = this;
        return start();
    }

    void set_never_ran() noexcept { never_ran_ = true; }

    // Returns true if get_stop_token() was called.
    bool has_stop_token() const noexcept {
        // Order: relaxed; only the task sets it.
        return stop_.load(std::memory_order_relaxed) != nullptr;
    }

    // Returns true if first_wait() was called.
    bool has_waited() const noexcept { return has_waited_; }

    state state_;
    std::uint16_t listed_in_ = 0; // the number of a list, for the derived class

private:
    void finish_or_post() noexcept {
        if (may_finish_here()) {
            finish();
        } else {
            post_home();
        }
    }

    void post_there() noexcept {
        const executor_ref where = *at_->where;
        where.post(run_);
    }

    void request_stop() noexcept {
        // Order: seq_cst [task.stop_token]; see get_stop_token().
        if (typename Platform::stop_source* const source = stop_.load(std::memory_order_seq_cst)) {
            const typename cancel_round<Platform>::scope none(nullptr);
            source->request_stop();
        }
    }

    bool fresh_ = true; // not started
    bool has_waited_ = false;
    bool ended_ = false;
    bool never_ran_ = false;
    // The number of awaits of children since the cancellation, up to whole_budget:
    std::uint8_t refused_ = 0;
    static_assert(local::whole_budget <= 0xff);

protected:
    // The tag of a spawned task; it is here because here is a byte that no other field uses.
    typename Platform::template atomic<std::uint8_t> tag_{0};

private:
    runnable run_;
    // Valid while the chain waits, or is queued after a wait:
    std::coroutine_handle<> leaf_;
    suspension* at_ = nullptr;
    typename Platform::template atomic<typename Platform::stop_source*> stop_{nullptr};
};

template <class Platform>
typename Platform::stop_token basic_task_control<Platform>::get_stop_token() noexcept {
    // Order: relaxed; only the task sets it.
    typename Platform::stop_source* source = stop_.load(std::memory_order_relaxed);
    if (source == nullptr) {
        source = made_or_fatal("no memory for a task's stop token",
                               [] { return new typename Platform::stop_source; });
        // Order: seq_cst [task.stop_token]. The task sets `stop_` and then reads whether it is
        // cancelled. The canceller sets `cancelled` and then reads `stop_`. So at least one of the
        // two sees the write of the other.
        stop_.store(source, std::memory_order_seq_cst);
        if (state_.is_cancelled()) {
            source->request_stop();
        }
    }
    return source->get_token();
}

template <class Platform> void basic_task_control<Platform>::run() noexcept {
    if (!ended_) {
        if (fresh_ && state_.is_cancelled() && may_finish_here()) {
            never_start();
            return finish();
        }
        local& here = local::get();
        // The turn gives the task a budget on any thread, also if the thread is no worker. If the
        // task is cancelled before it starts, it gets no budget, so its first operation is stopped.
        const worker_turn<Platform> turn(here, fresh_ && state_.is_cancelled());
        basic_task_context<Platform>* const outer = here.running;
        here.running = this;
        if (here.traced) {
            here.name = this->name();
            here.tag = this->tag();
        }
        const std::coroutine_handle<> next = std::exchange(fresh_, false) ? start() : leaf_;
        if (next) {
            resume<Platform>(next);
            const bool is_over = here.running == nullptr;
            here.running = outer;
            if (is_over) {
                static_cast<basic_task_control*>(here.over)->finish_or_post();
            }
            return; // it waits, or another thread runs it, or it is destroyed
        }
        here.running = outer;
        ended_ = true;
    }
    finish_or_post();
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
