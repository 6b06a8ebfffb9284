#ifndef BIDE_TASK_DETAIL_OWNED_FRAME_HPP
#define BIDE_TASK_DETAIL_OWNED_FRAME_HPP

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/detail/task_context.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/task/detail/awaited_frame.hpp>
#include <bide/task/task.hpp>

#include <coroutine>
#include <exception>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// The coroutine of a task in the hand of somebody who runs it as the first of a chain.
template <class T> class owned_frame {
public:
    using promise = typename task<T>::promise_type;

    owned_frame() noexcept {}
    explicit owned_frame(task<T>&& t) noexcept { take(std::move(t)); }
    owned_frame(const owned_frame&) = delete;
    owned_frame& operator=(const owned_frame&) = delete;
    ~owned_frame() { destroy(); }

    // Requires: empty, and a task that was not moved from; terminates otherwise.
    void take(task<T>&& t) noexcept {
        held_.handle = std::exchange(t.frame_, nullptr);
        if (!held_.handle) {
            fatal("task spawned or composed that was moved from");
        }
        held_.awaits = &(**this).awaited_frames();
    }

    static const char* name_of(const task<T>& t) noexcept { return t.name_; }

    std::coroutine_handle<> begin(basic_task_context<native_platform>& context,
                                  executor_ref where) noexcept {
        (**this).begin(context, where);
        return held_.handle;
    }

    promise& operator*() const noexcept {
        return std::coroutine_handle<promise>::from_address(held_.handle.address()).promise();
    }

    // For a coroutine that awaits the task with others.
    awaited_frame& as_awaited() noexcept { return held_; }

    void destroy() noexcept {
        if (held_.handle) {
            destroy_frame(std::exchange(held_.handle, nullptr), *held_.awaits);
        }
    }

private:
    awaited_frame held_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
