#ifndef BIDE_TASK_DETAIL_TASK_CELL_HPP
#define BIDE_TASK_DETAIL_TASK_CELL_HPP

// The typed part of a spawned task: what computes its outcome, until it has ended, and the outcome.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/task/detail/frame_memory.hpp>
#include <bide/task/detail/owned_frame.hpp>
#include <bide/task/detail/task_header.hpp>
#include <bide/task/detail/task_source.hpp>
#include <bide/task/detail/unhandled.hpp>
#include <bide/task/task.hpp>

#include <coroutine>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

using task_header = basic_task_header<native_platform>;

inline bool is_stopped_error(const std::exception_ptr& error) noexcept {
#if BIDE_EXCEPTIONS
    try {
        std::rethrow_exception(error);
    } catch (const stopped_error&) {
        return true;
    } catch (...) {
        return false;
    }
#else
    static_cast<void>(error);
    return false;
#endif
}

// A home of tasks (task_header.hpp) that has a say in what becomes of such exceptions.
class task_home : public basic_task_home<native_platform> {
public:
    virtual const unhandled& handler() const noexcept = 0;

    // This thread runs a blocking task of the scheduler's, from here on, and no longer.
    virtual void enter() noexcept = 0;
    virtual void leave() noexcept = 0;

protected:
    ~task_home() = default;
};

template <class T> class outcome_cell : public task_header {
public:
    using task_header::task_header;

    // Once it has ended, once. Throws: what the task threw; stopped_error if it never ran.
    T take() {
        if (never_ran_) {
            throw_error(errc::stopped);
        }
#if BIDE_EXCEPTIONS
        if (error_) {
            std::rethrow_exception(std::exchange(error_, nullptr));
        }
#endif
        if constexpr (!std::is_void_v<T>) {
            return value_.take();
        }
    }

    // take(), where that would throw stopped_error; false: it would not, and was not.
    bool take_if_stopped() noexcept {
        const bool stopped = never_ran_ || (error_ && is_stopped_error(error_));
        if (stopped) {
            error_ = nullptr;
        }
        return stopped;
    }

protected:
    struct nothing {};

    ~outcome_cell() = default;

    void set_never_ran() noexcept { never_ran_ = true; }
    bool was_never_run() const noexcept { return never_ran_; }

    void set_error(std::exception_ptr error) noexcept {
        error_ = std::move(error);
        handler_ = static_cast<task_home&>(home()).handler();
    }

    // An exception that nobody has asked for and nobody will.
    void discard_outcome() noexcept override {
        if (error_ && !(this->was_cancelled() && is_stopped_error(error_))) {
            handler_.tell(std::exchange(error_, nullptr));
        }
    }

    std::conditional_t<std::is_void_v<T>, nothing, task_outcome<T>> value_;

private:
    std::exception_ptr error_;
    unhandled handler_; // where there is an error
    bool never_ran_ = false;
};

// A coroutine.
template <class T> class coroutine_body : public outcome_cell<T>, public recycled {
public:
    coroutine_body(task_home& home, task<T> t, bool kept) noexcept
        : outcome_cell<T>(home, owned_frame<T>::name_of(t), kept), frame_(std::move(t)) {}

protected:
    ~coroutine_body() = default;

    std::coroutine_handle<> start() noexcept override {
        return frame_.begin(*this, this->home().executor());
    }

    void settle() noexcept override {
        if (this->was_never_run()) {
            return;
        }
        auto& promise = *frame_;
        if (promise.error()) {
            this->set_error(std::move(promise.error()));
        } else if constexpr (!std::is_void_v<T>) {
#if BIDE_EXCEPTIONS
            try {
                this->value_.set(promise.outcome().take());
            } catch (...) {
                this->set_error(std::current_exception());
            }
#else
            this->value_.set(promise.outcome().take());
#endif
        }
        frame_.destroy();
    }

    void never_start() noexcept override {
        this->set_never_ran();
        frame_.destroy();
    }

private:
    owned_frame<T> frame_; // until it has ended
};

// The same with the callable that it came from, if any.
template <task_source S>
class coroutine_cell final : task_origin<S>, public coroutine_body<task_value_t<S>> {
    using body = coroutine_body<task_value_t<S>>;

public:
    // Throws: what the callable throws.
    coroutine_cell(task_home& home, S&& source, bool kept)
        : body(home, this->open(std::move(source)), kept) {}

private:
    void destroy() noexcept override { delete this; }
    void settle() noexcept override {
        body::settle();
        this->close();
    }
    void never_start() noexcept override {
        body::never_start();
        this->close();
    }
};

// A plain function, on a worker or, if it blocks, on a thread for that.
template <class F, class T> class function_cell final : public outcome_cell<T>, public recycled {
public:
    function_cell(task_home& home, F&& f, bool blocks, bool kept)
        : outcome_cell<T>(home, nullptr, kept) {
        std::construct_at(std::addressof(function_), std::move(f));
        if (blocks) {
            this->to_run().run = waker(&run_apart, this);
        }
    }

private:
    ~function_cell() {}

    static void run_apart(void* self) noexcept {
        auto& me = *static_cast<function_cell*>(self);
        auto& home = static_cast<task_home&>(me.home());
        home.enter();
        me.run();
        home.leave();
    }

    void destroy() noexcept override { delete this; }

    std::coroutine_handle<> start() noexcept override {
#if BIDE_EXCEPTIONS
        try {
            compute();
        } catch (...) {
            this->set_error(std::current_exception());
        }
#else
        compute();
#endif
        std::destroy_at(std::addressof(function_));
        return {};
    }
    void compute() {
        if constexpr (std::is_void_v<T>) {
            std::invoke(std::move(function_));
        } else {
            this->value_.set(std::invoke(std::move(function_)));
        }
    }

    void settle() noexcept override {}
    void never_start() noexcept override {
        this->set_never_ran();
        std::destroy_at(std::addressof(function_));
    }

    union {
        F function_; // until it was called
    };
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
