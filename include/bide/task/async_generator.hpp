// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_ASYNC_GENERATOR_HPP
#define BIDE_TASK_ASYNC_GENERATOR_HPP

/// \file
/// async_generator<T>, a coroutine that yields items one by one and may wait between them.
///
/// GCC before 13 destroys some temporaries of a co_yield or co_await expression twice
/// (BIDE_BRACED_AWAIT_BUG in core/config.hpp). To avoid this, give a braced aggregate a name in an
/// earlier statement.
//
// While the consumer awaits an item, the producer is part of the consumer's chain of coroutines,
// and has the executor and the context of the consumer. So a cancellation of the consumer reaches
// the operation that the producer waits for. Between two items, the producer is part of no chain.
//
// Consumer and producer transfer control to each other as a task and its awaiter do
// (task/task.hpp). The item lies in the frame of the producer, and next() moves it out.
//
// Without symmetric transfer, each transfer would go through a loop (core/resume.hpp). To avoid
// that, next() calls the producer as a function. The call returns in one of two ways:
//
//   yielded   The producer has yielded during the call. The consumer continues and was never
//             suspended.
//   left      The producer has suspended without an item, for example to wait. When it yields
//             later, on any thread, it transfers control to the consumer.
//
// At the start of the call, the consumer's wait is pending, that is, it has not begun. The wait
// begins at the producer's first co_await in the call. Until then, only the call runs the producer.
// So a producer that yields while the wait is pending just ends the call. It needs neither the
// executor nor the context of the consumer. After the wait has begun, other code may run the
// producer, on any thread. So when the producer yields after that, it checks whether its latest
// call is the innermost one of this thread. If it is, the producer ends the call. If not, it
// transfers control to the consumer. If the consumer is itself a producer, and the wait of its own
// consumer is pending, that outer wait begins before the consumer's wait.
//
// At most `most_calls` calls nest. A longer chain of generators continues through the loop. So the
// stack stays bounded.

#include <bide/core/async_op.hpp>
#include <bide/task/detail/coroutine_frame.hpp>

#include <memory>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

// A call of a producer by next(), on the stack of the caller.
class BIDE_SHARED generator_call {
public:
    static constexpr unsigned most_calls = 8;

    // `depth` is the depth of this call: 1 plus the number of calls around it.
    explicit generator_call(unsigned depth) noexcept : depth_(depth) {}
    generator_call(const generator_call&) = delete;
    generator_call& operator=(const generator_call&) = delete;

    // Resumes the producer. Returns true if the producer yields or ends in this call. Returns false
    // if the producer suspends in another way, for example to wait. The caller must then access
    // neither the producer nor its consumer.
    bool run(std::coroutine_handle<> producer) noexcept {
        producer.resume();
        if (producer_) {
            leave();
        }
        return yielded_;
    }

    // Called when the producer yields in this call.
    void end() noexcept { yielded_ = true; }

    // Makes this call the innermost one of the thread, until the call returns.
    BIDE_NEAR_LOCAL void enter(std::coroutine_handle<> producer) noexcept {
        producer_ = producer;
        outer_ = std::exchange(here().innermost, this);
    }

    // Called by a producer that yields. `call` is the latest call of this producer, and may have
    // returned. If `call` is the innermost call of this thread, ends it and returns true. Compares
    // the producers, too, because a later call of another producer may have the same address as
    // `call`.
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
    static running_code& here() noexcept { return native_platform::local<running_code>(); }

    BIDE_NEAR_LOCAL void leave() const noexcept { here().innermost = outer_; }

    std::coroutine_handle<> producer_; // empty until enter()
    generator_call* outer_ = nullptr;
    const unsigned depth_;
    bool yielded_ = false;
};

// Refers to an awaiter. await_transform() returns this object instead of a reference to the
// awaiter, because GCC 12 copies an awaiter that await_transform() returns by reference.
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

// The part of a producer's promise that does not depend on the type of the items. When the wait of
// the consumer begins, this promise gets the executor and the context of the consumer.
class generator_promise_base : public chain_promise {
public:
    // Called before each co_await of the producer. Begins the pending wait of the consumer. If the
    // producer awaits an item of another generator, the pending wait begins later, when that
    // generator waits.
    template <class A> decltype(auto) await_transform(A&& what) {
        if constexpr (!requires { typename std::remove_cvref_t<A>::waits_for_item; }) {
            begin_pending_wait();
        }
        if constexpr (requires { what.await_ready(); }) {
            return awaiter_ref<std::remove_reference_t<A>>(what);
        } else {
            return detail::awaiter_of(std::forward<A>(what));
        }
    }

    void return_void() const noexcept {}
    void unhandled_exception() noexcept { error_ = std::current_exception(); }

    void begin_pending_wait() noexcept {
        if (const waker begin = std::exchange(pending_, waker())) {
            begin.wake();
        }
    }

    // Called by a consumer that awaits an item. `begin` sets the executor and the context that the
    // awaits of the producer need. Returns true if the consumer stays suspended.
    bool call(std::coroutine_handle<> producer, unsigned depth, waker begin) noexcept {
        if (depth > generator_call::most_calls) {
            call_ = nullptr;
            pending_ = waker();
            begin.wake();
            resume_later<native_platform>(producer, node_);
            return true;
        }
        generator_call mine(depth);
        call_ = &mine;
        pending_ = begin;
        return !mine.run(producer);
    }
    // Called when the wait of the consumer has begun. From now on, other code may run the producer.
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

    // Called by await_suspend() when the producer is suspended in a co_yield or at its end. Lets
    // the consumer continue, which may destroy the frame of the producer. So await_suspend() does
    // not access that frame afterwards, and returns the result of this function.
    auto to_consumer_from(std::coroutine_handle<> producer) noexcept {
        if constexpr (BIDE_SYMMETRIC_TRANSFER) {
            return transfer<native_platform>(consumer_, node_);
        } else if (pending_) {
            call_->end();
        } else if (!generator_call::ends(producer, call_)) {
            resume_later<native_platform>(consumer_, node_);
        }
    }

    std::coroutine_handle<> consumer_; // set by each next()
    transfer_node node_;
    generator_call* call_ = nullptr; // the latest call, which may have returned
    waker pending_;                  // begins the consumer's wait; empty if the wait has begun
    std::exception_ptr error_;
};

template <class T> class generator_promise : public generator_promise_base {
    using item = std::remove_reference_t<T>;

public:
    // Suspends the producer and continues with the consumer.
    class to_consumer {
    public:
        to_consumer() noexcept {}
        bool await_ready() const noexcept { return false; }
        // The transfer is the last access to the frame.
        template <class Promise>
        auto await_suspend(std::coroutine_handle<Promise> h) const noexcept {
            return static_cast<generator_promise&>(h.promise()).to_consumer_from(h);
        }
        void await_resume() const noexcept {}
    };

    // Does what to_consumer does, but first copies the item and stores the copy here.
    class copy_to_consumer : public to_consumer {
    public:
        explicit copy_to_consumer(const item& from) : copy_(from) {}
        template <class Promise> auto await_suspend(std::coroutine_handle<Promise> h) noexcept {
            h.promise().item_ = std::addressof(copy_);
            return to_consumer::await_suspend(h);
        }

    private:
        item copy_;
    };

    to_consumer final_suspend() noexcept {
        item_ = nullptr;
        return to_consumer();
    }

    // The operand of co_yield stays in place until the producer is resumed.
    to_consumer yield_value(T&& one) noexcept {
        item_ = std::addressof(one);
        return to_consumer();
    }
    copy_to_consumer yield_value(const item& one)
        requires(!std::is_reference_v<T> && std::is_copy_constructible_v<item>)
    {
        return copy_to_consumer(one);
    }

private:
    friend async_generator<T>;

    item* item_ = nullptr; // nullptr when the producer has ended
};

} // namespace detail

/// A coroutine that yields items of type T. The first next() starts it. Each next() runs it until
/// it yields an item. T is a value type or an lvalue reference.
///
/// \code
/// bide::async_generator<int> doubled(bide::channel<int>& from) { // the producer
///     while (auto n = co_await from.async_recv()) {
///         co_yield 2 * *n;
///     }
/// }
/// bide::task<int> sum(bide::channel<int>& from) { // the consumer
///     int all = 0;
///     auto numbers = doubled(from);
///     while (auto n = co_await numbers.next()) {
///         all += *n;
///     }
///     co_return all;
/// }
/// \endcode
///
/// `co_yield` of an rvalue moves it to the consumer. `co_yield` of an lvalue passes a copy. If T is
/// a reference, `co_yield` passes the reference. An item needs no allocation.
///
/// The producer runs as a part of the task that awaits next(), on the executor of that task.
/// Different tasks may await different items. A this_task::shield in the producer must be destroyed
/// before the next co_yield.
/// Thread safety: one next() at a time. Requires: the generator is not moved during a next().
/// Destroys: the frame of the producer, and an item that was not taken. A producer that has ended
/// has no frame any more, with one exception. If the items are tasks, the frame exists as long as
/// the generator, because the tasks may use the parameters of the producer.
template <class T> class [[nodiscard]] async_generator {
    static_assert(!std::is_void_v<T> && !std::is_const_v<T> && !std::is_rvalue_reference_v<T>,
                  "async_generator<T>: T is a value or an lvalue reference");

public:
    /// The promise of the coroutine; for the compiler.
    struct promise_type : detail::generator_promise<T> {
        /// Makes the generator; called by the compiler.
        async_generator get_return_object() noexcept { return async_generator(*this); }
    };

    /// The type of an item.
    using value_type = std::remove_cvref_t<T>;
    /// The result of next(): std::optional<T>; a pointer if T is a reference.
    using next_type =
        std::conditional_t<std::is_reference_v<T>, std::remove_reference_t<T>*, std::optional<T>>;

    /// Takes the producer over. Afterwards `other` behaves like a generator that has ended.
    async_generator(async_generator&& other) noexcept
        : frame_{{nullptr, std::exchange(other.frame_.to, nullptr)}, other.frame_.awaits} {}
    /// Takes the producer over, and destroys the previous producer of this object.
    async_generator& operator=(async_generator&& other) noexcept {
        async_generator moved(std::move(other));
        std::swap(frame_, moved.frame_);
        return *this;
    }
    async_generator(const async_generator&) = delete;
    /// Destroys the producer.
    ~async_generator() { destroy(); }

    /// The wait for an item; made by next().
    class [[nodiscard("co_await it")]] next_operation;

    /// Resumes the producer, and waits for its next item.
    /// Returns: an operation for co_await. Its value is a std::optional with the item. If T is a
    /// reference, the value is a pointer to the yielded object, which is valid until the following
    /// next(). If the producer has ended, the value is empty or nullptr.
    /// Throws: what the producer throws; afterwards the generator has ended, and later calls return
    /// an empty value. Also what the move of the item throws; that item is lost, and the next call
    /// returns the following item.
    /// Cancellation: stops the operation that the producer waits for. A producer that does not
    /// catch the stopped_error ends. If the consumer is destroyed during the wait, the producer is
    /// destroyed, too.
    next_operation next() noexcept { return next_operation(*this); }

private:
    explicit async_generator(promise_type& of) noexcept
        : frame_{{nullptr, std::coroutine_handle<promise_type>::from_promise(of)},
                 &of.awaited_frames()} {}

    // If true, an ended frame is kept, because the yielded tasks may use what lies in it.
    static constexpr bool keeps_ended = detail::is_task<value_type>;

    promise_type& promise() const noexcept { return detail::promise_of<promise_type>(frame_.to); }

    void destroy() noexcept {
        if (frame_.to) {
            detail::destroy_frame(std::exchange(frame_.to, nullptr), *frame_.awaits);
        }
    }

    // Requires: the producer has ended.
    BIDE_COLD void end() {
        const std::exception_ptr error = std::move(promise().error_);
        if constexpr (!keeps_ended) {
            destroy();
        }
        if (error) {
            std::rethrow_exception(error);
        }
    }

    bool has_ended() const noexcept { return !frame_.to || (keeps_ended && frame_.to.done()); }

    // Owns the frame of the producer. The handle is empty if the producer was destroyed. During a
    // wait, the promise of the consumer points to this object.
    detail::awaited_frame frame_;
};

/// The wait of a generator's consumer for an item.
template <class T> class async_generator<T>::next_operation {
public:
    /// Marks this operation. A producer that awaits such an operation does not begin the pending
    /// wait of its own consumer first.
    using waits_for_item = void;

    /// Constructs the wait.
    explicit next_operation(async_generator& of) noexcept : of_(of) {}
    next_operation(const next_operation&) = delete;
    next_operation& operator=(const next_operation&) = delete;
    /// Destroys the producer, if the consumer is destroyed during the wait.
    ~next_operation() {
        if (suspended_) {
            awaiting_.end();
            of_.destroy();
        }
    }

    /// Returns true if the producer has ended.
    bool await_ready() const noexcept { return of_.has_ended(); }
    /// Resumes the producer in the context and on the executor of the consumer.
    template <class Promise> auto await_suspend(std::coroutine_handle<Promise> consumer) noexcept {
        promise_type& p = of_.promise();
        p.consumer_ = consumer;
        suspended_ = true;
        if constexpr (BIDE_SYMMETRIC_TRANSFER) {
            begin_wait<Promise>(this);
            return transfer<native_platform>(of_.frame_.to, p.node_);
        } else {
            unsigned depth = 1;
            if constexpr (std::is_base_of_v<detail::generator_promise_base, Promise>) {
                depth += consumer.promise().depth();
            }
            return p.call(of_.frame_.to, depth, waker(&begin_wait<Promise>, this));
        }
    }
    /// Returns the item, or nothing.
    /// Throws: as next().
    next_type await_resume() {
        if (!suspended_) {
            return {};
        }
        suspended_ = false;
        awaiting_.end();
        auto* const item = of_.promise().item_;
        if (item == nullptr) {
            of_.end();
            return {};
        }
        if constexpr (std::is_reference_v<T>) {
            return item;
        } else {
            return next_type(std::move(*item));
        }
    }

private:
    // Called when the producer is about to await something, or is resumed without a call.
    template <class Promise> static void begin_wait(void* self) noexcept {
        auto& me = *static_cast<next_operation*>(self);
        promise_type& p = me.of_.promise();
        if constexpr (std::is_void_v<Promise>) {
            p.executor_ = executor_ref();
            p.context_ = nullptr;
        } else {
            auto& consumer = detail::promise_of<Promise>(p.consumer_);
            if constexpr (std::is_base_of_v<detail::generator_promise_base, Promise>) {
                consumer.begin_pending_wait();
            }
            p.executor_ = bide::executor_of(consumer);
            p.context_ = bide::task_context_of<native_platform>(consumer);
            me.awaiting_.begin(std::coroutine_handle<Promise>::from_promise(consumer),
                               &me.of_.frame_);
        }
        p.enter_call(me.of_.frame_.to);
    }

    async_generator& of_;
    bool suspended_ = false;
    detail::awaiting awaiting_;
};

}} // namespace bide::BIDE_ABI

#endif
