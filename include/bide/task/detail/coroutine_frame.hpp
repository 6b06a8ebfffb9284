// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_DETAIL_COROUTINE_FRAME_HPP
#define BIDE_TASK_DETAIL_COROUTINE_FRAME_HPP

// The frames of coroutines that await each other: the ownership of the frames, the order of their
// destruction, and the common part of their promises.
//
// A chain of suspended coroutines may be destroyed before it has ended. The innermost coroutine is
// destroyed first, because it may refer to locals of the coroutines that await it. The use of the
// stack does not grow with the length of the chain.
//
// An awaiter lies in the frame of the awaiting coroutine. It owns the awaited frame through an
// awaited_frame. The promise of the awaiting coroutine points to that awaited_frame, or to the
// first one of a list. So the frames form a tree. destroy_awaited() orders the tree, and destroys
// each frame before the frame in which its owner lies. It empties the handle of the owner, so that
// the owner destroys nothing later.
//
// A promise without awaited_frames() is a leaf of this tree. An owner in the frame of such a
// promise is the root of another tree.

#include <bide/core/config.hpp>
#include <bide/core/detail/task_context.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/resume.hpp>
#include <bide/task/detail/frame_memory.hpp>

#include <concepts>
#include <coroutine>
#include <cstdint>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// The node has the links `to` and `next`. `to` is the coroutine; it is empty after the frame was
// destroyed. `next` is the next sibling; during the destruction, it is the next node in destruction
// order. While the node has no sibling, it also serves the transfer to the coroutine.
struct awaited_frame : transfer_node {
    awaited_frame* const* awaits =
        nullptr; // in its promise: the first of the frames that it awaits

    awaited_frame* exchange_next(awaited_frame* other) noexcept {
        return static_cast<awaited_frame*>(std::exchange(next, other));
    }
};

// Returns the promise of a coroutine whose promise has that type.
template <class Promise> Promise& promise_of(std::coroutine_handle<> frame) noexcept {
    return std::coroutine_handle<Promise>::from_address(frame.address()).promise();
}

// Destroys the tree of frames that a coroutine awaits.
BIDE_COLD inline void destroy_awaited(awaited_frame* first) noexcept {
    awaited_frame* pending = nullptr; // a stack: the frames that are not in the order yet
    awaited_frame* order = nullptr;   // a stack: children are pushed after their parent
    const auto push_all = [&pending](awaited_frame* frames) {
        while (frames != nullptr) {
            awaited_frame* const one = frames;
            frames = one->exchange_next(pending);
            pending = one;
        }
    };
    push_all(first);
    while (pending != nullptr) {
        awaited_frame* const one = pending;
        pending = one->exchange_next(nullptr);
        // A coroutine that has ended awaits nothing, and its owner destroys it.
        if (one->to && !one->to.done()) {
            one->next = std::exchange(order, one);
            push_all(*one->awaits);
        }
    }
    while (order != nullptr) {
        awaited_frame* const one = order;
        order = one->exchange_next(nullptr);
        std::exchange(one->to, nullptr).destroy();
    }
}

// Destroys a suspended coroutine, after the frames that it awaits.
inline void destroy_frame(std::coroutine_handle<> frame, awaited_frame* awaits) noexcept {
    if (awaits != nullptr) {
        destroy_awaited(awaits);
    }
    frame.destroy();
}

// Tells a promise which frames its coroutine awaits, between begin() and end().
class awaiting {
public:
    awaiting() noexcept {}
    awaiting(const awaiting&) = delete;
    awaiting& operator=(const awaiting&) = delete;

    template <class Promise>
    void begin(std::coroutine_handle<Promise> h, awaited_frame* first) noexcept {
        if constexpr (requires {
                          { h.promise().awaited_frames() } -> std::same_as<awaited_frame*&>;
                      }) {
            promises_ = &h.promise().awaited_frames();
            *promises_ = first;
        }
    }

    // Called first when the coroutine resumes, before the awaited frames are destroyed.
    void end() noexcept {
        if (promises_ != nullptr) {
            *promises_ = nullptr;
        }
    }

private:
    awaited_frame** promises_ = nullptr;
};

// The common base of the promises of tasks and generators: the memory of the frame, and the place
// of the coroutine in its chain.
class chain_promise : public recycled {
public:
    std::suspend_always initial_suspend() const noexcept { return {}; }

    executor_ref get_scheduler() const noexcept { return executor_; }
    basic_task_context<native_platform>* task_context() const noexcept { return context_; }
    awaited_frame*& awaited_frames() noexcept { return awaited_frames_; }

protected:
    chain_promise() noexcept : executor_() {}
    ~chain_promise() = default;

    union {
        std::uint8_t tag_ = 0; // of a task, until it begins
        basic_task_context<native_platform>* context_;
    };
    union {
        executor_ref executor_;
        transfer_node to_parent_; // of a task, from its end on
    };
    awaited_frame* awaited_frames_ = nullptr; // the frames that the coroutine awaits, in a list
};

// Returns the awaiter of `a`, as `co_await` finds it. If `a` is its own awaiter, returns `a`.
template <class A> decltype(auto) awaiter_of(A&& a) {
    if constexpr (requires { std::forward<A>(a).operator co_await(); }) {
        return std::forward<A>(a).operator co_await();
    } else if constexpr (requires { operator co_await(std::forward<A>(a)); }) {
        return operator co_await(std::forward<A>(a));
    } else {
        return std::forward<A>(a);
    }
}

}}} // namespace bide::BIDE_ABI::detail

#endif
