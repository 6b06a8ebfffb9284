// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_INTEROP_SENDERS_HPP
#define BIDE_INTEROP_SENDERS_HPP

/// \file
/// Operations of bide as senders, and executors of bide as schedulers, of std::execution (P2300).
///
/// This header includes no library of senders. It takes the names of one as a struct:
///
/// \code
/// struct names { // for std::execution; for stdexec, `ex` is stdexec
///     using sender_t = ex::sender_t;
///     using operation_state_t = ex::operation_state_t;
///     using scheduler_t = ex::scheduler_t;
///     template <class... S> using completion_signatures = ex::completion_signatures<S...>;
///     using set_value_t = ex::set_value_t;
///     using set_error_t = ex::set_error_t;
///     using set_stopped_t = ex::set_stopped_t;
///     template <class Tag>
///     using get_completion_scheduler_t = ex::get_completion_scheduler_t<Tag>;
///     template <class R> static auto stop_token_of(const R& receiver) noexcept {
///         return ex::get_stop_token(ex::get_env(receiver));
///     }
///     template <class Token, class F> using stop_callback = ex::stop_callback_for_t<Token, F>;
/// };
/// using with_senders = bide::senders<names>;
/// \endcode

#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/waker.hpp>
#include <bide/fwd.hpp>
#include <bide/interop/detail/sender_operation.hpp>

#include <exception>
#include <system_error>
#include <type_traits>
#include <utility>

namespace bide { inline namespace BIDE_ABI {

/// Makes senders and schedulers with the names of a library.
template <class Names> class senders {
    template <class... S> using signatures = typename Names::template completion_signatures<S...>;
    using set_value_t = typename Names::set_value_t;

public:
    /// A sender of an operation. It is connected once, as an rvalue.
    template <class T, int Stops> class operation_sender {
        using outcome = as_result_t<T>;
        template <class V> struct completes {
            using type = signatures<set_value_t(V), typename Names::set_error_t(std::error_code),
                                    typename Names::set_error_t(std::exception_ptr),
                                    typename Names::set_stopped_t()>;
        };
        template <class V>
            requires std::is_void_v<V>
        struct completes<V> {
            using type = signatures<set_value_t(), typename Names::set_error_t(std::error_code),
                                    typename Names::set_error_t(std::exception_ptr),
                                    typename Names::set_stopped_t()>;
        };

    public:
        /// Marks it as a sender.
        using sender_concept = typename Names::sender_t;
        /// How it completes.
        using completion_signatures = typename completes<T>::type;

        /// Takes the operation over.
        explicit operation_sender(async_op<T, Stops>&& operation) noexcept
            : op_(std::move(operation)) {}

        /// Makes the operation state.
        /// Throws: std::bad_alloc; the receiver and the operation, with an item to send, are destroyed
        /// then.
        template <class Receiver> auto connect(Receiver receiver) && {
            return detail::sender_operation<Names, T, async_op<T, Stops>, Receiver>(
                std::move(op_), std::move(receiver));
        }

    private:
        async_op<T, Stops> op_;
    };

    /// Makes a sender of the value of an async_...() function of bide.
    ///
    /// The operation begins in start() and takes its place in the queue there. The value is sent on
    /// the thread that releases, before its release returns, or in start(); `continues_on` leads
    /// elsewhere. The value of an operation that returns a result is the result. Otherwise a stop
    /// sends set_stopped(), and each other error set_error(std::error_code).
    /// Cancellation: by the stop token of the receiver: set_stopped(), unless the result has the
    /// item that was not sent. A permit or an item that was granted before is sent. connect()
    /// allocates the frame of a coroutine; nothing else does.
    template <class T, int Stops>
    static operation_sender<T, Stops> as_sender(async_op<T, Stops> op) noexcept {
        return operation_sender<T, Stops>(std::move(op));
    }

    /// An executor of bide as a scheduler: a scheduler, a run_loop, a strand, or one of a program's
    /// own.
    /// Requires: the executor outlives it, and its operations.
    class scheduler {
        struct attributes {
            executor_ref where;
            template <class Tag>
            auto query(typename Names::template get_completion_scheduler_t<Tag>) const noexcept
                requires std::is_same_v<Tag, set_value_t>
            {
                return scheduler(where);
            }
        };

    public:
        /// Marks it as a scheduler.
        using scheduler_concept = typename Names::scheduler_t;

        /// Schedules on `where`.
        template <executor S>
            requires(!std::is_same_v<std::remove_cv_t<S>, scheduler>)
        explicit scheduler(S& where) noexcept : where_(where) {}
        /// \overload
        explicit scheduler(executor_ref where) noexcept : where_(where) {}

        /// A sender that completes on the executor: set_value(), or set_stopped() if a stop is
        /// requested by then. It does not allocate.
        class schedule_sender {
        public:
            /// Marks it as a sender.
            using sender_concept = typename Names::sender_t;
            /// How it completes.
            using completion_signatures =
                signatures<set_value_t(), typename Names::set_stopped_t()>;

            /// Completes on `where`.
            explicit schedule_sender(executor_ref where) noexcept : where_(where) {}
            /// Makes the operation state.
            template <class Receiver> auto connect(Receiver receiver) const {
                return detail::schedule_operation<Names, Receiver>(where_, std::move(receiver));
            }
            /// Returns the scheduler on which it completes, by a query.
            attributes get_env() const noexcept { return attributes{where_}; }

        private:
            executor_ref where_;
        };

        /// Returns that sender.
        schedule_sender schedule() const noexcept { return schedule_sender(where_); }

        /// Compares the executors.
        friend bool operator==(const scheduler& a, const scheduler& b) noexcept {
            return a.where_ == b.where_;
        }

    private:
        executor_ref where_;
    };
};

}} // namespace bide::BIDE_ABI

#endif
