// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_DETAIL_GENERATOR_CALL_HPP
#define BIDE_TASK_DETAIL_GENERATOR_CALL_HPP

// How the consumer of an async_generator and its producer transfer control to each other.
//
// Without symmetric transfer, each transfer goes through a loop (core/resume.hpp). There, next()
// calls the producer instead, and the call says how it has ended:
//
//   The producer has yielded during the call. The consumer continues without a suspension.
//   The producer waits, or has left the call in another way. It transfers control to the consumer when
//   it yields, on whichever thread.
//
// The wait of the consumer is pending until the producer's first co_await in the call. Until then,
// nothing but the call runs the producer. So a yield with a pending wait ends the call, and the producer
// needs neither the executor of the consumer nor its context. Before a co_await, the pending wait
// begins. From there on, a yield compares the producer's latest call with the innermost call of its own
// thread. If a consumer is a producer too, its wait begins before.
//
// At most `most_calls` calls are inside of each other: a longer chain of generators goes on through the
// loop. So the stack stays bounded.

#include <bide/core/config.hpp>
#include <bide/core/detail/task_context.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/waker.hpp>
#include <bide/task/detail/awaited_frame.hpp>
#include <bide/task/detail/awaiter_of.hpp>
#include <bide/task/detail/frame_memory.hpp>

#include <coroutine>
#include <cstddef>
#include <exception>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// A call of a producer by next(), on the stack of the caller.
class BIDE_SHARED generator_call {
public:
    static constexpr unsigned most_calls = 8;

    // `depth` is the number of calls that this one is inside of, and one more.
    explicit generator_call(unsigned depth) noexcept : depth_(depth) {}
    generator_call(const generator_call&) = delete;
    generator_call& operator=(const generator_call&) = delete;

    // Returns true if the producer has yielded or ended. Otherwise the caller must not access the
    // producer, nor its consumer.
    bool run(std::coroutine_handle<> producer) noexcept {
        producer.resume();
        if (producer_) {
            leave();
        }
        return yielded_;
    }

    // The producer yields in this call.
    void end() noexcept { yielded_ = true; }

    // Makes this the innermost call of the thread, until it returns.
    BIDE_NEAR_LOCAL void enter(std::coroutine_handle<> producer) noexcept {
        producer_ = producer;
        outer_ = std::exchange(here().innermost, this);
    }

    // Called by a producer that yields, and whose latest call is `call`. Returns true if that is the
    // innermost call of this thread; the call then ends. If `call` is over, another call may have its
    // address, but not its producer: that call would be the latest one.
    BIDE_NEAR_LOCAL static bool ends(std::coroutine_handle<> producer,
                                     const generator_call* call) noexcept {
        generator_call* const innermost = here().innermost;
        if (call == nullptr || call != innermost || innermost->producer_ != producer) {
            return false;
        }
        innermost->end();
        return true;
    }

    unsigned depth() const noexcept { return depth_; }
    // Returns the depth of the innermost call of this thread.
    BIDE_NEAR_LOCAL static unsigned depth_here() noexcept {
        const generator_call* const innermost = here().innermost;
        return innermost != nullptr ? innermost->depth_ : 0;
    }

private:
    struct calls {
        generator_call* innermost = nullptr;
    };
    static calls& here() noexcept { return native_platform::local<calls>(); }

    BIDE_NEAR_LOCAL void leave() const noexcept { here().innermost = outer_; }

    std::coroutine_handle<> producer_; // empty if it is not entered
    generator_call* outer_ = nullptr;
    const unsigned depth_;
    bool yielded_ = false;
};

// Refers to an object that is its own awaiter, because GCC 12 copies what await_transform() returns by
// reference.
template <class A> class awaiter_ref {
public:
    explicit awaiter_ref(A& of) noexcept : of_(of) {}
    decltype(auto) await_ready() { return of_.await_ready(); }
    template <class Promise> decltype(auto) await_suspend(std::coroutine_handle<Promise> h) {
        return of_.await_suspend(h);
    }
    decltype(auto) await_resume() { return of_.await_resume(); }

private:
    A& of_;
};

// The part of a producer's promise that knows nothing of the items.
class generator_promise_base {
public:
    // Throws: std::bad_alloc.
    static void* operator new(std::size_t size) { return frame_memory::allocate(size); }
    static void operator delete(void* frame, std::size_t size) noexcept {
        frame_memory::release(frame, size);
    }

    std::suspend_always initial_suspend() const noexcept { return {}; }

    // Called before each co_await of the producer. The wait for an item of another generator begins
    // when that one waits.
    template <class A> decltype(auto) await_transform(A&& what) {
        if constexpr (!requires { typename std::remove_cvref_t<A>::waits_for_item; }) {
            begin_pending_wait();
        }
        if constexpr (requires { what.await_ready(); }) {
            return awaiter_ref<std::remove_reference_t<A>>(what);
        } else {
            return awaiter_of(std::forward<A>(what));
        }
    }

    void return_void() const noexcept {}
    void unhandled_exception() noexcept { error_ = std::current_exception(); }

    executor_ref get_scheduler() const noexcept { return executor_; }
    basic_task_context<native_platform>* task_context() const noexcept { return context_; }
    awaited_frame*& awaited_frames() noexcept { return awaited_frames_; }

    void begin_pending_wait() noexcept {
        if (const waker begin = std::exchange(pending_, waker())) {
            begin.wake();
        }
    }

    // Called by a consumer that awaits an item. `begin` sets what the producer's awaits need.
    // Returns true if the consumer stays suspended.
    bool call(std::coroutine_handle<> producer, unsigned depth, waker begin) noexcept {
        if (depth > generator_call::most_calls) {
            call_ = nullptr;
            pending_ = waker();
            begin.wake();
            static_cast<void>(transfer<native_platform>(producer, node_));
            return true;
        }
        generator_call mine(depth);
        call_ = &mine;
        pending_ = begin;
        return !mine.run(producer);
    }
    // The wait has begun: other code may run the producer.
    void enter_call(std::coroutine_handle<> producer) noexcept {
        if (call_ != nullptr) {
            call_->enter(producer);
        }
    }
    // Returns the depth of the call that the producer is in.
    unsigned depth() const noexcept {
        return pending_ ? call_->depth() : generator_call::depth_here();
    }

protected:
    generator_promise_base() noexcept = default;
    ~generator_promise_base() = default;

    // The producer yields, and is suspended: continues with the consumer. The last access to the frame.
    // Returns what await_suspend() returns.
    auto to_consumer_from(std::coroutine_handle<> producer) noexcept {
        if constexpr (BIDE_SYMMETRIC_TRANSFER) {
            return transfer<native_platform>(consumer_, node_);
        } else if (pending_) {
            call_->end();
        } else if (!generator_call::ends(producer, call_)) {
            static_cast<void>(transfer<native_platform>(consumer_, node_));
        }
    }

    std::coroutine_handle<> consumer_; // set by each next(), as the next two are
    basic_task_context<native_platform>* context_ = nullptr; // from the begin of the wait on
    executor_ref executor_;
    transfer_node node_;
    generator_call* call_ = nullptr; // the latest one, which may be over
    waker pending_; // begins the wait of the consumer; left as it is between two items
    std::exception_ptr error_;
    awaited_frame* awaited_frames_ = nullptr; // what the producer awaits
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
