// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_DETAIL_TASK_CELL_HPP
#define BIDE_TASK_DETAIL_TASK_CELL_HPP

// The cells of spawned tasks. A cell contains the control block of a task (task_control.hpp), the
// outcome of the task, and the body, which is a coroutine or a function. The body is destroyed when
// the task ends. The outcome is kept until its owner, such as a join handle, takes it or drops it.

#include <bide/core/detail/fatal_exception.hpp>
#include <bide/task/detail/task_control.hpp>
#include <bide/task/task.hpp>

#include <functional>
#include <memory>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// ---- The source of a task: the task itself, or a callable that returns one

template <class S> struct task_source_traits {};
template <class T> struct task_source_traits<task<T>> {
    using value = T;
};
template <class F>
    requires(std::is_invocable_v<F&> && is_task<std::invoke_result_t<F&>>)
struct task_source_traits<F> : task_source_traits<std::invoke_result_t<F&>> {};

template <class S> using task_value_t = typename task_source_traits<S>::value;

template <class S>
concept task_source = requires { typename task_value_t<S>; };

// True for a function that returns no task. A task that is spawned from it calls the function.
template <class F>
concept plain_function =
    std::is_invocable_v<F&&> && !task_source<F> && !is_task<std::invoke_result_t<F&&>>;

template <class S>
concept spawnable = task_source<S> || plain_function<S>;

template <class S> struct spawned_value : task_source_traits<S> {};
template <plain_function F> struct spawned_value<F> {
    using value = std::invoke_result_t<F&&>;
};
template <class S> using spawned_value_t = typename spawned_value<S>::value;

// ---- The body

// The labels that task::named() and task::tagged() have set.
struct task_labels {
    const char* name = nullptr;
    std::uint8_t tag = 0;
};

// Owns a frame that no coroutine awaits.
struct lone_frame {
    std::coroutine_handle<> to;
};

// The body of a task: its coroutine, and the callable if the source is one. A coroutine lambda uses
// its captures until the coroutine ends, so the callable is destroyed after the frame.
//
// `Frame` is lone_frame for a spawned task, and awaited_frame for a child (compose.hpp).
template <spawnable S, class Frame = lone_frame> class task_body {
    using value = task_value_t<S>;
    using promise_type = typename task<value>::promise_type;
    struct nothing {};

public:
    task_body() noexcept {}
    task_body(const task_body&) = delete;
    task_body& operator=(const task_body&) = delete;
    ~task_body() { destroy(); }

    // Takes over the source. If the source is a callable, moves the callable to its final address
    // and calls it there. Returns the labels of the task.
    // Throws: what the move or the call of a callable throws.
    // Requires: the source is not a task that was moved from; terminates otherwise.
    task_labels open(S&& source) {
        if constexpr (is_task<S>) {
            return adopt(source);
        } else {
            callable_.emplace(std::move(source));
            task<value> made = (*callable_)();
            return adopt(made);
        }
    }

    // Makes the coroutine the first one of a chain, and returns it.
    std::coroutine_handle<> begin(basic_task_context<native_platform>& context,
                                  executor_ref where) noexcept {
        promise().begin(context, where);
        return frame_.to;
    }

    // Moves the outcome into `outcome`, and destroys the coroutine and the callable.
    // Requires: the coroutine has ended.
    template <class T> void end(kept_outcome<T>& outcome) noexcept {
        outcome.keep(promise());
        destroy();
    }

    void destroy() noexcept {
        if (frame_.to) {
            awaited_frame* const awaits = promise().awaited_frames();
            destroy_frame(std::exchange(frame_.to, nullptr), awaits);
        }
        if constexpr (!is_task<S>) {
            callable_.reset();
        }
    }

    Frame& frame() noexcept { return frame_; }

private:
    promise_type& promise() const noexcept { return promise_of<promise_type>(frame_.to); }

    task_labels adopt(task<value>& t) noexcept {
        frame_.to = task_access::release(t);
        if (!frame_.to) {
            fatal("a task was spawned or composed after it was moved from");
        }
        if constexpr (std::is_same_v<Frame, awaited_frame>) {
            frame_.awaits = &promise().awaited_frames();
        }
        return {task_access::name_of(t), promise().tag()};
    }

    [[no_unique_address]] std::conditional_t<is_task<S>, nothing, std::optional<S>> callable_;
    Frame frame_;
};

// The body of a task that runs a function. The function is destroyed after its call.
template <plain_function F> class task_body<F, lone_frame> {
public:
    task_body() noexcept {}
    task_body(const task_body&) = delete;
    task_body& operator=(const task_body&) = delete;
    ~task_body() {}

    // Throws: what the move of the function throws.
    task_labels open(F&& function) {
        std::construct_at(std::addressof(function_), std::move(function));
        return {};
    }
    template <class T> std::coroutine_handle<> begin(kept_outcome<T>& outcome) noexcept {
        outcome.compute(std::move(function_));
        destroy();
        return {};
    }
    void destroy() noexcept { std::destroy_at(std::addressof(function_)); }

private:
    union {
        F function_;
    };
};

// ---- Cells

using task_header = basic_task_header<native_platform>;

// Calls the user's function with the exception of a task whose join handle was dropped. A handle
// may be dropped after the scheduler is destroyed, so all copies share the ownership of the
// function. Every task with a join handle contains a copy, so a copy is only one pointer.
class unhandled {
public:
    using function = std::function<void(std::exception_ptr)>;

    unhandled() noexcept = default;
    explicit unhandled(function tell) : shared_(tell ? new shared{std::move(tell)} : nullptr) {}
    unhandled(const unhandled& other) noexcept : shared_(other.shared_) {
        if (shared_ != nullptr) {
            // Order: relaxed; `other` keeps the object alive during the call.
            shared_->users.fetch_add(1, std::memory_order_relaxed);
        }
    }
    unhandled& operator=(unhandled other) noexcept {
        std::swap(shared_, other.shared_);
        return *this;
    }
    ~unhandled() {
        // Order: acq_rel; the accesses of all other users happen before the deletion.
        if (shared_ != nullptr && shared_->users.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            delete shared_;
        }
    }

    // Returns the reference as a pointer. Afterwards this object has none.
    void* release() noexcept { return std::exchange(shared_, nullptr); }
    // Takes over the reference that release() has returned, and empties the pointer.
    explicit unhandled(void*& released) noexcept
        : shared_(static_cast<shared*>(std::exchange(released, nullptr))) {}

    // Calls the function with the exception. Without a function, prints the exception and
    // terminates.
    void tell(std::exception_ptr error) const noexcept {
        if (shared_ != nullptr) {
            call_noexcept("on_unhandled", [&] { shared_->tell(std::move(error)); });
            return;
        }
        call_noexcept("a task without on_unhandled", [&] { std::rethrow_exception(error); });
    }

private:
    struct shared {
        function tell;
        native_platform::atomic<std::uint32_t> users{1};
    };

    shared* shared_ = nullptr;
};

// The executor to which spawned tasks belong. It starts tasks, reports unhandled exceptions and
// runs blocking functions. The base class (task_control.hpp) is for simulated platforms, too.
class task_home : public basic_task_home<native_platform> {
public:
    // Enqueues a new task. Refuses it if the home is closing.
    virtual void start(task_header& t) noexcept = 0;

    // If no other thread runs the tasks of this home, a thread that waits for one of these tasks
    // must run them. Each waiting thread first calls waker_of_caller(). If the returned waker is
    // empty, the thread may just sleep. If it is not empty, the thread constructs its waiter `w`
    // with that waker, and calls run_tasks(w). run_tasks() runs tasks until `w` is complete, or
    // until another thread runs the tasks.
    virtual waker waker_of_caller() noexcept { return {}; }
    virtual void run_tasks(const basic_waiter<native_platform>&) noexcept {}

    virtual const unhandled& handler() const noexcept = 0;

    // A thread calls enter() before it runs a blocking function of this home, and leave()
    // afterwards.
    virtual void enter() noexcept {}
    virtual void leave() noexcept {}

protected:
    ~task_home() = default;
};

// A task with the members that depend on the owner of its outcome. The owner is a join handle, a
// group (sched/task_group.hpp) or a join_set.
template <class E>
concept task_end = std::derived_from<E, task_header> && requires(E& end) {
    end.kept();                 // the kept_outcome
    { end.settled() } noexcept; // called when the outcome is stored, before the home is destroyed
};

// A task whose outcome a join handle may ask for.
template <class T> class joined_task : public task_header {
public:
    joined_task(task_home& home, bool kept) noexcept : task_header(home, kept) {}

    kept_outcome<T>& kept() noexcept { return kept_; }
    void settled() noexcept {
        auto& all = static_cast<task_home&>(home());
        this->kept_after_end() = kept_.error() ? unhandled(all.handler()).release() : nullptr;
    }

    // Moves the outcome out.
    // Throws: the exception of the task; stopped_error if the task never ran.
    T take() {
        if (never_ran()) {
            throw_error(errc::stopped);
        }
        return kept_.take();
    }

    bool is_stopped() const noexcept { return never_ran() || kept_.is_stopped(); }

    // Lets the task run on a thread for blocking tasks. Requires: the task was not posted.
    void run_apart() noexcept {
        this->to_run().run = waker(
            [](void* self) noexcept {
                auto& me = *static_cast<joined_task*>(self);
                auto& home = static_cast<task_home&>(me.home());
                home.enter();
                me.run();
                home.leave();
            },
            this);
    }

protected:
    ~joined_task() {
        if (!never_ran()) {
            unhandled(this->kept_after_end());
        }
    }

private:
    // Reports an exception that no handle asked for, unless it is the stopped_error of a cancelled
    // task.
    void discard_outcome() noexcept final {
        std::exception_ptr& error = kept_.error();
        if (error && !(was_cancelled() && is_stopped_error(error))) {
            unhandled(this->kept_after_end()).tell(std::exchange(error, nullptr));
        }
    }

    kept_outcome<T> kept_; // if it has an exception, kept_after_end() has the handler
};

template <spawnable S, task_end End> class task_cell final : public End, public recycled {
public:
    // Passes `args` to the constructor of End.
    // Throws: what a callable throws.
    template <class... Args>
    task_cell(task_home& home, bool kept, S&& what, Args&... args) : End(home, kept, args...) {
        const auto labels = body_.open(std::move(what));
        this->set_name(labels.name);
        if (labels.tag != 0) { // otherwise the tag of End stays
            this->set_tag(labels.tag);
        }
    }

private:
    static constexpr bool is_function = plain_function<S>;

    std::coroutine_handle<> start() noexcept override {
        BIDE_PROBE(task_start, static_cast<task_header*>(this), this->name());
        if constexpr (is_function) {
            return body_.begin(this->kept());
        } else {
            return body_.begin(*this, this->home().executor());
        }
    }
    void never_start() noexcept override {
        this->set_never_ran();
        body_.destroy();
    }
    void settle() noexcept override {
        if (!this->never_ran()) {
            if constexpr (!is_function) {
                body_.end(this->kept());
            }
            this->settled();
        }
    }
    void destroy() noexcept override { delete this; }

    task_body<S> body_;
};

template <spawnable S> using joined_cell = task_cell<S, joined_task<spawned_value_t<S>>>;

}}} // namespace bide::BIDE_ABI::detail

#endif
