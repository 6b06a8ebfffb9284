#ifndef BIDE_TASK_DETAIL_AWAITED_FRAME_HPP
#define BIDE_TASK_DETAIL_AWAITED_FRAME_HPP

// How suspended coroutines that await each other are destroyed before their end: the innermost
// first, for it may refer to the locals of those above it, and on a bounded stack.
//
// The owner of an awaited frame, which lies in the frame that awaits it, holds it by an
// awaited_frame. The promise that awaits points to that, or to the first of several when_children: their
// tree is put in order, and each is destroyed before the frame that its owner lies in. The owner
// finds its handle empty then. A promise without awaited_frames() ends the tree; the owners in its
// frame begin another one.

#include <bide/core/config.hpp>

#include <concepts>
#include <coroutine>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

struct awaited_frame {
    std::coroutine_handle<> handle;         // empty: there is none any more
    awaited_frame* const* awaits = nullptr; // in its promise: what it awaits
    awaited_frame* next = nullptr;          // its sibling; in the order of destruction: the next
};

// Destroys what a coroutine awaits.
BIDE_COLD inline void destroy_awaited(awaited_frame* first) noexcept {
    awaited_frame* left = nullptr;  // to be looked at; those that come last in the order first
    awaited_frame* order = nullptr; // those looked at, the last one in front
    const auto look_at = [&left](awaited_frame* when_children) {
        while (when_children != nullptr) {
            awaited_frame* const one = std::exchange(when_children, when_children->next);
            one->next = std::exchange(left, one);
        }
    };
    look_at(first);
    while (left != nullptr) {
        awaited_frame* const one = std::exchange(left, left->next);
        // One that has ended awaits nothing; its owner destroys it.
        if (one->handle && !one->handle.done()) {
            one->next = std::exchange(order, one);
            look_at(*one->awaits);
        }
    }
    while (order != nullptr) {
        awaited_frame* const one = std::exchange(order, order->next);
        std::exchange(one->handle, nullptr).destroy();
    }
}

// Destroys a suspended coroutine, after what it awaits.
inline void destroy_frame(std::coroutine_handle<> frame, awaited_frame* awaits) noexcept {
    if (awaits != nullptr) {
        destroy_awaited(awaits);
    }
    frame.destroy();
}

// Tells a promise what its coroutine awaits, from begin() to end().
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

    // First thing when the coroutine goes on, and before what it awaited goes.
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
