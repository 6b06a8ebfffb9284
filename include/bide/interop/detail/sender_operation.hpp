// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_INTEROP_DETAIL_SENDER_OPERATION_HPP
#define BIDE_INTEROP_DETAIL_SENDER_OPERATION_HPP

// The operation states of interop/senders.hpp.

#include <bide/core/config.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/waker.hpp>
#include <bide/task/detail/task_cell.hpp>
#include <bide/task/detail/task_control.hpp>
#include <bide/task/detail/when_state.hpp>
#include <bide/task/task.hpp>

#include <coroutine>
#include <exception>
#include <memory>
#include <new>
#include <system_error>
#include <type_traits>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// The chain of an operation, which ends on the thread that resumes it. It is a member and no base
// of its Owner, because a task_control has a start() of its own.
template <class Owner> class sender_chain final : public basic_task_control<native_platform> {
public:
    explicit sender_chain(Owner& of) noexcept
        : basic_task_control<native_platform>(1, false), of_(of) {}

    void begin() noexcept { this->run(); } // may be the last access

private:
    std::coroutine_handle<> start() noexcept override { return of_.begin_body(*this); }
    void never_start() noexcept override { this->set_never_ran(); }
    void post_home() noexcept override {
        on_this_thread<native_platform>::ref().post(this->to_run());
    }
    void finish() noexcept override { of_.complete(); }

    Owner& of_;
};

// Awaits an operation in a chain that the stop token of the receiver cancels. The receiver may
// destroy the operation state when it is called.
template <class Names, class T, class Op, class Receiver> class sender_operation {
    using outcome_type = as_result_t<T>;
    struct on_stop {
        sender_operation* of;
        void operator()() const noexcept { of->chain_.cancel(); }
    };
    using token = decltype(Names::stop_token_of(std::declval<const Receiver&>()));
    using callback = typename Names::template stop_callback<token, on_stop>;

public:
    using operation_state_concept = typename Names::operation_state_t;

    sender_operation(Op&& operation, Receiver&& receiver)
        : chain_(*this), receiver_(std::move(receiver)) {
        static_cast<void>(body_.open(await(std::move(operation))));
    }
    sender_operation(const sender_operation&) = delete;
    sender_operation& operator=(const sender_operation&) = delete;
    ~sender_operation() {} // there is no stop_: it was not started, or has ended

    void start() & noexcept {
        ::new (static_cast<void*>(std::addressof(stop_)))
            callback(Names::stop_token_of(receiver_), on_stop{this});
        chain_.begin();
    }

private:
    friend sender_chain<sender_operation>;

    static task<outcome_type> await(Op op) { co_return co_await std::move(op).as_result(); }

    std::coroutine_handle<> begin_body(basic_task_context<native_platform>& chain) noexcept {
        return body_.begin(chain, on_this_thread<native_platform>::ref());
    }

    void complete() noexcept {
        std::destroy_at(std::addressof(stop_)); // no thread cancels from here on
        if (chain_.never_ran()) {
            return typename Names::set_stopped_t()(std::move(receiver_));
        }
        kept_outcome<outcome_type> outcome;
        body_.end(outcome);
        if (outcome.error()) {
            typename Names::set_error_t()(std::move(receiver_),
                                          std::exchange(outcome.error(), nullptr));
        } else {
            send(outcome.value());
        }
    }

    void send(outcome_type&& got) noexcept {
        if constexpr (is_result<T>) {
            if constexpr (std::is_same_v<typename outcome_type::error_type, errc>) {
                if (!got.has_value() && got.error() == errc::stopped && chain_.was_cancelled()) {
                    return typename Names::set_stopped_t()(std::move(receiver_));
                }
            }
            typename Names::set_value_t()(std::move(receiver_), T(std::move(got)));
        } else if (got.has_value()) {
            if constexpr (std::is_void_v<T>) {
                typename Names::set_value_t()(std::move(receiver_));
            } else if constexpr (std::is_void_v<typename outcome_type::value_type>) {
                typename Names::set_value_t()(std::move(receiver_), T());
            } else {
                typename Names::set_value_t()(std::move(receiver_), T(std::move(*got)));
            }
        } else if (got.error() == errc::stopped) {
            typename Names::set_stopped_t()(std::move(receiver_));
        } else {
            typename Names::set_error_t()(std::move(receiver_), std::error_code(got.error()));
        }
    }

    sender_chain<sender_operation> chain_;
    Receiver receiver_;
    task_body<task<outcome_type>> body_;
    union {
        callback stop_; // from start() to finish()
    };
};

// A runnable of an executor.
template <class Names, class Receiver> class schedule_operation {
public:
    using operation_state_concept = typename Names::operation_state_t;

    schedule_operation(executor_ref where, Receiver&& receiver)
        : where_(where), receiver_(std::move(receiver)) {}
    schedule_operation(const schedule_operation&) = delete;
    schedule_operation& operator=(const schedule_operation&) = delete;

    void start() & noexcept {
        run_.run = waker(&run, this);
        const executor_ref where = where_;
        where.post(run_);
    }

private:
    static void run(void* self) noexcept {
        auto& me = *static_cast<schedule_operation*>(self);
        if (Names::stop_token_of(me.receiver_).stop_requested()) {
            typename Names::set_stopped_t()(std::move(me.receiver_));
        } else {
            typename Names::set_value_t()(std::move(me.receiver_));
        }
    }

    executor_ref where_;
    runnable run_;
    Receiver receiver_;
};

}}} // namespace bide::BIDE_ABI::detail

#endif
