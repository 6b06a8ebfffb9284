// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_INTEROP_DETAIL_ASIO_OPERATION_HPP
#define BIDE_INTEROP_DETAIL_ASIO_OPERATION_HPP

// The functions and the executor of interop/asio.hpp and interop/boost_asio.hpp. The parameter Asio
// gives the names of one of the two libraries (asio_names.inc).
//
// If an operation of Asio awaits an operation or a task of bide, it is a job (asio_job.hpp) with a
// handler. The job is one allocation, and its coroutine is another one. Both use the allocator of
// the handler, and are freed before the handler is called.

#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/fwd.hpp>
#include <bide/interop/detail/asio_job.hpp>
#include <bide/task/detail/coroutine_frame.hpp>
#include <bide/task/detail/task_cell.hpp>
#include <bide/task/task.hpp>

#include <concepts>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// An executor of Asio, or an execution context, which stands for its executor.
template <class Asio, class T>
concept asio_place =
    Asio::template is_executor<T> || (std::derived_from<T, typename Asio::execution_context> &&
                                      requires(T& context) { context.get_executor(); });

template <class Asio, class T> auto asio_executor_at(T& place) noexcept {
    if constexpr (Asio::template is_executor<T>) {
        return place;
    } else {
        return place.get_executor();
    }
}

/// An executor of Asio as an executor of bide.
template <class Asio> class asio_executor : public executor_users {
public:
    /// Posts to an executor of Asio, or to that of an execution context.
    /// Requires: the context outlives this object, and runs what is posted.
    template <class Place>
        requires asio_place<Asio, Place>
    explicit asio_executor(Place& place) : where_(detail::asio_executor_at<Asio>(place)) {}
    asio_executor(const asio_executor&) = default;
    asio_executor& operator=(const asio_executor&) = default;
    /// Requires: the tasks that resume on this executor have ended; otherwise terminates with a
    /// message.
    ~asio_executor() { this->require_none("asio executor"); }

    /// Runs `r` on a thread of the executor, after this call. Terminates if Asio finds no memory.
    void post(runnable& r) noexcept {
        Asio::post(where_, [&r] { r.run.wake(); });
    }

private:
    typename Asio::any_io_executor where_;
};

// The category of errc for error codes that are not std::error_code.
template <class Base> class asio_category final : public Base {
public:
    const char* name() const noexcept override { return error_category().name(); }
    std::string message(int code) const override { return error_category().message(code); }
};

// Returns the error code of Asio with the same meaning.
template <class Asio> typename Asio::error_code asio_code(std::error_code e) noexcept {
    using code = typename Asio::error_code;
    if constexpr (std::is_same_v<code, std::error_code>) {
        return e;
    } else if (e.category() == error_category()) {
        using base = std::remove_cvref_t<decltype(code().category())>;
        static const asio_category<base> category;
        return code(e.value(), category);
    } else {
        return code(e.value(), Asio::system_category());
    }
}
template <class Asio> typename Asio::error_code asio_code(errc e) noexcept {
    return detail::asio_code<Asio>(make_error_code(e));
}

// ---- Signatures, and the arguments of the handler, which are made of the outcome of the coroutine

// A signature with one or two arguments, and the tuple of these arguments.
template <class First, class Second> struct asio_arguments {
    using tuple = std::tuple<First, Second>;
    using type = void(First, Second);
};
template <class First> struct asio_arguments<First, void> {
    using tuple = std::tuple<First>;
    using type = void(First);
};

// The signature of the handler of an operation whose outcome is an R. It is void(error_code,
// value). But it is void(R) if the error is more than a code, or if there may be no value to pass
// together with an error code.
template <class Asio, class V, class R> struct asio_operation_signature {
    using error_code = typename Asio::error_code;
    using value = typename R::value_type;
    static constexpr bool is_plain =
        !is_result<V> &&
        (std::is_same_v<typename R::error_type, errc> ||
         std::is_same_v<typename R::error_type, std::error_code>) &&
        (std::is_void_v<value> || std::is_default_constructible_v<value>);

    using chosen =
        std::conditional_t<is_plain, asio_arguments<error_code, value>, asio_arguments<R, void>>;
    using arguments = typename chosen::tuple;
    using type = typename chosen::type;

    // A wait has no effect before it ends, so each request cancels it.
    static constexpr bool has_effects = false;

    // `aborted` is true if the slot of the handler has cancelled the operation.
    // Throws: what the operation threw, other than an error code.
    static arguments made_of(kept_outcome<R>& outcome, bool aborted) {
        R got = outcome.take();
        if constexpr (!is_plain) {
            return arguments(std::move(got));
        } else {
            error_code code;
            if (!got.has_value()) {
                code = aborted && got.error() == errc::stopped
                           ? Asio::aborted()
                           : detail::asio_code<Asio>(got.error());
            }
            if constexpr (std::is_void_v<value>) {
                return arguments(code);
            } else if (got.has_value()) {
                return arguments(code, std::move(*got));
            } else {
                return arguments(code, value());
            }
        }
    }
};

// The signature of the handler of a task whose value is a V: void(std::exception_ptr, value). If V
// has no default constructor, the value is optional.
template <class V> struct asio_task_signature {
    static_assert(!std::is_reference_v<V>, "bide: a task of a reference has no handler of Asio");
    using value = std::conditional_t<std::is_void_v<V> || std::is_default_constructible_v<V>, V,
                                     std::optional<V>>;
    using arguments = typename asio_arguments<std::exception_ptr, value>::tuple;
    using type = typename asio_arguments<std::exception_ptr, value>::type;
    static constexpr bool has_effects = true;

    static arguments made_of(kept_outcome<V>& outcome, bool) {
        std::exception_ptr error = std::exchange(outcome.error(), nullptr);
        if constexpr (std::is_void_v<V>) {
            return arguments(std::move(error));
        } else if (error) {
            return arguments(std::move(error), value());
        } else {
            return arguments(nullptr, value(outcome.value()));
        }
    }
};

// ---- The coroutines

// Allocates memory from an allocator. A copy of the allocator lies behind the memory, for the
// deallocation.
template <class Alloc> class asio_memory {
    struct alignas(__STDCPP_DEFAULT_NEW_ALIGNMENT__) unit {
        std::byte bytes[__STDCPP_DEFAULT_NEW_ALIGNMENT__];
    };
    using allocator = typename std::allocator_traits<Alloc>::template rebind_alloc<unit>;
    using traits = std::allocator_traits<allocator>;
    static_assert(alignof(allocator) <= alignof(unit));

    static constexpr std::size_t units_of(std::size_t bytes) noexcept {
        return (bytes + sizeof(unit) - 1) / sizeof(unit);
    }

public:
    static void* allocate(std::size_t bytes, const Alloc& from) {
        allocator a(from);
        unit* const at = std::to_address(traits::allocate(a, units_of(bytes) + units_of(sizeof a)));
        std::construct_at(reinterpret_cast<allocator*>(at + units_of(bytes)), std::move(a));
        return at;
    }
    static void release(void* memory, std::size_t bytes) noexcept {
        unit* const at = static_cast<unit*>(memory);
        auto* const kept = reinterpret_cast<allocator*>(at + units_of(bytes));
        allocator a(std::move(*kept));
        std::destroy_at(kept);
        traits::deallocate(a, std::pointer_traits<typename traits::pointer>::pointer_to(*at),
                           units_of(bytes) + units_of(sizeof a));
    }
};

// The return type of the first coroutine of a job. It owns the frame of that coroutine. The
// parameters of the coroutine are the handler's allocator, which allocates the frame, and a Source.
// The value of the coroutine is a V.
template <class V, class Alloc, class Source> class asio_frame {
public:
    struct promise_type : task_promise<V> {
        static void* operator new(std::size_t size, const Alloc& from, const Source&) {
            return asio_memory<Alloc>::allocate(size, from);
        }
        static void operator delete(void* frame, std::size_t size) noexcept {
            asio_memory<Alloc>::release(frame, size);
        }
        asio_frame get_return_object() noexcept {
            return asio_frame(std::coroutine_handle<promise_type>::from_promise(*this));
        }
    };

    asio_frame(asio_frame&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
    asio_frame& operator=(asio_frame&&) = delete;
    ~asio_frame() {
        if (frame_) {
            detail::destroy_frame(frame_, frame_.promise().awaited_frames());
        }
    }

    promise_type& promise() const noexcept { return frame_.promise(); }
    std::coroutine_handle<> begin(basic_task_context<native_platform>& of,
                                  executor_ref where) const noexcept {
        promise().begin(of, where);
        return frame_;
    }

private:
    explicit asio_frame(std::coroutine_handle<promise_type> frame) noexcept : frame_(frame) {}

    std::coroutine_handle<promise_type> frame_;
};

template <class R, class Alloc, class Op> asio_frame<R, Alloc, Op> asio_await(const Alloc&, Op op) {
    co_return co_await std::move(op).as_result();
}

template <class V, class Alloc, class Source>
asio_frame<V, Alloc, Source> asio_await_task(const Alloc&, Source source) {
    if constexpr (is_task<Source>) {
        co_return co_await std::move(source);
    } else {
        auto made = std::invoke(source); // its captures live until the end
        co_return co_await std::move(made);
    }
}

// ---- The job

template <class Asio, class Alloc> class asio_step {
public:
    using allocator_type = Alloc;
    asio_step(std::shared_ptr<asio_job<Asio>> of, const Alloc& with) noexcept
        : job_(std::move(of)), alloc_(with) {}

    allocator_type get_allocator() const noexcept { return alloc_; }
    void operator()() { asio_job<Asio>::run_step(std::move(job_)); }

private:
    std::shared_ptr<asio_job<Asio>> job_;
    [[no_unique_address]] Alloc alloc_;
};

// A handler with its arguments, for its executor.
template <class Handler, class Alloc, class Arguments> class asio_bound {
public:
    using allocator_type = Alloc;
    asio_bound(Handler&& handler, const Alloc& with, Arguments&& arguments)
        : handler_(std::move(handler)), alloc_(with), arguments_(std::move(arguments)) {}

    allocator_type get_allocator() const noexcept { return alloc_; }
    void operator()() { std::apply(std::move(handler_), std::move(arguments_)); }

private:
    Handler handler_;
    [[no_unique_address]] Alloc alloc_;
    Arguments arguments_;
};

// V is the type of the coroutine's value. The job runs on an Ex, the handler on a HandlerEx.
template <class Asio, class Signature, class V, class Source, class Handler, class Ex,
          class HandlerEx>
class asio_operation final : public asio_job<Asio> {
    using alloc = typename Asio::template associated_allocator_t<Handler>;
    template <class E> using work_guard = typename Asio::template work_guard<E>;

public:
    asio_operation(asio_service<Asio>& service, Handler&& handler, const Ex& where,
                   const HandlerEx& handler_where, Source&& source)
        : asio_job<Asio>(service), where_(std::in_place, where),
          handler_where_(std::in_place, handler_where),
          handler_(std::in_place, std::move(handler)) {
        if constexpr (Signature::has_effects) {
            frame_.emplace(detail::asio_await_task<V>(alloc_of(), std::move(source)));
        } else {
            frame_.emplace(detail::asio_await<V>(alloc_of(), std::move(source)));
        }
    }

    // Lets the slot of the handler cancel the job.
    void connect() {
        if constexpr (requires(Handler& h) { Asio::slot_of(h); }) {
            if (auto slot = Asio::slot_of(*handler_); slot.is_connected()) {
                slot.assign(canceller{this});
            }
        }
    }

private:
    struct canceller {
        asio_operation* of;
        template <class Kind> void operator()(Kind kind) const noexcept {
            if (!Signature::has_effects || Asio::allows_effects(kind)) {
                of->aborted_ = true;
                of->cancel();
            }
        }
    };

    alloc alloc_of() const noexcept { return Asio::allocator_of(*handler_); }

    std::coroutine_handle<> start() noexcept override {
        return frame_->begin(*this, executor_ref::to(static_cast<asio_job<Asio>&>(*this)));
    }
    void never_start() noexcept override { this->set_never_ran(); }

    void post_step(std::shared_ptr<asio_job<Asio>> self) override {
        Asio::post(where_->get_executor(), asio_step<Asio, alloc>(std::move(self), alloc_of()));
    }

    void complete(bool deliver) override {
        std::shared_ptr<asio_job<Asio>> self = this->leave();
        if constexpr (requires(Handler& h) { Asio::slot_of(h); }) {
            if (auto slot = Asio::slot_of(*handler_); slot.is_connected()) {
                slot.clear();
            }
        }
        const work_guard<Ex> guard(std::move(*where_));
        const work_guard<HandlerEx> handler_guard(std::move(*handler_where_));
        const alloc with = alloc_of();
        Handler handler(std::move(*handler_));
        kept_outcome<V> outcome;
        if (this->never_ran()) {
            outcome.error() = std::make_exception_ptr(error_of<stopped_error>(errc::stopped));
        } else {
            outcome.keep(frame_->promise());
        }
        const bool aborted = aborted_;
        where_.reset();
        handler_where_.reset();
        handler_.reset();
        frame_.reset();
        self.reset();
        if (deliver) {
            auto arguments = Signature::made_of(outcome, aborted);
            if (is_same_place(guard.get_executor(), handler_guard.get_executor())) {
                std::apply(std::move(handler), std::move(arguments));
            } else {
                using bound = asio_bound<Handler, alloc, typename Signature::arguments>;
                Asio::dispatch(handler_guard.get_executor(),
                               bound(std::move(handler), with, std::move(arguments)));
            }
        }
    }

    template <class A, class B> static bool is_same_place(const A& a, const B& b) noexcept {
        if constexpr (std::is_same_v<A, B>) {
            return a == b;
        } else {
            return false;
        }
    }

    bool aborted_ = false; // by the slot of the handler
    // complete() moves these members out. It need not destroy this object, because steps that Asio
    // has not destroyed yet may own it for longer.
    std::optional<work_guard<Ex>> where_;
    std::optional<work_guard<HandlerEx>> handler_where_;
    std::optional<Handler> handler_;
    std::optional<asio_frame<V, alloc, Source>> frame_;
};

// ---- The initiation

// The function object that Asio calls with the handler to begin an operation. If `Placed` is true,
// the operation runs on `Where`. Otherwise it runs on the executor of the handler, or if the
// handler has none, on `Where`.
template <class Asio, class Signature, class V, class Where, bool Placed> class asio_initiation {
public:
    using executor_type = Where;
    explicit asio_initiation(Where where) noexcept : where_(std::move(where)) {}
    executor_type get_executor() const noexcept { return where_; }

    // Throws: std::bad_alloc, and what Asio throws for an empty executor. The handler is destroyed.
    template <class Given, class Source> void operator()(Given&& given, Source source) const {
        using handler = std::decay_t<Given>;
        handler h(std::forward<Given>(given));
        const auto handler_where = Asio::executor_of(h, where_);
        if constexpr (Placed) {
            begin(std::move(h), where_, handler_where, std::move(source));
        } else {
            begin(std::move(h), handler_where, handler_where, std::move(source));
        }
    }

private:
    template <class Handler, class Ex, class HandlerEx, class Source>
    static void begin(Handler&& handler, const Ex& where, const HandlerEx& handler_where,
                      Source&& source) {
        using operation = asio_operation<Asio, Signature, V, Source, Handler, Ex, HandlerEx>;
        auto& service = Asio::template service_of<asio_service<Asio>>(Asio::context_of(where));
        const auto with = Asio::allocator_of(handler);
        auto self = std::allocate_shared<operation>(with, service, std::move(handler), where,
                                                    handler_where, std::move(source));
        if (service.add(*self)) { // else the context is being destroyed
            self->connect();
            self->begin(self, !Signature::has_effects);
        }
    }

    Where where_;
};

// ---- The functions

template <class Asio> struct asio_async_await {
    template <class T, int Stops, class Token>
    decltype(auto) operator()(async_op<T, Stops> op, Token&& token) const {
        return begin<false>(typename Asio::system_executor(), std::move(op), token);
    }
    template <class Place, class T, int Stops, class Token>
        requires asio_place<Asio, std::remove_cvref_t<Place>>
    decltype(auto) operator()(Place&& place, async_op<T, Stops> op, Token&& token) const {
        return begin<true>(detail::asio_executor_at<Asio>(place), std::move(op), token);
    }

private:
    template <bool Placed, class Ex, class T, int Stops, class Token>
    static decltype(auto) begin(Ex where, async_op<T, Stops>&& op, Token& token) {
        using outcome = as_result_t<T>;
        using signature = asio_operation_signature<Asio, T, outcome>;
        return Asio::template initiate<typename signature::type>(
            asio_initiation<Asio, signature, outcome, Ex, Placed>(std::move(where)), token,
            std::move(op));
    }
};

template <class Asio> struct asio_co_spawn {
    template <class Place, task_source S, class Token>
        requires asio_place<Asio, std::remove_cvref_t<Place>>
    decltype(auto) operator()(Place&& place, S source, Token&& token) const {
        using value = task_value_t<S>;
        using signature = asio_task_signature<value>;
        auto where = detail::asio_executor_at<Asio>(place);
        return Asio::template initiate<typename signature::type>(
            asio_initiation<Asio, signature, value, decltype(where), true>(where), token,
            std::move(source));
    }
};

}}} // namespace bide::BIDE_ABI::detail

#endif
