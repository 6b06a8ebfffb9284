// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_INTEROP_SENDERS_HPP
#define BIDE_INTEROP_SENDERS_HPP

/// \file
/// Turns operations into senders, and executors into schedulers, for std::execution (P2300).
///
/// This header includes no sender library. The program passes the names of its library as a struct:
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

#include <bide/task/compose.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// Awaits an operation in a chain of coroutines. The stop token of the receiver cancels that chain.
// When the receiver is called, the receiver may destroy this operation state.
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

    void start() & noexcept {
        stop_.emplace(Names::stop_token_of(receiver_), on_stop{this});
        chain_.begin();
    }

private:
    // Controls the coroutine that awaits the operation (task/detail/task_control.hpp). When the
    // coroutine has ended, the chain calls complete(), on the thread that resumed the coroutine.
    // sender_operation does not derive from this class, because both have a function start().
    class chain final : public basic_task_control<native_platform> {
    public:
        explicit chain(sender_operation& of) noexcept
            : basic_task_control<native_platform>(1, false), of_(of) {}

        void begin() noexcept { this->run(); } // may be the last access

    private:
        std::coroutine_handle<> start() noexcept override {
            return of_.body_.begin(*this, on_this_thread<native_platform>::ref());
        }
        void never_start() noexcept override { this->set_never_ran(); }
        void post_home() noexcept override {
            on_this_thread<native_platform>::ref().post(this->to_run());
        }
        void finish() noexcept override { of_.complete(); }

        sender_operation& of_;
    };

    static task<outcome_type> await(Op op) { co_return co_await std::move(op).as_result(); }

    void complete() noexcept {
        stop_.reset(); // no thread cancels from here on
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

    chain chain_;
    Receiver receiver_;
    task_body<task<outcome_type>> body_;
    std::optional<callback> stop_; // from start() to complete()
};

// Posts a runnable to an executor, and completes when the runnable runs.
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

} // namespace detail

/// Makes senders and schedulers with the names of a library.
template <class Names> class senders {
    template <class... S> using signatures = typename Names::template completion_signatures<S...>;
    using set_value_t = typename Names::set_value_t;

public:
    /// A sender of an operation. Requires: it is connected once, as an rvalue.
    template <class T, int Stops> class operation_sender {
        using value_signature =
            std::conditional_t<std::is_void_v<T>, set_value_t(),
                               set_value_t(std::conditional_t<std::is_void_v<T>, int, T>)>;

    public:
        /// Marks this class as a sender.
        using sender_concept = typename Names::sender_t;
        /// The ways in which this sender completes.
        using completion_signatures =
            signatures<value_signature, typename Names::set_error_t(std::error_code),
                       typename Names::set_error_t(std::exception_ptr),
                       typename Names::set_stopped_t()>;

        /// Takes the operation over.
        explicit operation_sender(async_op<T, Stops>&& operation) noexcept
            : op_(std::move(operation)) {}

        /// Makes the operation state.
        /// Throws: std::bad_alloc. In this case the receiver and the operation are destroyed, with
        /// the item that the operation was to send.
        template <class Receiver> auto connect(Receiver receiver) && {
            return detail::sender_operation<Names, T, async_op<T, Stops>, Receiver>(
                std::move(op_), std::move(receiver));
        }

    private:
        async_op<T, Stops> op_;
    };

    /// Makes a sender from the operation that an async_...() function of bide returns.
    ///
    /// The operation begins in start() and takes its place in the queue there. If it can complete
    /// immediately, start() sends the value. Otherwise the releaser sends the value on its own
    /// thread, before its release returns; use `continues_on` to continue elsewhere. If the
    /// operation returns a result, the value is that result. For any other operation, a stop is
    /// sent as set_stopped(), and each other error as set_error(std::error_code). connect()
    /// allocates the frame of a coroutine; nothing else allocates.
    /// Cancellation: the stop token of the receiver stops the operation, and set_stopped() is sent.
    /// But a result that contains the unsent item is sent as the value. A permit or an item that
    /// was granted before the stop is sent as the value.
    template <class T, int Stops>
    static operation_sender<T, Stops> as_sender(async_op<T, Stops> op) noexcept {
        return operation_sender<T, Stops>(std::move(op));
    }

    /// Makes a scheduler of std::execution from an executor of bide: a scheduler, a run_loop, a
    /// strand, or an executor that the program defines.
    /// Requires: the executor outlives this object and its operations.
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
        /// Marks this class as a scheduler.
        using scheduler_concept = typename Names::scheduler_t;

        /// Schedules on `where`.
        template <executor S>
            requires(!std::is_same_v<std::remove_cv_t<S>, scheduler>)
        explicit scheduler(S& where) noexcept : where_(where) {}
        /// \overload
        explicit scheduler(executor_ref where) noexcept : where_(where) {}

        /// A sender that completes on the executor: with set_stopped() if a stop is requested
        /// before it completes, else with set_value(). It does not allocate.
        class schedule_sender {
        public:
            /// Marks this class as a sender.
            using sender_concept = typename Names::sender_t;
            /// The ways in which this sender completes.
            using completion_signatures =
                signatures<set_value_t(), typename Names::set_stopped_t()>;

            /// Completes on `where`.
            explicit schedule_sender(executor_ref where) noexcept : where_(where) {}
            /// Makes the operation state.
            template <class Receiver> auto connect(Receiver receiver) const {
                return detail::schedule_operation<Names, Receiver>(where_, std::move(receiver));
            }
            /// Returns the attributes, whose query returns the scheduler on which it completes.
            attributes get_env() const noexcept { return attributes{where_}; }

        private:
            executor_ref where_;
        };

        /// Returns a sender that completes on the executor.
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
