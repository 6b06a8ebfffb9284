// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_LOOP_STATE_HPP
#define BIDE_PARALLEL_DETAIL_LOOP_STATE_HPP

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/result.hpp>
#include <bide/parallel/fork_progress.hpp>

#include <cstdint>
#include <limits>
#include <stop_token>

namespace bide::inline BIDE_ABI {
namespace detail {

// Makes `to` the lower one of two numbers. Threads that read it until they join may see a higher one.
template <class Number> void lower(Number& to, std::uint64_t at) noexcept {
    // Order: relaxed, all three; it publishes nothing but the number.
    std::uint64_t seen = to.load(std::memory_order_relaxed);
    while (at < seen && !to.compare_exchange_weak(seen, at, std::memory_order_relaxed,
                                                  std::memory_order_relaxed)) {
    }
}

// The state that the leaves of one parallel loop share: it tells which leaves are skipped after an
// exception, a stop, or a leaf that found what the loop searches.
//
// If a leaf or a combination of leaves throws, its first iteration is recorded. From then on,
// leaves with higher indices are skipped; leaves with lower indices still run. So the exception
// that remains is the one that a serial loop would throw. A search ends in the same way.
template <class Platform> class basic_loop_state {
public:
    basic_loop_state(const fork_options& options, std::uint64_t iterations) noexcept
        : stop_(options.stop), progress_(options.progress) {
        if (progress_ != nullptr) {
            progress_->expect(iterations);
        }
    }
    basic_loop_state(const basic_loop_state&) = delete;
    basic_loop_state& operator=(const basic_loop_state&) = delete;

    // Returns true if the leaf or part that begins with iteration `at` is left out.
    bool leaves_out(std::uint64_t at) noexcept {
        // Order: relaxed; a thread that sees it late runs a leaf in vain.
        if (last_.load(std::memory_order_relaxed) < at) {
            return true;
        }
        if (!stop_.stop_requested()) {
            return false;
        }
        // Order: relaxed; finish() reads it after the loop's last join, which orders them.
        stopped_.store(true, std::memory_order_relaxed);
        return true;
    }

    // Runs a leaf of `iterations` iterations that begins at `at`. If `iterations` is 0, runs a step
    // that follows the leaves, such as a combination.
    template <class Leaf> void run(std::uint64_t at, std::uint64_t iterations, Leaf&& leaf) {
        attempt mine(*this, at);
        leaf();
        mine.succeeded = true;
        count(iterations);
    }

    // Counts iterations that are done.
    void count(std::uint64_t iterations) noexcept {
        if (progress_ != nullptr && iterations != 0) {
            progress_->count(iterations);
        }
    }

    // From now on, leaves that begin after iteration `at` are left out.
    void end_at(std::uint64_t at) noexcept { detail::lower(last_, at); }

    // Records that the leaf or part that begins at `at` has thrown.
    void fail_at(std::uint64_t at) noexcept {
        detail::lower(failed_at_, at);
        end_at(at);
    }

    // Called after the loop. Returns where the first leaf or part began that has thrown, or the
    // largest number if none has.
    std::uint64_t failed_at() const noexcept {
        // Order: relaxed; the loop's joins order it after the leaves.
        return failed_at_.load(std::memory_order_relaxed);
    }

    // Called between two phases of an algorithm, each a loop or a tree of joins. Returns true if a
    // part was left out because of a stop.
    bool was_stopped() const noexcept {
        // Order: relaxed; the joins of the phase order it after the parts.
        return stopped_.load(std::memory_order_relaxed);
    }

    // Called after the loop. Throws: stopped_error if a leaf was left out because of a stop.
    void finish() {
        if (was_stopped()) {
            BIDE_THROW(stopped_error(make_error_code(errc::stopped)));
        }
    }

private:
    struct attempt {
        attempt(basic_loop_state& in, std::uint64_t where) noexcept : state(in), at(where) {}
        attempt(const attempt&) = delete;
        attempt& operator=(const attempt&) = delete;
        ~attempt() {
            if (!succeeded) {
                state.fail_at(at);
            }
        }
        basic_loop_state& state;
        const std::uint64_t at;
        bool succeeded = false;
    };

    using number = typename Platform::template atomic<std::uint64_t>;

    number last_{(std::numeric_limits<std::uint64_t>::max)()};
    number failed_at_{(std::numeric_limits<std::uint64_t>::max)()};
    typename Platform::template atomic<bool> stopped_{false};
    const std::stop_token& stop_;
    fork_progress* const progress_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
