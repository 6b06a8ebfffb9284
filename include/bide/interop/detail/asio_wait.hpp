// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_INTEROP_DETAIL_ASIO_WAIT_HPP
#define BIDE_INTEROP_DETAIL_ASIO_WAIT_HPP

// The token use_bide: an operation of Asio as a task. The handler stores its arguments and sets an
// event, for which the task waits. If the task is cancelled, it requests the cancellation of the
// operation, and then waits until the operation has ended, because the operation may use objects of
// the task.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/platform.hpp>
#include <bide/sync/event.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// The state that the handler and the task share.
template <class Results> struct asio_reply {
    event is_over;                  // the handler was called, or destroyed
    std::optional<Results> results; // nothing: it was destroyed
};

// The handler. Stores its arguments, and sets the event that the task waits for.
template <class Reply> class asio_handler {
public:
    explicit asio_handler(std::shared_ptr<Reply> to) noexcept : to_(std::move(to)) {}
    asio_handler(asio_handler&& other) noexcept : to_(std::move(other.to_)) {}
    asio_handler& operator=(asio_handler&&) = delete;
    ~asio_handler() { end(); }

    template <class... Args> void operator()(Args&&... args) {
        to_->results.emplace(std::forward<Args>(args)...);
        end();
    }

protected:
    Reply* reply_of() const noexcept { return to_.get(); }

private:
    void end() noexcept {
        if (const std::shared_ptr<Reply> to = std::move(to_)) {
            to->is_over.set();
        }
    }

    std::shared_ptr<Reply> to_;
};

// An operation that no request can end: the version of Asio has no cancellation slots, or the
// operation does not name the executor of its object.
template <class Asio, class Results, class Initiation> class asio_wait {
    using reply = asio_reply<Results>;

public:
    explicit asio_wait(const Initiation&) : reply_(std::make_shared<reply>()) {}

    auto handler() const noexcept { return asio_handler<reply>(reply_); }
    void request_end() const noexcept {}
    reply& result() const noexcept { return *reply_; }

private:
    std::shared_ptr<reply> reply_;
};

template <class Asio, class Initiation>
concept asio_can_be_ended = requires(const Initiation& how) {
    typename Asio::cancellation_signal;
    how.get_executor();
};

// An operation that ends by request, on the executor of its object.
template <class Asio, class Results, class Initiation>
    requires asio_can_be_ended<Asio, Initiation>
class asio_wait<Asio, Results, Initiation> {
    struct reply : asio_reply<Results> {
        typename Asio::cancellation_signal signal;
    };
    class slotted : public asio_handler<reply> {
    public:
        using asio_handler<reply>::asio_handler;
        using cancellation_slot_type = typename Asio::cancellation_slot;
        cancellation_slot_type get_cancellation_slot() const noexcept {
            reply* const to = this->reply_of();
            return to != nullptr ? to->signal.slot() : cancellation_slot_type();
        }
    };

public:
    explicit asio_wait(const Initiation& how)
        : where_(how.get_executor()), reply_(std::make_shared<reply>()) {}

    auto handler() const noexcept { return slotted(reply_); }
    // A request that comes after the end finds the event set.
    void request_end() const {
        Asio::post(where_, [to = reply_] {
            if (!to->is_over.is_set()) {
                to->signal.emit(Asio::cancellation_type::terminal);
            }
        });
    }
    reply& result() const noexcept { return *reply_; }

private:
    std::decay_t<decltype(std::declval<const Initiation&>().get_executor())> where_;
    std::shared_ptr<reply> reply_;
};

// Throws the error that is the first argument. `stopped`: the task was cancelled meanwhile.
template <class Asio> void asio_throw(const typename Asio::error_code& e, bool stopped) {
    if (stopped && e == Asio::aborted()) {
        throw_error(errc::stopped);
    }
    if (e) {
        BIDE_THROW(typename Asio::system_error(e));
    }
}
template <class Asio> void asio_throw(const std::exception_ptr& e, bool) {
#if BIDE_EXCEPTIONS
    if (e) {
        std::rethrow_exception(e);
    }
#else
    static_cast<void>(e);
#endif
}

// Makes the value of a task from the arguments of a handler: void, the only argument, or a tuple.
template <class... Values> auto asio_value(Values&&... values) {
    if constexpr (sizeof...(Values) == 1) {
        return (std::move(values), ...);
    } else if constexpr (sizeof...(Values) != 0) {
        return std::tuple<Values...>(std::move(values)...);
    }
}
// Makes the value as asio_value() does, but if the first argument is an error, throws it, and
// leaves it out of the value. `stopped` has the same meaning as for asio_throw().
// Throws: the error.
template <class Asio, class First, class... Values>
auto asio_outcome(bool stopped, First&& first, Values&&... values) {
    if constexpr (std::is_same_v<First, typename Asio::error_code> ||
                  std::is_same_v<First, std::exception_ptr>) {
        detail::asio_throw<Asio>(first, stopped);
        return detail::asio_value(std::move(values)...);
    } else {
        return detail::asio_value(std::move(first), std::move(values)...);
    }
}
template <class Asio> void asio_outcome(bool) {}

// The completion token.
template <class Asio> struct asio_use_bide {};

// The implementation of async_result for this token. Args are the arguments of the handler.
template <class Asio, class... Args> struct asio_await_by_bide {
    using tuple = std::tuple<std::decay_t<Args>...>;
    using value =
        decltype(detail::asio_outcome<Asio>(false, std::declval<std::decay_t<Args>>()...));
    using return_type = task<value>;

    template <class Initiation, class Token, class... Given>
    static return_type initiate(Initiation&& how, Token&&, Given&&... given) {
        return run<std::decay_t<Initiation>, std::decay_t<Given>...>(std::forward<Initiation>(how),
                                                                     std::forward<Given>(given)...);
    }

private:
    template <class Initiation, class... Given>
    static task<value> run(Initiation how, Given... given) {
        const asio_wait<Asio, tuple, Initiation> wait(how);
        std::move(how)(wait.handler(), std::move(given)...);
        const result<void> over = co_await wait.result().is_over.async_wait().as_result();
        if (!over.has_value()) { // this task is cancelled
            wait.request_end();
            const this_task::shield to_the_end;
            co_await wait.result().is_over.async_wait();
        }
        std::optional<tuple>& all = wait.result().results;
        if (!all.has_value()) {
            detail::asio_throw<Asio>(Asio::aborted(), !over.has_value());
        }
        const auto take = [stopped = !over.has_value()](std::decay_t<Args>&... args) {
            return detail::asio_outcome<Asio>(stopped, std::move(args)...);
        };
        if constexpr (std::is_void_v<value>) {
            std::apply(take, *all);
        } else {
            co_return std::apply(take, *all);
        }
    }
};

}}} // namespace bide::BIDE_ABI::detail

#endif
