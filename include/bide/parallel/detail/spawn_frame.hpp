// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_SPAWN_FRAME_HPP
#define BIDE_PARALLEL_DETAIL_SPAWN_FRAME_HPP

// How the functions of a scope (fork_scope.hpp) are kept, run and waited for.
//
// A frame belongs to a thread that runs a part of the scope: the body, on the thread that has
// called fork_scope(), or a function that a thief has taken. What this part spawns are jobs on the
// lane of the thread, as the second arms of joins are. When the part has returned, the frame takes
// its jobs back, the youngest first, and calls them. If a job was stolen, the frame waits for it.
// So a stolen function has ended for its owner when all that it has spawned has ended, and all
// waits are those of fork_lane.hpp.
//
// A lane is a stack. A part may spawn while a join below it has an arm on the lane, which the join
// is to pop next. The part may also be an arm that another thread runs and its join waits for. In
// both cases, the function must not end up on top of that arm, nor delay that join. The frame
// compares the depth of the lane with the depth that the frame has left. If they differ, the
// function goes beside: on a lane of the scope, whose jobs are all public. Idle workers take them
// from there. The frame of the body runs the rest at its end.
//
// Why a function never runs on top of a frame that it must not wait for: it runs on an idle worker,
// or where its frame is at its end, or on top of a join that waits for an arm below which the scope
// was opened (leapfrogging). It never runs inside spawn().
//
// A function that a waiting frame has taken from a thief may spawn another one, which that thief
// takes back while it waits, and so on: each has returned, but none has ended, and the stacks of both
// grow. A serial run needs no stack for that. So at most `most_waits` waits of a thread leapfrog on
// top of each other. The thread of the next one sleeps until the function has ended.
//
// While the frame of the body waits for a function from beside, it does not leapfrog. The lane of
// its thread may have older jobs, and the thread whose arm it would run would find them there.

#include <bide/core/config.hpp>
#include <bide/core/detail/integer_cast.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/parallel/detail/spawn_cells.hpp>
#include <bide/parallel/fork_progress.hpp>
#include <bide/sched/detail/fork_lane.hpp>
#include <bide/sched/detail/pool.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {

template <class Platform> class basic_spawn_scope;

namespace detail {

template <class Platform> class basic_spawn_state;

// A function that was spawned. The function itself follows, in a type that only `call_` knows.
template <class Platform> class basic_spawned : public basic_fork_job<Platform> {
    using job = basic_fork_job<Platform>;

public:
    using state = basic_spawn_state<Platform>;
    using function = void (*)(basic_spawned&) noexcept;

    basic_spawned(state& in, function how, std::size_t own_alignment) noexcept
        : job(&run_stolen), call_(how), scope(in),
          alignment(integer_cast<std::uint32_t>(own_alignment)) {}

    // Calls the function, unless the scope was stopped, and destroys it.
    void call() noexcept { call_(*this); }

private:
    static bool run_stolen(job& j) noexcept;

    const function call_;

public:
    state& scope;
    basic_spawned* older = nullptr; // in the list that has the job
    std::uint32_t order = 0;        // the place of its exception
    const std::uint32_t alignment;  // of its own memory; 0: it is a cell
    bool is_over = false;           // set by the body's thread, for a job beside that it has run
};

// The state of a scope that all its threads share.
template <class Platform> class basic_spawn_state {
    using spawned = basic_spawned<Platform>;
    using lane = basic_fork_lane<Platform>;
    using frame = basic_spawn_frame<Platform>;
    using lock = lock_bits<Platform, std::uint32_t>;
    template <class T> using var = typename Platform::template var<T>;

public:
    // The order of functions that were spawned beside: after all functions that the body has
    // spawned itself.
    static constexpr std::uint32_t last = (std::numeric_limits<std::uint32_t>::max)();
    static constexpr std::uint32_t order_beside = last - 1;

    // `of`: the pool whose workers steal; nullptr if no worker does.
    // Requires: the calling thread is in a fork-join of the pool.
    basic_spawn_state(basic_pool<Platform>* of, const fork_options& options) noexcept
        : pool_(of), stop_(options.stop), progress_(options.progress) {}
    basic_spawn_state(const basic_spawn_state&) = delete;
    basic_spawn_state& operator=(const basic_spawn_state&) = delete;
    ~basic_spawn_state() {
        if (beside_ != nullptr) {
            lane& mine = *static_cast<lane*>(beside_);
            mine.clear();
            basic_fork_lanes<Platform>::of(*pool_)->put(mine);
        }
    }

    // Returns false if a stop was requested: the function is dropped.
    bool begins() noexcept {
        if (!stop_.stop_requested()) [[likely]] {
            return true;
        }
        // Order: relaxed; the joins of the scope order it before finish().
        stopped_.store(true, std::memory_order_relaxed);
        return false;
    }
    void expects() noexcept {
        if (progress_ != nullptr) {
            progress_->expect(1);
        }
    }
    void has_ended() noexcept {
        if (progress_ != nullptr) {
            progress_->count(1);
        }
    }

    // Keeps the exception if it is the first one in order.
    BIDE_COLD void fail(std::uint32_t order, std::exception_ptr error) noexcept {
        lock::acquire(lock_);
        if (order < failed_) {
            failed_ = order;
            std::swap(error_, error);
        }
        lock::release_plain(lock_);
    }

    // Pushes a job that the lane of the calling thread must not get.
    // Throws: std::bad_alloc, with nothing changed.
    void push_beside(spawned& j);
    // Runs these jobs, or waits for them, at the end of the body's frame.
    void finish_beside(frame& mine) noexcept;

    // Throws: the first exception in order; stopped_error if a function was dropped.
    void finish() {
#if BIDE_EXCEPTIONS
        if (error_) {
            std::rethrow_exception(std::move(error_));
        }
#endif
        // Order: relaxed; see begins().
        if (stopped_.load(std::memory_order_relaxed)) {
            throw_error(errc::stopped);
        }
    }

private:
    lane* lane_beside();

    basic_pool<Platform>* const pool_;
    const lane* const opened_on_ = basic_fork_context<Platform>::here().lane; // set if pool_ is
    const std::stop_token stop_;
    fork_progress* const progress_;
    typename Platform::template atomic<bool> stopped_{false};
    typename Platform::template atomic<std::uint32_t> lock_{0};
    // Under the lock:
    var<lane*> beside_{nullptr};         // made when it is needed
    var<spawned*> beside_jobs_{nullptr}; // all that are or were on it
    var<std::uint32_t> failed_{last};    // the order of the exception
    std::exception_ptr error_;
};

template <class Platform> class basic_spawn_frame {
    using context = basic_fork_context<Platform>;
    using state = basic_spawn_state<Platform>;
    using spawned = basic_spawned<Platform>;
    using lane = basic_fork_lane<Platform>;

public:
    // Gives each function that it spawns the next order.
    explicit basic_spawn_frame(state& in) noexcept : basic_spawn_frame(in, 0, true) {}
    // Gives each function that it spawns the order of the function that spawns.
    basic_spawn_frame(state& in, std::uint32_t order) noexcept
        : basic_spawn_frame(in, order, false) {}
    basic_spawn_frame(const basic_spawn_frame&) = delete;
    basic_spawn_frame& operator=(const basic_spawn_frame&) = delete;
    ~basic_spawn_frame() { here_.frame = outer_; }

    // Returns true if the calling thread, whose innermost frame this is, may spawn into it.
    bool accepts(const state& in) const noexcept {
        return &in == &scope_ && (lane_ == nullptr || lane_->depth() == depth_);
    }

    void* take_cell() { return cells_.take(); }
    // Throws: std::bad_alloc, with nothing changed.
    void push(spawned& j) {
        scope_.expects();
        if (numbers_ && order_ < state::order_beside - 1) {
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
    void release(spawned& j) noexcept {
        const std::size_t own = j.alignment;
        std::destroy_at(&j);
        give_back(this, &j, own);
    }
    // `part` has the cell, if the memory is one.
    static void give_back(basic_spawn_frame* part, void* memory,
                          std::size_t own_alignment) noexcept {
        if (own_alignment == 0) {
            part->cells_.give_back(memory);
        } else {
            ::operator delete(memory, std::align_val_t(own_alignment));
        }
    }

    // The part has returned: runs its jobs, or waits for them.
    void finish() noexcept {
        numbers_ = false;
        while (spawned* const youngest = youngest_) {
            youngest_ = youngest->older;
            --depth_;
            if (lane_ == nullptr || lane_->pop(depth_) || wait_for(*youngest)) {
                run(*youngest);
            }
            release(*youngest);
        }
    }

    lane* own_lane() const noexcept { return lane_; }

private:
    using depth_type = typename lane::depth_type;

    static constexpr unsigned most_waits = 32;
    static constexpr depth_type depth_in_wait = ~depth_type{0};

    // Returns how many frames of this thread wait, of this one and those below.
    unsigned waits() const noexcept { return waits_below_ + (depth_ == depth_in_wait ? 1U : 0U); }

    basic_spawn_frame(state& in, std::uint32_t order, bool numbers) noexcept
        : scope_(in), lane_(here_.lane), depth_(lane_ != nullptr ? lane_->depth() : 0),
          order_(order), numbers_(numbers) {
        here_.frame = this;
    }

    // Waits for a job that was stolen. Returns true if this thread must run it. Meanwhile, the
    // frame accepts nothing: jobs that run on top of it are not its own part.
    BIDE_NOINLINE bool wait_for(spawned& j) noexcept {
        const depth_type at = std::exchange(depth_, depth_in_wait);
        const auto how = lane_->wait(j, at, waits_below_ < most_waits);
        depth_ = at;
        return how == spawned::end::returned;
    }

    context& here_ = context::here();
    basic_spawn_frame* const outer_ = here_.frame;
    const unsigned waits_below_ = outer_ != nullptr ? outer_->waits() : 0;
    state& scope_;
    lane* const lane_;
    depth_type depth_; // of the lane, while no arm is on it that lies above the frame
    std::uint32_t order_;
    bool numbers_;
    spawned* youngest_ = nullptr;
    spawn_cells cells_;
};

template <class Platform> bool basic_spawned<Platform>::run_stolen(job& j) noexcept {
    auto& mine = static_cast<basic_spawned&>(j);
    basic_spawn_frame<Platform> part(mine.scope, mine.order);
    mine.call();
    part.finish();
    return false;
}

// ---- Beside

// Returns the lane of the scope, which is made when it is needed. Returns nullptr if the pool has
// no lanes.
// Throws: std::bad_alloc.
template <class Platform> auto basic_spawn_state<Platform>::lane_beside() -> lane* {
    lock::acquire(lock_);
    lane* mine = beside_;
    lock::release_plain(lock_);
    if (mine != nullptr || pool_ == nullptr) {
        return mine;
    }
    lane* made = basic_fork_lanes<Platform>::of(*pool_)->take();
    if (made == nullptr) {
        BIDE_THROW(std::bad_alloc());
    }
    made->begin(opened_on_->worth(), opened_on_->begin_ns());
    lock::acquire(lock_);
    if (beside_ == nullptr) {
        beside_ = std::exchange(made, nullptr);
    }
    mine = beside_;
    lock::release_plain(lock_);
    if (made != nullptr) {
        basic_fork_lanes<Platform>::of(*pool_)->put(*made);
    }
    return mine;
}

template <class Platform> void basic_spawn_state<Platform>::push_beside(spawned& j) {
    struct held {
        explicit held(typename Platform::template atomic<std::uint32_t>& of) noexcept : word(of) {
            lock::acquire(word);
        }
        ~held() { lock::release_plain(word); }
        typename Platform::template atomic<std::uint32_t>& word;
    };
    lane* const to = lane_beside();
    j.order = order_beside;
    expects();
    {
        const held now(lock_);
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

template <class Platform> void basic_spawn_state<Platform>::finish_beside(frame& mine) noexcept {
    for (;;) {
        lock::acquire(lock_);
        spawned* left = beside_jobs_;
        beside_jobs_ = nullptr;
        lane* const from = beside_;
        lock::release_plain(lock_);
        if (left == nullptr) {
            return;
        }
        while (basic_fork_job<Platform>* const taken = from != nullptr ? from->steal() : nullptr) {
            auto& j = static_cast<spawned&>(*taken); // may also be one that was pushed since
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
            mine.release(j);
        }
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
