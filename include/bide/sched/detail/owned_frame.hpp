#ifndef BIDE_SCHED_DETAIL_OWNED_FRAME_HPP
#define BIDE_SCHED_DETAIL_OWNED_FRAME_HPP

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/detail/task_context.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/sched/task.hpp>

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
        frame_ = std::exchange(t.frame_, nullptr);
        if (!frame_) {
            fatal("task spawned or composed that was moved from");
        }
    }

    static const char* name_of(const task<T>& t) noexcept { return t.name_; }

    std::coroutine_handle<> begin(basic_task_context<native_platform>& context,
                                  executor_ref where) noexcept {
        frame_.promise().begin(context, where);
        return frame_;
    }

    promise& operator*() const noexcept { return frame_.promise(); }

    void destroy() noexcept {
        if (frame_) {
            std::exchange(frame_, nullptr).destroy();
        }
    }

private:
    std::coroutine_handle<promise> frame_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
