#ifndef BIDE_TESTS_MODEL_TASK_SUPPORT_HPP
#define BIDE_TESTS_MODEL_TASK_SUPPORT_HPP

// A chain of coroutines for models, as a scheduler's task is one: it runs where it is woken, at once.
// So it goes on while the thread that it left is still on its way out of it.

#include <bide/core/detail/task_context.hpp>
#include <bide/core/executor.hpp>
#include <bide/task/detail/task_header.hpp>
#include <model/check.hpp>

#include <coroutine>
#include <exception>
#include <utility>

namespace model {

// Runs what it takes before post() returns.
struct at_once {
    void post(bide::runnable& r) noexcept { r.run.wake(); }
};

// The one coroutine of a chain.
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
            void await_suspend(std::coroutine_handle<promise_type> h) const noexcept {
                h.promise().context->ended();
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

// What becomes of a task, written down by the thread that does it.
template <class Platform> struct ledger {
    typename Platform::template var<int> discarded{0}; // the outcome is not asked for
    typename Platform::template var<int> destroyed{0};
};

// Where tasks live: any thread runs them.
template <class Platform> class task_home final : public bide::detail::basic_task_home<Platform> {
    using registry_type = bide::detail::basic_task_registry<Platform>;

public:
    registry_type& registry() noexcept override { return tasks_; }
    bool is_here() const noexcept override { return true; }
    bool is_closing() const noexcept override { return false; }
    void post(bide::runnable& r) noexcept override { here_.post(r); }
    bide::executor_ref executor() noexcept override { return here_; }
    void task_ended() noexcept override {}

private:
    at_once here_;
    registry_type tasks_;
};

// A task with an outcome: 1, or 2 if it never ran. It belongs to its references.
template <class Platform> class task_cell final : public bide::detail::basic_task_header<Platform> {
    using header = bide::detail::basic_task_header<Platform>;

public:
    task_cell(typename header::home_type& home, link<Platform>&& what, bool kept,
              ledger<Platform>& book)
        : header(home, nullptr, kept), link_(std::move(what)), book_(book) {
        link_.frame.promise().context = this;
        link_.frame.promise().where = home.executor();
    }

    void begin() noexcept { this->to_run().run.wake(); }

    // Once it has ended, once.
    int take() noexcept {
        const int mine = outcome_;
        outcome_ = 0;
        return mine;
    }

    // Left by each owner of a reference, the first by the owner of the handle.
    typename Platform::template var<int> touched[2];

private:
    std::coroutine_handle<> start() noexcept override { return link_.frame; }
    void never_start() noexcept override { outcome_ = 2; }
    void settle() noexcept override {
        if (outcome_ == 0) {
            outcome_ = 1;
        }
    }
    // What the handle's owner did before it let go is seen by the thread that is told of the outcome.
    void discard_outcome() noexcept override {
        if (take() != 0) {
            book_.discarded = book_.discarded + 1 + touched[0];
        }
    }
    void destroy() noexcept override {
        book_.destroyed = book_.destroyed + 1;
        delete this;
    }

    link<Platform> link_;
    ledger<Platform>& book_;
    typename Platform::template var<int> outcome_{0};
};

} // namespace model

#endif
