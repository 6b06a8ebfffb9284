#ifndef BIDE_SCHED_DETAIL_GROUP_HPP
#define BIDE_SCHED_DETAIL_GROUP_HPP

// What is behind a task_group: how many children have not ended, who waits for that, which children
// can be cancelled, and what failed first. All under one lock.
//
// A child is counted before it is posted, and counts itself down when its outcome stands and its
// frame is gone. The last one takes out of the queue who waits; to let go of the lock is its last
// touch of the group, which may go as soon as one of these has come through.
//
// The children that are linked are those that nobody has cancelled. Once the group is cancelled
// none is linked any more, so a cancellation passes through the list once, with a reference to the
// child that it is at and without the lock.

#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/thread_wait.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waiter_queue.hpp>
#include <bide/sched/detail/frame_memory.hpp>
#include <bide/sched/detail/owned_frame.hpp>
#include <bide/sched/detail/task_cell.hpp>
#include <bide/sched/detail/task_header.hpp>
#include <bide/sched/task.hpp>

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_group;

template <class Platform> class basic_group_member : public basic_task_header<Platform> {
    using header = basic_task_header<Platform>;

protected:
    basic_group_member(basic_group<Platform>& g, typename header::home_type& home,
                       const char* name) noexcept
        : header(home, name, false), group_(g) {}
    ~basic_group_member() = default;

    // What it threw, when its frame is gone; stopped: it never ran.
    virtual std::exception_ptr failure(bool& stopped) noexcept = 0;

private:
    friend class basic_group<Platform>;

    // Its end, for nobody else may ask for its outcome.
    void discard_outcome() noexcept final { group_.ended(*this); }

    basic_group<Platform>& group_;
    // Under the group's lock:
    typename Platform::template var<basic_group_member*> next_{nullptr};
    typename Platform::template var<basic_group_member*> prev_{nullptr};
    typename Platform::template var<bool> linked_{false};
};

template <class Platform> class basic_group {
    using member = basic_group_member<Platform>;
    using node = basic_waiter<Platform>;
    using word = std::uint32_t;
    using lock = lock_bits<Platform, word>;
    template <class T> using var = typename Platform::template var<T>;

public:
    basic_group() noexcept = default;
    basic_group(const basic_group&) = delete;
    basic_group& operator=(const basic_group&) = delete;

    // Before it is posted.
    void begin(member& m) noexcept;

    void cancel() noexcept;

    // Until there are no children.
    void wait() noexcept {
        if (!is_empty()) {
            thread_wait<basic_group, Platform>::until(*this, 1, deadline::never());
        }
    }
    // Throws: as rethrow_if_failed().
    basic_async_op<void, Platform> async_wait() noexcept;

    // Throws: what failed first, if anything did.
    void rethrow_if_failed();

    // For thread_wait.
    fate enqueue(node& w) noexcept;
    bool cancel(node& w, fate why) noexcept {
        lock::acquire(lock_);
        const bool waits_still = queue_.withdraw(w, why);
        lock::release(lock_);
        return waits_still;
    }

private:
    friend member;

    static basic_group& self(const wait_target& t) noexcept {
        return *static_cast<basic_group*>(t.queue);
    }

    bool is_empty() noexcept {
        lock::acquire(lock_);
        const bool empty = left_ == 0;
        lock::release(lock_);
        return empty;
    }

    void ended(member& m) noexcept;
    void note_failure(std::exception_ptr error, bool stopped) noexcept;
    void link(member& m) noexcept;
    void unlink(member& m) noexcept;

    typename Platform::template atomic<word> lock_{0};
    // Under it:
    basic_waiter_queue<Platform> queue_; // empty while there are no children
    var<member*> first_{nullptr};
    var<std::size_t> left_{0}; // children that have not ended
    var<bool> cancelled_{false};
    var<bool> failed_{false};
    std::exception_ptr error_; // where it failed; none: by a child that never ran
};

template <class Platform> void basic_group<Platform>::begin(member& m) noexcept {
    lock::acquire(lock_);
    left_ = left_ + 1;
    const bool too_late = cancelled_;
    if (!too_late) {
        link(m);
    }
    lock::release(lock_);
    if (too_late) {
        m.cancel();
    }
}

template <class Platform> fate basic_group<Platform>::enqueue(node& w) noexcept {
    lock::acquire(lock_);
    fate what = fate::waiting;
    if (left_ != 0) {
        queue_.push(w);
        what = w.forbidden();
        if (what != fate::waiting) {
            queue_.remove(w);
        }
    } else if (w.claim()) { // else its choice fell on another wait
        w.commit();
        what = fate::granted;
    }
    lock::release(lock_);
    if (what != fate::waiting) {
        w.settle(what);
    }
    return what;
}

template <class Platform>
basic_async_op<void, Platform> basic_group<Platform>::async_wait() noexcept {
    static constexpr wait_ops<result<void>, Platform> ops{
        [](const wait_target& t) noexcept {
            return self(t).is_empty() ? fate::granted : fate::waiting;
        },
        [](const wait_target& t, node& w) noexcept { return self(t).enqueue(w) != fate::waiting; },
        [](const wait_target& t, node& w, fate why) noexcept { return self(t).cancel(w, why); },
        [](const wait_target& t, fate what) -> result<void> {
            if (what != fate::granted) {
                return unexpected{errc_of(what)};
            }
            self(t).rethrow_if_failed();
            return {};
        },
        [](const wait_target&, fate) noexcept {}};
    return {ops, wait_target{this}};
}

template <class Platform> void basic_group<Platform>::cancel() noexcept {
    lock::acquire(lock_);
    cancelled_ = true;
    while (member* const m = first_) {
        unlink(*m);
        m->add_reference();
        lock::release(lock_);
        m->cancel();
        m->drop_reference();
        lock::acquire(lock_);
    }
    lock::release(lock_);
}

template <class Platform> void basic_group<Platform>::ended(member& m) noexcept {
    bool stopped = false;
    std::exception_ptr error = m.failure(stopped);
    if (error || stopped) {
        note_failure(std::move(error), stopped);
    }
    lock::acquire(lock_);
    if (m.linked_) {
        unlink(m);
    }
    left_ = left_ - 1;
    basic_wake_list<Platform> passed;
    if (left_ == 0) {
        queue_.pop_all(passed);
    }
    lock::release(lock_);
    passed.publish(fate::granted);
}

template <class Platform>
void basic_group<Platform>::note_failure(std::exception_ptr error, bool stopped) noexcept {
    const bool is_stop = stopped || is_stopped_error(error);
    lock::acquire(lock_);
    const bool counts = !failed_ && !(is_stop && cancelled_);
    if (counts) {
        failed_ = true;
        error_ = std::move(error);
    }
    lock::release(lock_);
    if (counts) {
        cancel();
    }
}

template <class Platform> void basic_group<Platform>::rethrow_if_failed() {
    lock::acquire(lock_);
    const bool failed = failed_;
    const std::exception_ptr error = error_;
    lock::release(lock_);
    if (failed) {
#if BIDE_EXCEPTIONS
        if (error) {
            std::rethrow_exception(error);
        }
#endif
        throw_error(errc::stopped);
    }
}

template <class Platform> void basic_group<Platform>::link(member& m) noexcept {
    member* const first = first_;
    m.next_ = first;
    m.prev_ = nullptr;
    m.linked_ = true;
    if (first != nullptr) {
        first->prev_ = &m;
    }
    first_ = &m;
}

template <class Platform> void basic_group<Platform>::unlink(member& m) noexcept {
    member* const next = m.next_;
    member* const prev = m.prev_;
    if (prev == nullptr) {
        first_ = next;
    } else {
        prev->next_ = next;
    }
    if (next != nullptr) {
        next->prev_ = prev;
    }
    m.linked_ = false;
}

using group = basic_group<native_platform>;

// A coroutine; its value goes with its frame.
template <class T> class group_cell final : public basic_group_member<native_platform> {
public:
    group_cell(group& g, task_home& home, executor_ref where, task<T>&& t) noexcept
        : basic_group_member(g, home, owned_frame<T>::name_of(t)), frame_(std::move(t)) {
        first_ = frame_.begin(*this, where);
    }

    static void* operator new(std::size_t size) { return frame_memory::allocate(size); }
    static void operator delete(void* p, std::size_t size) noexcept {
        frame_memory::release(p, size);
    }

private:
    std::coroutine_handle<> start() noexcept override { return first_; }
    void never_start() noexcept override {
        never_ran_ = true;
        frame_.destroy();
    }
    void settle() noexcept override {
        if (!never_ran_) {
            error_ = std::move((*frame_).error());
            frame_.destroy();
        }
    }
    std::exception_ptr failure(bool& stopped) noexcept override {
        stopped = never_ran_;
        return std::move(error_);
    }
    void destroy() noexcept override { delete this; }

    owned_frame<T> frame_;
    std::coroutine_handle<> first_;
    std::exception_ptr error_;
    bool never_ran_ = false;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
