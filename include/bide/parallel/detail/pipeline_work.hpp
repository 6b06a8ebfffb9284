// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_PIPELINE_WORK_HPP
#define BIDE_PARALLEL_DETAIL_PIPELINE_WORK_HPP

// What the threads of a pipeline can do next, in one word:
//
//   tokens     bits 0 to 23    how many more items may be in flight
//   sleepers   bits 24 to 34   threads that sleep, or are about to, and that no thread wakes yet
//   searchers  bits 35 to 45   threads that look for work: they spin, or are being woken
//   closed     bit 46          the source gives no more items
//   source     bit 47          no thread reads the source, and it is not closed
//   stages     bits 48 to 63   for each serial stage: the item whose turn it is waits, and no thread
//                              runs the stage
//
// A thread takes a stage, or the source and a token, by one CAS. So the stage with its item, or the
// source, belongs to that thread until it puts them back [pipeline_work.taken]. Stages come before
// the source and late stages before early ones, so that items end before others begin. All is over
// if the source is closed and no token is in use.
//
// Sleeping. A thread that finds nothing to do counts itself as a searcher. If it still finds nothing,
// it becomes a sleeper, by a CAS that fails if there is something to do meanwhile. The thread that
// puts work into the word, or leaves some there, sees that in the value that its read-modify-write
// returned. If there is a sleeper and no searcher, it turns a sleeper into a searcher and gives it a
// permit of the semaphore. If there is a searcher, that one sees the work before it sleeps, and wakes
// the next one if it leaves work there. So no wake is lost, and items that are cheaper than a wake
// cost one wake at a time, however many threads sleep.
//
// Only a thread that has nothing to do sleeps: it has no item, no stage and no source. The threads
// that have these never wait for a thread of the pipeline. So a pipeline with one thread comes to
// its end, too.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/spin.hpp>
#include <bide/sync/semaphore.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_pipeline_work {
    using word = std::uint64_t;

public:
    // The most items in flight, threads, and serial stages.
    static constexpr std::uint32_t most_tokens = (1U << 24) - 1;
    static constexpr unsigned most_threads = 1U << 10;
    static constexpr unsigned most_stages = 16;

    // What a thread has taken: `over`, `source`, or a number from 0 on, of a serial stage.
    static constexpr int over = -2;
    static constexpr int source = -1;

    // Requires: 1 <= tokens <= most_tokens.
    explicit basic_pipeline_work(std::uint32_t tokens) noexcept
        : tokens_(tokens), word_(source_bit + tokens) {}
    basic_pipeline_work(const basic_pipeline_work&) = delete;
    basic_pipeline_work& operator=(const basic_pipeline_work&) = delete;

    // Puts back the token of an item that has ended, if `has_token`, and takes the next work.
    // Blocks: until there is some, or all is over.
    int take(bool has_token);

    // The source can be read again.
    void put_source() { put(source_bit); }

    // The source gives no more items. The caller puts its token back by take().
    void close_source() noexcept {
        // Order: relaxed; the caller's take() orders what was done with the source.
        word_.fetch_or(closed_bit, std::memory_order_relaxed);
    }

    // An item waits for the serial stage, and has its turn.
    void put_stage(unsigned stage) { put(first_stage << stage); }

private:
    static constexpr word one_token = 1;
    static constexpr word token_mask = most_tokens;
    static constexpr word one_sleeper = word{1} << 24;
    static constexpr word sleeper_mask = ((word{1} << 11) - 1) << 24;
    static constexpr word one_searcher = word{1} << 35;
    static constexpr word searcher_mask = ((word{1} << 11) - 1) << 35;
    static constexpr word closed_bit = word{1} << 46;
    static constexpr word source_bit = word{1} << 47;
    static constexpr word first_stage = word{1} << 48;

    // Returns the bit of the work that comes first, or 0 if there is none.
    static constexpr word first_of(word seen) noexcept {
        if (seen >= first_stage) {
            return std::bit_floor(seen);
        }
        return (seen & token_mask) != 0 ? seen & source_bit : 0;
    }
    bool is_over(word seen) const noexcept {
        return (seen & (closed_bit | token_mask)) == (closed_bit | tokens_);
    }
    static constexpr std::ptrdiff_t sleepers_of(word seen) noexcept {
        return static_cast<std::ptrdiff_t>((seen & sleeper_mask) / one_sleeper);
    }

    static constexpr bool needs_wake(word seen) noexcept {
        return (seen & sleeper_mask) != 0 && (seen & searcher_mask) == 0 && first_of(seen) != 0;
    }
    bool is_idle(word seen) const noexcept { return first_of(seen) == 0 && !is_over(seen); }

    void put(word bit) {
        // Order: release [pipeline_work.taken]; the thread that takes it sees what was done with
        // it. Sleepers are seen in the value that the operation returned.
        const word seen = word_.fetch_or(bit, std::memory_order_release) | bit;
        if (needs_wake(seen)) [[unlikely]] {
            wake_one(seen);
        }
    }

    BIDE_COLD void wake_one(word seen) {
        while (needs_wake(seen)) {
            // Order: relaxed, both; the thread that is woken reads the word again.
            if (word_.compare_exchange_weak(seen, seen - one_sleeper + one_searcher,
                                            std::memory_order_relaxed, std::memory_order_relaxed)) {
                sleep_.release();
                return;
            }
        }
    }

    BIDE_COLD bool search(word seen, bool is_searcher);

    const word tokens_;
    alignas(cache_line_pair) typename Platform::template atomic<word> word_;
    alignas(cache_line_pair) basic_semaphore<Platform> sleep_{0};
};

template <class Platform> int basic_pipeline_work<Platform>::take(bool has_token) {
    bool is_searcher = false;
    // Order: acquire [pipeline_work.taken]; if all is over, sees what the thread did that put the
    // last token back. Otherwise the CAS decides.
    word seen = word_.load(std::memory_order_acquire);
    for (;;) {
        const word with = has_token ? seen + one_token : seen;
        const word bit = first_of(with);
        if (bit == 0 && !has_token) {
            if (is_over(with)) {
                return over;
            }
            is_searcher = search(seen, is_searcher);
            // Order: acquire [pipeline_work.taken]; as above.
            seen = word_.load(std::memory_order_acquire);
            continue;
        }
        const bool ends = bit == 0 && is_over(with);
        word next = with - bit - (bit == source_bit ? one_token : 0);
        next -= is_searcher ? one_searcher : 0;
        // Order: acq_rel [pipeline_work.taken]; sees what the thread did that put the work there,
        // and publishes what this thread did with the item that has ended. Failure acquire: as the
        // load above.
        if (!word_.compare_exchange_weak(seen, ends ? next & ~sleeper_mask : next,
                                         std::memory_order_acq_rel, std::memory_order_acquire)) {
            continue;
        }
        if (ends && sleepers_of(next) != 0) {
            sleep_.release(sleepers_of(next));
        } else if (needs_wake(next)) {
            wake_one(next);
        }
        if (bit != 0) {
            return bit == source_bit ? source : std::countr_zero(bit / first_stage);
        }
        has_token = false;
        seen = ends ? next & ~sleeper_mask : next;
    }
}

// Waits until there is something to do. May return early. Returns true if the caller is a searcher.
template <class Platform> bool basic_pipeline_work<Platform>::search(word seen, bool is_searcher) {
    while (!is_searcher) {
        if (!is_idle(seen)) {
            return false;
        }
        // Order: relaxed, both; take() reads again.
        is_searcher = word_.compare_exchange_weak(
            seen, seen + one_searcher, std::memory_order_relaxed, std::memory_order_relaxed);
    }
    const auto has_changed = [this, &seen]() noexcept {
        // Order: relaxed; take() reads again.
        seen = word_.load(std::memory_order_relaxed);
        return !is_idle(seen);
    };
    if (basic_spin<Platform>::spin_apart(has_changed) || basic_spin<Platform>::until(has_changed)) {
        return true;
    }
    while (is_idle(seen)) {
        // Order: relaxed, both; a thread that puts work there later sees the sleeper.
        if (word_.compare_exchange_weak(seen, seen - one_searcher + one_sleeper,
                                        std::memory_order_relaxed, std::memory_order_relaxed)) {
            sleep_.acquire(); // the thread that wakes this one makes it a searcher again
            break;
        }
    }
    return true;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
