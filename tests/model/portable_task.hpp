#ifndef BIDE_TESTS_MODEL_PORTABLE_TASK_HPP
#define BIDE_TESTS_MODEL_PORTABLE_TASK_HPP

// What tasks on other platforms than the native one need: of the checker, and of the simulated machine.

#include <bide/core/detail/task_context.hpp>
#include <bide/core/executor.hpp>
#include <bide/task/detail/task_cell.hpp>
#include <bide/task/detail/task_control.hpp>
#include <support/standard.hpp>

namespace bide { inline namespace BIDE_ABI { namespace model {

// A coroutine that is a whole chain.
template <class Platform> struct [[nodiscard]] link {
    struct promise_type {
        bide::basic_task_context<Platform>* context = nullptr;
        bide::executor_ref where;

        promise_type() noexcept {}
        auto* task_context() const noexcept { return context; }
        bide::executor_ref get_scheduler() const noexcept { return where; }
        link get_return_object() noexcept {
            return link(std::coroutine_handle<promise_type>::from_promise(*this));
        }
        std::suspend_always initial_suspend() noexcept { return {}; }
        struct end {
            end() noexcept {}
            bool await_ready() const noexcept { return false; }
            std::coroutine_handle<>
            await_suspend(std::coroutine_handle<promise_type> h) const noexcept {
                return h.promise().context->ended();
            }
            void await_resume() const noexcept {}
        };
        end final_suspend() noexcept { return {}; }
        void return_void() noexcept {}
        [[noreturn]] void unhandled_exception() noexcept { std::terminate(); }
    };

    explicit link(std::coroutine_handle<promise_type> h) noexcept : frame(h) {}
    link(link&& other) noexcept : frame(std::exchange(other.frame, nullptr)) {}
    link& operator=(link&&) = delete;
    ~link() {
        if (frame) {
            std::exchange(frame, nullptr).destroy();
        }
    }

    std::coroutine_handle<promise_type> frame;
};

// A home that starts tasks.
template <class Platform> class starting_home : public bide::detail::basic_task_home<Platform> {
public:
    virtual void start(bide::detail::basic_task_header<Platform>& t) noexcept = 0;

protected:
    ~starting_home() = default;
};

// A home with what a scheduler needs, as bide's task_home has it.
template <class Platform> class scheduler_home : public starting_home<Platform> {
public:
    virtual const bide::detail::unhandled& handler() const noexcept = 0;
    virtual void enter() noexcept = 0;
    virtual void leave() noexcept = 0;

protected:
    ~scheduler_home() = default;
};

}}} // namespace bide::BIDE_ABI::model

#endif
