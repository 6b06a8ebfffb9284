// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_TASK_CONTEXT_HPP
#define BIDE_CORE_DETAIL_TASK_CONTEXT_HPP

#include <bide/core/deadline.hpp>
#include <bide/core/wake_scope.hpp>

#include <coroutine>

namespace bide { inline namespace BIDE_ABI {

// Describes how a suspended chain of coroutines resumes. The last coroutine of the chain is called
// the leaf. This object lies in the frame of the leaf.
struct suspension {
    executor_ref* where = nullptr; // resumes the chain
    waker interrupt;               // ends the wait, on any thread
    std::coroutine_handle<> leaf;
};

// The value that a task_local_value (task/task_local_value.hpp) has in one scope. The value does
// not change.
template <class Platform> struct task_binding {
    const void* key = nullptr;
    const void* value = nullptr;
    const task_binding* outer = nullptr;
    mutable typename Platform::template atomic<std::size_t> uses{0}; // groups that refer to it
};

// Refers to a binding, or to nothing. It must be destroyed before the scope of the binding ends.
template <class Platform> class task_binding_use {
public:
    explicit task_binding_use(const task_binding<Platform>* of) noexcept : of_(of) {
        if (of_ != nullptr) {
            // Order: relaxed; the count only shows a misuse at the end of the scope.
            of_->uses.fetch_add(1, std::memory_order_relaxed);
        }
    }
    task_binding_use& operator=(task_binding_use&&) = delete;
    ~task_binding_use() {
        if (of_ != nullptr) {
            // Order: relaxed; the count only shows a misuse at the end of the scope.
            of_->uses.fetch_sub(1, std::memory_order_relaxed);
        }
    }

    const task_binding<Platform>* get() const noexcept { return of_; }

private:
    const task_binding<Platform>* const of_;
};

#if defined(BIDE_DEADLOCK_CHECK)
template <class Platform> class basic_task_context;
namespace detail {
template <class Platform>
void note_end_of(const basic_task_context<Platform>& task) noexcept; // core/deadlock_check.hpp
} // namespace detail
#endif

class strand;

namespace detail {

class generator_call;

// The state of a thread that belongs to the code that it runs, beside worker_local, resume_state
// and cancel_round. A simulation that switches inside of a task keeps one for each such task.
struct BIDE_SHARED running_code {
    const strand* on = nullptr;          // runs the code (task/strand.hpp)
    generator_call* innermost = nullptr; // of its calls of producers (task/async_generator.hpp)
};

// A job that runs inside of the job that awaits it (basic_worker_host::run_inside() in
// core/wake_scope.hpp). The awaiting coroutine sets `begin_wait`; the host sets the other fields.
struct inner_job {
    waker begin_wait;
    bool has_begun_wait = false; // `begin_wait` was called
    bool others_queued = false;  // other jobs are queued at its end
    inner_job* outer = nullptr;
};

} // namespace detail

// Controls a chain of coroutines that await each other: a task of a scheduler, or a task that a
// thread runs by sync_wait() (task/task.hpp). At any time the chain runs, waits in its last
// coroutine, or is about to run again. The promise of each coroutine has a member task_context(),
// by which an awaited coroutine finds the context. If a promise has no such member, its coroutine
// resumes as core/async_op.hpp describes.
template <class Platform> class basic_task_context {
public:
    // Begins a wait of the chain. From now on, a canceller may call at.interrupt once, to end the
    // wait. After that, wake() is called as at the end of any wait. Returns false if the chain is
    // cancelled already. Then no wait has begun, and neither wake() nor end_wait() is called.
    // Requires: `at` is not moved or destroyed until the chain resumes.
    [[nodiscard]] virtual bool begin_wait(suspension& at) noexcept = 0;

    // Ends a wait that has begun but is not needed. When it returns, no thread runs at.interrupt.
    virtual void end_wait() noexcept = 0;

    // Resumes the chain after its wait. After each begin_wait(), either end_wait() is called, or
    // the thread that decides the wait calls this function once. Afterwards that thread does not
    // access the chain.
    virtual void wake() noexcept = 0;

    // Returns the executor on which the chain will resume. If the chain has not called
    // begin_wait(), the result refers to no executor. Called on the thread that runs the chain.
    virtual executor_ref goes_on_at() const noexcept = 0;

    // Returns true if the chain is cancelled or its scheduler shuts down. If the chain is shielded,
    // returns false.
    virtual bool is_cancelled() noexcept = 0;

    // Called if a cancelled chain awaits children (task/compose.hpp). Such children are started
    // nevertheless, but are cancelled from the start. Each call counts one such await. If the count
    // has reached a limit, returns true, and the await starts no child. This ends a loop of such
    // awaits.
    virtual bool has_begun_enough() noexcept { return false; }

    // Returns the time at which the chain is cancelled.
    virtual deadline limit() const noexcept { return deadline::never(); }

    // Returns true if `job` runs the chain, and the host of this thread has called `job` itself. Then
    // the chain does not run inside of another executor. Called on the thread that runs the chain;
    // `job` is worker_local::job.
    virtual bool runs_as(const runnable&) const noexcept { return false; }
    // Returns true if the chain is cancelled at a certain time, or when a sibling ends.
    virtual bool is_limited() const noexcept { return false; }

    // Returns the binding of the innermost scope of the chain, or nullptr.
    virtual const task_binding<Platform>* values() const noexcept { return nullptr; }

    // name() returns the name for reports, or nullptr. set_name() sets it. Any thread may call
    // name() at any time.
    virtual const char* name() const noexcept { return nullptr; }
    virtual void set_name(const char*) noexcept {}

    // tag() returns the number of the tag for reports (task/task_tag.hpp); 0 means no tag.
    // set_tag() sets it. Any thread may call tag() at any time.
    virtual std::uint8_t tag() const noexcept { return 0; }
    virtual void set_tag(std::uint8_t) noexcept {}

    // Returns the runnable that resumes the chain without a wait. The caller posts the runnable.
    virtual runnable& resumption(suspension& at) noexcept = 0;

    // Called when the first coroutine of the chain has ended. That coroutine is suspended, and its
    // promise holds the outcome.
    // Returns the coroutine that continues on this thread, or a no-op coroutine.
    [[nodiscard]] virtual std::coroutine_handle<> ended() noexcept = 0;

protected:
#if defined(BIDE_DEADLOCK_CHECK)
    ~basic_task_context() { detail::note_end_of(*this); }
#else
    ~basic_task_context() = default;
#endif
};

// Returns the time at which a chain is cancelled; `context` may be nullptr.
template <class Platform> deadline limit_of(const basic_task_context<Platform>* context) noexcept {
    return context != nullptr ? context->limit() : deadline::never();
}

// Returns the binding of the innermost scope of the chain, or nullptr; `context` may be nullptr.
template <class Platform>
const task_binding<Platform>* values_of(const basic_task_context<Platform>* context) noexcept {
    return context != nullptr ? context->values() : nullptr;
}

// Returns the number of the chain's tag, or 0; `context` may be nullptr.
template <class Platform>
std::uint8_t tag_of(const basic_task_context<Platform>* context) noexcept {
    return context != nullptr ? context->tag() : std::uint8_t{0};
}

// Returns the context of a promise; nullptr if it has none.
template <class Platform, class Promise>
basic_task_context<Platform>* task_context_of(Promise& promise) noexcept {
    using context = basic_task_context<Platform>;
    if constexpr (requires { static_cast<context*>(promise.task_context()); }) {
        return promise.task_context();
    } else {
        return nullptr;
    }
}

// Gives a budget of operations to the task that this thread runs next. If `spent` is true, that
// budget is spent from the start. The destructor restores the budget of the outer task.
template <class Platform> class task_budget {
public:
    explicit task_budget(worker_local<Platform>& here, bool spent = false) noexcept
        : here_(here), left_(std::exchange(here.budget, spent ? 1 : here.next_budget)) {}
    task_budget& operator=(task_budget&&) = delete;
    ~task_budget() { here_.budget = left_; }

private:
    worker_local<Platform>& here_;
    const unsigned left_;
};

}} // namespace bide::BIDE_ABI

#endif
