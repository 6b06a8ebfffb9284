#ifndef BIDE_SCHED_JOIN_SET_HPP
#define BIDE_SCHED_JOIN_SET_HPP

// Tasks whose outcomes are asked for one by one, in the order in which they end.

#include <bide/channel/detail/item_wait.hpp> // what an async_op of any T may carry along,
#include <bide/channel/detail/select_case.hpp>
#include <bide/channel/detail/signal_wait.hpp> // so that each is the same in every program
#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/thread_wait.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/waiter.hpp>
#include <bide/fwd.hpp>
#include <bide/sched/detail/ended_children.hpp>
#include <bide/sched/detail/group_cell.hpp>
#include <bide/sched/detail/group_entry.hpp>
#include <bide/sched/driver.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/task/detail/nonvoid.hpp>
#include <bide/task/detail/task_cell.hpp>
#include <bide/task/detail/task_source.hpp>
#include <bide/task/task.hpp>

#include <cstddef>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

using ended_children = basic_ended_children<native_platform>;

// The children of a join_set: all of them, and those that have ended.
struct join_set_state {
    void cancel() noexcept {
        ended.cancel();
        all.cancel();
    }

    ended_children ended;
    group all;
};

// One of them, which keeps what it came to.
template <class T>
class join_set_coroutine : public group_coroutine<T>, public ended_children::child {
    struct nothing {};

public:
    join_set_coroutine(join_set_state& of, task_home& home, task<T>&& t) noexcept
        : group_coroutine<T>(of.all, home, std::move(t)), ended_(of.ended) {}

    // Once. Throws: what it threw; stopped_error if it never ran.
    T take() {
        if (this->never_ran_) {
            throw_error(errc::stopped);
        }
#if BIDE_EXCEPTIONS
        if (this->error_) {
            std::rethrow_exception(std::exchange(this->error_, nullptr));
        }
#endif
        if constexpr (!std::is_void_v<T>) {
            return value_.take();
        }
    }

protected:
    ~join_set_coroutine() = default;

    void settle() noexcept override {
        std::exception_ptr unmovable;
        if constexpr (!std::is_void_v<T>) {
            if (!this->never_ran_ && !(*this->frame_).error()) {
                unmovable = keep_value();
            }
        }
        group_coroutine<T>::settle();
        if (unmovable) {
            this->error_ = std::move(unmovable);
        }
    }

private:
    std::exception_ptr keep_value() noexcept {
#if BIDE_EXCEPTIONS
        try {
            value_.set((*this->frame_).outcome().take());
        } catch (...) {
            return std::current_exception();
        }
#else
        value_.set((*this->frame_).outcome().take());
#endif
        return nullptr;
    }

    // To the group nothing is a failure. What the set's cancellation has ended is no outcome.
    std::exception_ptr failure(bool& stopped) noexcept override {
        stopped = false;
        const bool was_stopped =
            this->never_ran_ || (this->error_ && is_stopped_error(this->error_));
        if (was_stopped && ended_.was_cancelled()) {
            ended_.end(nullptr);
        } else {
            this->add_reference(); // its place in the list
            ended_.end(this);
        }
        return nullptr;
    }

    ended_children& ended_;
    [[no_unique_address]] std::conditional_t<std::is_void_v<T>, nothing, task_outcome<T>> value_;
};

} // namespace detail

// Children on a scheduler that do not outlive their set, and give their values to join_next(). A
// child that fails cancels no other. Any thread may use it, its children too; these may not wait
// for it.
template <class T> class join_set {
    static_assert(!std::is_reference_v<T>, "join_set of references: use pointers");

    using child = detail::join_set_coroutine<T>;
    using node = basic_waiter<native_platform>;

public:
    // What join_next() gives: a value, or nothing; where there are no values, whether one has
    // ended.
    using next_type = std::conditional_t<std::is_void_v<T>, bool, std::optional<nonvoid_t<T>>>;

    explicit join_set(scheduler& where) noexcept : scheduler_(where) {}
    join_set(const join_set&) = delete;
    join_set& operator=(const join_set&) = delete;

    // Cancels the children and waits for them. Outcomes that were not asked for are dropped.
    // Blocks: until they have ended; cancel(), and async_join_next() until it gives nothing, does
    // without. A thread of a scheduler that blocks here is replaced, even by one more than
    // max_blocking_threads.
    // Requires: it is not used any more, but by its children.
    ~join_set() {
        state_.cancel();
        detail::block_until(state_.all.of_children());
        while (auto* const left = state_.ended.take()) {
            static_cast<child*>(left)->drop_reference();
        }
    }

    // Runs it as a child. One that comes after a cancellation never starts.
    // Throws: std::bad_alloc.
    void spawn(task<T> t) { launch(std::move(t)); }

    // The same with a function that returns a task. It is called here, and lives as long as the
    // child: a lambda's captures are there for its coroutine. Throws: what it throws.
    template <class F>
        requires(std::is_same_v<detail::task_value_t<F>, T> && !detail::is_task<F>)
    void spawn(F function) {
        launch(std::move(function));
    }

    // The outcome of the next child that ends, in the order of their ends; nothing (or false):
    // there are no children left. Each is given once. Where the set was cancelled, it waits until
    // all have ended, and leaves out those that have ended by that.
    // Blocks: until then. Throws: what the child threw; stopped_error if it was stopped, but not by
    // the set, or the scheduler refused it, at its end.
    [[nodiscard]] next_type join_next() {
        wait_status what = state_.ended.try_reserve();
        if (what == wait_status::waiting) {
            what = thread_wait<detail::ended_children, native_platform>::until(state_.ended, 1,
                                                                               deadline::never());
        }
        return take(state_.ended, what);
    }

    // The same without waiting; nothing (or false), too, where join_next() would wait.
    [[nodiscard]] next_type try_join_next() {
        const wait_status what = state_.ended.try_reserve();
        return take(state_.ended, what == wait_status::waiting ? wait_status::closed : what);
    }

    // The same for a coroutine. Where its task is cancelled, or it is destroyed, the set is, for
    // good, and it throws when all have ended. If its wait ends early, by a time-out, a stop or in
    // a select, the children go on.
    // Throws: as join_next(), also with as_result(); stopped_error where the awaiting task is
    // cancelled.
    async_op<next_type> async_join_next() noexcept {
        static constexpr auto ops = wait_ops<result<next_type>, native_platform>(
                                        &try_now, &enqueue, &cancel_wait, &collect, &give_back)
                                        .outlasting_cancel(&cancel_all);
        return {ops, wait_target{&state_}};
    }

    // Cancels all children, those too that come later. Idempotent.
    void cancel() noexcept { state_.cancel(); }

    // How many outcomes are to come. A snapshot.
    std::size_t size() noexcept { return state_.ended.size(); }
    bool empty() noexcept { return size() == 0; }

private:
    template <class S> void launch(S source) {
        auto& core = detail::group_entry::core(scheduler_);
        auto& cell = *new detail::group_cell<S, child>(state_, core, std::move(source));
        state_.ended.begin();
        state_.all.begin(cell);
        core.start(cell);
    }

    static next_type take(detail::ended_children& ended, wait_status what) {
        if (what != wait_status::granted) {
            return {};
        }
        struct last_reference {
            child& c;
            ~last_reference() { c.drop_reference(); }
        } const mine{static_cast<child&>(ended.take_reserved())};
        if constexpr (std::is_void_v<T>) {
            mine.c.take();
            return true;
        } else {
            return next_type(mine.c.take());
        }
    }

    static detail::join_set_state& state_of(const wait_target& t) noexcept {
        return *static_cast<detail::join_set_state*>(t.queue);
    }
    static wait_status try_now(const wait_target& t) noexcept {
        return state_of(t).ended.try_reserve();
    }
    static bool enqueue(const wait_target& t, node& w) noexcept {
        return state_of(t).ended.enqueue(w) != wait_status::waiting;
    }
    static bool cancel_wait(const wait_target& t, node& w, wait_status why) noexcept {
        return state_of(t).ended.cancel(w, why);
    }
    static result<next_type> collect(const wait_target& t, wait_status what) {
        if (what == wait_status::stopped || what == wait_status::timed_out) {
            return unexpected{errc_of(what)};
        }
        return take(state_of(t).ended, what);
    }
    static void give_back(const wait_target& t, wait_status what) noexcept {
        if (what == wait_status::granted) {
            state_of(t).ended.give_up();
        }
    }
    static void cancel_all(const wait_target& t) noexcept {
        state_of(t).ended.cancel();
        state_of(t).all.cancel_in_turn();
    }

    scheduler& scheduler_;
    detail::join_set_state state_;
};

// The same as a case of a select (channel/select.hpp). One that is not chosen takes no outcome;
// where the task is cancelled the select ends, and the children go on.
template <class T> auto on_join_next(join_set<T>& set) {
    return detail::case_of(set.async_join_next());
}

} // namespace bide::inline BIDE_ABI

#endif
