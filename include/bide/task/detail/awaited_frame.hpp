// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_DETAIL_AWAITED_FRAME_HPP
#define BIDE_TASK_DETAIL_AWAITED_FRAME_HPP

// Destroys a chain of suspended coroutines that await each other and have not ended. The innermost
// coroutine is destroyed first, because it may refer to locals of the coroutines that await it. The
// use of the stack does not grow with the length of the chain.
//
// An awaiter lies in the frame of the awaiting coroutine. It owns the awaited frame through an
// awaited_frame. The promise of the awaiting coroutine points to that awaited_frame, or to the
// first of several that are in a list. So the frames form a tree. destroy_awaited() puts
// the tree in order and destroys each frame before the frame that its owner lies in. It empties the
// handle of the owner, so that the owner destroys nothing later.
//
// A promise without awaited_frames() is a leaf of this tree. An owner in the frame of such a
// promise is the root of a tree of its own.

#include <bide/core/config.hpp>
#include <bide/core/resume.hpp>

#include <concepts>
#include <coroutine>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// The links of the node are `to`, the coroutine, which is empty after the frame was destroyed, and
// `next`, the next sibling, and then the next in destruction order. As long as it has no sibling,
// the node also serves the transfer to the coroutine.
struct awaited_frame : transfer_node {
    awaited_frame* const* awaits =
        nullptr; // in its promise: the first of the frames that it awaits

    awaited_frame* exchange_next(awaited_frame* other) noexcept {
        return static_cast<awaited_frame*>(std::exchange(next, other));
    }
};

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

// Tells a promise which frames its coroutine awaits, from begin() until end().
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

    // The first call after the coroutine resumes, and before the awaited frames are destroyed.
    void end() noexcept {
        if (promises_ != nullptr) {
            *promises_ = nullptr;
        }
    }

private:
    awaited_frame** promises_ = nullptr;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
