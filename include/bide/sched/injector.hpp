#ifndef BIDE_SCHED_INJECTOR_HPP
#define BIDE_SCHED_INJECTOR_HPP

// The queue of all workers: a list under a lock, for what comes from outside, overflows from a
// worker's ring, or gives way to others. One word holds the lock and the length:
//
//   length << 2 | lock_bits
//
// Whoever changes the list publishes the new length and lets go in one step, its last touch of the
// queue. So the length is right whenever it is read; a look at it without the lock is the second
// half of the pair [I1] in idle.hpp. Only the holder of the lock changes the length.

#include <bide/core/config.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/resume.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace bide::inline BIDE_ABI {

template <class Platform> class basic_injector {
public:
    constexpr basic_injector() noexcept = default;
    basic_injector(const basic_injector&) = delete;
    basic_injector& operator=(const basic_injector&) = delete;

    // Any thread: puts `r` last. There is always room.
    void push(runnable& r) noexcept {
        r.next = nullptr;
        splice(&r, &r, 1);
    }

    // Any thread: puts the `count` items of `list` last, in order, in one step, and leaves it
    // empty.
    void push(detail::run_list& list, std::size_t count) noexcept {
        const detail::run_list all = std::exchange(list, {});
        if (all.first() != nullptr) {
            splice(all.first(), all.last(), count);
        }
    }

    // The oldest, or nullptr.
    runnable* pop() noexcept {
        detail::run_list oldest;
        pop(oldest, 1);
        return oldest.first();
    }

    // Takes up to `most`, but one at least, the oldest, in one step, and puts them last in `list`, in
    // order. Returns how many there were.
    std::size_t pop(detail::run_list& list, std::size_t most) noexcept;

    // Any thread, without the lock.
    std::size_t size() const noexcept {
        // Order: seq_cst [I1]; the last look, after the announcement.
        return static_cast<std::size_t>(word_.load(std::memory_order_seq_cst) >> shift);
    }
    bool empty() const noexcept { return size() == 0; }

    // How many of `length` items a worker of so many takes at a time: its part, but 4 to 64, and at
    // most what is there.
    static constexpr std::size_t share(std::size_t length, unsigned workers) noexcept {
        const std::size_t part = workers == 0 ? length : length / workers;
        const std::size_t fair = part < 4 ? 4 : part > 64 ? 64 : part;
        return fair < length ? fair : length;
    }

private:
    using word = std::uint64_t;
    using lock = lock_bits<Platform, word>;
    static constexpr unsigned shift = 2;

    void splice(runnable* first, runnable* last, std::size_t count) noexcept;

    alignas(cache_line_pair) typename Platform::template atomic<word> word_{0};
    // Under the lock; linked by `next`, the last one's is nullptr.
    typename Platform::template var<runnable*> first_{nullptr};
    typename Platform::template var<runnable*> last_{nullptr};
};

template <class Platform>
void basic_injector<Platform>::splice(runnable* first, runnable* last, std::size_t count) noexcept {
    const word length = lock::acquire(word_) >> shift;
    if (length == 0) {
        first_ = first;
    } else {
        last_->next = first;
    }
    last_ = last;
    const word next = (length + count) << shift;
    const auto* const at = &word_;
    // Order: seq_cst; lets go [lock_bits.release], and shows the length before the look for sleepers [I1].
    lock::wake_after(at, word_.exchange(next, std::memory_order_seq_cst));
}

template <class Platform>
std::size_t basic_injector<Platform>::pop(detail::run_list& list, std::size_t most) noexcept {
    // Order: relaxed; whoever must not overlook anything has asked empty() before.
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
    return static_cast<std::size_t>(count);
}

} // namespace bide::inline BIDE_ABI

#endif
