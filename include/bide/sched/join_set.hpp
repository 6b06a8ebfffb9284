// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_JOIN_SET_HPP
#define BIDE_SCHED_JOIN_SET_HPP

/// \file
/// Runs tasks and returns their outcomes one by one, in the order in which the tasks end.

#include <bide/channel/select.hpp>
#include <bide/sched/task_group.hpp>
#include <bide/task/detail/nonvoid.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// The state of join_set::join_next(): the list of the ended children that no call has taken, oldest
// first; the number of children that have not ended; and the waiters. One lock guards the state.
//
// When a wait is granted, one child of the list is reserved for the waiter. The waiter takes the
// child when it resumes. The list is never shorter than the number of reservations. Unless the set
// is cancelled, a waiter is enqueued only if every child in the list is reserved. So the next child
// that ends is reserved for the first waiter. If a waiter gives up its reservation, the next waiter
// gets the child. So a wait returns "no child is left" (`closed`) only if no child runs and none is
// reserved. If another child begins later, waiters can wait again.
//
// After a cancellation of the children, the waiters wait until the last child has ended. So when a
// cancelled task resumes from its wait, no child runs, and the destructor of the set does not
// block.
template <class Platform> class basic_ended_children {
    using node = basic_waiter<Platform>;
    using lock = lock_bits<Platform, std::uint32_t>;
    using guard = typename lock::guard;
    using wake_list = basic_wake_list<Platform>;
    template <class T> using var = typename Platform::template var<T>;

public:
    static constexpr const char* waited_for = "join_set";

    struct child : basic_task_links<Platform, child> {};

    // If `keeps_all` is true, the children that a cancellation has stopped have outcomes, too.
    explicit basic_ended_children(bool keeps_all = false) noexcept : keeps_all_(keeps_all) {}

    // Counts a child. Requires: the child is not posted yet.
    void begin() noexcept {
        const guard section(lock_);
        running_ = running_ + 1;
    }

    // Counts the end of a child. If `c` is nullptr, the child has no outcome.
    void end(child* c) noexcept {
        lock::acquire(lock_);
        running_ = running_ - 1;
        if (c != nullptr) {
            children_.push_back(*c);
            ended_ = ended_ + 1;
        }
        wake_waiters();
    }

    void cancel() noexcept {
        const guard section(lock_);
        cancelled_ = true;
    }

    // Returns true if a child that was stopped has no outcome.
    bool skips_stopped() noexcept {
        const guard section(lock_);
        return cancelled_ && !keeps_all_;
    }

    // Returns the number of children, running or ended, that are not reserved.
    std::size_t size() noexcept {
        const guard section(lock_);
        return running_ + ended_ - reserved_;
    }

    // Returns `granted` if a child was reserved for the caller, `waiting` if the caller must wait,
    // and `closed` if no child is left.
    wait_status try_reserve() noexcept {
        const guard section(lock_);
        return reserve();
    }

    child& take_reserved() noexcept {
        lock::acquire(lock_);
        reserved_ = reserved_ - 1;
        child& c = pop();
        wake_waiters();
        return c;
    }
    // Gives up the caller's reservation.
    void give_up() noexcept {
        lock::acquire(lock_);
        reserved_ = reserved_ - 1;
        wake_waiters();
    }

    // Takes a child that is not reserved. Returns nullptr if there is none.
    child* take() noexcept {
        const guard section(lock_);
        return ended_ != reserved_ ? &pop() : nullptr;
    }

    // For thread_wait.
    wait_status enqueue(node& w) noexcept {
        lock::acquire(lock_);
        const wait_status what = queue_or_claim(queue_, w, peek());
        reserved_ = reserved_ + (what == wait_status::granted ? 1U : 0U);
        lock::release_plain(lock_);
        return settle_if_over(w, what);
    }
    bool cancel(node& w, wait_status why) noexcept {
        const guard section(lock_);
        return queue_.withdraw(w, why);
    }

private:
    // Requires, for all functions below: the caller holds the lock.
    wait_status peek() const noexcept {
        if (cancelled_ && running_ != 0) {
            return wait_status::waiting;
        }
        if (ended_ != reserved_) {
            return wait_status::granted;
        }
        return running_ + reserved_ != 0 ? wait_status::waiting : wait_status::closed;
    }
    wait_status reserve() noexcept {
        const wait_status what = peek();
        reserved_ = reserved_ + (what == wait_status::granted ? 1U : 0U);
        return what;
    }
    child& pop() noexcept {
        child& c = *children_.first();
        children_.remove(c);
        ended_ = ended_ - 1;
        return c;
    }

    // Grants the waits of the first waiters, and reserves one unreserved child for each of them. If
    // no child is left, wakes all waiters. Releases the lock.
    void wake_waiters() noexcept {
        wake_list granted;
        wake_list closed;
        while (!queue_.empty() && peek() != wait_status::waiting) {
            if (node& w = queue_.pop(); w.claim()) {
                w.commit();
                (reserve() == wait_status::granted ? granted : closed).push(w);
            }
        }
        lock::release_plain(lock_);
        wake_list::publish(granted, wait_status::granted, closed, wait_status::closed);
    }

    const bool keeps_all_;
    typename Platform::template atomic<std::uint32_t> lock_{0};
    // Guarded by the lock:
    basic_waiter_queue<Platform> queue_;
    basic_task_list<Platform, child> children_; // those that have ended
    var<std::size_t> running_{0};
    var<std::size_t> ended_{0}; // the length of `children_`
    var<std::size_t> reserved_{0};
    var<bool> cancelled_{false};
};

// The children of a join_set: the group of all children, and the list of the children that have
// ended. A child in the list has two references: one of the list, and one of the thread that has
// run the child. The thread may drop its reference last, even after the set was destroyed. So the
// outcome of a child does not wait for the last reference: it is taken or destroyed when the list
// drops its reference. The child's cell (task_cell.hpp) may still exist then.
template <class Platform> struct basic_join_set_state {
    explicit basic_join_set_state(bool keeps_all = false) noexcept : ended(keeps_all) {}

    void cancel(cancel_reason why) noexcept {
        ended.cancel();
        all.cancel(why);
    }

    basic_ended_children<Platform> ended;
    basic_group<Platform> all;
};

// A child. Until its outcome is taken, the list of ended children has a reference to the child.
template <class T, class Platform>
class basic_join_set_child : public basic_group_task<T, Platform>,
                             public basic_ended_children<Platform>::child {
    using member_task = basic_group_task<T, Platform>;
    using ended_children = basic_ended_children<Platform>;

public:
    basic_join_set_child(typename member_task::home_type& home, bool kept,
                         basic_join_set_state<Platform>& of) noexcept
        : member_task(home, kept, of.all), ended_(of.ended) {}

    // Returns the outcome of the child that was reserved by try_reserve() or by a wait, and drops
    // the reference of the list to the child.
    // Throws: the exception of the task; stopped_error if the task never ran.
    static T take_reserved(ended_children& from) {
        const last_reference mine{static_cast<basic_join_set_child&>(from.take_reserved())};
        if (mine.c.never_ran()) {
            throw_error(errc::stopped);
        }
        return mine.c.kept_.take();
    }

    // For join_operations:
    static constexpr bool keeps_all = false;
    // The result of join_next(), which is empty if no child is left.
    using next_type = std::conditional_t<std::is_void_v<T>, bool, std::optional<nonvoid_t<T>>>;

    static next_type take_next(ended_children& from) {
        if constexpr (std::is_void_v<T>) {
            take_reserved(from);
            return true;
        } else {
            return next_type(take_reserved(from));
        }
    }

    // Destroys the outcomes that are left in the list, and drops the list's references to the
    // children.
    // Requires: all children have ended, and no thread waits.
    static void drop_all(ended_children& from) noexcept {
        while (auto* const left = from.take()) {
            auto& ended = static_cast<basic_join_set_child&>(*left);
            ended.kept_.drop(); // here: the thread that ran the child may free the cell later
            ended.drop_reference();
        }
    }

protected:
    struct last_reference {
        basic_join_set_child& c;
        ~last_reference() { c.drop_reference(); }
    };

    ~basic_join_set_child() = default;

private:
    // Passes the outcome to the set, and reports to the group that the child has not failed. If the
    // cancellation of the set has stopped the child, there is no outcome.
    void discard_outcome() noexcept final {
        if ((this->never_ran() || this->kept_.is_stopped()) && ended_.skips_stopped()) {
            ended_.end(nullptr);
        } else {
            this->add_reference(); // for the list
            ended_.end(this);
        }
        this->member_.end(nullptr, false);
    }

    ended_children& ended_;
};

// True if S is a task<T>, or a function that returns a task<T> or a T.
template <class T, class S>
inline constexpr bool is_source_of = requires { requires std::is_same_v<spawned_value_t<S>, T>; };

using ended_children = basic_ended_children<native_platform>;
using join_set_state = basic_join_set_state<native_platform>;
template <class T> using join_set_child = basic_join_set_child<T, native_platform>;

} // namespace detail

/// The functions that wait for the children of a join_set or a join_map.
template <class Child> class join_operations {
    using node = basic_waiter<native_platform>;

public:
    /// The result of join_next(). It is empty, or false, if no child is left.
    using next_type = typename Child::next_type;

    join_operations& operator=(join_operations&&) = delete;

    /// Waits for the next child to end, and returns its outcome. Each outcome is returned once.
    ///
    /// If the set is cancelled, the call waits until all children have ended. A set skips the
    /// children that the cancellation has stopped; a map returns their keys, too.
    /// Blocks: until a child has ended, or none is left. A task of a run_loop must not block in
    /// this call: use async_join_next().
    /// Returns: of a join_set, the value (true if T is void); of a join_map, the key and the
    /// outcome; nothing (false) if no child is left.
    /// Throws: of a join_set, what the child threw; stopped_error, if the child was stopped for
    /// another reason than a cancellation of the set; stopped_error, if the runner had shut down
    /// before the child started. Of a join_map, what the move of the key or the value throws.
    [[nodiscard]] next_type join_next() {
        wait_status what = state_.ended.try_reserve();
        if (what == wait_status::waiting) {
            what = thread_wait<detail::ended_children, native_platform>::until(state_.ended, 1,
                                                                               deadline::never());
        }
        return take(state_.ended, what);
    }

    /// Returns an outcome as join_next() does. If join_next() would wait, returns nothing (false)
    /// at once.
    [[nodiscard]] next_type try_join_next() {
        const wait_status what = state_.ended.try_reserve();
        return take(state_.ended, what == wait_status::waiting ? wait_status::closed : what);
    }

    /// Waits as join_next() does, for a coroutine. If the wait ends early, by a time-out, a stop or
    /// a select, the children continue.
    /// Throws: what join_next() throws, also with as_result(); stopped_error, if the awaiting task
    /// is cancelled.
    /// Cancellation: if the awaiting task is cancelled or destroyed, the set is cancelled; a
    /// cancelled task waits until all children have ended.
    async_op<next_type> async_join_next() noexcept { return {joining_next{state_}}; }

    /// Cancels all children. A child that is spawned later is cancelled, too. A second call has no
    /// effect.
    /// Requires: `why` is not cancel_reason::none.
    void cancel(cancel_reason why = cancel_reason::requested) noexcept { state_.cancel(why); }

    /// Returns the number of outcomes that join_next() has not returned, a snapshot.
    std::size_t size() noexcept { return state_.ended.size(); }
    /// Returns size() == 0.
    bool empty() noexcept { return size() == 0; }

protected:
    /// Constructs an empty set. Its children run on `where`.
    explicit join_operations(task_runner& where) noexcept
        : home_(detail::runner_access::home(where)), state_(Child::keeps_all) {}
    /// Requires: end() was called.
    ~join_operations() = default;

    /// Cancels the children, waits for them, and drops their outcomes.
    void end() noexcept {
        state_.cancel(cancel_reason::parent);
        detail::block_until(state_.all.of_children(), home_);
        Child::drop_all(state_.ended);
    }

    /// Makes a child. The caller starts it.
    template <class S, class... Args> auto& make(S source, Args&... args) {
        return *new detail::task_cell<S, Child>(home_, false, std::move(source), state_, args...);
    }
    /// Starts a child, and returns its cancel_handle unless Value is void.
    template <class Value, class Cell> Value start(Cell& cell) noexcept {
        state_.ended.begin();
        state_.all.begin(cell.member());
        return detail::start_task<Value>(home_, cell);
    }

private:
    static next_type take(detail::ended_children& ended, wait_status what) {
        return what == wait_status::granted ? Child::take_next(ended) : next_type();
    }

    // The operation of async_join_next() (core/wait_ops.hpp).
    struct joining_next {
        detail::join_set_state& of;

        const auto& primitive() const noexcept { return of.ended; }
        wait_status try_now() const noexcept { return of.ended.try_reserve(); }
        wait_status enqueue(node& w) const noexcept { return of.ended.enqueue(w); }
        bool cancel(node& w, wait_status why) const noexcept { return of.ended.cancel(w, why); }
        result<next_type> collect(wait_status what) const {
            if (what == wait_status::stopped || what == wait_status::timed_out) {
                return unexpected{errc_of(what)};
            }
            return take(of.ended, what);
        }
        void give_back(wait_status what) const noexcept {
            if (what == wait_status::granted) {
                of.ended.give_up();
            }
        }
        void on_cancel() const noexcept {
            of.ended.cancel();
            of.all.cancel_by_parent();
        }
    };

    detail::task_home& home_;
    detail::join_set_state state_;
};

/// Runs tasks on a scheduler or a run_loop. join_next() returns their outcomes in the order in
/// which the tasks end. T is the type of their values. A child that fails cancels no other child.
/// sched/join_map.hpp has a set whose children have keys.
///
/// \code
/// bide::join_set<int> downloads(workers);
/// downloads.spawn(fetch("a"));
/// downloads.spawn(fetch("b"));
/// while (auto size = downloads.join_next()) { // in a coroutine: co_await downloads.async_join_next()
///     std::printf("%d\n", *size);             // the first that ends comes first
/// }
/// \endcode
///
/// Thread safety: several threads may call the functions of a set at once, except the destructor. A
/// child may spawn and cancel.
/// Requires: a child does not wait for its own set.
/// Destroys: cancels the children and waits for them.
template <class T> class join_set : public join_operations<detail::join_set_child<T>> {
    static_assert(!std::is_reference_v<T>, "join_set of references: use pointers");

    using base = join_operations<detail::join_set_child<T>>;

public:
    /// Constructs an empty set. Its children run on `where`.
    explicit join_set(task_runner& where) noexcept : base(where) {}

    /// Cancels the children and waits for them. Outcomes that no call has returned are dropped.
    /// Blocks: until all children have ended. To avoid blocking, call cancel(), then await
    /// async_join_next() until it returns nothing. If the calling thread belongs to a scheduler,
    /// another thread takes its place, even if that needs one thread more than
    /// scheduler_options::max_blocking_threads. If the set is on a run_loop, the calling thread may
    /// run the tasks of the loop meanwhile (see ~task_group()).
    /// Requires: no thread uses the set, except its children.
    ~join_set() { base::end(); }

    /// Starts a child. `source` is a task<T>, a function that returns a task<T>, or a function that
    /// returns a T. If the function returns a task, the calling thread calls the function at once.
    /// The function exists until the child has ended, so the coroutine of a lambda may use the
    /// captures. A function that returns a T is called when the child runs. A cancelled set starts
    /// no child.
    /// Throws: std::bad_alloc, and what the call of a function that returns a task throws.
    template <class S>
        requires(detail::is_source_of<T, S>)
    void spawn(S source) {
        base::template start<void>(base::make(std::move(source)));
    }

    /// Starts a child, as spawn() does.
    /// Returns: a handle that cancels this child alone. join_next() throws stopped_error for a
    /// child that its handle has stopped.
    /// Throws: as spawn() does.
    template <class S>
        requires(detail::is_source_of<T, S>)
    cancel_handle spawn_with_handle(S source) {
        return base::template start<cancel_handle>(base::make(std::move(source)));
    }
};

/// Returns async_join_next() as a case of a select. If another case is chosen, takes no outcome.
/// Cancellation: if the awaiting task is cancelled, the select is stopped; the children continue.
template <class Child> auto on_join_next(join_operations<Child>& set) {
    return detail::case_of(set.async_join_next());
}

}} // namespace bide::BIDE_ABI

#endif
