// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TEST_DETAIL_LANES_HPP
#define BIDE_TEST_DETAIL_LANES_HPP

// A lane runs the runnables of a simulation on a stack of its own. A runnable may leave its lane
// before it has ended: at a switch point, or to block. The loop of the simulation then runs other
// lanes, and continues this one later. So the lanes are like the workers of a scheduler, of which
// one runs at a time.
//
// All lanes run on one thread of the system. bide's thread-local state that belongs to the running
// code is exchanged when a lane is entered and left (thread_state). Caches are shared. AddressSanitizer
// and ThreadSanitizer are told of each switch.

#include <bide/core/detail/fiber.hpp>
#include <bide/core/detail/noted.hpp>
#include <bide/core/resume.hpp>
#include <bide/task/detail/task_control.hpp>

#include <memory>
#include <vector>

#if BIDE_HAS_FIBERS

#if defined(__SANITIZE_ADDRESS__)
#define BIDE_TEST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BIDE_TEST_ASAN 1
#endif
#endif
#if defined(BIDE_TEST_ASAN)
#include <sanitizer/asan_interface.h>
#endif
#if defined(__SANITIZE_THREAD__)
#define BIDE_TEST_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BIDE_TEST_TSAN 1
#endif
#endif
#if defined(BIDE_TEST_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace bide { inline namespace BIDE_ABI { namespace test::detail {

// A fiber whose switches the sanitizers see.
class BIDE_SHARED lane_stack : public bide::detail::fiber {
public:
    lane_stack() = default;
#if defined(BIDE_TEST_TSAN)
    ~lane_stack() { forget(); }
#endif

    // Suspends this stack and continues `other`.
    void switch_to(lane_stack& other) noexcept {
#if defined(BIDE_TEST_ASAN)
        void* kept = nullptr; // what AddressSanitizer keeps of this stack
        __sanitizer_start_switch_fiber(&kept, other.bottom_, other.size_);
        last().left = this;
#endif
#if defined(BIDE_TEST_TSAN)
        if (other.tsan_ == nullptr) {
            other.tsan_ = __tsan_create_fiber(0);
            other.is_made_ = true;
        }
        if (!is_made_) {
            tsan_ = __tsan_get_current_fiber();
        }
        __tsan_switch_to_fiber(other.tsan_, 0);
#endif
        fiber::switch_to(other);
#if defined(BIDE_TEST_ASAN)
        arrive(kept);
#endif
    }

    // Called by the first code that runs on a stack.
    static void begin() noexcept {
#if defined(BIDE_TEST_ASAN)
        arrive(nullptr);
#endif
    }

    // The next switch to this stack calls run(context), which must not return.
    // Throws: std::bad_alloc.
    void start(function run, void* context) {
#if defined(BIDE_TEST_ASAN)
        if (bottom_ != nullptr) { // with the redzones of the previous frames
            __asan_unpoison_memory_region(bottom_, size_);
        }
#endif
#if defined(BIDE_TEST_TSAN)
        forget(); // with the calls of the previous frames
#endif
        restart(run, context);
#if defined(BIDE_TEST_ASAN)
        bottom_ = end() - stack_size;
        size_ = stack_size;
#endif
    }

    lane_stack* next = nullptr; // in the list of free stacks

private:
#if defined(BIDE_TEST_ASAN)
    static void arrive(void* kept) noexcept {
        lane_stack& before = *last().left;
        __sanitizer_finish_switch_fiber(kept, &before.bottom_, &before.size_);
    }

    struct last_switch {
        lane_stack* left = nullptr; // the stack that ran before
    };
    static last_switch& last() noexcept { return native_platform::local<last_switch>(); }

    const void* bottom_ = nullptr;
    std::size_t size_ = 0;
#endif
#if defined(BIDE_TEST_TSAN)
    void forget() noexcept {
        if (std::exchange(is_made_, false)) {
            __tsan_destroy_fiber(std::exchange(tsan_, nullptr));
        }
    }

    void* tsan_ = nullptr;
    bool is_made_ = false; // tsan_ was created here
#endif
};

// bide's thread-local state that belongs to the running code.
struct thread_state {
    using platform = native_platform;

    worker_local<platform> local{};
    bide::detail::resume_state resumed{};
    bide::detail::transfer_loop_place transfers{};
    bide::detail::running_code code{};
    bide::detail::cancel_round<platform>* round = nullptr;
    BIDE_CHECKED(bide::detail::actor collector{};)

    void exchange() noexcept {
        std::swap(local, worker_local<platform>::get());
        std::swap(resumed, platform::near_local<bide::detail::resume_state>());
        std::swap(transfers, platform::near_local<bide::detail::transfer_loop_place>());
        std::swap(code, platform::local<bide::detail::running_code>());
        std::swap(round, bide::detail::cancel_round<platform>::here());
        BIDE_CHECKED(std::swap(collector, bide::detail::collecting::here());)
    }
};

// A free stack costs two system calls, so a thread keeps those of its earlier simulations.
class free_stacks {
public:
    constexpr free_stacks() noexcept = default;
    ~free_stacks() {
        while (first_ != nullptr) {
            delete std::exchange(first_, first_->next);
        }
    }
    free_stacks& operator=(free_stacks&&) = delete;

    // Throws: std::bad_alloc.
    static lane_stack* take() {
        lane_stack*& first = here().first_;
        return first != nullptr ? std::exchange(first, first->next) : new lane_stack;
    }
    static void put(lane_stack* stack) noexcept {
        stack->next = std::exchange(here().first_, stack);
    }

private:
    static free_stacks& here() noexcept { return native_platform::local<free_stacks>(); }

    lane_stack* first_ = nullptr;
};

// A stack on which one runnable after the other runs.
struct lane {
    std::unique_ptr<lane_stack, void (*)(lane_stack*) noexcept> stack{free_stacks::take(),
                                                                      &free_stacks::put};
    thread_state state{}; // while the lane runs: the state of the loop
    runnable* job = nullptr;
    bool timed_out = false; // for a lane that has slept
};

// The lanes of a simulation. The functions are for the one thread of the simulation.
class lanes {
public:
    // Runs a runnable, on its lane.
    using function = void (*)(void* context, runnable& job) noexcept;

    lanes(function run, void* context) noexcept : run_(run), context_(context) {}

    // Returns the lane that runs; nullptr if the loop does.
    lane* current() const noexcept { return current_; }

    // Returns a lane for a runnable that has not begun. Throws: std::bad_alloc.
    lane& begin(runnable& job) {
        if (free_.empty()) {
            auto made = std::make_unique<lane>();
            free_.reserve(all_.size() + 1);
            made->stack->start(&run_all, this);
            all_.push_back(std::move(made));
            free_.push_back(all_.back().get());
        }
        lane* const taken = free_.back();
        free_.pop_back();
        taken->job = &job;
        taken->state = {};
        return *taken;
    }

    // Continues a lane until it leaves, or until its runnable has ended. Called by the loop.
    void enter(lane& next) noexcept {
        current_ = &next;
        next.state.exchange();
        loop_.switch_to(*next.stack);
        next.state.exchange();
        current_ = nullptr;
        if (next.job == nullptr) {
            free_.push_back(&next); // begin() has reserved the place
        }
    }

    // Suspends the lane that runs, and returns to the loop. Returns after the next enter().
    void leave() noexcept {
        lane& mine = *current_;
        mine.stack->switch_to(loop_);
    }

private:
    [[noreturn]] static void run_all(void* self) noexcept {
        lane_stack::begin();
        auto& me = *static_cast<lanes*>(self);
        for (;;) {
            lane& mine = *me.current_;
            me.run_(me.context_, *mine.job);
            mine.job = nullptr;
            me.leave();
        }
    }

    const function run_;
    void* const context_;
    lane_stack loop_; // of the code that runs the simulation
    lane* current_ = nullptr;
    std::vector<std::unique_ptr<lane>> all_;
    std::vector<lane*> free_;
};

}}} // namespace bide::BIDE_ABI::test::detail

#endif
#endif
