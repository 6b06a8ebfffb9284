#ifndef BIDE_CORE_RESUME_HPP
#define BIDE_CORE_RESUME_HPP

// Where a coroutine goes on when it has no executor: on the thread that released, after it left
// every lock, before that release returns, on a bounded stack.
//
// A release that has wakers to run opens a wake_scope; coroutines that become runnable inside are
// kept in a list of the thread's. The outermost scope runs the list, first come first run, when it
// closes. What a resumed coroutine releases in its turn opens an inner scope, which leaves its
// catch to the outer one: the stack does not grow with the chain.
//
// A scope may also send its catch elsewhere: request_stop() resumes nobody on its own thread.
//
// A resumed coroutine may block its thread. If it does so in bide (core/futex.hpp), the coroutines
// that are left in the list are handed over first, and go on elsewhere: on another worker, else on
// bide's resumers (core/timer.hpp). bide does not see a thread that blocks outside of it (read(),
// std::mutex) or computes: then they wait for it. From a hand-over on, another thread is about to
// resume them: a coroutine that has blocked must not destroy those that were released with it. Only
// the list of the innermost scope is handed over, and no waiter whose waker has not run yet: an
// executor that resumes at once, inside post(), keeps these from going on.

#include <bide/core/config.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>

#include <coroutine>

namespace bide::inline BIDE_ABI {
namespace detail {

// A list of runnables, oldest first.
class run_list {
public:
    // The items from `first` to `last`, which are linked already.
    void append(runnable& first, runnable& last) noexcept {
        last.next = nullptr;
        (last_ == nullptr ? first_ : last_->next) = &first;
        last_ = &last;
    }

    void push(runnable& r) noexcept { append(r, r); }

    void push_front(runnable& r) noexcept {
        r.next = first_;
        first_ = &r;
        last_ = last_ == nullptr ? &r : last_;
    }

    // nullptr: it is empty.
    runnable* first() const noexcept { return first_; }
    runnable* last() const noexcept { return last_; }

    runnable* pop() noexcept {
        runnable* const r = first_;
        if (r != nullptr) {
            first_ = r->next;
            if (first_ == nullptr) {
                last_ = nullptr;
            }
        }
        return r;
    }

private:
    runnable* first_ = nullptr;
    runnable* last_ = nullptr;
};

// A list of runnables, oldest first, out of which each can be taken without knowing where it is.
class resumption_list {
public:
    resumption_list() noexcept { end_.next = end_.back = &end_; }
    resumption_list(const resumption_list&) = delete;
    resumption_list& operator=(const resumption_list&) = delete;

    void push(runnable& r) noexcept {
        r.next = &end_;
        r.back = end_.back;
        end_.back->next = &r;
        end_.back = &r;
    }

    bool empty() const noexcept { return end_.next == &end_; }

    // nullptr: it is empty.
    runnable* pop() noexcept {
        runnable* const r = end_.next;
        return r != &end_ && remove(*r) ? r : nullptr;
    }

    // Takes `r` out of the list that it is in; false: it is in none.
    static bool remove(runnable& r) noexcept {
        if (r.back == nullptr) {
            return false;
        }
        r.back->next = r.next;
        r.next->back = r.back;
        r.back = nullptr;
        return true;
    }

private:
    runnable end_; // of a circle
};

struct transfer_loop;

// What this thread knows about coroutines.
struct resume_state {
    resumption_list* list = nullptr; // runnable on this thread: the open scope's, if one is open
    executor_ref worker;             // the executor whose worker this thread is
    transfer_loop* loop = nullptr;   // see transfer()

    // Where the list goes when this thread blocks; nullptr: nowhere.
    executor_ref (*elsewhere)() noexcept = nullptr;
};

} // namespace detail

template <class Platform> class wake_scope {
public:
    // The catch is run here, by the outermost scope.
    wake_scope() noexcept : mine_(state()), outer_(mine_.list) {
        if (outer_ == nullptr) {
            mine_.list = &catch_;
        }
    }

    // The catch is posted to `elsewhere()`, which is asked only if there is any.
    using destination = executor_ref (*)() noexcept;
    explicit wake_scope(destination elsewhere) noexcept
        : mine_(state()), outer_(mine_.list), elsewhere_(elsewhere) {
        mine_.list = &catch_;
    }

    wake_scope(const wake_scope&) = delete;
    wake_scope& operator=(const wake_scope&) = delete;

    ~wake_scope() {
        if (elsewhere_ != nullptr) {
            mine_.list = outer_;
            while (runnable* const r = catch_.pop()) {
                elsewhere_().post(*r);
            }
        } else if (outer_ == nullptr) {
            while (runnable* const r = catch_.pop()) {
                r->run.wake();
            }
            mine_.list = nullptr;
        }
    }

    // Makes `r` run at the end of the scope that is open on this thread, or now if none is. If the
    // thread blocks before, `r` is posted to `if_blocked()`; an empty answer leaves it here.
    static void run(runnable& r, destination if_blocked = nullptr) noexcept {
        wake_scope scope;
        scope.mine_.list->push(r);
        if (if_blocked != nullptr) {
            scope.mine_.elsewhere = if_blocked;
        }
    }

    // The same behind what is to run there already. False: no scope is open.
    static bool run_behind(runnable& r, destination if_blocked) noexcept {
        const bool open = state().list != nullptr;
        if (open) {
            run(r, if_blocked);
        }
        return open;
    }

    // This thread is about to block.
    static void hand_over_pending() noexcept {
        detail::resume_state& mine = state();
        if (mine.list == nullptr || mine.list->empty() || mine.elsewhere == nullptr) {
            return;
        }
        if (const executor_ref to = mine.elsewhere()) {
            while (runnable* const r = mine.list->pop()) {
                to.post(*r);
            }
        }
    }

    // `r` will not run: true if it was waiting to, on this thread, in whichever scope.
    static bool forget(runnable& r) noexcept { return detail::resumption_list::remove(r); }

private:
    static detail::resume_state& state() noexcept {
        return Platform::template local<detail::resume_state>();
    }

    detail::resume_state& mine_;
    detail::resumption_list* const outer_;
    destination elsewhere_ = nullptr;
    detail::resumption_list catch_;
};

// The executor whose worker the calling thread is; empty on other threads.
template <class Platform> executor_ref current_worker() noexcept {
    return Platform::template local<detail::resume_state>().worker;
}

// ---- Going from one coroutine to another
//
// `co_await child` should cost no stack, however often: the awaiter returns the child's handle and
// the compiler tail-calls it. Where the compiler does not (BIDE_SYMMETRIC_TRANSFER 0), transfer()
// leaves the handle with the loop that resumed this thread's current coroutine and returns a no-op;
// the stack unwinds to that loop, which resumes the handle. Where nobody's loop is there, because
// foreign code resumed the coroutine, transfer() is the loop.

namespace detail {

struct transfer_node {
    transfer_node* next = nullptr;
    std::coroutine_handle<> to;
};

struct transfer_loop {
    transfer_node* first = nullptr;
    transfer_node* last = nullptr;

    void push(transfer_node& n) noexcept {
        n.next = nullptr;
        (last == nullptr ? first : last->next) = &n;
        last = &n;
    }

    // Resumes `to`, then whatever that leaves here. A node is not touched after its handle was
    // taken.
    template <class Platform> void run(std::coroutine_handle<> to) noexcept {
        transfer_loop* const outer = exchange_current<Platform>(this);
        while (to) {
            to.resume();
            to = nullptr;
            if (first != nullptr) {
                to = first->to;
                first = first->next;
                if (first == nullptr) {
                    last = nullptr;
                }
            }
        }
        exchange_current<Platform>(outer);
    }

    template <class Platform> static transfer_loop* current() noexcept {
        return Platform::template local<resume_state>().loop;
    }

    template <class Platform> static transfer_loop* exchange_current(transfer_loop* next) noexcept {
        resume_state& mine = Platform::template local<resume_state>();
        transfer_loop* const old = mine.loop;
        mine.loop = next;
        return old;
    }
};

} // namespace detail

// Resumes a coroutine from ordinary code. An exception that leaves it terminates.
template <class Platform> void resume(std::coroutine_handle<> to) noexcept {
    if constexpr (BIDE_SYMMETRIC_TRANSFER) {
        to.resume();
    } else {
        detail::transfer_loop loop;
        loop.run<Platform>(to);
    }
}

// To be returned by await_suspend: go on with `to`. The node lives at least until `to` is resumed.
template <class Platform>
std::coroutine_handle<> transfer(std::coroutine_handle<> to, detail::transfer_node& node) noexcept {
    if constexpr (BIDE_SYMMETRIC_TRANSFER) {
        return to;
    } else {
        if (auto* const loop = detail::transfer_loop::current<Platform>()) {
            node.to = to;
            loop->push(node);
        } else {
            resume<Platform>(to);
        }
        return std::noop_coroutine();
    }
}

} // namespace bide::inline BIDE_ABI

#endif
