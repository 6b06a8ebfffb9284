#ifndef BIDE_TASK_DETAIL_FRAME_DEPOT_HPP
#define BIDE_TASK_DETAIL_FRAME_DEPOT_HPP

// Where threads leave batches of memory blocks that they have too many of, for others to take.
//
// The depot is for those who find it free within a few looks. Others do without: nobody sleeps
// here, and a process that was forked while a thread was inside goes on with operator new.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace bide::inline BIDE_ABI {
namespace detail {

// A block that is not in use. A batch is a list of them, ended by nullptr, of as many as batch() says.
struct frame_block {
    frame_block* next;
    frame_block* next_batch; // of a batch's first, in the depot
};

template <class Platform> class alignas(cache_line_pair) basic_frame_depot {
public:
    static constexpr std::size_t grain = 16; // class k has blocks of (k + 1) * grain bytes
    static constexpr std::size_t kinds = 64;
    static constexpr std::size_t largest = kinds * grain;

    // Blocks in a batch of class k.
    static constexpr std::uint32_t batch(std::size_t kind) noexcept {
        constexpr std::size_t most = 64;
        constexpr std::size_t bytes = 16 << 10;
        const std::size_t n = bytes / ((kind + 1) * grain);
        return static_cast<std::uint32_t>(n < most ? n : most);
    }
    static constexpr std::size_t batch_bytes(std::size_t kind) noexcept {
        return batch(kind) * (kind + 1) * grain;
    }

    // Empty; takes at most that many bytes.
    constexpr explicit basic_frame_depot(std::size_t most) noexcept : most_(most) {}
    basic_frame_depot(const basic_frame_depot&) = delete;
    basic_frame_depot& operator=(const basic_frame_depot&) = delete;

    // A batch of that class, or nullptr.
    frame_block* take(std::size_t kind) noexcept {
        if (!enter()) {
            return nullptr;
        }
        frame_block* const first = batches_[kind];
        if (first != nullptr) {
            batches_[kind] = first->next_batch;
            bytes_ = bytes_ - batch_bytes(kind);
        }
        leave();
        return first;
    }

    // Takes a batch. False: it has no room for it, or no time.
    bool give(std::size_t kind, frame_block* first) noexcept {
        if (!enter()) {
            return false;
        }
        const bool fits = bytes_ + batch_bytes(kind) <= most_;
        if (fits) {
            first->next_batch = batches_[kind];
            batches_[kind] = first;
            bytes_ = bytes_ + batch_bytes(kind);
        }
        leave();
        return fits;
    }

    // A snapshot; the most that there may be, where nobody gets inside.
    std::size_t bytes() noexcept {
        if (!enter()) {
            return most_;
        }
        const std::size_t now = bytes_;
        leave();
        return now;
    }

private:
    template <class T> using var = typename Platform::template var<T>;

    bool enter() noexcept {
        for (int looked = 0;; ++looked) {
            // Order: relaxed; the CAS decides.
            std::uint32_t seen = taken_.load(std::memory_order_relaxed);
            // Order: acquire [F1]; what the last one did inside, and to its blocks before. Failure
            // relaxed: look again.
            if (seen == 0 && taken_.compare_exchange_strong(seen, 1, std::memory_order_acquire,
                                                            std::memory_order_relaxed)) {
                return true;
            }
            if (looked == Platform::lock_pauses) {
                return false;
            }
            Platform::pause();
        }
    }
    void leave() noexcept {
        // Order: release [F1]; what was done inside is seen by the next.
        taken_.store(0, std::memory_order_release);
    }

    typename Platform::template atomic<std::uint32_t> taken_{0};
    const std::size_t most_;

    // While `taken_`:
    var<std::size_t> bytes_{0};
    var<frame_block*> batches_[kinds] = {};
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
