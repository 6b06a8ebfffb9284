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

// What the leaves of one parallel loop share: whether the rest of it is in vain.
//
// A leaf that throws says where it began, and so does what combines leaves. Leaves further on are
// left out from then on, leaves before it are not: the exception that remains is the one of a serial
// loop.
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

    // Whether the leaf, or the part, that begins with iteration `at` is left out.
    bool leaves_out(std::uint64_t at) noexcept {
        // Order: relaxed; who sees it late does what would not have been needed.
        if (failed_at_.load(std::memory_order_relaxed) < at) {
            return true;
        }
        if (!stop_.stop_requested()) {
            return false;
        }
        // Order: relaxed; read after the loop's last join, which orders them.
        stopped_.store(true, std::memory_order_relaxed);
        return true;
    }

    // Runs a leaf of so many iterations; or of none, what comes after the leaves from there.
    template <class Leaf> void run(std::uint64_t at, std::uint64_t iterations, Leaf&& leaf) {
        attempt mine(*this, at);
        leaf();
        mine.succeeded = true;
        if (progress_ != nullptr) {
            progress_->count(iterations);
        }
    }

    // After the loop. Throws: stopped_error if a leaf was left out for a stop.
    void finish() {
        // Order: relaxed; the loop's joins order it after the leaves.
        if (stopped_.load(std::memory_order_relaxed)) {
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
                state.failed(at);
            }
        }
        basic_loop_state& state;
        const std::uint64_t at;
        bool succeeded = false;
    };

    void failed(std::uint64_t at) noexcept {
        // Order: relaxed, all three; only the number counts.
        std::uint64_t seen = failed_at_.load(std::memory_order_relaxed);
        while (at < seen && !failed_at_.compare_exchange_weak(seen, at, std::memory_order_relaxed,
                                                              std::memory_order_relaxed)) {
        }
    }

    typename Platform::template atomic<std::uint64_t> failed_at_{
        (std::numeric_limits<std::uint64_t>::max)()};
    typename Platform::template atomic<bool> stopped_{false};
    const std::stop_token& stop_;
    fork_progress* const progress_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
