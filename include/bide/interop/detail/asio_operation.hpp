// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_INTEROP_DETAIL_ASIO_OPERATION_HPP
#define BIDE_INTEROP_DETAIL_ASIO_OPERATION_HPP

// The functions and the executor of interop/asio.hpp and interop/boost_asio.hpp. The template
// parameter Asio gives the names of one of the two libraries (asio_names.inc).

#include <bide/sync/event.hpp>
#include <bide/task/detail/nonvoid.hpp>
#include <bide/task/detail/task_cell.hpp>
#include <bide/task/this_task.hpp>

#include <mutex>
#include <tuple>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// ---- The jobs
//
// Runs the jobs of bide on executors of Asio, also while an execution context is destroyed.
//
// A job is a chain of coroutines (task/detail/task_control.hpp) that runs on an executor of Asio.
// To post a runnable, the job appends it to its own queue, and posts a step to the executor. A step
// is a function object that takes the oldest runnable of its job and runs it. The service of the
// execution context lists every job.
//
// The destructor of an execution context calls shutdown(). At that time no thread runs the context,
// but any thread that releases a lock or sends an item may still post. So shutdown() itself runs
// the jobs, in place of the context:
//
//   1. It sets `is_shut_`. From then on a post goes to the queue `left_`, and not to the executor.
//   2. It waits for the posts that have begun before.
//   3. It moves the runnables that are still queued to `left_`. If Asio runs their steps later, the
//      steps find nothing to run.
//   4. It cancels each job, and runs the runnables in `left_` until every job has ended.
//
// Each wait of a cancelled job ends, so the job ends too, and gives back what it was granted. The
// handler of the job is destroyed and not called, as Asio does with the handlers of a destroyed
// context.

template <class Asio> class asio_job;

template <class Asio> class asio_service final : public Asio::execution_context::service {
    using context = typename Asio::execution_context;
    using job = asio_job<Asio>;

public:
    inline static typename context::id id;

    explicit asio_service(context& of) : context::service(of) {}

    // Lists a job that is about to begin. Returns false if the context is being destroyed.
    bool add(job& j) noexcept {
        const std::lock_guard lock(mutex_);
        if (!is_shut_) {
            jobs_.push_front(j);
        }
        return !is_shut_;
    }

    void remove(job& j) noexcept {
        const std::lock_guard lock(mutex_);
        jobs_.remove(j);
    }

    // Queues a runnable. Returns true if the caller must post a step and then call has_posted().
    bool push(job& j, runnable& r) noexcept {
        const std::lock_guard lock(mutex_);
        if (is_shut_) {
            left_.post(r);
            return false;
        }
        j.ready_.push(r);
        ++posting_;
        return true;
    }

    void has_posted() noexcept {
        const std::lock_guard lock(mutex_);
        --posting_;
    }

    // Returns the oldest runnable of a job; nullptr if shutdown() took it.
    runnable* pop(job& j) noexcept {
        const std::lock_guard lock(mutex_);
        return j.ready_.pop();
    }

private:
    void shutdown() noexcept override;

    bool is_posting() noexcept {
        const std::lock_guard lock(mutex_);
        return posting_ != 0;
    }

    std::mutex mutex_; // guards all but left_
    basic_task_list<native_platform, job> jobs_;
    std::size_t posting_ = 0;
    bool is_shut_ = false;
    basic_ready_queue<native_platform> left_; // popped by shutdown()
};

// Says whether the calling thread runs a step, and which job this step has ended.
template <class Asio> struct asio_step_here {
    bool runs = false;               // it runs a step
    asio_job<Asio>* ended = nullptr; // the job that has ended in this step
};

template <class Asio>
class asio_job : public basic_task_control<native_platform>,
                 public basic_task_links<native_platform, asio_job<Asio>> {
    using control = basic_task_control<native_platform>;
    using service_type = asio_service<Asio>;
    using here = asio_step_here<Asio>;

public:
    // The executor of the job's coroutines: posts `r`. Terminates if Asio has no memory for a step.
    void post(runnable& r) noexcept {
        service_type& service = service_; // the step may end the job
        if (service.push(*this, r)) {
            post_step(self_);
            service.has_posted();
        }
    }

    // Starts the job, either on this thread at once, or in the first step. From here on, the job
    // owns itself until its end.
    // Requires: `self` owns the job, and the service has listed the job.
    void begin(std::shared_ptr<asio_job> self, bool on_this_thread) noexcept {
        self_ = std::move(self);
        if (on_this_thread) {
            here& mine = native_platform::local<here>();
            const here outer = std::exchange(mine, here()); // an outer step must not end it
            this->run();
            mine = outer;
        } else {
            post(this->to_run());
        }
    }

    // Runs a step of the job that `of` owns.
    // Throws: what the handler throws.
    static void run_step(std::shared_ptr<asio_job> of) {
        runnable* const r = of->service_.pop(*of);
        of.reset(); // the job owns itself
        if (r != nullptr) {
            if (asio_job* const ended = run_one(*r)) {
                ended->complete(true);
            }
        }
    }

protected:
    asio_job(service_type& service) noexcept : control(1, false), service_(service) {}
    ~asio_job() = default;

    // Posts a step to the executor, which calls run_step().
    virtual void post_step(std::shared_ptr<asio_job> self) = 0;

    // Destroys the job. If `deliver` is true, then calls the handler.
    virtual void complete(bool deliver) = 0;

    // Removes the job from the list of its service. Returns the pointer by which the job owns
    // itself.
    std::shared_ptr<asio_job> leave() noexcept {
        service_.remove(*this);
        return std::move(self_);
    }

private:
    friend service_type;

    static asio_job* run_one(runnable& r) noexcept {
        here& mine = native_platform::local<here>();
        const here outer = std::exchange(mine, here{true, nullptr});
        r.run.wake();
        return std::exchange(mine, outer).ended;
    }

    // A job may end only in a step. So the function that starts a job never calls the handler.
    bool may_finish_here() const noexcept override { return native_platform::local<here>().runs; }
    void post_home() noexcept override { post(this->to_run()); }
    void finish() noexcept override { native_platform::local<here>().ended = this; }

    service_type& service_;
    std::shared_ptr<asio_job> self_;
    run_list ready_; // one runnable for each step that is posted; under the mutex of the service
};

template <class Asio> void asio_service<Asio>::shutdown() noexcept {
    {
        const std::lock_guard lock(mutex_);
        is_shut_ = true;
    }
    for (basic_backoff<native_platform> again; is_posting(); again()) {
    }
    // From here on only this thread changes the list.
    for (job* j = jobs_.first(); j != nullptr; j = j->next_in_list) {
        while (runnable* const r = pop(*j)) {
            left_.post(*r);
        }
    }
    for (job* j = jobs_.first(); j != nullptr; j = j->next_in_list) {
        j->cancel(cancel_reason::shutdown);
    }
    while (jobs_.first() != nullptr) {
        runnable* const r = left_.pop(deadline::never());
        if (job* const ended = job::run_one(*r)) {
            ended->complete(false);
        }
    }
}

// An operation of Asio that awaits an operation or a task of bide is a job with a handler. The job
// and its coroutine are one allocation each. Both use the allocator of the handler, and are freed
// before the handler is called.

// An executor of Asio, or an execution context that has one.
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

// ---- The signature of the handler, and its arguments: the outcome of the coroutine

// The type of a handler with these arguments.
template <class Arguments> struct asio_signature;
template <class... Args> struct asio_signature<std::tuple<Args...>> {
    using type = void(Args...);
};
// The arguments: an error, and a value unless it is void.
template <class Error, class V>
using asio_arguments =
    std::conditional_t<std::is_void_v<V>, std::tuple<Error>, std::tuple<Error, nonvoid_t<V>>>;

// The signature of the handler of an operation whose outcome is an R. It is void(error_code,
// value), or void(error_code) without a value. It is void(R) in three cases: the operation returns
// a result, its error is more than a code, or its value has no default constructor, so that no
// value could be passed beside an error.
template <class Asio, class V, class R> struct asio_operation_signature {
    using error_code = typename Asio::error_code;
    using value = typename R::value_type;
    static constexpr bool is_plain =
        !is_result<V> &&
        (std::is_same_v<typename R::error_type, errc> ||
         std::is_same_v<typename R::error_type, std::error_code>) &&
        (std::is_void_v<value> || std::is_default_constructible_v<value>);

    using arguments =
        std::conditional_t<is_plain, asio_arguments<error_code, value>, std::tuple<R>>;

    // A wait has no effect before it ends, so each kind of cancellation request cancels it.
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
    using arguments = asio_arguments<std::exception_ptr, value>;
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

// Awaits a task, the task that a callable returns, or an operation.
template <class V, class Alloc, class Source>
asio_frame<V, Alloc, Source> asio_await(const Alloc&, Source source) {
    if constexpr (is_task<Source>) {
        co_return co_await std::move(source);
    } else if constexpr (task_source<Source>) {
        auto made = std::invoke(source); // its captures live until the end
        co_return co_await std::move(made);
    } else {
        co_return co_await std::move(source).as_result();
    }
}

// ---- The job

// A function object with an allocator, for an executor of Asio.
template <class F, class Alloc> class asio_bound {
public:
    using allocator_type = Alloc;
    asio_bound(F&& call, const Alloc& with) : call_(std::move(call)), alloc_(with) {}

    allocator_type get_allocator() const noexcept { return alloc_; }
    void operator()() { std::move(call_)(); }

private:
    F call_;
    [[no_unique_address]] Alloc alloc_;
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
        : asio_job<Asio>(service), to_(std::in_place, where, handler_where, std::move(handler)) {
        frame_.emplace(detail::asio_await<V>(to_->alloc_of(), std::move(source)));
    }

    // Lets the slot of the handler cancel the job.
    void connect() {
        if (auto slot = Asio::slot_of(to_->handler); slot.is_connected()) {
            slot.assign(canceller{this});
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

    // The handler, and guards that count the operation as work of both executors.
    struct recipient {
        recipient(const Ex& ex, const HandlerEx& handler_ex, Handler&& h)
            : where(ex), handler_where(handler_ex), handler(std::move(h)) {}

        alloc alloc_of() const noexcept { return Asio::allocator_of(handler); }

        work_guard<Ex> where;
        work_guard<HandlerEx> handler_where;
        Handler handler;
    };

    std::coroutine_handle<> start() noexcept override {
        return frame_->begin(*this, executor_ref::to(static_cast<asio_job<Asio>&>(*this)));
    }
    void never_start() noexcept override { this->set_never_ran(); }

    void post_step(std::shared_ptr<asio_job<Asio>> self) override {
        auto step = [of = std::move(self)]() mutable { asio_job<Asio>::run_step(std::move(of)); };
        Asio::post(to_->where.get_executor(),
                   asio_bound<decltype(step), alloc>(std::move(step), to_->alloc_of()));
    }

    void complete(bool deliver) override {
        std::shared_ptr<asio_job<Asio>> self = this->leave();
        if (auto slot = Asio::slot_of(to_->handler); slot.is_connected()) {
            slot.clear();
        }
        recipient to(std::move(*to_));
        const alloc with = to.alloc_of();
        kept_outcome<V> outcome;
        if (this->never_ran()) {
            outcome.error() = std::make_exception_ptr(error_of<stopped_error>(errc::stopped));
        } else {
            outcome.keep(frame_->promise());
        }
        const bool aborted = aborted_;
        to_.reset();
        frame_.reset();
        self.reset();
        if (deliver) {
            auto arguments = Signature::made_of(outcome, aborted);
            const auto handler_where = to.handler_where.get_executor();
            if (is_same_place(to.where.get_executor(), handler_where)) {
                std::apply(std::move(to.handler), std::move(arguments));
            } else {
                auto call = [handler = std::move(to.handler),
                             all = std::move(arguments)]() mutable {
                    std::apply(std::move(handler), std::move(all));
                };
                Asio::dispatch(handler_where,
                               asio_bound<decltype(call), alloc>(std::move(call), with));
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
    // complete() empties these members, because this object may live longer than its job: steps
    // that Asio has not destroyed yet may own it.
    std::optional<recipient> to_;
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

    // Throws: std::bad_alloc, and what Asio throws for an empty executor; the handler is destroyed.
    template <class Given, class Source> void operator()(Given&& given, Source source) const {
        using handler = std::decay_t<Given>;
        handler h(std::forward<Given>(given));
        const auto handler_where = Asio::executor_of(h, where_);
        const auto begin = [&](const auto& where) {
            using operation =
                asio_operation<Asio, Signature, V, Source, handler, std::decay_t<decltype(where)>,
                               std::decay_t<decltype(handler_where)>>;
            auto& service = Asio::template service_of<asio_service<Asio>>(Asio::context_of(where));
            const auto with = Asio::allocator_of(h);
            auto self = std::allocate_shared<operation>(with, service, std::move(h), where,
                                                        handler_where, std::move(source));
            if (service.add(*self)) { // else the context is being destroyed
                self->connect();
                self->begin(self, !Signature::has_effects);
            }
        };
        if constexpr (Placed) {
            begin(where_);
        } else {
            begin(handler_where);
        }
    }

private:
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
        return Asio::template initiate<
            typename asio_signature<typename signature::arguments>::type>(
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
        return Asio::template initiate<
            typename asio_signature<typename signature::arguments>::type>(
            asio_initiation<Asio, signature, value, decltype(where), true>(where), token,
            std::move(source));
    }
};

// ---- The token use_bide
//
// With this token, an operation of Asio returns a task. The handler stores its arguments and sets
// an event, for which the task waits. If the task is cancelled, it requests the cancellation of the
// operation. It then waits until the operation has ended, because the operation may use objects of
// the task.

// The state that the handler and the task share.
template <class Asio, class Results> struct asio_reply {
    event is_over;                               // the handler was called, or destroyed
    std::optional<Results> results;              // empty: the handler was destroyed
    typename Asio::cancellation_signal signal{}; // requests the end of the operation
};

// The handler. Stores its arguments, and sets the event that the task waits for.
template <class Asio, class Results> class asio_handler {
    using reply = asio_reply<Asio, Results>;

public:
    using cancellation_slot_type = typename Asio::cancellation_slot;

    explicit asio_handler(std::shared_ptr<reply> to) noexcept : to_(std::move(to)) {}
    asio_handler(asio_handler&& other) noexcept : to_(std::move(other.to_)) {}
    asio_handler& operator=(asio_handler&&) = delete;
    ~asio_handler() { end(); }

    template <class... Args> void operator()(Args&&... args) {
        to_->results.emplace(std::forward<Args>(args)...);
        end();
    }
    cancellation_slot_type get_cancellation_slot() const noexcept {
        return to_ != nullptr ? to_->signal.slot() : cancellation_slot_type();
    }

private:
    void end() noexcept {
        if (const std::shared_ptr<reply> to = std::move(to_)) {
            to->is_over.set();
        }
    }

    std::shared_ptr<reply> to_;
};

// Returns the executor of the object of an operation, such as a socket. A cancellation is requested
// on that executor. If the operation names no executor, returns nullptr.
template <class Initiation> auto asio_object_executor(const Initiation& how) noexcept {
    if constexpr (requires { how.get_executor(); }) {
        return how.get_executor();
    } else {
        return nullptr;
    }
}

// Throws `e` if it is an error. `stopped` is true if the task was cancelled meanwhile.
template <class Asio> void asio_throw(const typename Asio::error_code& e, bool stopped) {
    if (stopped && e == Asio::aborted()) {
        throw_error(errc::stopped);
    }
    if (e) {
        BIDE_THROW(typename Asio::system_error(e));
    }
}
template <class Asio> void asio_throw(const std::exception_ptr& e, bool) {
    if (e) {
        std::rethrow_exception(e);
    }
}

// Makes the value of a task from the arguments of a handler: void, the only argument, or a tuple.
template <class... Values> auto asio_value(Values&&... values) {
    if constexpr (sizeof...(Values) == 1) {
        return (std::move(values), ...);
    } else if constexpr (sizeof...(Values) != 0) {
        return std::tuple<Values...>(std::move(values)...);
    }
}
// Makes the value as asio_value() does. If the type of the first argument is an error code or a
// std::exception_ptr, that argument is not part of the value. `stopped` has the same meaning as for
// asio_throw().
// Throws: the error, if such an argument holds one.
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
        const auto where = detail::asio_object_executor(how);
        const auto reply = std::make_shared<asio_reply<Asio, tuple>>();
        std::move(how)(asio_handler<Asio, tuple>(reply), std::move(given)...);
        const result<void> over = co_await reply->is_over.async_wait().as_result();
        if (!over.has_value()) { // this task is cancelled
            if constexpr (!std::is_null_pointer_v<std::remove_const_t<decltype(where)>>) {
                Asio::post(where, [reply] { // the operation may have ended meanwhile
                    if (!reply->is_over.is_set()) {
                        reply->signal.emit(Asio::cancellation_type::terminal);
                    }
                });
            }
            const this_task::shield to_the_end;
            co_await reply->is_over.async_wait();
        }
        std::optional<tuple>& all = reply->results;
        if (!all.has_value()) {
            detail::asio_throw<Asio>(Asio::aborted(), !over.has_value());
        }
        const auto take = [stopped = !over.has_value()](std::decay_t<Args>&... args) {
            return detail::asio_outcome<Asio>(stopped, std::move(args)...);
        };
        co_return std::apply(take, *all);
    }
};

}}} // namespace bide::BIDE_ABI::detail

#endif
