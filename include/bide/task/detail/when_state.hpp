#ifndef BIDE_TASK_DETAIL_WHEN_STATE_HPP
#define BIDE_TASK_DETAIL_WHEN_STATE_HPP

// The children of one when_all or when_any, each a chain of coroutines of its own, and their
// parent's wait for them. All lie in the parent's frame.
//
// `left_` counts the children that have not ended, and the parent while it starts them. Whoever
// counts down last [J1] sends the parent on its way, and touches nothing afterwards. Everybody else
// who touches a child from outside does so before he counts down himself: the parent, who starts
// them, and the winner, who cancels the others. Or he cancels the parent, which is held in its wait
// meanwhile.
//
// The parent's wait does not end before the children have. Where the parent is cancelled, they are
// cancelled instead, and the wait goes on. A parent that is cancelled and not shielded when it
// comes here may not begin a wait; it goes on as if it had not waited, by resumption().
//
// The children of a cancelled parent begin all the same, as a task does that it awaits, and find
// their first wait stopped. One that lost before it began never begins. A cancelled parent that comes
// here again and again, with children that never wait, is stopped in the end.

#include <bide/core/config.hpp>
#include <bide/core/detail/coroutine_wait.hpp>
#include <bide/core/detail/task_context.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/result.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/timer.hpp>
#include <bide/core/waker.hpp>
#include <bide/task/detail/awaited_frame.hpp>
#include <bide/task/detail/task_control.hpp>

#include <coroutine>
#include <cstddef>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_when_state;

// Resumes on this thread, as a release does whose waiters have no executor (core/resume.hpp).
template <class Platform> class on_this_thread {
public:
    void post(runnable& r) noexcept { wake_scope<Platform>::run(r, &spare_executor<Platform>); }

    static executor_ref ref() noexcept {
        static constinit on_this_thread one;
        return one;
    }
};

template <class Platform> class basic_when_child : public basic_task_control<Platform> {
    using control = basic_task_control<Platform>;
    using control::state_;

protected:
    basic_when_child() noexcept : control(1, true) {}
    ~basic_when_child() {
        if (!this->is_complete()) { // its parent is destroyed before its time
            wake_scope<Platform>::forget(this->to_run());
        }
    }

    // Its first coroutine, if it has one, with `where` as its executor, which may be empty.
    virtual std::coroutine_handle<> begin(executor_ref where) noexcept = 0;
    // It has ended: takes over what it computed.
    virtual void settle() noexcept = 0;

private:
    friend class basic_when_state<Platform>;

    bool begin_wait(suspension& at) noexcept final {
        if (!at.where) {
            at.where = on_this_thread<Platform>::ref();
        }
        return control::begin_wait(at);
    }
    // Though it is cancelled, it begins, unless it has lost.
    bool may_finish_here() const noexcept final { return begun_ || when_->is_decided(); }
    std::coroutine_handle<> start() noexcept final {
        begun_ = true;
        return begin(when_->where());
    }
    void never_start() noexcept final {}
    void post_home() noexcept final { when_->home().post(this->to_run()); }
    void finish() noexcept final {
        settle();
        state_.finish();
        when_->ended(*this);
    }

    basic_when_state<Platform>* when_ = nullptr;
    basic_when_child* next_child_ = nullptr;
    std::size_t index_ = 0;
    bool begun_ = false;
};

template <class Platform> class basic_when_state {
    using child = basic_when_child<Platform>;
    template <class T> using atomic = typename Platform::template atomic<T>;

public:
    enum class until { all, first }; // all: nobody wins

    explicit basic_when_state(until what) noexcept : first_wins_(what == until::first) {
        run_.run = waker(
            [](void* self) noexcept {
                resume_apart<Platform>(static_cast<basic_when_state*>(self)->parent_.leaf);
            },
            this);
    }
    basic_when_state(const basic_when_state&) = delete;
    basic_when_state& operator=(const basic_when_state&) = delete;
    ~basic_when_state() {
        if (waits_) { // the parent is destroyed before its time
            wake_scope<Platform>::forget(run_);
        }
    }

    // Before it is awaited, in order. The frame is the child's, and may go before it does.
    void add(child& c, awaited_frame* frame = nullptr) noexcept {
        c.when_ = this;
        c.index_ = size_++;
        (last_ == nullptr ? first_ : last_->next_child_) = &c;
        last_ = &c;
        if (frame != nullptr) {
            (last_frame_ == nullptr ? first_frame_ : last_frame_->next) = frame;
            last_frame_ = frame;
        }
    }

    class awaiter {
    public:
        explicit awaiter(basic_when_state& f) noexcept : state_(f) {}
        awaiter(const awaiter&) = delete;
        awaiter& operator=(const awaiter&) = delete;

        bool await_ready() const noexcept { return state_.first_ == nullptr; }
        // Out of line: once the last child has ended, the parent's frame may be gone.
        template <class Promise>
        BIDE_NOINLINE bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
            state_.awaiting_.begin(h, state_.first_frame_);
            return state_.start(h, task_context_of<Platform>(h.promise()),
                                executor_of(h.promise()));
        }
        // Throws: stopped_error where the parent was cancelled and has come here too often since.
        void await_resume() {
            state_.awaiting_.end();
            state_.waits_ = false;
            if (state_.stopped_) {
                throw_error(errc::stopped);
            }
        }

    private:
        basic_when_state& state_;
    };
    // Once, when all children were added.
    awaiter operator co_await() noexcept { return awaiter(*this); }

    // The first that ended, afterwards.
    // Order: relaxed; the parent comes after all children by [J1].
    std::size_t winner() const noexcept { return winner_.load(std::memory_order_relaxed); }

private:
    friend child;

    static constexpr std::size_t nobody = static_cast<std::size_t>(-1);

    bool start(std::coroutine_handle<> h, basic_task_context<Platform>* context,
               executor_ref where) noexcept;
    void ended(child& c) noexcept;
    void go_on() noexcept;

    void cancel_all() noexcept {
        for (child* c = first_; c != nullptr; c = c->next_child_) {
            c->cancel();
        }
    }

    // True: it was the last.
    bool count_down() noexcept {
        // Order: acq_rel [J1]; what each child did, and what was done to it, is over for the last
        // one and for the parent.
        return left_.fetch_sub(1, std::memory_order_acq_rel) == 1;
    }

    // Order: relaxed; a child that the winner has cancelled sees it by that.
    bool is_decided() const noexcept { return winner_.load(std::memory_order_relaxed) != nobody; }

    executor_ref where() const noexcept { return where_; }
    executor_ref home() const noexcept { return where_ ? where_ : on_this_thread<Platform>::ref(); }

    const bool first_wins_;
    child* first_ = nullptr;
    child* last_ = nullptr;
    std::size_t size_ = 0;
    awaited_frame* first_frame_ = nullptr;
    awaited_frame* last_frame_ = nullptr;
    awaiting awaiting_;

    // The parent, and where it goes on. Set before the first child starts.
    suspension parent_{};
    basic_task_context<Platform>* context_ = nullptr;
    executor_ref where_;
    runnable run_;               // resumes it, where it has no context
    bool interruptible_ = false; // it has begun a wait of its context
    bool waits_ = false;
    bool stopped_ = false;

    atomic<std::size_t> left_{0};
    atomic<std::size_t> winner_{nobody}; // its index
};

// False: all have ended already.
template <class Platform>
bool basic_when_state<Platform>::start(std::coroutine_handle<> h,
                                       basic_task_context<Platform>* context,
                                       executor_ref where) noexcept {
    context_ = context;
    where_ = where ? where : current_worker<Platform>();
    parent_ = {
        h, home(),
        waker([](void* self) noexcept { static_cast<basic_when_state*>(self)->cancel_all(); },
              this)};
    waits_ = true;
    // Order: relaxed; the children are told by the post.
    left_.store(size_ + 1, std::memory_order_relaxed);
    if (context_ != nullptr) {
        interruptible_ = context_->begin_wait(parent_);
        if (!interruptible_) {
            stopped_ = context_->has_begun_enough();
            if (stopped_) {
                return false; // no child has begun
            }
            cancel_all();
        }
    }
    {
        const wake_scope<Platform> together; // on this thread they begin when all are queued
        const executor_ref queue = home();
        for (child* c = first_; c != nullptr; c = c->next_child_) {
            queue.post(c->to_run());
        }
    }
    if (!count_down()) {
        return true;
    }
    if (interruptible_) {
        context_->end_wait();
    }
    return false;
}

// The last touch of the child.
template <class Platform> void basic_when_state<Platform>::ended(child& c) noexcept {
    std::size_t none = nobody;
    // Order: relaxed; whom it cancels sees it by that, the parent by [J1]. Failure: somebody else won.
    if (first_wins_ && winner_.compare_exchange_strong(none, c.index_, std::memory_order_relaxed,
                                                       std::memory_order_relaxed)) {
        // What is to go on on this thread does so when all have been told.
        wake_scope<Platform> later;
        for (child* other = first_; other != nullptr; other = other->next_child_) {
            if (other != &c) {
                other->cancel();
            }
        }
    }
    if (count_down()) {
        go_on();
    }
}

template <class Platform> void basic_when_state<Platform>::go_on() noexcept {
    if (context_ == nullptr) {
        home().post(run_);
    } else if (interruptible_) {
        context_->wake();
    } else {
        home().post(context_->resumption(parent_));
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
