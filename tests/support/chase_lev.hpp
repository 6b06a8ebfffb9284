#ifndef BIDE_TESTS_SUPPORT_CHASE_LEV_HPP
#define BIDE_TESTS_SUPPORT_CHASE_LEV_HPP

// The deque of Chase and Lev with the orders of Lê, Pop, Cohen, Zappa Nardelli, "Correct and
// Efficient Work-Stealing for Weak Memory Models" (PPoPP 2013), figure 1, with the face of
// bide::basic_fork_deque: what the two are asked alike, they answer alike. The release fence of
// its push is a release store here, which ThreadSanitizer understands.

#include <bide/sched/fork_deque.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace test {

template <class Platform, class Job, unsigned First = 256> class chase_lev {
public:
    chase_lev() {
        rings_.push_back(std::make_unique<ring>(First));
        ring_.store(rings_.back().get(), std::memory_order_relaxed);
    }

    std::uint32_t depth() const noexcept { return depth_; }

    bool push(Job& job) {
        const std::int64_t b = bottom_.load(std::memory_order_relaxed);
        const std::int64_t t = top_.load(std::memory_order_acquire);
        ring* a = ring_.load(std::memory_order_relaxed);
        if (b - t > a->size - 1) {
            a = grow(*a, t, b);
        }
        a->at(b).store(&job, std::memory_order_relaxed);
        bottom_.store(b + 1, std::memory_order_release);
        ++depth_;
        return true;
    }

    bide::fork_pop pop(std::uint32_t) noexcept {
        const std::int64_t b = bottom_.load(std::memory_order_relaxed) - 1;
        bottom_.store(b, std::memory_order_relaxed);
        Platform::fence(std::memory_order_seq_cst);
        std::int64_t t = top_.load(std::memory_order_relaxed);
        bool mine = t <= b;
        if (t >= b) {
            if (mine) {
                mine = top_.compare_exchange_strong(t, t + 1, std::memory_order_seq_cst,
                                                    std::memory_order_relaxed);
            }
            bottom_.store(b + 1, std::memory_order_relaxed);
        }
        depth_ -= mine ? 1 : 0;
        return mine ? bide::fork_pop::popped : bide::fork_pop::stolen;
    }

    void reset(std::uint32_t at) noexcept { depth_ = at; }

    Job* steal() noexcept {
        std::int64_t t = top_.load(std::memory_order_acquire);
        Platform::fence(std::memory_order_seq_cst);
        const std::int64_t b = bottom_.load(std::memory_order_acquire);
        if (t >= b) {
            return nullptr;
        }
        Job* const job =
            ring_.load(std::memory_order_acquire)->at(t).load(std::memory_order_relaxed);
        return top_.compare_exchange_strong(t, t + 1, std::memory_order_seq_cst,
                                            std::memory_order_relaxed)
                   ? job
                   : nullptr;
    }

    bool is_empty_to_thieves() const noexcept {
        return top_.load(std::memory_order_seq_cst) >= bottom_.load(std::memory_order_seq_cst);
    }

private:
    using slot = typename Platform::template atomic<Job*>;

    struct ring {
        explicit ring(std::int64_t n)
            : size(n), slots(std::make_unique<slot[]>(static_cast<std::size_t>(n))) {}
        slot& at(std::int64_t i) noexcept { return slots[static_cast<std::size_t>(i % size)]; }
        const std::int64_t size;
        const std::unique_ptr<slot[]> slots;
    };

    ring* grow(ring& full, std::int64_t t, std::int64_t b) {
        rings_.push_back(std::make_unique<ring>(2 * full.size));
        ring* const larger = rings_.back().get();
        for (std::int64_t i = t; i < b; ++i) {
            larger->at(i).store(full.at(i).load(std::memory_order_relaxed),
                                std::memory_order_relaxed);
        }
        ring_.store(larger, std::memory_order_release);
        return larger;
    }

    typename Platform::template atomic<std::int64_t> top_{0};
    typename Platform::template atomic<std::int64_t> bottom_{0};
    std::vector<std::unique_ptr<ring>> rings_;
    typename Platform::template atomic<ring*> ring_{nullptr};
    std::uint32_t depth_ = 0; // with those that were stolen
};

} // namespace test

#endif
