#ifndef BIDE_TASK_DETAIL_TASK_CONTROL_HPP
#define BIDE_TASK_DETAIL_TASK_CONTROL_HPP

// A chain of coroutines that can be cancelled: where it stands (task_state.hpp), what resumes it,
// and what ends its wait. A spawned task is one (task_header.hpp), and so is each child of when_all
// and when_any (compose.hpp).

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/detail/task_context.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/waker.hpp>
#include <bide/task/detail/cancel_round.hpp>
#include <bide/task/detail/task_state.hpp>

#include <atomic>
#include <coroutine>
#include <stop_token>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_task_control : public basic_task_context<Platform> {
    using local = worker_local<Platform>;

public:
    using state = basic_task_state<Platform>;

    basic_task_control(const basic_task_control&) = delete;
    basic_task_control& operator=(const basic_task_control&) = delete;

    // What a queue takes, to run it from the beginning, or from where it was left.
    runnable& to_run() noexcept { return run_; }

    // --- as the context of its coroutines

    bool begin_wait(suspension& at) noexcept override {
        at_ = &at;
        if (!has_waited_) {
            has_waited_ = true;
            first_wait();
        }
        const bool may_wait = state_.begin_wait();
        if (!may_wait) {
            request_stop(); // whoever cancels may not have come to that yet
        }
        return may_wait;
    }
    void end_wait() noexcept override { state_.end_wait(); }
    bool will_go_on(executor_ref there) const noexcept override {
        return state_.is_waiting() && at_->where == there;
    }
    void wake() noexcept override {
        if (state_.wake()) {
            go_on();
        }
    }
    bool has_begun_enough() noexcept override { return ++refused_ >= local::whole_budget; }
    runnable& resumption(suspension& at) noexcept override {
        at_ = &at;
        return run_;
    }
    bool is_cancelled() noexcept override {
        if (is_closing()) {
            cancel();
        }
        const bool cancelled = state_.is_cancelled();
        if (cancelled) {
            request_stop(); // as above: a task that knows finds its token stopped
        }
        return cancelled;
    }
    void ended() noexcept override {
        ended_ = true;
        local& here = local::get();
        if (here.running == this) {
            here.running = nullptr; // run() finds it
        } else {
            post_home(); // somebody else's thread resumed it
        }
    }

    // --- whoever may touch it

    // False: it has ended.
    bool cancel() noexcept {
        switch (state_.cancel()) {
        case state::cancelling::too_late: return false;
        case state::cancelling::claimed:
            at_->interrupt.wake();
            request_stop(); // before it finds its wait stopped
            if (state_.end_claim()) {
                go_on();
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

    // For reports; nullptr: it has none.
    virtual const char* name() const noexcept { return nullptr; }

    // --- the task itself

    // False: there are too many.
    bool shield() noexcept { return state_.shield(); }
    void unshield() noexcept {
        if (state_.unshield()) {
            request_stop();
        }
    }

    // Terminates where there is no memory for it, the first time.
    std::stop_token get_stop_token() noexcept;

protected:
    basic_task_control(unsigned references, bool kept) noexcept : state_(references, kept) {
        run_.run =
            waker([](void* self) noexcept { static_cast<basic_task_control*>(self)->run(); }, this);
    }
    ~basic_task_control() {
        // Order: relaxed; whoever destroys it comes after all others.
        delete stop_.load(std::memory_order_relaxed);
    }

    // Its first coroutine, or, where it computes something else, none, when it has.
    virtual std::coroutine_handle<> start() noexcept = 0;
    // Instead of start(): it was cancelled before.
    virtual void never_start() noexcept = 0;
    // It has ended: takes over what it computed. Nothing of it is touched afterwards.
    virtual void finish() noexcept = 0;
    // It is going to wait for the first time.
    virtual void first_wait() noexcept {}
    // All that belongs to the same is being cancelled.
    virtual bool is_closing() const noexcept { return false; }
    // finish() may be called on this thread.
    virtual bool may_finish_here() const noexcept { return true; }
    // Posts to_run() to where finish() may be called.
    virtual void post_home() noexcept = 0;

    // Runs it, on this thread, until it waits or ends.
    void run() noexcept;

    state state_;

private:
    void go_on() noexcept {
        const executor_ref where = at_->where;
        where.post(run_);
    }

    void request_stop() noexcept {
        // Order: seq_cst [K4]; see get_stop_token().
        if (std::stop_source* const source = stop_.load(std::memory_order_seq_cst)) {
            const typename cancel_round<Platform>::scope none(nullptr);
            source->request_stop();
        }
    }

    runnable run_;
    suspension* at_ = nullptr; // while it waits, or is queued to go on
    typename Platform::template atomic<std::stop_source*> stop_{nullptr};
    unsigned refused_ = 0; // waits for children, since it was cancelled
    bool fresh_ = true;
    bool has_waited_ = false;
    bool ended_ = false;
};

template <class Platform> std::stop_token basic_task_control<Platform>::get_stop_token() noexcept {
    // Order: relaxed; the task alone sets it.
    std::stop_source* source = stop_.load(std::memory_order_relaxed);
    if (source == nullptr) {
        source =
            made_or_fatal("no memory for a task's stop token", [] { return new std::stop_source; });
        // Order: seq_cst [K4]; set before `cancelled` is looked at; who cancels does it the other
        // way round, so one of the two sees the other.
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
        // Also where no worker runs it. One that begins cancelled finds its first wait stopped.
        const worker_turn<Platform> turn(here, fresh_ && state_.is_cancelled());
        basic_task_context<Platform>* const outer = here.running;
        here.running = this;
        if (here.traced) {
            here.name = name();
        }
        bool is_over = false;
        const std::coroutine_handle<> next = std::exchange(fresh_, false) ? start() : at_->leaf;
        if (next) {
            resume<Platform>(next);
            is_over = here.running == nullptr;
        } else {
            is_over = true;
        }
        here.running = outer;
        if (!is_over) {
            return; // it waits, or runs elsewhere, or is gone
        }
        ended_ = true;
    }
    if (may_finish_here()) {
        finish();
    } else {
        post_home();
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
