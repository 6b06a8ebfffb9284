#ifndef BIDE_TESTS_SUPPORT_SENDERS_HPP
#define BIDE_TESTS_SUPPORT_SENDERS_HPP

// The least of std::execution: the tags, the functions that call a receiver, the concepts, and a receiver
// that writes down what it gets.

#include <bide/sync/event.hpp>

#include <support/standard.hpp>

namespace test::ex {

struct sender_t {};
struct operation_state_t {};
struct receiver_t {};
struct scheduler_t {};
template <class...> struct completion_signatures {};
struct set_value_t {
    template <class R, class... V> void operator()(R&& r, V&&... v) const noexcept {
        static_assert(std::is_rvalue_reference_v<R&&>);
        std::forward<R>(r).set_value(std::forward<V>(v)...);
    }
};
struct set_error_t {
    template <class R, class E> void operator()(R&& r, E&& e) const noexcept {
        static_assert(std::is_rvalue_reference_v<R&&>);
        std::forward<R>(r).set_error(std::forward<E>(e));
    }
};
struct set_stopped_t {
    template <class R> void operator()(R&& r) const noexcept {
        static_assert(std::is_rvalue_reference_v<R&&>);
        std::forward<R>(r).set_stopped();
    }
};
template <class Tag> struct get_completion_scheduler_t {};

struct names {
    using sender_t = ex::sender_t;
    using operation_state_t = ex::operation_state_t;
    using scheduler_t = ex::scheduler_t;
    template <class... S> using completion_signatures = ex::completion_signatures<S...>;
    using set_value_t = ex::set_value_t;
    using set_error_t = ex::set_error_t;
    using set_stopped_t = ex::set_stopped_t;
    template <class Tag> using get_completion_scheduler_t = ex::get_completion_scheduler_t<Tag>;
    template <class R> static auto stop_token_of(const R& r) noexcept { return r.get_env().stop; }
    template <class Token, class F> using stop_callback = std::stop_callback<F>;
};

struct environment {
    std::stop_token stop;
};

// What a receiver has got.
template <class... V> struct outcome {
    std::optional<std::tuple<V...>> value{};
    std::optional<std::error_code> code{};
    std::exception_ptr error{};
    bool stopped = false;
    int calls = 0;
    std::thread::id on{};
    bide::event over{};
    std::stop_source stop{};
};

template <class... V> class receiver {
public:
    using receiver_concept = receiver_t;
    explicit receiver(outcome<V...>& to) noexcept : to_(&to) {}
    environment get_env() const noexcept { return {to_->stop.get_token()}; }

    template <class... U> void set_value(U&&... v) && noexcept {
        to_->value.emplace(std::forward<U>(v)...);
        end();
    }
    void set_error(std::error_code e) && noexcept {
        to_->code = e;
        end();
    }
    void set_error(std::exception_ptr e) && noexcept {
        to_->error = std::move(e);
        end();
    }
    void set_stopped() && noexcept {
        to_->stopped = true;
        end();
    }

private:
    void end() noexcept {
        ++to_->calls;
        to_->on = std::this_thread::get_id();
        to_->over.set();
    }

    outcome<V...>* to_;
};

template <class O>
concept operation_state =
    std::derived_from<typename O::operation_state_concept, operation_state_t> &&
    std::is_object_v<O> && !std::is_move_constructible_v<O> && requires(O& o) {
        { o.start() } noexcept;
    };

template <class S, class R>
concept sender_to = std::derived_from<typename S::sender_concept, sender_t> &&
                    std::move_constructible<S> && requires(S&& s, R&& r) {
                        typename S::completion_signatures;
                        { std::move(s).connect(std::move(r)) } -> operation_state;
                    };

template <class S>
concept scheduler = std::derived_from<typename S::scheduler_concept, scheduler_t> &&
                    std::copyable<S> && std::equality_comparable<S> && requires(const S& s) {
                        { s.schedule() } -> sender_to<receiver<>>;
                        {
                            s.schedule().get_env().query(get_completion_scheduler_t<set_value_t>())
                        } noexcept -> std::same_as<S>;
                    };

} // namespace test::ex

#endif
