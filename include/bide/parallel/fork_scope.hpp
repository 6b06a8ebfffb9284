// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_FORK_SCOPE_HPP
#define BIDE_PARALLEL_FORK_SCOPE_HPP

/// \file
/// A scope of functions that run in parallel. Their number may be known only at run time, and each
/// function may spawn others into the same scope.
//
// How the functions of a scope are stored, run and waited for.
//
// A scope has parts. One part is its body, which runs on the thread that has called fork_scope().
// Each function that a thief, that is, another thread, has taken is one more part. Each part has a
// frame, which belongs to the thread that runs the part. The functions that the part spawns are
// jobs on the lane of that thread, like the second arms (functions) of joins. (A lane is a deque of
// jobs, sched/detail/fork_lane.hpp.) When the part has returned, the frame takes its jobs back, the
// youngest first, and runs them. If a job was stolen, the frame waits until the stolen function,
// and all functions that it has spawned, have ended.
//
// A thread uses its lane as a stack. So in two cases, a spawned function must not be pushed to the
// lane of the calling thread. First, the thread is in a join whose second arm is on the lane: the
// join expects this arm at the top of the lane. Second, the thread is a thief that runs an arm for
// which a join waits: the function would delay the join. spawn() detects both cases by the
// innermost frame of the thread. Either there is no frame of this scope, or the depth of the lane
// differs from the depth that the frame has stored. spawn() then pushes the function to a separate
// lane of the scope, called the lane beside. Such a function is called a function beside. All jobs
// of the lane beside can be stolen, and idle workers take them. The frame of the body runs the
// remaining jobs at its end.
//
// A function never runs on top of a frame that may hold a lock which the function needs. Proof: a
// function never runs inside spawn(). It runs in one of three places: (1) on an idle worker; (2) on
// top of a frame of its scope whose part has returned; (3) on top of a frame that waits for a
// stolen job, if that job has opened the scope (leapfrogging). In the third case, a serial run
// would also run the function on top of the waiting frame.
//
// The stack is bounded. While a thread waits for a function that a thief runs, the thread may take
// another function from that thief. The taken function may spawn a third one, which the thief takes
// while it waits, and so on. The stacks of both threads would then grow, although they would not
// grow in a serial run. So at most `most_waits` waits of a thread run other jobs on top of each
// other. In a further wait, the thread sleeps until the function has ended.
//
// While the frame of the body waits for a function beside, its thread runs no other jobs, because
// its lane may have older jobs. If the thread ran a job J of another thread, that thread would wait
// for J, and would take jobs from this lane (leapfrogging). It may take only jobs that were forked
// in the course of J, but could get an older one.

#include <bide/parallel/fork_join.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// The memory of the functions that one frame of a scope spawns. It consists of cells of one size.
// The first few cells are part of the frame itself, so a small scope allocates nothing. The other
// cells are in blocks of growing size. The cell that was given back last is reused first, because
// it is still in the cache. Only the thread of the frame uses this object.
class spawn_cells {
public:
    static constexpr std::size_t cell_size = 96;
    static constexpr std::size_t cell_alignment = 16;

    spawn_cells() noexcept = default;
    spawn_cells(const spawn_cells&) = delete;
    spawn_cells& operator=(const spawn_cells&) = delete;
    ~spawn_cells() {
        while (block* const last = blocks_) {
            blocks_ = last->older;
            ::operator delete(last);
        }
    }

    // Throws: std::bad_alloc.
    void* take() {
        if (free_ != nullptr) {
            void* const mine = free_;
            free_ = *static_cast<void**>(mine);
            return mine;
        }
        if (next_ == end_) {
            grow();
        }
        return std::exchange(next_, next_ + cell_size);
    }

    void give_back(void* cell) noexcept {
        ::new (cell) void*(free_);
        free_ = cell;
    }

private:
    struct alignas(cell_alignment) block {
        block* older;
    };

    static constexpr std::size_t in_frame = 3;
    static constexpr std::size_t first_block = 16;
    static constexpr std::size_t largest_block = 1'024;

    BIDE_NOINLINE void grow() {
        void* const made = ::operator new(sizeof(block) + block_cells_ * cell_size);
        blocks_ = ::new (made) block{blocks_};
        next_ = static_cast<std::byte*>(made) + sizeof(block);
        end_ = next_ + block_cells_ * cell_size;
        block_cells_ = block_cells_ < largest_block ? 2 * block_cells_ : block_cells_;
    }

    void* free_ = nullptr; // each free cell begins with the address of the next one
    block* blocks_ = nullptr;
    std::size_t block_cells_ = first_block;
    std::byte* next_ = first_;
    std::byte* end_ = first_ + sizeof first_;
    alignas(cell_alignment) std::byte first_[in_frame * cell_size];
};

} // namespace detail

template <class Platform> class basic_spawn_scope;

namespace detail {

// A spawned function. A derived type contains the function object. Only `call_` knows that type.
template <class Platform> class basic_spawned : public basic_fork_job<Platform> {
    using job = basic_fork_job<Platform>;

public:
    using scope_type = basic_spawn_scope<Platform>;
    using function = void (*)(basic_spawned&) noexcept;

    basic_spawned(scope_type& in, function how) noexcept
        : job(&run_stolen), call_(how), scope(in) {}

    // Calls the function, if the scope was not stopped, and destroys the function.
    void call() noexcept { call_(*this); }

private:
    static bool run_stolen(job& j) noexcept;

    const function call_;

public:
    scope_type& scope;
    basic_spawned* older = nullptr; // the next older job in the list
    std::uint32_t order = 0;        // of its exception: the lowest order wins
    bool is_over = false;           // the body's thread has run it, from the lane beside
};

template <class Platform> class basic_spawn_frame {
    using context = basic_fork_context<Platform>;
    using scope_type = basic_spawn_scope<Platform>;
    using spawned = basic_spawned<Platform>;
    using lane = basic_fork_lane<Platform>;

public:
    // `order` selects an exception: the scope throws the one with the lowest order. If `numbers` is
    // true, this is the frame of the body, and each function that the body spawns gets the next
    // order. If `numbers` is false, this is the frame of a function, and the functions that it
    // spawns get its order.
    basic_spawn_frame(scope_type& in, std::uint32_t order, bool numbers) noexcept
        : scope_(in), lane_(here_.lane), depth_(lane_ != nullptr ? lane_->depth() : 0),
          order_(order), numbers_(numbers) {
        here_.frame = this;
    }
    basic_spawn_frame(const basic_spawn_frame&) = delete;
    basic_spawn_frame& operator=(const basic_spawn_frame&) = delete;
    ~basic_spawn_frame() { here_.frame = outer_; }

    // Returns true if the calling thread, whose innermost frame this is, may spawn into this frame.
    bool accepts(const scope_type& in) const noexcept {
        return &in == &scope_ && (lane_ == nullptr || lane_->depth() == depth_);
    }

    spawn_cells& cells() noexcept { return cells_; }
    // Throws: std::bad_alloc, with nothing changed.
    void push(spawned& j) {
        scope_.expects();
        if (numbers_ && order_ < scope_type::order_beside - 1) {
            ++order_;
        }
        j.order = order_;
        if (lane_ != nullptr) {
            lane_->push(j);
        }
        j.older = youngest_;
        youngest_ = &j;
        ++depth_;
    }

    // Calls a job of the scope on this thread.
    void run(spawned& j) noexcept {
        order_ = j.order;
        j.call();
    }
    // Called when the part of this frame has returned. Runs the jobs of the frame, or waits for
    // them.
    void finish() noexcept {
        numbers_ = false;
        while (spawned* const youngest = youngest_) {
            youngest_ = youngest->older;
            --depth_;
            if (lane_ == nullptr || lane_->pop(depth_) || wait_for(*youngest)) {
                run(*youngest);
            }
            std::destroy_at(youngest);
            cells_.give_back(youngest);
        }
    }

    lane* own_lane() const noexcept { return lane_; }

private:
    using depth_type = typename lane::depth_type;

    static constexpr unsigned most_waits = 32;
    static constexpr depth_type depth_in_wait = ~depth_type{0};

    // Returns how many frames wait: this frame, and those below it on this thread.
    unsigned waits() const noexcept { return waits_below_ + (depth_ == depth_in_wait ? 1U : 0U); }

    // Waits for a stolen job. Returns true if the thief gave the job back; this thread must then
    // run the job. During the wait, this frame accepts no spawned functions, because jobs of other
    // parts may run on top of it.
    BIDE_NOINLINE bool wait_for(spawned& j) noexcept {
        const depth_type at = std::exchange(depth_, depth_in_wait);
        const auto how = lane_->wait(j, at, waits_below_ < most_waits);
        depth_ = at;
        return how == spawned::end::returned;
    }

    context& here_ = context::here();
    basic_spawn_frame* const outer_ = here_.frame;
    const unsigned waits_below_ = outer_ != nullptr ? outer_->waits() : 0;
    scope_type& scope_;
    lane* const lane_;
    depth_type depth_; // the depth of the lane, if no join has an arm above this frame's jobs
    std::uint32_t order_;
    bool numbers_;
    spawned* youngest_ = nullptr;
    spawn_cells cells_;
};

template <class Platform> bool basic_spawned<Platform>::run_stolen(job& j) noexcept {
    auto& mine = static_cast<basic_spawned&>(j);
    basic_spawn_frame<Platform> part(mine.scope, mine.order, false);
    mine.call();
    part.finish();
    return false;
}

// A function that was spawned into a scope, with the code that calls it. Fits into a cell, because
// a large function object is stored in separate memory.
template <class Platform, class F> class spawned_function final : public basic_spawned<Platform> {
    using base = basic_spawned<Platform>;
    static constexpr bool is_small =
        sizeof(F) <=
            spawn_cells::cell_size - (sizeof(base) + alignof(F) - 1) / alignof(F) * alignof(F) &&
        alignof(F) <= spawn_cells::cell_alignment;
    using kept = std::conditional_t<is_small, F, std::unique_ptr<F>>;

public:
    template <class From>
    spawned_function(typename base::scope_type& in, From&& from)
        : base(in, &call_and_destroy), call_(keep(std::forward<From>(from))) {
        static_assert(sizeof(spawned_function) <= spawn_cells::cell_size);
    }
    ~spawned_function() {} // drop() has destroyed the function

    void drop() noexcept { std::destroy_at(std::addressof(call_)); }

private:
    template <class From> static kept keep(From&& from) {
        if constexpr (is_small) {
            return F(std::forward<From>(from));
        } else {
            return std::make_unique<F>(std::forward<From>(from));
        }
    }
    static void call_and_destroy(base& b) noexcept {
        auto& mine = static_cast<spawned_function&>(b);
        if (mine.scope.begins()) {
            detail::call_or([&] { mine.invoke(); },
                            [&] { mine.scope.fail(mine.order, std::current_exception()); });
            if (mine.scope.progress_ != nullptr) {
                mine.scope.progress_->count(1);
            }
        }
        mine.drop();
    }
    F& function() noexcept {
        if constexpr (is_small) {
            return call_;
        } else {
            return *call_;
        }
    }
    void invoke() {
        if constexpr (std::is_invocable_v<F>) {
            static_cast<void>(std::move(function())());
        } else {
            static_cast<void>(std::move(function())(this->scope));
        }
    }

    union {
        kept call_;
    };
};

} // namespace detail

/// The scope that fork_scope() passes to its body, and to each spawned function that takes it.
///
/// \code
/// bide::fork_scope(workers, [](bide::spawn_scope& scope) {
///     scope.spawn([] { std::puts("one"); });
///     scope.spawn([] { std::puts("two"); });
/// }); // both have ended
/// \endcode
template <class Platform> class basic_spawn_scope {
    using spawned = detail::basic_spawned<Platform>;
    using lane = detail::basic_fork_lane<Platform>;
    using frame = detail::basic_spawn_frame<Platform>;
    using context = detail::basic_fork_context<Platform>;
    using lock = lock_bits<Platform, std::uint32_t>;
    template <class T> using var = typename Platform::template var<T>;
    template <class F> using job = detail::spawned_function<Platform, std::decay_t<F>>;
    template <class Body>
    using value_of = nonvoid_t<std::invoke_result_t<Body, basic_spawn_scope&>>;
    friend frame;
    template <class, class> friend class detail::spawned_function;

public:
    /// Constructs a scope. `of` is the scheduler's pool, or nullptr if no worker steals. Only
    /// fork_scope() calls it.
    /// Requires: the calling thread is in a fork-join of the pool.
    basic_spawn_scope(detail::basic_pool<Platform>* of, const fork_options& options) noexcept
        : pool_(of), stop_(options.stop), progress_(options.progress) {}
    basic_spawn_scope(const basic_spawn_scope&) = delete;
    basic_spawn_scope& operator=(const basic_spawn_scope&) = delete;
    ~basic_spawn_scope() {
        if (beside_ != nullptr) {
            lane& mine = *static_cast<lane*>(beside_);
            mine.clear();
            detail::basic_fork_lanes<Platform>::of(*pool_)->put(mine);
        }
    }

    /// Spawns a function, which takes nothing or the scope. Its value is ignored. The function is
    /// called once, as an rvalue. The caller, that is, the body or another function, is its
    /// spawner. The function runs on an idle worker, on this thread after its spawner has returned,
    /// or on a thread that waits for the scope. It never runs inside of spawn(), so the caller may
    /// hold a lock that the function needs.
    ///
    /// Functions run in no fixed order. A thread runs its own spawned functions in reverse order. A
    /// spawn by the body or by a spawned function takes some tens of nanoseconds. It allocates
    /// nothing if the function is small and its spawner has few other functions. A spawn by an arm
    /// of a join, or by an iteration of a loop, allocates and takes a lock.
    /// Throws: std::bad_alloc, or what the copy of the function throws. The function is then not
    /// spawned.
    /// Requires: the call is made by the body or by a function of the scope. Or it is made by an
    /// arm of a join, a loop iteration or a thread for which the body or such a function waits.
    /// Thread safety: several threads may call it at once.
    template <class F>
        requires std::invocable<std::decay_t<F>> ||
                 std::invocable<std::decay_t<F>, basic_spawn_scope&>
    void spawn(F&& function) {
        frame* const innermost = context::here().frame;
        if (innermost != nullptr && innermost->accepts(*this)) [[likely]] {
            make<job<F>>(
                innermost->cells().take(), std::forward<F>(function),
                [innermost](job<F>& made) { innermost->push(made); },
                [innermost](void* cell) { innermost->cells().give_back(cell); });
        } else {
            spawn_beside(std::forward<F>(function));
        }
    }

    /// Calls the body, and returns its value when the body and all functions have ended. Only
    /// fork_scope() calls it.
    template <class Body> value_of<Body> run(Body&& body) {
        if (!begins()) {
            rethrow();
        }
        value_of<Body> value = call(std::forward<Body>(body));
        rethrow();
        return static_cast<value_of<Body>&&>(value);
    }

private:
    // `order_beside` is the order of the functions beside (see the head of this file). The
    // functions that the body spawns itself have lower orders.
    static constexpr std::uint32_t last = (std::numeric_limits<std::uint32_t>::max)();
    static constexpr std::uint32_t order_beside = last - 1;

    // Returns false if a stop was requested. The caller must then drop the function.
    bool begins() noexcept {
        if (!stop_.stop_requested()) [[likely]] {
            return true;
        }
        // Order: relaxed; the joins of the scope order this store before the load in rethrow().
        stopped_.store(true, std::memory_order_relaxed);
        return false;
    }
    void expects() noexcept {
        if (progress_ != nullptr) {
            progress_->expect(1);
        }
    }

    // Stores the exception if it is the first one in order.
    BIDE_COLD void fail(std::uint32_t order, std::exception_ptr error) noexcept {
        lock::acquire(lock_);
        if (order < failed_) {
            failed_ = order;
            std::swap(error_, error);
        }
        lock::release_plain(lock_);
    }

    // Throws: the first exception in order; stopped_error if a function was dropped.
    void rethrow() {
#if BIDE_EXCEPTIONS
        if (error_) {
            std::rethrow_exception(std::move(error_));
        }
#endif
        // Order: relaxed; the joins of the scope order this load after the stores in begins().
        if (stopped_.load(std::memory_order_relaxed)) {
            detail::throw_error(errc::stopped);
        }
    }

    template <class Body> value_of<Body> call(Body&& body) {
        // Runs at the end of the body, even if the body throws.
        struct ends {
            ~ends() {
                part.finish();
                scope.finish_beside(part);
            }
            basic_spawn_scope& scope;
            frame& part;
        };
        frame part(*this, 0, true);
        const ends later{*this, part};
        const auto arm = [&]() -> decltype(auto) { return std::forward<Body>(body)(*this); };
        return detail::call_arm(arm);
    }

    // Makes a job in a cell and passes it to push(). After an exception, gives the cell back.
    template <class Job, class F, class Push, class GiveBack>
    BIDE_INLINE void make(void* cell, F&& function, const Push& push, const GiveBack& give_back) {
        struct undo {
            ~undo() {
                if (made != nullptr) {
                    made->drop();
                    std::destroy_at(made);
                }
                if (!is_pushed) {
                    give_back(cell);
                }
            }
            void* cell;
            const GiveBack& give_back;
            Job* made = nullptr;
            bool is_pushed = false;
        } unless_pushed{cell, give_back};
        unless_pushed.made = ::new (cell) Job(*this, std::forward<F>(function));
        push(*unless_pushed.made);
        unless_pushed.made = nullptr;
        unless_pushed.is_pushed = true;
    }

    // ---- The lane beside

    template <class F> BIDE_NOINLINE void spawn_beside(F&& function) {
        make<job<F>>(
            ::operator new(detail::spawn_cells::cell_size), std::forward<F>(function),
            [this](job<F>& made) { push_beside(made); },
            [](void* cell) { ::operator delete(cell); });
    }
    // Pushes a job to `beside_`, the separate lane of this scope, and not to the lane of the
    // calling thread. The head of this file says when that is needed ("the lane beside"). If there
    // are no lanes, only adds the job to the list `beside_jobs_`.
    // Throws: std::bad_alloc, with nothing changed.
    void push_beside(spawned& j);
    // Called at the end of the frame of the body. Runs each function of `beside_` that no worker
    // has taken, and waits for the others.
    void finish_beside(frame& mine) noexcept;

    detail::basic_pool<Platform>* const pool_;
    const lane* const opened_on_ = context::here().lane; // set if pool_ is
    const std::stop_token stop_;
    fork_progress* const progress_;
    typename Platform::template atomic<bool> stopped_{false};
    typename Platform::template atomic<std::uint32_t> lock_{0};
    // Guarded by the lock:
    var<lane*> beside_{nullptr};         // the lane beside, or nullptr before its first use
    var<spawned*> beside_jobs_{nullptr}; // all jobs that are or were on the lane beside
    var<std::uint32_t> failed_{last};    // the order of `error_`
    std::exception_ptr error_;
};
/// The scope that fork_scope() passes to its body.
using spawn_scope = basic_spawn_scope<native_platform>;

template <class Platform> void basic_spawn_scope<Platform>::push_beside(spawned& j) {
    lane* to = nullptr;
    j.order = order_beside;
    {
        const typename lock::guard held(lock_);
        to = beside_;
        if (to == nullptr && pool_ != nullptr) {
            to = detail::basic_fork_lanes<Platform>::of(*pool_)->take();
            if (to == nullptr) {
                BIDE_THROW(std::bad_alloc());
            }
            to->begin(opened_on_->worth(), opened_on_->begin_ns(), opened_on_->limit());
            beside_ = to;
        }
        expects();
        if (to != nullptr) {
            to->push_public(j);
        }
        j.older = beside_jobs_;
        beside_jobs_ = &j;
    }
    if (to != nullptr) {
        to->wake_for_public();
    }
}

template <class Platform> void basic_spawn_scope<Platform>::finish_beside(frame& mine) noexcept {
    for (;;) {
        lock::acquire(lock_);
        spawned* left = beside_jobs_;
        beside_jobs_ = nullptr;
        lane* const from = beside_;
        lock::release_plain(lock_);
        if (left == nullptr) {
            return;
        }
        while (detail::basic_fork_job<Platform>* const taken =
                   from != nullptr ? from->steal() : nullptr) {
            auto& j = static_cast<spawned&>(*taken); // may have been pushed after the unlock
            mine.run(j);
            j.is_over = true;
            mine.finish();
        }
        while (left != nullptr) {
            spawned& j = *std::exchange(left, left->older);
            const bool runs_here =
                !j.is_over &&
                (from == nullptr || mine.own_lane()->wait_idle(j, *from) == spawned::end::returned);
            if (runs_here) {
                mine.run(j);
                mine.finish();
            }
            std::destroy_at(&j);
            ::operator delete(&j);
        }
    }
}

/// Calls body(scope) on the calling thread. The body may spawn functions into the scope, and each
/// of these functions may spawn others. The functions run on this thread and on idle workers.
/// Returns the value of the body when the body and all functions have ended. Use fork_scope() if
/// the number of functions is not known in advance, or if their calls do not form a tree of joins.
/// A join costs less.
///
/// The spawner of a function is the body or another function. A function may run after its spawner
/// has returned. So it must not refer to local objects of its spawner. It may refer to objects that
/// were declared before the call of fork_scope().
///
/// Locks: a function never runs inside of spawn(), so a lock that is held around a spawn causes no
/// deadlock. In a serial run, the functions run when the body has returned. A lock that the caller
/// of fork_scope() holds causes a deadlock only if it would cause one in a serial run.
///
/// Memory: while the body runs, the memory of the functions that it has spawned is not reused, even
/// if other threads have run these functions. So a body that runs forever should open a new scope
/// for each round.
/// Blocks: until all functions have ended. In the body and in the functions, this_task and
/// scheduler::current() are as in an arm of join().
/// Throws: if the body threw, its exception. If only functions threw, the exception of the first of
/// these in the order in which the body spawned them. A function that another function has spawned
/// has the place of its spawner. If several functions with the same place threw, the exception of
/// any of them. Functions that an arm of a join or a loop iteration has spawned have no fixed
/// place. After an exception, all functions still run. stopped_error after a stop, if neither the
/// body nor a function has thrown. If the body cannot be called, throws as join().
/// Cancellation: after a stop request by the token in the options, functions that have not begun
/// are dropped. The grain in the options has no effect. Progress counts functions.
template <class Body>
    requires std::invocable<Body, spawn_scope&>
auto fork_scope(const fork_policy& on, Body&& body) -> std::invoke_result_t<Body, spawn_scope&> {
    using value = std::invoke_result_t<Body, spawn_scope&>;
    const auto arm = [&on, &body]() -> nonvoid_t<value> {
        auto& pool = detail::fork_entry::core(on.where()).pool();
        const bool has_lane = detail::fork_context::here().lane != nullptr;
        spawn_scope scope(has_lane ? &pool : nullptr, on.options());
        return scope.run(static_cast<Body&&>(body));
    };
    return static_cast<value>(
        detail::in_fork(on.where(), arm, 1, nullptr, on.options().max_workers));
}

}} // namespace bide::BIDE_ABI

#endif
