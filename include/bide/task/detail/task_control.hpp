// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_DETAIL_TASK_CONTROL_HPP
#define BIDE_TASK_DETAIL_TASK_CONTROL_HPP

// The parts of a task that do not depend on the type of its outcome:
//
//   basic_task_state    one word: whether the task runs, waits, has ended or is cancelled, and the
//                       number of its references
//   basic_task_control  a chain of coroutines that can be cancelled: its state, the runnable that
//                       resumes it, and the waker that interrupts its wait. Each child of when_all
//                       and when_any is such a chain (compose.hpp).
//   basic_task_header   a spawned task: a chain, its executor (basic_task_home), the links of a
//                       list, and a gate that opens when the task ends; joiners wait at the gate. A
//                       cell (task_cell.hpp) adds the code that the task runs, and the outcome.
//
// A spawned task is one allocation. It is destroyed with its last reference. The scheduler has a
// reference until the task has ended. A join handle has another one.

#include <bide/core/detail/task_context.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/sync/detail/gate.hpp>
#include <bide/task/cancel_reason.hpp>

#include <stop_token>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// ---- The state

// The state of a task, the requests to it and its references, in one word:
//
//   bits    name        set while
//   0       active      the task is queued or runs. The bit is clear while the task waits, with one
//                       exception: a task that begins to wait for its children after it was
//                       cancelled stays active, because nothing can interrupt that wait.
//   1       claimed     a canceller interrupts the wait, so the wait's node must not be destroyed
//   2       notified    the wait has ended while `claimed` was set; the canceller wakes the task
//   3       complete    the task has ended; its outcome does not change any more
//   4       cancelled   cancel() was called; never cleared
//   5       kept        a join handle may still ask for the outcome
//   8..15   reason      the cancel_reason, if `cancelled` is set; set with it, and never changed
//   16..31  shields     the number of shields that keep a cancellation from taking effect
//   32..63  references  the number of owners that may still access the task
//
//   active claimed notified complete
//     1       0       0        0      queued or running
//     0       0       0        0      waiting
//     0       1       0        0      waiting, being interrupted
//     0       1       1        0      woken, still being interrupted
//     1       0       0        1      ended
//   (all other rows are illegal)
//
// The decider of a wait is the thread that grants it, times it out or stops it. Each suspension has
// exactly one wake, by the decider of its wait. So no task is queued twice. The task clears the bit
// `active` before the primitive queues the node of the wait. So a wake may come while the task is
// still entering its wait. The task is then posted as usual, and another worker may run it before
// the old worker has finished the suspension.
//
// A canceller accesses the node of a wait while another thread may end that wait. The node must not
// be destroyed meanwhile [task.claim]. If the canceller finds the task waiting, it sets `cancelled`
// and `claimed` in one step. While a task is claimed, it is not resumed: a wake only sets
// `notified`. So the node outlives the interruption. If the wait ends during the interruption, the
// canceller posts the task afterwards. A canceller may also claim a task whose wait is then refused
// or granted at once. Such a task continues on its thread without a wake, but first waits until the
// claim has ended. A task that is cancelled while it is active or shielded learns of the
// cancellation when it begins its next wait.

template <class Platform> class basic_task_state {
public:
    using word = std::uint64_t;

    constexpr basic_task_state(word references, bool keep) noexcept
        : word_(references * reference | active | (keep ? kept : 0)) {}

    // --- Called by the task

    // Marks the task as waiting. If the task is cancelled and not shielded, leaves it active and
    // returns false.
    bool begin_wait() noexcept {
        // Order: acquire [task.claim]; sees the writes before the cancellation, if there is one.
        word seen = word_.load(std::memory_order_acquire);
        do {
            if (is_cancelled(seen)) {
                return false;
            }
            // Order: release [task.claim]; the canceller that claims the task sees how to interrupt
            // it. Failure: as the first load.
        } while (!word_.compare_exchange_weak(seen, seen & ~active, std::memory_order_release,
                                              std::memory_order_acquire));
        return true;
    }

    // Marks the task as active again, without a wake. If a canceller claims the task, waits until
    // the claim has ended.
    void end_wait() noexcept {
        basic_backoff<Platform> backoff;
        // Order: relaxed; the CAS acquires.
        word seen = word_.load(std::memory_order_relaxed);
        for (;;) {
            if ((seen & claimed) != 0) {
                backoff();
                // Order: relaxed; the CAS acquires.
                seen = word_.load(std::memory_order_relaxed);
                // Order: acquire [task.claim]; the interruption happens before this. Failure:
                // retries.
            } else if (word_.compare_exchange_weak(seen, seen | active, std::memory_order_acquire,
                                                   std::memory_order_relaxed)) {
                return;
            }
        }
    }

    // Adds a shield. Returns false if the task already has max_shields.
    bool shield() noexcept {
        // Order: relaxed; only the task changes this field.
        const word seen = word_.load(std::memory_order_relaxed);
        if ((seen & shields) == shields) {
            return false;
        }
        // Order: relaxed; the canceller sees the shield, or the next wait sees the cancellation.
        word_.fetch_add(one_shield, std::memory_order_relaxed);
        return true;
    }

    // Removes a shield. Returns true if it was the last one and a cancellation takes effect.
    bool unshield() noexcept {
        // Order: acquire [task.claim]; sees the writes before the cancellation.
        return is_cancelled(word_.fetch_sub(one_shield, std::memory_order_acquire) - one_shield);
    }

    // Marks the task as complete. Returns true if a join handle may ask for the outcome.
    bool finish() noexcept {
        // Order: acq_rel [task.outcome]; the outcome is visible to each thread that sees
        // `complete`. The writes of the handle's owner before forgo() are visible here.
        return (word_.fetch_or(complete, std::memory_order_acq_rel) & kept) != 0;
    }

    // --- Called by the decider of the wait

    // Marks the task as active or notified. Returns true if the caller must post the task. Returns
    // false if the canceller will post it.
    [[nodiscard]] bool wake() noexcept {
        // Order: relaxed; the CAS acquires.
        word seen = word_.load(std::memory_order_relaxed);
        word next;
        do {
            next = seen | ((seen & claimed) != 0 ? notified : active);
            // Order: acq_rel [task.claim]; release: the task sees what the decider wrote, even if
            // the canceller posts the task. Acquire: the accesses of a canceller whose claim has
            // ended happen before the task continues.
            // Failure: retries.
        } while (!word_.compare_exchange_weak(seen, next, std::memory_order_acq_rel,
                                              std::memory_order_relaxed));
        return (seen & claimed) == 0;
    }

    // --- Called by the canceller

    enum class cancelling { too_late, noted, claimed };

    // Requests cancellation. If the result is `claimed`, the caller must interrupt the wait, and
    // then call end_claim().
    // Requires: `why` is not none.
    cancelling cancel(cancel_reason why = cancel_reason::requested) noexcept {
        // Order: acquire [task.outcome]; sees the outcome, if `complete` is set.
        word seen = word_.load(std::memory_order_acquire);
        word next;
        do {
            if ((seen & complete) != 0) {
                return cancelling::too_late;
            }
            if ((seen & cancelled) != 0) {
                return cancelling::noted;
            }
            next = seen | cancelled | static_cast<word>(why) * one_reason;
            if ((seen & (active | shields)) == 0) {
                next |= claimed;
            }
            // Order: acq_rel [task.claim]; the canceller sees how to interrupt the wait. The writes
            // before the cancellation are visible to the task. Failure: as the first load.
        } while (!word_.compare_exchange_weak(seen, next, std::memory_order_acq_rel,
                                              std::memory_order_acquire));
        return (next & claimed) != 0 ? cancelling::claimed : cancelling::noted;
    }

    // Ends the claim. If the wait has ended meanwhile, returns true, and the caller must post the
    // task.
    [[nodiscard]] bool end_claim() noexcept {
        // Order: relaxed; the CAS acquires.
        word seen = word_.load(std::memory_order_relaxed);
        word next;
        do {
            next = seen & ~(claimed | notified);
            next |= (seen & notified) != 0 ? active : 0;
            // Order: acq_rel [task.claim]; if the wait has ended, the canceller sees the writes of
            // the thread that ended the wait. The canceller's accesses to the node happen before
            // the task continues. Failure: retries.
        } while (!word_.compare_exchange_weak(seen, next, std::memory_order_acq_rel,
                                              std::memory_order_relaxed));
        return (seen & notified) != 0;
    }

    // --- Called by the owner of a reference

    // Gives up the right to ask for the outcome. If the task is not complete, drops the caller's
    // reference and returns true; the scheduler still has a reference. If the task is complete,
    // returns false. The caller then still has its reference, and must discard the outcome.
    bool forgo() noexcept {
        // Order: acquire [task.outcome]; sees the outcome, if the task is complete. After the task
        // is complete, `kept` is not read any more.
        word seen = word_.load(std::memory_order_acquire);
        do {
            if ((seen & complete) != 0) {
                return false;
            }
            // Order: release [task.outcome]; the writes of the handle's owner are visible to the
            // task. Failure: as the first load.
        } while (!word_.compare_exchange_weak(seen, (seen & ~kept) - reference,
                                              std::memory_order_release,
                                              std::memory_order_acquire));
        return true;
    }

    // Returns true if the caller has the only reference, and no handle may ask for the outcome.
    bool is_alone() const noexcept {
        // Order: acquire [task.outcome] [task.references]; sees the writes of the last handle's
        // owner.
        const word seen = word_.load(std::memory_order_acquire);
        return (seen & kept) == 0 && seen / reference == 1;
    }

    void add_reference() noexcept {
        // Order: relaxed; the caller has a reference.
        word_.fetch_add(reference, std::memory_order_relaxed);
    }

    // Drops a reference. If it was the last one, returns true, and the caller must destroy the
    // task.
    bool drop_reference() noexcept {
        // Order: acquire [task.references]; the accesses of all other owners happen before those of
        // the last owner.
        if (word_.load(std::memory_order_acquire) / reference == 1) {
            return true; // no other owner can add a reference
        }
        // Order: acq_rel [task.references]; acquire: if the caller is the last owner, the accesses
        // of all other owners happen before those of the caller. Release: if the caller is not the
        // last owner, its accesses happen before those of the last owner.
        return word_.fetch_sub(reference, std::memory_order_acq_rel) / reference == 1;
    }

    bool is_complete() const noexcept {
        // Order: acquire [task.outcome]; sees the outcome, if this returns true.
        return (word_.load(std::memory_order_acquire) & complete) != 0;
    }

    bool is_cancelled() const noexcept {
        // Order: seq_cst [task.claim]; sees the writes before the cancellation. seq_cst for
        // [task.stop_token]: the task sets its stop source and then reads `cancelled`. The
        // canceller sets `cancelled` and then reads the stop source. So one of them sees the write
        // of the other.
        return is_cancelled(word_.load(std::memory_order_seq_cst));
    }

    // Returns true if cancel() was called, even if the task is shielded.
    bool was_cancelled() const noexcept {
        // Order: relaxed; for reports, and for the owner of the outcome.
        return (word_.load(std::memory_order_relaxed) & cancelled) != 0;
    }

    // Returns why the task was cancelled, or none if it was not. Shields have no effect.
    cancel_reason reason() const noexcept {
        // Order: relaxed; the caller has seen that the task is cancelled, or that it has ended.
        return static_cast<cancel_reason>(word_.load(std::memory_order_relaxed) / one_reason &
                                          0xff);
    }

    // Returns true if the task waits. If the calling thread does not run the task, the answer may
    // be outdated.
    bool is_waiting() const noexcept {
        // Order: relaxed; for reports, and for the task, which sees its own changes.
        return (word_.load(std::memory_order_relaxed) & (active | complete)) == 0;
    }

    static constexpr unsigned max_shields = 0xffff;

private:
    static constexpr word active = 1;
    static constexpr word claimed = 2;
    static constexpr word notified = 4;
    static constexpr word complete = 8;
    static constexpr word cancelled = 16;
    static constexpr word kept = 32;
    static constexpr word one_reason = word{1} << 8;
    static constexpr word one_shield = word{1} << 16;
    static constexpr word shields = one_shield * max_shields;
    static constexpr word reference = word{1} << 32;

    static bool is_cancelled(word seen) noexcept {
        return (seen & (cancelled | shields)) == cancelled;
    }

    typename Platform::template atomic<word> word_;
};

// ---- A chain of coroutines

template <class Platform> class basic_group;

// The groups (sched/task_group.hpp) that a thread is about to cancel, one after the other.
template <class Platform> struct BIDE_SHARED cancel_round {
    basic_group<Platform>* first = nullptr;
    basic_group<Platform>* last = nullptr;

    // Returns the cancel_round of the calling thread, or nullptr. While a cancellation calls user
    // code, the result is nullptr: if that code cancels another group and waits for it, the group
    // must be cancelled at once, and not later in this round.
    static cancel_round*& here() noexcept { return Platform::template local<current>().now; }

private:
    struct current {
        cancel_round* now = nullptr;
    };
};

template <class Platform> class basic_task_control : public basic_task_context<Platform> {
    using local = worker_local<Platform>;

public:
    using state = basic_task_state<Platform>;

    // The runnable that starts the task or resumes it.
    runnable& to_run() noexcept { return run_; }

    // --- The context of the task's coroutines (core/detail/task_context.hpp)

    bool begin_wait(suspension& at) noexcept override { return begin_own_wait(at); }
    // Does what begin_wait() does. Any thread that runs or starts a child of this chain may call
    // it: while the chain waits for its children, no thread runs the chain itself.
    virtual bool begin_own_wait(suspension& at) noexcept {
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
    bool runs_as(const runnable& job) const noexcept override { return &job == &run_; }
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
    runnable& resumption(suspension& at) noexcept override {
        if (at_ != &at) { // if equal, a canceller may be reading at_
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
            request_stop(); // a task that sees its cancellation finds its token stopped
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
        const auto how = state_.cancel(why);
        if (how == state::cancelling::claimed) {
            at_->interrupt.wake();
            request_stop(); // before the task learns that its wait is stopped
            if (state_.end_claim()) {
                post_there();
            }
        } else if (how == state::cancelling::noted && state_.is_cancelled()) {
            request_stop();
        }
        return how != state::cancelling::too_late;
    }

    bool is_complete() const noexcept { return state_.is_complete(); }
    // Returns true if the chain is cancelled and not shielded. Does not look at its home or its
    // parent.
    bool is_cancelled_itself() const noexcept { return state_.is_cancelled(); }
    bool is_waiting() const noexcept { return state_.is_waiting(); }
    bool was_cancelled() const noexcept { return state_.was_cancelled(); }
    // Returns true if set_never_ran() was called. Requires: the task has ended.
    bool never_ran() const noexcept { return never_ran_; }
    cancel_reason reason() const noexcept { return state_.reason(); }

    // --- Called by the task itself

    bool shield() noexcept { return state_.shield(); }
    void unshield() noexcept {
        if (state_.unshield()) {
            request_stop();
        }
    }

    // Returns the stop token. The first call allocates, and terminates if there is no memory.
    typename Platform::stop_token get_stop_token() noexcept {
        // Order: relaxed; only the task sets `stop_`.
        typename Platform::stop_source* source = stop_.load(std::memory_order_relaxed);
        if (source == nullptr) {
            begin_waits_above();
            source = made_or_fatal("no memory for a task's stop token",
                                   [] { return new typename Platform::stop_source; });
            // Order: seq_cst [task.stop_token]. The task sets `stop_` and then reads whether it is
            // cancelled. The canceller sets `cancelled` and then reads `stop_`. So at least one of
            // the two sees the write of the other.
            stop_.store(source, std::memory_order_seq_cst);
            if (state_.is_cancelled()) {
                source->request_stop();
            }
        }
        return source->get_token();
    }

protected:
    // `how` is called with the address of this object, to start the task or resume it.
    basic_task_control(unsigned references, bool kept, waker::function how = &run_task) noexcept
        : state_(references, kept) {
        run_.run = waker(how, this);
    }
    static void run_task(void* self) noexcept { static_cast<basic_task_control*>(self)->run(); }
    ~basic_task_control() {
        // Order: relaxed; all accesses by other threads are over.
        delete stop_.load(std::memory_order_relaxed);
    }

    // Begins the chain and returns its first coroutine. If the task runs a function, calls the
    // function and returns an empty handle.
    virtual std::coroutine_handle<> start() noexcept = 0;
    // Called instead of start(), if the task was cancelled before its first run.
    virtual void never_start() noexcept = 0;
    // Called when the chain has ended. Stores its outcome. This call is the last access to the
    // task.
    virtual void finish() noexcept = 0;
    virtual void first_wait() noexcept {}
    // If this chain is a child whose parent runs children in place and has not begun its wait,
    // begins that wait (compose.hpp), and returns the parent. Otherwise returns nullptr.
    virtual basic_task_control* begin_wait_of_parent() noexcept { return nullptr; }
    // Begins the wait of the parent, of the parent's parent and so on. Afterwards a cancellation of
    // one of them cancels this chain.
    void begin_waits_above() noexcept {
        basic_task_control* at = this;
        do {
            at = at->begin_wait_of_parent();
        } while (at != nullptr);
    }
    // Returns true if the owner of the task cancels all tasks that it owns.
    virtual bool is_closing() const noexcept { return false; }
    virtual bool may_finish_here() const noexcept { return true; }
    // Posts to_run() to a thread that may call finish().
    virtual void post_home() noexcept = 0;

    // Runs the chain on this thread until it waits or ends. If the chain is a child in place
    // (compose.hpp), the parent of the child may also continue and end in this call. When the chain
    // ends, objects of the user are destroyed. No task runs then, even if this call is inside of a
    // job that awaits the chain.
    void run() noexcept {
        local& here = local::get();
        basic_task_context<Platform>* const outer = std::exchange(here.running, nullptr);
        run_alone(here);
        here.running = outer;
    }

    // Starts the chain in place. The caller resumes the returned coroutine.
    // Requires: the chain has not started, and another chain runs on this thread.
    std::coroutine_handle<> start_in_place(local& here) noexcept {
        fresh_ = false;
        here.running = this;
        return start();
    }

    void set_never_ran() noexcept { never_ran_ = true; }

    bool has_stop_token() const noexcept {
        // Order: relaxed; only the task sets `stop_`.
        return stop_.load(std::memory_order_relaxed) != nullptr;
    }

    // A pointer for the derived class. Requires: the chain has run and has ended.
    void*& kept_after_end() noexcept { return kept_after_end_; }

    // Returns true if first_wait() was called.
    bool has_waited() const noexcept { return has_waited_; }
    // Returns true if the chain has waited or yielded. Requires: the chain has not ended.
    bool has_suspended() const noexcept { return at_ != nullptr; }

    state state_;
    std::uint16_t listed_in_ = 0; // the number of a list, for the derived class

private:
    // Requires: here.running == nullptr. Afterwards it is nullptr or has any value.
    void run_alone(local& here) noexcept {
        if (!ended_) {
            if (fresh_ && state_.is_cancelled() && may_finish_here()) {
                never_start();
                return finish();
            }
            // Gives the task a budget of operations, also on a thread that is no worker. If the
            // task was cancelled before its start, the budget is already spent. So the first
            // operation cannot complete at once: it begins a wait, which is stopped.
            const task_budget<Platform> budget(here, fresh_ && state_.is_cancelled());
            here.running = this;
            if (here.traced) {
                here.name = this->name();
                here.tag = this->tag();
            }
            const std::coroutine_handle<> next = std::exchange(fresh_, false) ? start() : at_->leaf;
            if (next) {
                resume<Platform>(next);
                if (here.running == nullptr) {
                    static_cast<basic_task_control*>(here.over)->finish_or_post();
                }
                return; // it waits, or another thread runs it, or it is destroyed
            }
            here.running = nullptr;
            ended_ = true;
        }
        finish_or_post();
    }

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
            auto* const outer = std::exchange(cancel_round<Platform>::here(), nullptr);
            source->request_stop();
            cancel_round<Platform>::here() = outer;
        }
    }

    bool fresh_ = true; // not started
    bool has_waited_ = false;
    bool ended_ = false;
    bool never_ran_ = false;
    // The number of awaits of children after the cancellation, up to whole_budget:
    std::uint8_t refused_ = 0;
    static_assert(local::whole_budget <= 0xff);

protected:
    // The tag of a spawned task. It is declared here because it fits into the padding.
    typename Platform::template atomic<std::uint8_t> tag_{0};

private:
    runnable run_;
    union {
        suspension* at_ = nullptr; // valid while the chain waits, or is queued after a wait
        void* kept_after_end_;
    };
    typename Platform::template atomic<typename Platform::stop_source*> stop_{nullptr};
};

// ---- Lists of tasks

template <class Platform> class basic_task_header;

// The links of a task in a list. The list sets them. Node derives from this class. The lock of the
// list's owner guards the links.
template <class Platform, class Node> struct basic_task_links {
    typename Platform::template var<Node*> next_in_list;
    typename Platform::template var<Node*> prev_in_list;
};

// A list of tasks, for an owner with a lock: a registry, or a group (sched/task_group.hpp).
// Requires, for all functions: the caller holds the lock.
template <class Platform, class Node> class basic_task_list {
public:
    constexpr basic_task_list() noexcept = default;
    basic_task_list(const basic_task_list&) = delete;
    basic_task_list& operator=(const basic_task_list&) = delete;

    Node* first() const noexcept { return first_; }

    void push_front(Node& n) noexcept { link(nullptr, n, first_); }
    void push_back(Node& n) noexcept { link(last_, n, nullptr); }

    void remove(Node& n) noexcept {
        Node* const next = n.next_in_list;
        Node* const prev = n.prev_in_list;
        (prev == nullptr ? first_ : prev->next_in_list) = next;
        (next == nullptr ? last_ : next->prev_in_list) = prev;
    }

    // Releases the lock, calls visit(task), and acquires the lock again. Meanwhile holds a
    // reference to the task.
    template <class Lock, class Word, class Visit>
    static void visit_unlocked(Word& lock, basic_task_header<Platform>& task, Visit&& visit) {
        task.add_reference();
        Lock::release(lock);
        visit(task);
        task.drop_reference();
        Lock::acquire(lock);
    }

private:
    void link(Node* prev, Node& n, Node* next) noexcept {
        n.next_in_list = next;
        n.prev_in_list = prev;
        (prev == nullptr ? first_ : prev->next_in_list) = &n;
        (next == nullptr ? last_ : next->prev_in_list) = &n;
    }

    typename Platform::template var<Node*> first_{nullptr};
    typename Platform::template var<Node*> last_{nullptr};
};

// A list of the tasks that have waited. The shutdown of the scheduler cancels them, and a dump
// shows them. Each worker has one list, with a lock. When a task waits for the first time, it is
// added to the list of its worker, and stays there until it ends.
template <class Platform> class basic_task_registry {
    using header = basic_task_header<Platform>;
    using list = basic_task_list<Platform, header>;

public:
    // Adds a task. Returns false if close() was called before. The caller must then cancel the
    // task, because for_each() may have missed it.
    bool add(header& t) noexcept {
        const guard section(lock_);
        tasks_.push_back(t);
        size_ = size_ + 1;
        return !closed_;
    }

    void remove(header& t) noexcept {
        const guard section(lock_);
        tasks_.remove(t);
        size_ = size_ - 1;
    }

    // Makes each later add() return false.
    void close() noexcept {
        const guard section(lock_);
        closed_ = true;
    }

    // Calls visit(header&) for each task that is listed during the whole call. During visit(), the
    // caller holds a reference to the task and does not hold the lock.
    // Requires: one caller at a time.
    template <class Visit> void for_each(Visit&& visit) {
        const guard section(lock_);
        for (std::size_t left = size_; left != 0 && tasks_.first() != nullptr; --left) {
            header& t = *tasks_.first();
            tasks_.remove(t);
            tasks_.push_back(t); // so that the next iteration visits another task
            list::template visit_unlocked<lock>(lock_, t, visit);
        }
    }

    // Appends all listed tasks to `out`, and adds a reference to each of them.
    // Throws: std::bad_alloc.
    template <class Vector> void snapshot(Vector& out) {
        std::size_t expected = 0;
        for (;;) {
            out.reserve(out.size() + expected);
            const guard section(lock_);
            if (size_ <= expected) {
                for (header* t = tasks_.first(); t != nullptr; t = t->next_in_list) {
                    t->add_reference();
                    out.push_back(t);
                }
                return;
            }
            expected = size_ + size_ / 8;
        }
    }

private:
    using word = std::uint32_t;
    using lock = lock_bits<Platform, word>;
    using guard = typename lock::guard;
    template <class T> using var = typename Platform::template var<T>;

    typename Platform::template atomic<word> lock_{0};
    list tasks_;
    var<std::size_t> size_{0};
    var<bool> closed_{false};
};

// ---- A spawned task

// The home of a spawned task: the executor that runs the task, such as a scheduler or a run_loop.
template <class Platform> class basic_task_home {
public:
    // Runs `r` on a thread of this home.
    virtual void post(runnable& r) noexcept = 0;
    // Does what post() does, for a caller that continues to run. So another thread should take `r`.
    virtual void post_to_others(runnable& r) noexcept { post(r); }

    virtual executor_ref executor() noexcept = 0;

    // Returns the number of the registry of waiting tasks that the calling thread uses. Each worker
    // uses its own registry. The numbers begin at 0.
    virtual unsigned registry_here() const noexcept = 0;
    virtual basic_task_registry<Platform>& registry(unsigned number) noexcept = 0;

    // Returns true if the calling thread may end tasks. Such a thread runs tasks of this home, and
    // ends before the home is destroyed.
    virtual bool is_here() const noexcept = 0;

    // Returns true if the home accepts no more tasks and cancels its tasks.
    virtual bool is_closing() const noexcept = 0;

    // Counts a task that has ended. Afterwards the task does not use this object, and the caller
    // wakes the joiners of the task.
    virtual void task_ended() noexcept = 0;

protected:
    ~basic_task_home() = default;
};

// A spawned task. The links in its base class belong to the list of a registry.
template <class Platform>
class basic_task_header : public basic_task_control<Platform>,
                          public basic_task_links<Platform, basic_task_header<Platform>> {
    using control = basic_task_control<Platform>;
    using control::state_;
    using control::tag_;

public:
    using home_type = basic_task_home<Platform>;
    using gate = basic_gate<Platform>;

    // If `kept` is true, the caller gets a reference and may ask for the outcome.
    basic_task_header(home_type& home, bool kept) noexcept
        : control(kept ? 2 : 1, kept), home_(home) {
        BIDE_CHECKED(note_made<Platform>(this, "the end of task");)
        BIDE_PROBE(task_spawn, this);
    }

    // Ends the task without running it. After a shutdown, called instead of the first post().
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

    // Order: acquire; a dump sees the characters of the name, which the task may have written.
    const char* name() const noexcept override { return name_.load(std::memory_order_acquire); }
    // Order: release; a dump sees the characters that the task wrote before this call.
    void set_name(const char* name) noexcept override {
        name_.store(name, std::memory_order_release);
    }
    // Order: acquire [task.tag]; a dump sees the entry of the tag in the table of tags.
    std::uint8_t tag() const noexcept override { return tag_.load(std::memory_order_acquire); }
    // Order: release [task.tag]; a dump sees the entry of the tag in the table of tags.
    void set_tag(std::uint8_t tag) noexcept override { tag_.store(tag, std::memory_order_release); }

    // Returns the gate that opens when the task ends, if a join handle may ask for the outcome.
    gate& ended_gate() noexcept { return ended_gate_; }

    // Gives up the right to ask for the outcome, and drops the reference.
    void forgo() noexcept {
        if (!state_.forgo()) {
            discard_outcome();
            drop_reference();
        }
    }

protected:
#if defined(BIDE_DEADLOCK_CHECK)
    ~basic_task_header() { note_gone<Platform>(this); }
#else
    ~basic_task_header() = default;
#endif

    // Called when the task ends. Stores the outcome, and destroys the coroutine or function that
    // computed it.
    virtual void settle() noexcept = 0;
    // Called when no handle can ask for the outcome.
    virtual void discard_outcome() noexcept = 0;
    virtual void destroy() noexcept = 0;

    home_type& home() noexcept { return home_; }

private:
    void first_wait() noexcept override {
        // If the number is too large for the field, a list with a smaller number is used.
        this->listed_in_ = static_cast<std::uint16_t>(home_.registry_here());
        if (!home_.registry(this->listed_in_).add(*this)) {
            this->cancel(cancel_reason::shutdown);
        }
    }
    bool is_closing() const noexcept override { return home_.is_closing(); }
    bool may_finish_here() const noexcept override { return home_.is_here(); }
    void post_home() noexcept override { home_.post(this->to_run()); }
    void finish() noexcept override {
        settle();
        end();
    }

protected:
    // Publishes the outcome. First counts the task as ended, and then wakes the joiners. So a
    // joiner always sees a count that includes this task.
    void end() noexcept {
        BIDE_PROBE(task_end, this, name(), static_cast<int>(this->was_cancelled()));
        if (this->has_waited()) {
            home_.registry(this->listed_in_).remove(*this);
        }
        home_.task_ended();
        if (!state_.is_alone() && state_.finish()) {
            ended_gate_.arrive(1);
        } else {
            discard_outcome();
        }
        drop_reference();
    }

private:
    home_type& home_;
    gate ended_gate_{1};
    typename Platform::template atomic<const char*> name_{nullptr};
};

// The operation of this_task::yield(). The coroutine is enqueued behind the queued jobs of its
// executor. When it resumes, the operation is complete.
struct yielding {
    static constexpr bool yields_first = true;
    static constexpr bool stands_alone = true;

    wait_status try_now() const noexcept { return wait_status::granted; }
    wait_status enqueue(basic_waiter<native_platform>&) const noexcept {
        return wait_status::granted;
    }
    bool cancel(basic_waiter<native_platform>&, wait_status) const noexcept { return false; }
    result<void> collect(wait_status what) const { return result_of(what); }
};

BIDE_COMPILED_TEMPLATE(class basic_task_control<native_platform>)
BIDE_COMPILED_TEMPLATE(class basic_task_header<native_platform>)

}}} // namespace bide::BIDE_ABI::detail

#endif
