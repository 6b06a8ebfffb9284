// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_TASK_GROUP_HPP
#define BIDE_SCHED_TASK_GROUP_HPP

/// \file
/// Structured concurrency: tasks that do not outlive their group. A group may have a limit on the
/// number of tasks that exist at a time.
///
/// A coroutine that awaits the end of a group blocks no thread, however deeply groups are nested.

#include <bide/sched/scheduler.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/cancel_handle.hpp>
#include <bide/task/this_task.hpp>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

// What task_group and join_set share: the group, the cells of its members, and the blocking wait
// for them. A group stores the number of children that have not ended, the waiters for their end,
// the members that can be cancelled, and the first failure. One lock guards this state.
//
// A child is counted before it is posted. It decrements the count when its outcome is final and its
// frame is destroyed. The last child takes the waiters out of the queue. When a waiter returns, it
// may destroy the group. So the last access of the child to the group is the release of the lock.
//
// A group may have a limit. Each child then has a permit of the group's semaphore. When a child
// ends, it first returns the permit and then decrements the count, because the semaphore may be
// destroyed after the decrement. A returned permit may resume a coroutine that waits for a permit.
// If that coroutine has no executor, it resumes on the thread that ended the child. The coroutine
// may block until the end of the children, so a wake_scope defers its resumption until after the
// decrement.
//
// The body of task_group::run() is a member, too. The body is cancelled like a child, and its
// failure is a failure of the group. But the body may wait for the children. So a group
// distinguishes the end of all children from the end of all members.
//
// The group has a list of the members that have not been cancelled. A cancellation empties the
// list. For each member, the cancellation takes a reference under the lock, and cancels the member
// without the lock. A member may be a task that waits for another group. That group is then
// cancelled, too, but without recursion: the group is appended to the list of groups of the first
// cancellation (cancel_round). So the stack does not grow with the depth of nested groups. The
// cancel_round counts as a child of each group in that list, so each group exists until its members
// have been cancelled.
//
// If a task that waits for its group is cancelled, it continues to wait until all members have
// ended (wait_steps::on_cancel, core/wait_ops.hpp).

// Enqueues the waiter `w`, or decides its wait.
// If `what` is `waiting`, enqueues `w` and returns `waiting`. If a stop or a time-out came first,
// does not enqueue `w` and returns that outcome.
// If `what` is an outcome, decides the wait of `w` and returns `what`. If the select of `w` has
// already chosen another case, does nothing and returns `waiting`.
// Requires: the caller holds the lock of the queue. After the release of the lock, the caller
// passes the result to settle_if_over(), which stores an outcome in `w`.
template <class Platform>
wait_status queue_or_claim(basic_waiter_queue<Platform>& queue, basic_waiter<Platform>& w,
                           wait_status what) noexcept {
    if (what == wait_status::waiting) {
        return queue.push_unless_forbidden(w);
    }
    if (!w.claim()) {
        return wait_status::waiting;
    }
    w.commit();
    return what;
}

template <class Platform> class basic_group;

// A task that is a member of a group. This object is part of the task's header.
template <class Platform>
class basic_group_member : public basic_task_links<Platform, basic_group_member<Platform>> {
    using header = basic_task_header<Platform>;

public:
    basic_group_member(basic_group<Platform>& of, header& its_task) noexcept
        : group_(of), task_(its_task) {}
    basic_group_member& operator=(basic_group_member&&) = delete;

    deadline limit() const noexcept { return group_.limit(); }
    const task_binding<Platform>* values() const noexcept { return group_.values(); }

    // Called when the task has ended and its frame is destroyed. `error` is the exception of the
    // task. If `stopped` is true, the task never ran.
    void end(std::exception_ptr error, bool stopped) noexcept {
        group_.ended(*this, std::move(error), stopped);
    }

private:
    friend class basic_group<Platform>;

    basic_group<Platform>& group_;
    header& task_;
    typename Platform::template var<bool> linked_{false}; // guarded by the group's lock
    bool is_body_ = false;
};

template <class Platform> class basic_group {
    using member = basic_group_member<Platform>;
    using header = basic_task_header<Platform>;
    using list = basic_task_list<Platform, member>;
    using node = basic_waiter<Platform>;
    using word = std::uint32_t;
    using lock = lock_bits<Platform, word>;
    using guard = typename lock::guard;
    using wake_list = basic_wake_list<Platform>;
    template <class T> using var = typename Platform::template var<T>;

public:
    // An end that waiters wait for: the end of all children, or the end of all members.
    class end {
    public:
        static constexpr const char* waited_for = "the end of a group";

        end(basic_group& of, bool of_all) noexcept : group_(of), of_all_(of_all) {}
        end& operator=(end&&) = delete;

        bool has_come() noexcept {
            const guard section(group_.lock_);
            return is_here();
        }

        // Returns false if the deadline has passed.
        bool wait_until(deadline when) noexcept {
            return has_come() ||
                   thread_wait<end, Platform>::until(*this, 1, when) == wait_status::granted;
        }
        void wait() noexcept { wait_until(deadline::never()); }
        // Throws: what rethrow_if_failed() throws.
        basic_async_op<void, Platform> async_wait() noexcept { return {ending{*this}}; }

        // For thread_wait.
        wait_status enqueue(node& w) noexcept {
            lock::acquire(group_.lock_);
            const wait_status what =
                queue_or_claim(queue_, w, is_here() ? wait_status::granted : wait_status::waiting);
            lock::release_plain(group_.lock_);
            return settle_if_over(w, what);
        }

        bool cancel(node& w, wait_status why) noexcept {
            const guard section(group_.lock_);
            return queue_.withdraw(w, why);
        }

    private:
        friend basic_group;

        // The operation of async_wait() (core/wait_ops.hpp).
        struct ending {
            end& of;

            const auto& primitive() const noexcept { return of; }
            wait_status try_now() const noexcept {
                return of.has_come() ? wait_status::granted : wait_status::waiting;
            }
            wait_status enqueue(node& w) const noexcept { return of.enqueue(w); }
            bool cancel(node& w, wait_status why) const noexcept { return of.cancel(w, why); }
            result<void> collect(wait_status what) const {
                if (what == wait_status::granted ||
                    (what == wait_status::stopped && of.has_come())) {
                    of.group_.rethrow_if_failed();
                }
                return result_of(what);
            }
            void give_back(wait_status) const noexcept {}
            void on_cancel() const noexcept { of.group_.cancel_by_parent(); }
        };

        // Requires: the caller holds the lock.
        bool is_here() const noexcept {
            return group_.left_ == 0 && !(of_all_ && group_.has_body_);
        }

        basic_group& group_;
        const bool of_all_;
        basic_waiter_queue<Platform> queue_; // empty if the end has come
    };

    using semaphore = basic_semaphore<Platform>;

    // `room` is the semaphore of the group's limit; nullptr if there is no limit. A thread acquires
    // a permit of `room` before it calls begin() for a child.
    explicit basic_group(semaphore* room = nullptr) noexcept : room_(room) {}

    bool has_limit() const noexcept { return room_ != nullptr; }

    // Adds a child. Requires: its task is not posted yet.
    void begin(member& m) noexcept { add(m, false); }
    // Adds the body. Called at most once.
    void begin_body(member& m) noexcept { add(m, true); }

    void cancel(cancel_reason why = cancel_reason::requested) noexcept {
        if (start_cancel(why)) {
            cancel_members();
        }
    }

    // Cancels the group because the task that joins it was cancelled. If the calling thread is in a
    // cancel_round, appends the group to that round, which then cancels the members. Otherwise
    // cancels the members in this call.
    void cancel_by_parent() noexcept {
        if (!start_cancel(cancel_reason::parent)) {
            return;
        }
        if (round* const now = round::here()) {
            (now->first == nullptr ? now->first : now->last->next_in_round_) = this;
            now->last = this;
        } else {
            cancel_members();
        }
    }

    // The deadline, the values and the tag of the task that made the group. The members inherit
    // them.
    deadline limit() const noexcept { return limit_; }
    const task_binding<Platform>* values() const noexcept { return values_.get(); }
    std::uint8_t tag() const noexcept { return tag_; }

    end& of_children() noexcept { return children_; }
    end& of_all() noexcept { return all_; }

    // Throws: the first failure, if there is one.
    void rethrow_if_failed() {
        lock::acquire(lock_);
        const bool failed = failed_;
        const std::exception_ptr error = error_;
        lock::release_plain(lock_);
        if (failed) {
#if BIDE_EXCEPTIONS
            if (error) {
                std::rethrow_exception(error);
            }
#endif
            throw_error(errc::stopped);
        }
    }

private:
    friend member;

    using round = cancel_round<Platform>;

    // Returns true if the caller must cancel the members.
    bool start_cancel(cancel_reason why) noexcept {
        const guard section(lock_);
        if (cancelled_) {
            return false;
        }
        cancelled_ = true;
        reason_ = why;
        if (members_.first() == nullptr) {
            return false;
        }
        left_ = left_ + 1; // the caller counts as a child until it has cancelled all members
        return true;
    }

    void cancel_members() noexcept {
        round mine{this, this};
        round* const outer = std::exchange(round::here(), &mine);
        while (basic_group* const next = mine.first) {
            mine.first = next->next_in_round_;
            next->cancel_own_members();
        }
        round::here() = outer;
    }

    void cancel_own_members() noexcept {
        lock::acquire(lock_);
        const cancel_reason why = reason_;
        while (member* const m = members_.first()) {
            unlink(*m);
            list::template visit_unlocked<lock>(
                lock_, m->task_, [why](header& its_task) noexcept { its_task.cancel(why); });
        }
        leave(false);
    }

    void add(member& m, bool is_body) noexcept {
        m.is_body_ = is_body;
        {
            const guard section(lock_);
            left_ = left_ + (is_body ? 0U : 1U);
            has_body_ = has_body_ || is_body;
            if (!cancelled_) {
                members_.push_front(m);
                m.linked_ = true;
                return;
            }
        }
        m.task_.cancel(reason_);
    }

    void ended(member& m, std::exception_ptr error, bool stopped) noexcept {
        if (error || stopped) {
            note_failure(std::move(error), stopped, m.task_.reason());
        }
        if (room_ == nullptr || m.is_body_) {
            return remove(m);
        }
        const wake_scope<Platform> later;
        basic_permit<Platform>(*room_, std::adopt_lock).reset();
        remove(m);
    }

    // Called when a member has ended. This call is the last access to the group.
    void remove(member& m) noexcept {
        const bool is_body = m.is_body_;
        lock::acquire(lock_);
        if (m.linked_) {
            unlink(m);
        }
        leave(is_body);
    }

    // Counts the end of a child or of the body, wakes the waiters for that end, and releases the
    // lock.
    void leave(bool is_body) noexcept {
        left_ = left_ - (is_body ? 0U : 1U);
        has_body_ = has_body_ && !is_body;
        wake_list passed;
        if (children_.is_here()) {
            children_.queue_.pop_all(passed);
        }
        if (all_.is_here()) {
            all_.queue_.pop_all(passed);
        }
        lock::release_plain(lock_);
        passed.publish(wait_status::granted);
    }

    // `why` is the reason for which the member was cancelled, or none.
    void note_failure(std::exception_ptr error, bool stopped, cancel_reason why) noexcept {
        const bool is_stop = stopped || is_stopped_error(error);
        // A cancel_handle has cancelled this member, or the group has.
        const bool was_asked = why != cancel_reason::none && why != cancel_reason::shutdown;
        {
            const guard section(lock_);
            if (failed_ || (is_stop && (cancelled_ || was_asked))) {
                return;
            }
            failed_ = true;
            error_ = std::move(error);
        }
        cancel(cancel_reason::sibling);
    }

    void unlink(member& m) noexcept {
        members_.remove(m);
        m.linked_ = false;
    }

    semaphore* const room_;
    const task_binding_use<Platform> values_{values_of(worker_local<Platform>::get().running)};
    const deadline limit_ = limit_of(worker_local<Platform>::get().running);
    const std::uint8_t tag_ = tag_of(worker_local<Platform>::get().running);
    typename Platform::template atomic<word> lock_{0};
    // Guarded by the lock:
    end children_{*this, false};
    end all_{*this, true};
    list members_;              // those that have not been cancelled
    var<std::size_t> left_{0};  // children that have not ended
    var<bool> has_body_{false}; // a body that has not ended
    var<bool> cancelled_{false};
    var<cancel_reason> reason_{cancel_reason::none}; // set once, with cancelled_
    var<bool> failed_{false};
    std::exception_ptr error_; // the first failure; empty if the failed child never ran

    basic_group* next_in_round_ = nullptr; // accessed only by the thread that cancels the group
};

// ---- Cancellation

// A task that is a member of a group and stores its own outcome. The derived class decides what
// happens to the outcome.
template <class T, class Platform> class basic_group_task : public basic_task_header<Platform> {
    using header = basic_task_header<Platform>;

public:
    basic_group_member<Platform>& member() noexcept { return member_; }
    deadline limit() const noexcept final { return member_.limit(); }
    bool is_limited() const noexcept final { return !member_.limit().is_never(); }
    const task_binding<Platform>* values() const noexcept final { return member_.values(); }

    kept_outcome<T>& kept() noexcept { return kept_; }
    void settled() noexcept {}

protected:
    basic_group_task(typename header::home_type& home, bool kept,
                     basic_group<Platform>& of) noexcept
        : header(home, kept), member_(of, *this) {
        this->set_tag(of.tag());
    }
    ~basic_group_task() = default;

    basic_group_member<Platform> member_;
    kept_outcome<T> kept_;
};

BIDE_COMPILED_TEMPLATE(class basic_group<native_platform>)

using group = basic_group<native_platform>;
using group_member = basic_group_member<native_platform>;

// A child of a task_group, or its body. The group gets the exception; the value is dropped.
class group_task : public basic_group_task<void, native_platform> {
public:
    group_task(task_home& home, bool kept, group& of) noexcept : basic_group_task(home, kept, of) {}

protected:
    ~group_task() = default;

private:
    void discard_outcome() noexcept final { member_.end(std::move(kept_.error()), never_ran()); }
};

template <spawnable S> using group_cell = task_cell<S, group_task>;

// Starts a task. Value is void, or cancel_handle for the handle of the task, which is made before
// the task can end.
template <class Value, class Cell> Value start_task(task_home& home, Cell& cell) noexcept {
    if constexpr (std::is_void_v<Value>) {
        home.start(cell);
    } else {
        Value handle = cancel_access::handle_of(cell);
        home.start(cell);
        return handle;
    }
}

// Blocks until all members that `until` counts have ended. These members are tasks of `home`. If no
// other thread runs them, the calling thread runs them while it waits. If the calling thread
// belongs to a scheduler, that scheduler may start one thread more than max_blocking_threads
// meanwhile. So a thread is free for the members.
void block_until(group::end& until, task_home& home) noexcept;

} // namespace detail

/// Runs tasks on a scheduler or a run_loop and waits for all of them. The first child that fails
/// cancels the other children.
///
/// \code
/// bide::task<> crawl(bide::task_runner& workers) {
///     auto children = [](bide::task_group& group) -> bide::task<> {
///         co_await group.async_spawn(fetch("a"));
///         co_await group.async_spawn(fetch("b"));
///     };
///     co_await bide::task_group::run(workers, 100, children); // at most 100 children at a time
/// } // all children have ended
/// \endcode
///
/// A group may have a limit on the number of children at a time. At the limit, spawn() blocks until
/// there is room for one more child, and async_spawn() waits for room. A child occupies its room
/// until it has ended and its frame is destroyed. Callers get room in the order in which they began
/// to wait.
///
/// Thread safety: several threads may call the functions of a group at once, except the destructor.
/// A child may spawn and cancel. In a group with a limit, a spawn by a child may wait for the end
/// of another child. If all children wait in this way, none of them ends.
/// Requires: a child does not wait for its own group.
/// Destroys: waits for all children. If an exception leaves the scope of the group, or the running
/// task is cancelled, the destructor cancels the children first.
class task_group {
    template <class F> using value_of = detail::task_value_t<std::invoke_result_t<F&, task_group&>>;

public:
    /// Constructs an empty group. Its children run on `where`.
    explicit task_group(task_runner& where) noexcept : task_group(where, no_limit) {}
    /// Constructs an empty group of at most `limit` children at a time.
    /// Throws: std::invalid_argument if `limit` is zero.
    task_group(task_runner& where, std::size_t limit)
        : home_(detail::runner_access::home(where)), room_(permits_for(limit)),
          group_(limit == no_limit ? nullptr : &room_) {}
    task_group& operator=(task_group&&) = delete;

    /// Returns a task that runs the task body(group), and waits for the body and all children. The
    /// returned task has the value of the body, starts when it is awaited, and blocks no thread.
    ///
    /// The body runs as a separate task on `where`, and may wait for the children. If the body
    /// fails, the children are cancelled. If a child fails, the other children and the body are
    /// cancelled. With GCC before 13, give the body a name in an earlier statement (see
    /// task_runner::spawn()).
    /// Blocks: never, with one exception: if the task is destroyed before its end, the destruction
    /// blocks until the body and all children have ended.
    /// Throws: the first failure, after the body and all children have ended; stopped_error, if the
    /// awaiting task was cancelled, or if the cancellation of the group has stopped the body;
    /// std::bad_alloc.
    /// Cancellation: cancels the body and all children, and waits for them.
    template <class F> static task<value_of<F>> run(task_runner& where, F body) {
        return run_in(where, no_limit, std::move(body));
    }
    /// Does what run(where, body) does, with a group of at most `limit` children at a time. The
    /// body does not count as a child.
    /// Throws: std::invalid_argument in this call, if `limit` is zero.
    template <class F> static task<value_of<F>> run(task_runner& where, std::size_t limit, F body) {
        static_cast<void>(permits_for(limit));
        return run_in(where, limit, std::move(body));
    }

    /// Waits for all children. Drops the exception of a failed child. If an exception leaves the
    /// group's scope, or the running task is cancelled, cancels the children first.
    /// Blocks: until all children have ended. To avoid blocking, await async_join() first, or use
    /// run(). If the calling thread belongs to a scheduler, another thread takes its place, even if
    /// that needs one thread more than scheduler_options::max_blocking_threads. A run_loop belongs
    /// to the thread that has run it last, or to its maker if no thread has run it. If the group is
    /// on a run_loop that belongs to the calling thread, this call runs the tasks of the loop until
    /// all children have ended or another thread runs the loop. If the loop belongs to another
    /// thread, the call only waits, and the children end only while a thread runs the loop.
    /// Requires: no thread uses the group, except its children.
    ~task_group();

    /// Starts a child. `source` is a task or a function. If the function returns a task, the
    /// calling thread calls the function at once. The function exists until the child has ended, so
    /// the coroutine of a lambda may use the captures. Any other function is called when the child
    /// runs. The value of the child is dropped. If the group is cancelled, the child never starts.
    /// If the runner has shut down, the child counts as failed with stopped_error.
    /// Blocks: if the group has a limit, until there is room for one more child. A task of a
    /// run_loop must not block in this call: use async_spawn().
    /// Throws: std::bad_alloc, and what the call of a function that returns a task throws.
    template <detail::spawnable S> void spawn(S source) {
        permit one = group_.has_limit() ? permit(room_) : permit();
        start<void>(std::move(source), one);
    }

    /// Starts a child, as spawn() does.
    /// Returns: a handle that cancels this child alone. If the handle has cancelled the child, and
    /// the child ended by stopped_error or never started, the child has not failed.
    /// Blocks: as spawn() does.
    /// Throws: as spawn() does.
    template <detail::spawnable S> cancel_handle spawn_with_handle(S source) {
        permit one = group_.has_limit() ? permit(room_) : permit();
        return start<cancel_handle>(std::move(source), one);
    }

    /// The operation of async_spawn(). S is the type of `source`, and Value is void or
    /// cancel_handle.
    template <class S, class Value> class [[nodiscard("co_await it")]] spawn_operation;

    /// Starts a child, as spawn() does, when there is room for one more child. The operation begins
    /// when it is awaited: it waits for room, and then calls `source` if that is a function that
    /// returns a task. If the group has no limit, the operation does not wait.
    /// Returns: an operation for co_await, without a value. If it is not awaited, the child never
    /// begins, and is destroyed.
    /// Throws: what spawn() throws, when awaited; stopped_error, if the awaiting task is cancelled
    /// while it waits. After an exception, the child never begins, and is destroyed.
    /// Cancellation: the wait is stopped; the group is not cancelled.
    template <detail::spawnable S> auto async_spawn(S source) {
        return spawn_operation<S, void>(*this, std::move(source));
    }
    /// Starts a child as async_spawn() does.
    /// Returns: an operation for co_await; its value is the handle of spawn_with_handle().
    template <detail::spawnable S> auto async_spawn_with_handle(S source) {
        return spawn_operation<S, cancel_handle>(*this, std::move(source));
    }

    /// Cancels the body and all children. A child that is spawned later is cancelled, too. A second
    /// call has no effect.
    /// Requires: `why` is not cancel_reason::none.
    void cancel(cancel_reason why = cancel_reason::requested) noexcept { group_.cancel(why); }

    /// Waits until there are no children.
    /// Blocks: until all children have ended, as ~task_group() does.
    /// Throws: in each call, the exception of the first child that failed. A child that the group or
    /// a cancel_handle has cancelled, and that ended by stopped_error or never started, has not
    /// failed.
    void join() {
        detail::block_until(group_.of_children(), home_);
        group_.rethrow_if_failed();
    }

    /// Waits as join() does, for a coroutine. If the wait ends early, by a time-out, a stop or a
    /// select, the children continue.
    /// Throws: what join() throws, also with as_result(); stopped_error, if the awaiting task is
    /// cancelled.
    /// Cancellation: if the awaiting task is cancelled or destroyed, the group is cancelled; a
    /// cancelled task waits until the children have ended.
    async_op<void> async_join() noexcept { return group_.of_children().async_wait(); }

private:
    static constexpr std::size_t no_limit = (std::numeric_limits<std::size_t>::max)();

    static std::ptrdiff_t permits_for(std::size_t limit) {
        if (limit == 0) {
            BIDE_THROW(std::invalid_argument("bide::task_group: a limit of 0"));
        }
        constexpr std::ptrdiff_t most = (semaphore::max)();
        return limit < static_cast<std::size_t>(most) ? static_cast<std::ptrdiff_t>(limit) : most;
    }

    template <class F>
    static task<value_of<F>> run_in(task_runner& where, std::size_t limit, F body);

    // Makes a member. The caller starts it.
    template <class S>
    auto& make(S source, void (detail::group::*begin)(detail::group_member&) noexcept) {
        auto& cell = *new detail::group_cell<S>(home_, false, std::move(source), group_);
        (group_.*begin)(cell.member());
        return cell;
    }

    // Starts a child. Value is void or cancel_handle.
    template <class Value, class S> Value start(S source, permit& one) {
        auto& cell = make(std::move(source), &detail::group::begin);
        one.forget(); // the child returns the permit when it ends
        return detail::start_task<Value>(home_, cell);
    }

    detail::task_home& home_;
    const int unwinding_ = std::uncaught_exceptions();
    semaphore room_; // has a permit for each child that may be spawned, if there is a limit
    detail::group group_;
};

namespace detail {

// The outcome of the body of a group.
template <class T> struct body_outcome {
    kept_outcome<T> value;
    bool has_value = false;
};

template <class F, class T> task<> run_body(F& body, task_group& of, body_outcome<T>& outcome) {
    if constexpr (std::is_void_v<T>) {
        co_await body(of);
    } else {
        outcome.value.return_value(co_await body(of));
    }
    outcome.has_value = true;
}

} // namespace detail

template <class F>
task<task_group::value_of<F>> task_group::run_in(task_runner& where, std::size_t limit, F body) {
    using value = value_of<F>;
    detail::body_outcome<value> outcome;
    task_group group(where, limit);
    group.home_.start(
        group.make(detail::run_body<F, value>(body, group, outcome), &detail::group::begin_body));
    co_await group.group_.of_all().async_wait();
    if (!outcome.has_value) {
        detail::throw_error(errc::stopped);
    }
    co_return outcome.value.take();
}

template <class S, class Value> class task_group::spawn_operation {
public:
    /// Moves the operation. Requires: it was not awaited yet.
    spawn_operation(spawn_operation&&) = default;
    spawn_operation& operator=(spawn_operation&&) = delete;

    /// The awaiter of the operation.
    class awaiter {
    public:
        /// Constructs the awaiter of `of`, which exists until the end of the await expression.
        explicit awaiter(spawn_operation& of) noexcept
            : of_(of), wait_for_room_(of.group_.room_.async_acquire()), wait_(wait_for_room_) {}
        awaiter& operator=(awaiter&&) = delete;

        /// If the group has a limit, acquires the room for a child, if there is some.
        /// Returns: true if the coroutine need not suspend.
        bool await_ready() noexcept { return !has_limit() || wait_.await_ready(); }
        /// Queues the wait for room.
        /// Returns: true if the coroutine stays suspended.
        template <class Promise> bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
            return wait_.await_suspend(h);
        }
        /// Starts the child.
        /// Throws: what async_spawn() throws.
        Value await_resume() {
            permit one = has_limit() ? wait_.await_resume() : permit();
            return of_.group_.template start<Value>(std::move(of_.source_), one);
        }

    private:
        bool has_limit() const noexcept { return of_.group_.group_.has_limit(); }

        spawn_operation& of_;
        async_op<permit> wait_for_room_;
        async_op<permit>::awaiter wait_;
    };
    /// Returns the awaiter.
    awaiter operator co_await() && noexcept { return awaiter(*this); }

private:
    friend task_group;

    spawn_operation(task_group& group, S&& source) noexcept(std::is_nothrow_move_constructible_v<S>)
        : group_(group), source_(std::move(source)) {}

    task_group& group_;
    S source_;
};

inline task_group::~task_group() {
    if (std::uncaught_exceptions() > unwinding_ || this_task::is_cancelled()) {
        group_.cancel(cancel_reason::parent);
    }
    detail::block_until(group_.of_all(), home_);
}

}} // namespace bide::BIDE_ABI

#if BIDE_DEFINITIONS

#include <bide/sched/detail/scheduler_core.hpp>

namespace bide { inline namespace BIDE_ABI { namespace detail {

BIDE_COMPILED_INLINE void block_until(group::end& until, task_home& home) noexcept {
    constexpr std::chrono::nanoseconds retry(basic_worker_host<native_platform>::retry_ns);
    if (until.has_come()) {
        return;
    }
    if (const waker here = home.waker_of_caller()) {
        basic_waiter<native_platform> w(1, here);
        if (until.enqueue(w) != wait_status::waiting) {
            return;
        }
        home.run_tasks(w);
        if (w.is_complete()) {
            return;
        }
        if (!until.cancel(w, wait_status::timed_out)) {
            w.await_outcome();
            return;
        }
    } // another thread runs the members
    scheduler* const here = scheduler::current();
    auto* const threads = here != nullptr ? &scheduler_access::core(*here).blocking() : nullptr;
    if (threads == nullptr) {
        until.wait();
        return;
    }
    threads->raise_limit();
    // If the system has refused to start the extra thread, this thread tries again at intervals,
    // because all other threads may be blocked.
    while (!until.wait_until(threads->tend() ? deadline::after(retry) : deadline::never())) {
    }
    threads->lower_limit();
}

}}} // namespace bide::BIDE_ABI::detail

#endif

#endif
