// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_COMPOSE_HPP
#define BIDE_TASK_COMPOSE_HPP

/// \file
/// Runs several tasks concurrently: when_all() waits for all of them, when_any() for the first.
///
/// A child is a task, or a callable that returns a task, such as a coroutine lambda with captures.
/// When the result of when_all() or when_any() is awaited, each callable is called once, in
/// argument order, before any child starts. If a callable throws, the await throws that exception,
/// and no child starts. A callable is destroyed when its child has ended.
///
/// In general, each child is posted to the executor of the awaiting coroutine, and may run in
/// parallel with the other children. If the coroutine has no executor, the children are posted to
/// the worker that runs the coroutine. If no worker runs it, the children run on the awaiting
/// thread, one after the other. Such a child is resumed like every coroutine without an executor
/// (core/wake_scope.hpp).
///
/// If a task awaits when_all() on a worker of its scheduler, the children are not posted at once.
/// The task runs the children itself, in argument order, one after the other. Other workers may
/// steal children that have not started, the last child first. If a child waits, the children that
/// have not started are posted. For each child, such an await spends one unit of the budget, which
/// limits how many operations a task completes before queued tasks run. A run_loop runs children in
/// the same way, on its one thread.
///
/// A child whose operations are all ready never waits. When the budget is spent, it pauses, and
/// queued tasks run. After at most 4,096 such pauses, one child that has not started is posted: the
/// last child of the outermost when_all(). So each child starts, and a child may depend on a later
/// child.
///
/// The functions of this_task work in a child: a child has its own shields and its own stop token.
///
/// If the awaiting task is cancelled, all children are cancelled, and the await ends when all of
/// them have ended. A shield of the awaiting task keeps the cancellation from all children. A
/// shield of a child keeps the cancellation from that child alone.
///
/// GCC before 13 destroys some temporaries of a co_await expression twice: lambdas that capture by
/// value, and braced arguments, as in `co_await when_all(f({1, "text"}))`. bide cannot detect this
/// (BIDE_BRACED_AWAIT_BUG in core/config.hpp). Give the lambda, the argument or the task a name in
/// an earlier statement.

#include <bide/task/detail/nonvoid.hpp>
#include <bide/task/detail/task_cell.hpp>

#include <iterator>
#include <tuple>
#include <vector>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

// ---- The state of the children
//
// The state of one when_all or when_any: its children, and the wait of the parent (the awaiting
// coroutine). Each child is a separate chain of coroutines. The state lies in the parent's frame.
//
// `left_` counts the children that have not ended. While the parent starts the children, the parent
// counts as one more. The thread that counts down to zero resumes the parent [when.ended], and does
// not access the state afterwards. Only two threads access children that they do not run: the
// thread of the parent, which starts the children, and the thread of a child that cancels the other
// children, such as the winner. Both threads do so before their own count-down. A thread that
// cancels the parent accesses the children, too, but is not counted. It claims the parent instead
// (task_control.hpp), so the parent stays in its wait until that thread has finished.
//
// The parent's wait does not end before the children have ended. If the parent is cancelled during
// the wait, the children are cancelled, and the wait continues. If the parent is cancelled and not
// shielded before the wait, its context refuses the wait. The parent then cancels the children
// before it starts them. The parent waits without its context, and is resumed by the runnable that
// resumption() of the context returns.
//
// The children of a cancelled parent start, and their first wait is stopped. A single task that a
// cancelled task awaits behaves in the same way. If a child of when_any() has won before another
// child starts, that other child never starts. A cancelled parent could await children forever, in
// a loop in which no child ever waits. So after a number of such awaits, the parent itself is
// stopped (has_begun_enough()).
//
// Children in place. If a task awaits when_all() on a worker of its executor, it posts no child.
// The parent forks all children but the first, that is, it leaves them on that worker, where other
// workers may steal them, the last child first. Then the parent runs the first child in place: it
// transfers control to the child, as if it awaited a single task. A child that ends takes the next
// child back from the worker and transfers control to that child. The last child transfers control
// back to the parent. The next child cannot be taken back if it and all later ones were stolen or
// posted, or if the task has moved to another worker. In that case, the parent and the children
// that have ended in place are counted down, and the parent waits for the other children. So a
// child that is not stolen needs no count, no wake, and no queue.
//
// A parent that runs children in place begins its wait late, because most such waits are over
// before any thread needs them [when.late]. While the wait has not begun, a cancellation is only
// noted in the state of the parent. The wait begins in each of these cases:
//
//   - A child begins a wait, asks whether it is cancelled, or makes its stop token.
//   - A thread starts a child that was stolen or queued, or a child pauses.
//   - The parent or a child is about to wait for children that other threads run.
//   - A child has ended in place, and the parent was cancelled meanwhile.
//
// The thread begins first the wait of the parent, and then the wait of the parent's parent and so
// on (begin_waits_above()). If a wait is refused because that parent is cancelled, the thread
// cancels its children. So a child that waits or asks is cancelled as if all waits had begun early.
// Several threads may run children of one parent; a CAS of `wait_` chooses the thread that begins
// the wait. Such a thread runs a child that has not ended, so the parent and its parents stay in
// their waits. Only a child that neither waits nor asks learns of a cancellation later, at its next
// pause.
//
// The child in place is a separate chain, with its own shields and its own stop token. If that
// child waits, its worker posts the forked children and runs other jobs. When the child resumes and
// ends, on any worker, the next child or the parent continues on that worker. If the child ends on
// a thread that is no worker, or after code outside of bide has resumed it, the child ends like a
// stolen one. The child then also counts down for the parent, and no further child is started in
// place.
//
// If the budget is spent before a child starts, that child pauses, and other jobs may run first. In
// that case, the worker moves the forked children of this chain to `run_`. If they stayed on the
// worker, they would lie below the children that the other jobs fork, and could not be taken back.
// When the paused child starts, on any worker, the children in `run_` are forked again there. A
// chain that never waits may depend on one of its forked children. So the worker counts consecutive
// pauses, and after a number of them queues the oldest forked child.

// An executor that resumes coroutines on the calling thread. A thread that ends the wait of a
// coroutine without an executor does the same (core/wake_scope.hpp).
template <class Platform> class BIDE_SHARED on_this_thread {
public:
    void post(runnable& r) noexcept { wake_scope<Platform>::run(r, &spare_executor<Platform>); }

    static executor_ref ref() noexcept {
        static constinit on_this_thread one;
        return one;
    }
};

template <class Platform> class basic_when_state;

template <class Platform> class basic_when_child : public basic_task_control<Platform> {
    using control = basic_task_control<Platform>;
    using control::state_;

protected:
    basic_when_child() noexcept : control(1, true, &run_child) {}
    virtual ~basic_when_child() {
        if (!this->is_complete()) { // the parent is destroyed before its end
            wake_scope<Platform>::forget(this->to_run());
        }
    }

    // Returns the first coroutine of the child, with `where` as its executor. `where` may be empty.
    virtual std::coroutine_handle<> begin(executor_ref where) noexcept = 0;
    // Called at the end of the child. Stores its outcome.
    virtual void settle() noexcept = 0;

    bool has_begun() const noexcept { return begun_; }

    // If the child was started in place and has not suspended, the job of the parent runs it.
    bool runs_as(const runnable& job) const noexcept final {
        return control::runs_as(job) ||
               (in_place_ && !this->has_suspended() && when_->context_ != nullptr &&
                when_->context_->runs_as(job));
    }
    bool is_limited() const noexcept final {
        return when_->first_wins_ || !this->limit().is_never() ||
               (when_->context_ != nullptr && when_->context_->is_limited());
    }

    // The deadline, the values, the name and the tag are those of the parent.
    deadline limit() const noexcept override { return limit_of(when_->context_); }
    const task_binding<Platform>* values() const noexcept override {
        return values_of(when_->context_);
    }
    const char* name() const noexcept final {
        return when_->context_ != nullptr ? when_->context_->name() : nullptr;
    }
    void set_name(const char* name) noexcept final {
        if (when_->context_ != nullptr) {
            when_->context_->set_name(name);
        }
    }
    std::uint8_t tag() const noexcept final { return tag_of(when_->context_); }
    void set_tag(std::uint8_t tag) noexcept final {
        if (when_->context_ != nullptr) {
            when_->context_->set_tag(tag);
        }
    }

private:
    friend class basic_when_state<Platform>;
    using local = worker_local<Platform>;

    // Runs the child, if it was queued or stolen. If it has not started, the wait of the parent
    // begins first. So if the parent is cancelled, the child is cancelled before it starts.
    static void run_child(void* self) noexcept {
        auto& mine = *static_cast<basic_when_child*>(static_cast<control*>(self));
        if (!mine.begun_) {
            mine.begin_waits_above();
        }
        mine.run();
    }

    bool begin_wait(suspension& at) noexcept final {
        this->begin_waits_above();
        return begin_own_wait(at);
    }
    bool begin_own_wait(suspension& at) noexcept final {
        if (!*at.where) {
            *at.where = on_this_thread<Platform>::ref();
        }
        stays_home_ = *at.where == when_->where_;
        return control::begin_own_wait(at);
    }
    control* begin_wait_of_parent() noexcept final { return when_->begin_late_wait(); }
    bool is_cancelled() noexcept final {
        this->begin_waits_above();
        return control::is_cancelled();
    }
    runnable& resumption(suspension& at) noexcept final {
        stays_home_ = *at.where == when_->where_;
        return control::resumption(at);
    }
    // If another child has won, a child may end without having started. Otherwise it must start.
    bool may_finish_here() const noexcept final { return begun_ || when_->is_decided(); }
    std::coroutine_handle<> start() noexcept final {
        begun_ = true;
        return begin(when_->where_);
    }
    std::coroutine_handle<> ended() noexcept final {
        local& here = local::get();
        if (in_place_ && stays_home_ && here.running == this && when_->is_home()) {
            return when_->ended_in_place(*this, here);
        }
        return control::ended();
    }
    void never_start() noexcept final {}
    void post_home() noexcept final { when_->home().post(this->to_run()); }
    void finish() noexcept final {
        settle();
        state_.finish();
        when_->ended(*this);
    }

    // Called when the child has ended in place. If it has a stop token, marks the child as
    // complete, so that a later cancellation does not request a stop of that token.
    void settle_in_place() noexcept {
        settle();
        if (this->has_stop_token()) {
            state_.finish();
        }
    }

    union {
        basic_when_state<Platform>* when_; // set when the child is added
    };
    basic_when_child* next_child_ = nullptr;
    bool begun_ = false;
    bool in_place_ = false;  // the child was started in place
    bool stays_home_ = true; // the child last resumed on the parent's executor
};

template <class Platform> class basic_when_state {
    using child = basic_when_child<Platform>;
    template <class T> using atomic = typename Platform::template atomic<T>;

public:
    enum class until { all, first }; // with `all` there is no winner

    explicit basic_when_state(until what) noexcept : first_wins_(what == until::first) {}
    ~basic_when_state() {
        if (posts_itself_) { // the parent may be destroyed before its end
            wake_scope<Platform>::forget(run_);
        }
    }

    // Adds a child. `frame` is the frame of the child. The frame may be destroyed before the child
    // object.
    // Requires: this object is not awaited yet.
    void add(child& c, awaited_frame* frame = nullptr) noexcept {
        c.when_ = this;
        // Order: relaxed, both; fork() or the posts publish the count to the children.
        left_.store(left_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        (last_ == nullptr ? first_ : last_->next_child_) = &c;
        last_ = &c;
        if (frame != nullptr) {
            first_frame_ = first_frame_ == nullptr ? frame : first_frame_;
            if (last_frame_ != nullptr) {
                last_frame_->next = frame;
            }
            last_frame_ = frame;
        }
    }

    // Starts the children, and waits until they have ended.
    // Requires: all children were added.
    class wait_for_children {
    public:
        explicit wait_for_children(basic_when_state& whose) noexcept : state_(whose) {}
        wait_for_children(const wait_for_children&) = delete;
        wait_for_children& operator=(const wait_for_children&) = delete;

        bool await_ready() const noexcept { return state_.first_ == nullptr; }
        // Not inlined, because the parent's frame may be destroyed when the last child has ended.
        template <class Promise>
        BIDE_NOINLINE std::coroutine_handle<>
        await_suspend(std::coroutine_handle<Promise> h) noexcept {
            state_.awaiting_.begin(h, state_.first_frame_);
            return state_.start(h, bide::task_context_of<Platform>(h.promise()),
                                bide::executor_of(h.promise()));
        }
        // Throws: stopped_error, if the parent is cancelled and has_begun_enough().
        void await_resume() {
            state_.awaiting_.end();
            state_.posts_itself_ = false;
            if (state_.stopped_) {
                throw_error(errc::stopped);
            }
        }

    private:
        basic_when_state& state_;
    };
    wait_for_children wait() noexcept { return wait_for_children(*this); }

    // Cancels the children that have not ended, other than `except`. Requires: the caller is the
    // parent, a canceller of the parent, or a child that has not counted down.
    void cancel_all(cancel_reason why, const child* except = nullptr) noexcept {
        for (child* c = first_; c != nullptr; c = c->next_child_) {
            if (c != except) {
                c->cancel(why);
            }
        }
    }

    // Returns the index of the child that ended first. Requires: the await is over.
    std::size_t winner() const noexcept {
        // Order: relaxed; the children have ended [when.ended], so the winner does not change any
        // more.
        const child* const first = winner_.load(std::memory_order_relaxed);
        std::size_t index = 0;
        for (const child* c = first_; c != first; c = c->next_child_) {
            ++index;
        }
        return index;
    }

private:
    friend child;
    using local = worker_local<Platform>;
    using control = basic_task_control<Platform>;

    // What the parent's context knows of the wait of the parent.
    enum class parent_wait : std::uint8_t {
        none,   // There is no context, or the context has refused the wait.
        late,   // The parent runs its children in place, and has not begun the wait.
        begins, // A thread begins the wait late.
        begun,
    };

    // Returns the coroutine that continues on this thread, or a no-op.
    std::coroutine_handle<> start(std::coroutine_handle<> h, basic_task_context<Platform>* context,
                                  executor_ref where) noexcept {
        context_ = context;
        where_ = where ? where : current_worker<Platform>();
        parent_ = h;
        if (context_ == nullptr) {
            post_by([](void* self) noexcept {
                resume_apart<Platform>(static_cast<basic_when_state*>(self)->parent_);
            });
        } else {
            local& here = local::get();
            if (runs_in_place(here)) {
                return begin_in_place(here);
            }
            if (!begin_wait()) {
                stopped_ = context_->has_begun_enough();
                if (stopped_) {
                    return to_parent(); // no child has started
                }
                cancel_all(cancel_reason::parent);
            }
        }
        {
            // Keeps children from starting on this thread before all of them are queued.
            const wake_scope<Platform> together;
            const executor_ref queue = home();
            auto* const host = local::get().host;
            const bool in_order = host != nullptr && host->executor() == queue;
            for (child* c = first_; c != nullptr; c = c->next_child_) {
                in_order ? host->post_in_order(c->to_run()) : queue.post(c->to_run());
            }
        }
        return count_parent_down(1);
    }

    // Subtracts n from the count. If all children have ended, returns the parent, which continues
    // on this thread. If not, the last child to end resumes the parent.
    std::coroutine_handle<> count_parent_down(std::size_t n) noexcept {
        if (!count_down(n)) {
            return std::noop_coroutine();
        }
        end_wait();
        return to_parent();
    }

    // ---- The wait of the parent

    // Begins the wait. Returns false if the parent is cancelled and not shielded.
    bool begin_wait() noexcept {
        std::construct_at(&resumed_on_, home());
        std::construct_at(&at_, suspension{&resumed_on_,
                                           waker(
                                               [](void* me) noexcept {
                                                   static_cast<basic_when_state*>(me)->cancel_all(
                                                       cancel_reason::parent);
                                               },
                                               this),
                                           parent_});
        const bool begun = context_is_control_ ? control_of_parent().begin_own_wait(at_)
                                               : context_->begin_wait(at_);
        // Order: relaxed [when.late]; the threads that read it later see it by [when.ended].
        wait_.store(begun ? parent_wait::begun : parent_wait::none, std::memory_order_relaxed);
        return begun;
    }

    // If the parent runs its children in place and has not begun its wait, begins the wait, and
    // returns the context of the parent.
    control* begin_late_wait() noexcept {
        auto seen = parent_wait::late;
        // Order: relaxed, all three [when.late]; the CAS only chooses a thread. The other threads
        // need not see the wait begin: the chosen thread cancels their children, if need be, before
        // it counts down [when.ended].
        if (wait_.load(std::memory_order_relaxed) != parent_wait::late ||
            !wait_.compare_exchange_strong(seen, parent_wait::begins, std::memory_order_relaxed,
                                           std::memory_order_relaxed)) {
            return nullptr;
        }
        if (!begin_wait()) {
            cancel_all(cancel_reason::parent);
        }
        return &control_of_parent();
    }

    // Ends the wait, if it has begun, without a wake.
    void end_wait() noexcept {
        // Order: relaxed; a thread that has begun the wait is this one, or has counted down
        // [when.ended].
        if (wait_.load(std::memory_order_relaxed) == parent_wait::begun) {
            context_->end_wait();
        }
    }

    // Requires: the parent runs its children in place.
    control& control_of_parent() const noexcept { return static_cast<control&>(*context_); }

    // ---- The end of a child

    // Called when a child has ended. The child is not accessed afterwards.
    void ended(child& c) noexcept {
        child* none = nullptr;
        // Order: relaxed; the children that the winner cancels see the winner by [task.claim], and
        // the parent sees it by [when.ended]. Failure: another child has won.
        if (first_wins_ && winner_.compare_exchange_strong(none, &c, std::memory_order_relaxed,
                                                           std::memory_order_relaxed)) {
            // Keeps children from resuming on this thread before all of them are cancelled.
            const wake_scope<Platform> later;
            cancel_all(cancel_reason::sibling, &c);
        }
        std::size_t counts = 1;
        if (c.in_place_) {
            // The child has ended on a thread that is no worker, or inside of another executor. The
            // parent must not continue there, and no further child is started in place. So also
            // subtracts the parent's own count, and the counts of the children that have ended in
            // place. These counts were not subtracted before.
            counts += 1 + ended_in_place_;
            c.begin_waits_above();
        }
        if (count_down(counts)) {
            resume_parent();
        }
    }

    void resume_parent() noexcept {
        if (context_ == nullptr) {
            home().post(run_);
            // Order: relaxed; as in end_wait().
        } else if (wait_.load(std::memory_order_relaxed) == parent_wait::begun) {
            context_->wake();
        } else {
            home().post(context_->resumption(at_));
        }
    }

    // ---- Children in place

    // Returns true if the parent runs the children in place.
    bool runs_in_place(const local& here) const noexcept {
        return !first_wins_ && here.running == context_ && here.host != nullptr && is_home() &&
               !control_of_parent().is_cancelled_itself();
    }

    // Forks all children but the first, in reverse order, because the newest is taken back first.
    std::coroutine_handle<> begin_in_place(local& here) noexcept {
        context_is_control_ = true;
        // Order: relaxed [when.late]; fork() publishes it to the threads that steal a child.
        wait_.store(parent_wait::late, std::memory_order_relaxed);
        run_list others;
        for (child* c = first_->next_child_; c != nullptr; c = c->next_child_) {
            others.push_front(c->to_run());
        }
        fork(others, here);
        return start_in_place(*first_, here);
    }

    // Forks the children. If the worker has no room for some of them, posts these.
    void fork(run_list& children, local& here) noexcept {
        if (here.host != nullptr && children.first() != nullptr) {
            here.host->fork(children);
        }
        while (runnable* const r = children.pop()) {
            home().post(*r);
        }
    }

    // Starts a child in place. If the budget is spent, other jobs of this worker run first.
    std::coroutine_handle<> start_in_place(child& c, local& here) noexcept {
        c.in_place_ = true;
        if (here.spend()) {
            return transfer<Platform>(c.start_in_place(here), node_);
        }
        c.begin_waits_above();
        next_ = &c;
        post_by([](void* self) noexcept { static_cast<basic_when_state*>(self)->go_on(); });
        run_.pauses = here.pauses;
        here.host->pause(run_);
        return std::noop_coroutine();
    }

    // Makes `run_`, which calls `function`.
    void post_by(waker::function function) noexcept {
        std::construct_at(&run_)->run = waker(function, this);
        posts_itself_ = true;
    }

    // Starts the paused child. Called when the other jobs of the worker have run.
    void go_on() noexcept {
        child& c = *next_;
        local& here = local::get();
        fork(run_.forked, here);
        here.pauses = run_.pauses + 1;
        c.to_run().run.wake();
        here.pauses = 0; // of the next job
    }

    // Called when a child has ended in place. Destroys the frame of the child. Returns what
    // continues: the next child, the parent, or a no-op.
    std::coroutine_handle<> ended_in_place(child& c, local& here) noexcept {
        here.running = context_;
        if (here.traced) {
            here.name = context_->name();
            here.tag = context_->tag();
        }
        c.settle_in_place();
        ++ended_in_place_;
        child* const next = c.next_child_;
        if (next == nullptr) { // all children have ended in place
            end_wait();
            return to_parent();
        }
        // A cancelled parent cancels the next child before it starts.
        if (control_of_parent().is_cancelled_itself()) {
            c.begin_waits_above();
        }
        // A cancelled child is not taken back. It must start with a spent budget, and only run()
        // (task_control.hpp) starts it so.
        if (here.host == nullptr || next->state_.is_cancelled() ||
            !here.host->take_back(next->to_run())) {
            c.begin_waits_above();
            return count_parent_down(1 + ended_in_place_);
        }
        return start_in_place(*next, here);
    }

    // ---- Both

    // Returns true if the calling thread is a worker of the executor on which the parent resumes.
    bool is_home() const noexcept { return where_ && current_worker<Platform>() == where_; }
    std::coroutine_handle<> to_parent() noexcept { return transfer<Platform>(parent_, node_); }

    // Subtracts n from the count. Returns true if the count is now zero.
    bool count_down(std::size_t n = 1) noexcept {
        // Order: acq_rel [when.ended]; what each child did, and each access to a child, happens
        // before the last count-down returns, and so before the parent continues.
        return left_.fetch_sub(n, std::memory_order_acq_rel) == n;
    }

    // Order: relaxed; a child that the winner cancelled sees the winner by [task.claim].
    bool is_decided() const noexcept { return winner_.load(std::memory_order_relaxed) != nullptr; }

    executor_ref home() const noexcept { return where_ ? where_ : on_this_thread<Platform>::ref(); }

    const bool first_wins_;
    bool context_is_control_ = false; // the parent runs its children in place
    bool posts_itself_ = false;       // `run_` exists, and the parent has not resumed
    bool stopped_ = false;
    atomic<parent_wait> wait_{parent_wait::none};
    child* first_ = nullptr;
    child* last_ = nullptr;
    awaited_frame* first_frame_ = nullptr;
    awaited_frame* last_frame_ = nullptr;
    awaiting awaiting_;

    // The members of the unions are not initialised when the state is made, because that would be a
    // third of the time that a parent spends on two children that do not wait.
    //
    // The parent, and the executor on which it resumes. start() sets them.
    union {
        std::coroutine_handle<> parent_;
    };
    union {
        basic_task_context<Platform>* context_;
    };
    union {
        executor_ref where_;
    };
    // begin_wait() makes these. `resumed_on_` is home(), for the context.
    union {
        suspension at_;
    };
    union {
        executor_ref resumed_on_;
    };
    // post_by() makes it. It resumes the parent if the parent has no context, or starts `next_`.
    union {
        paused_chain run_;
    };
    // Only the thread that runs the parent, or its child in place, uses these.
    union {
        child* next_; // a child in place that has paused before its start
    };
    union {
        transfer_node node_; // transfer() sets it
    };
    std::size_t ended_in_place_ = 0;

    atomic<std::size_t> left_{1}; // the parent, and the children that were added
    atomic<child*> winner_{nullptr};
};

BIDE_COMPILED_TEMPLATE(class basic_when_state<native_platform>)

// ---- The children, with their bodies and outcomes (task_cell.hpp)

using task_when_state = basic_when_state<native_platform>;

// A child, and its outcome when it has ended.
template <task_source S>
class task_child : public basic_when_child<native_platform>, public kept_outcome<task_value_t<S>> {
    using T = task_value_t<S>;
    using outcome = kept_outcome<T>;

public:
    task_child() noexcept {}

    // Throws: what a callable throws.
    void open(S&& source) { body_.open(std::move(source)); }
    awaited_frame& frame() noexcept { return body_.frame(); }

    // Requires: the child has ended.
    nonvoid_t<T> value() {
        if constexpr (std::is_void_v<T>) {
            return {};
        } else {
            return outcome::value();
        }
    }

private:
    std::coroutine_handle<> begin(executor_ref where) noexcept override {
        return body_.begin(*this, where);
    }

    void settle() noexcept override {
        if (has_begun()) {
            body_.end(static_cast<outcome&>(*this));
        } else {
            body_.destroy();
        }
    }

    task_body<S, awaited_frame> body_;
};

template <class S> BIDE_INLINE void add_child(task_when_state& to, task_child<S>& c, S& source) {
    c.open(std::move(source));
    to.add(c, &c.frame());
}

template <task_source... Ss> class when_children {
public:
    // Throws: what a callable throws.
    explicit when_children(task_when_state::until what, Ss&... sources) : state(what) {
        std::apply([&](task_child<Ss>&... c) { (detail::add_child(state, c, sources), ...); },
                   children_);
    }

    std::tuple<nonvoid_t<task_value_t<Ss>>...> values() {
        return std::apply(
            [](task_child<Ss>&... c) {
                (c.rethrow_if_failed(), ...);
                return std::tuple<nonvoid_t<task_value_t<Ss>>...>(c.value()...);
            },
            children_);
    }

    template <std::size_t I = 0> std::variant<nonvoid_t<task_value_t<Ss>>...> first() {
        static_assert((!std::is_reference_v<task_value_t<Ss>> && ...),
                      "when_any of references: use pointers");
        if constexpr (I + 1 < sizeof...(Ss)) {
            if (state.winner() != I) {
                return first<I + 1>();
            }
        }
        auto& c = std::get<I>(children_);
        c.rethrow_if_failed();
        return std::variant<nonvoid_t<task_value_t<Ss>>...>(std::in_place_index<I>, c.value());
    }

    task_when_state state;

private:
    std::tuple<task_child<Ss>...> children_;
};

template <task_source S> class when_children_vector {
    using T = task_value_t<S>;

    static_assert(!std::is_reference_v<T>, "a vector of tasks of references: use pointers");

public:
    // Throws: std::bad_alloc; what a callable throws.
    when_children_vector(task_when_state::until what, std::vector<S>& sources)
        : state(what), children_(sources.size()) {
        for (std::size_t i = 0; i < sources.size(); ++i) {
            detail::add_child(state, children_[i], sources[i]);
        }
    }

    std::vector<nonvoid_t<T>> values() {
        for (task_child<S>& c : children_) {
            c.rethrow_if_failed();
        }
        std::vector<nonvoid_t<T>> all;
        all.reserve(children_.size());
        for (task_child<S>& c : children_) {
            all.push_back(c.value());
        }
        return all;
    }

    std::pair<std::size_t, nonvoid_t<T>> first() {
        const std::size_t which = state.winner();
        children_[which].rethrow_if_failed();
        return {which, children_[which].value()};
    }

    task_when_state state;

private:
    std::vector<task_child<S>> children_;
};

// Awaits children whose state lies in the awaiter, and so in the frame of the awaiting coroutine.
template <class Children> class [[nodiscard("co_await it")]] children_awaiter {
public:
    // Throws: what the constructor of Children throws.
    template <class... Sources>
    explicit children_awaiter(Sources&... sources)
        : all_(task_when_state::until::all, sources...), wait_(all_.state) {}
    children_awaiter(const children_awaiter&) = delete;
    children_awaiter& operator=(const children_awaiter&) = delete;

    bool await_ready() const noexcept { return wait_.await_ready(); }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> h) noexcept {
        return wait_.await_suspend(h);
    }
    auto await_resume() {
        wait_.await_resume();
        return all_.values();
    }

private:
    Children all_;
    task_when_state::wait_for_children wait_;
};

template <class R>
using child_of_range_t = std::remove_cvref_t<decltype(*std::begin(std::declval<R&>()))>;
template <class R>
concept child_range = task_source<child_of_range_t<R>>;

// Returns the children of a range. If the range is an rvalue container, moves its elements. If the
// range is a view or an lvalue, uses the elements as its iterators return them.
template <class R> std::vector<child_of_range_t<R>> to_children(R&& range) {
    std::vector<child_of_range_t<R>> children;
    for (auto&& child : range) {
        if constexpr (!std::is_lvalue_reference_v<R> && requires { typename R::allocator_type; }) {
            children.push_back(std::move(child));
        } else {
            children.push_back(std::forward<decltype(child)>(child));
        }
    }
    return children;
}

// Replaces a type that is not a child. So the rest of the statement compiles, and the compiler
// reports only one error.
template <class Other> using refused_child = std::monostate;

template <class... Others> [[noreturn]] void refuse_children() {
    static_assert((task_source<Others> && ...),
                  "bide: when_all and when_any take tasks, and callables that return tasks; for "
                  "operations write a task that awaits each, or a select");
    fatal("when_all or when_any of what is no task");
}

} // namespace detail

/// Runs all children, and returns their values in argument order. A void child has the value
/// std::monostate.
/// Throws: after all children have ended, the exception of the first failed child in argument
/// order. The other exceptions are dropped. Also std::bad_alloc, and what the move of a value
/// throws. stopped_error, if the awaiting task was cancelled and has awaited children 128 times
/// after that.
/// Cancellation: cancels all children, and waits for them.
template <detail::task_source... Ss>
task<std::tuple<nonvoid_t<detail::task_value_t<Ss>>...>> when_all(Ss... children) {
    detail::when_children<Ss...> all(detail::task_when_state::until::all, children...);
    co_await all.state.wait();
    co_return all.values();
}

/// Runs a vector of children, which may be empty. Everything else is as in the first when_all().
template <detail::task_source S>
task<std::vector<nonvoid_t<detail::task_value_t<S>>>> when_all(std::vector<S> children) {
    detail::when_children_vector<S> all(detail::task_when_state::until::all, children);
    co_await all.state.wait();
    co_return all.values();
}

/// Runs the children of any range like those of a vector. Reads the range in this call. A container
/// must be passed as an rvalue; its children are moved.
template <detail::child_range R> auto when_all(R&& children) {
    return bide::when_all(detail::to_children(std::forward<R>(children)));
}

/// Rejects an argument, such as an operation, that is neither a task nor a callable that returns
/// a task.
template <class... Others>
    requires(!(detail::task_source<Others> && ...))
task<std::tuple<detail::refused_child<Others>...>> when_all(Others...) {
    detail::refuse_children<Others...>();
}

/// Runs all children as when_all() does, but needs no coroutine of its own. The state of the
/// children, about 250 bytes and 150 bytes a child, lies in the frame of the awaiting coroutine.
/// Use it where a coroutine forks often.
///
/// \code
/// const auto [a, b] = co_await bide::await_all(fib(n - 1), fib(n - 2));
/// \endcode
///
/// Calls the callables in this call.
/// Returns: an awaitable that cannot be moved, and must be awaited in the same expression.
/// Throws: what a callable throws. When awaited, what when_all() throws.
/// Cancellation: cancels all children, and waits for them.
template <detail::task_source... Ss>
detail::children_awaiter<detail::when_children<Ss...>> await_all(Ss... children) {
    return detail::children_awaiter<detail::when_children<Ss...>>(children...);
}

/// Runs a vector of children, which may be empty. Everything else is as in the first await_all().
template <detail::task_source S>
detail::children_awaiter<detail::when_children_vector<S>> await_all(std::vector<S> children) {
    return detail::children_awaiter<detail::when_children_vector<S>>(children);
}

/// Runs all children until the first one has ended, and returns the value of that child in a
/// variant. The index of the variant is the index of the child. A child that throws has ended, too.
///
/// The other children are cancelled, and the await ends when they have ended. Children that have
/// not started yet never start. The outcomes of the other children are dropped.
///
/// The children start in argument order. So if one thread runs all of them (a run_loop, or the only
/// worker of a scheduler), the first child that need not wait wins. If several workers run them,
/// any child that need not wait may win.
/// Throws: the exception of the first child to end; std::bad_alloc; what the move of a value
/// throws; stopped_error, as when_all().
/// Cancellation: cancels all children, and waits for them.
template <detail::task_source... Ss>
    requires(sizeof...(Ss) != 0)
task<std::variant<nonvoid_t<detail::task_value_t<Ss>>...>> when_any(Ss... children) {
    detail::when_children<Ss...> all(detail::task_when_state::until::first, children...);
    co_await all.state.wait();
    co_return all.first();
}

/// Rejects an argument, such as an operation, that is neither a task nor a callable that returns
/// a task.
template <class... Others>
    requires(!(detail::task_source<Others> && ...))
task<std::variant<detail::refused_child<Others>...>> when_any(Others...) {
    detail::refuse_children<Others...>();
}

/// Runs a vector of children as when_any() above does. Returns the index and the value of the first
/// child to end.
/// Throws: as when_any() above. If the vector is empty, the await throws std::invalid_argument.
template <detail::task_source S>
task<std::pair<std::size_t, nonvoid_t<detail::task_value_t<S>>>> when_any(std::vector<S> children) {
    if (children.empty()) {
        BIDE_THROW(std::invalid_argument("bide::when_any of an empty vector"));
    }
    detail::when_children_vector<S> all(detail::task_when_state::until::first, children);
    co_await all.state.wait();
    co_return all.first();
}

/// Runs the children of any range like those of a vector. Reads the range in this call, as
/// when_all() of a range does.
template <detail::child_range R> auto when_any(R&& children) {
    return bide::when_any(detail::to_children(std::forward<R>(children)));
}

}} // namespace bide::BIDE_ABI

#endif
