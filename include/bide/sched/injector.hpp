// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_INJECTOR_HPP
#define BIDE_SCHED_INJECTOR_HPP

// The global queue: a linked list under a lock. It holds jobs that external threads have pushed,
// and jobs that did not fit into the ring of a worker (run_queue.hpp), which could not grow. If
// workers do not steal, it also holds jobs that have yielded. One word has the lock and the length:
//
//   length << 2 | lock_bits
//
// A thread that changes the list publishes the new length and releases the lock in one step, which
// is its last access to the queue. So each read of the length is exact. A worker reads the length
// without the lock in its last look before it sleeps: see [idle.announce] in idle.hpp.

#include <bide/core/lock_bits.hpp>
#include <bide/core/wake_scope.hpp>

namespace bide { inline namespace BIDE_ABI {

/// The global queue of a scheduler.
template <class Platform> class basic_injector {
public:
    /// Constructs an empty queue.
    constexpr basic_injector() noexcept = default;
    basic_injector& operator=(basic_injector&&) = delete;

    /// Appends `r`. The queue has no limit.
    /// Thread safety: any thread may call this and the other functions.
    void push(runnable& r) noexcept {
        r.next = nullptr;
        const word length = lock::acquire(word_) >> shift;
        if (length == 0) {
            first_ = &r;
        } else {
            last_->next = &r;
        }
        last_ = &r;
        const auto* const at = &word_;
        // Order: seq_cst; releases the lock [lock_bits.release], and publishes the length before
        // the caller looks for sleepers [idle.announce].
        lock::wake_after(at, word_.exchange((length + 1) << shift, std::memory_order_seq_cst));
    }

    /// Takes the oldest item. Returns nullptr if there is none.
    runnable* pop() noexcept {
        detail::run_list oldest;
        pop(oldest, 1);
        return oldest.first();
    }

    /// Takes the oldest items in one step: `most` of them, or all if there are fewer. Appends them
    /// to `list` in order. Returns the number of items taken.
    /// Requires: `most` is at least one.
    std::size_t pop(detail::run_list& list, std::size_t most) noexcept {
        // Order: relaxed; a hint. A worker that must not miss an item has called empty() before.
        if (word_.load(std::memory_order_relaxed) >> shift == 0) {
            return 0;
        }
        const word length = lock::acquire(word_) >> shift;
        if (length == 0) {
            lock::release_as(word_, 0);
            return 0;
        }
        runnable* const first = first_;
        runnable* last = first;
        word count = 1;
        for (; count < most && count < length; ++count) {
            last = last->next;
        }
        first_ = last->next;
        lock::release_as(word_, (length - count) << shift);
        list.append(*first, *last);
        return detail::integer_cast<std::size_t>(count);
    }

    /// Returns the length, without the lock.
    std::size_t size() const noexcept {
        // Order: seq_cst [idle.announce]; a worker reads the length after its announcement.
        return static_cast<std::size_t>(word_.load(std::memory_order_seq_cst) >> shift);
    }
    /// Returns true if the queue is empty.
    bool empty() const noexcept { return size() == 0; }

    /// Returns how many of `length` items one of `workers` workers takes at a time: an equal share,
    /// but at least 4, at most 64, and never more than `length`.
    static constexpr std::size_t share(std::size_t length, unsigned workers) noexcept {
        const std::size_t part = workers == 0 ? length : length / workers;
        const std::size_t fair = part < 4 ? 4 : part > 64 ? 64 : part;
        return fair < length ? fair : length;
    }

private:
    using word = std::uint64_t;
    using lock = lock_bits<Platform, word>;
    static constexpr unsigned shift = 2;

    alignas(cache_line_pair) typename Platform::template atomic<word> word_{0};
    // Under the lock. Items are linked by `next`; `next` of the last one is nullptr.
    typename Platform::template var<runnable*> first_{nullptr};
    typename Platform::template var<runnable*> last_{nullptr};
};

}} // namespace bide::BIDE_ABI

#endif
