// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_PIPELINE_QUEUE_HPP
#define BIDE_PARALLEL_DETAIL_PIPELINE_QUEUE_HPP

// The items that wait for a serial stage. The stage takes places in order: 0, 1, 2, ... The place of
// an item is its number, or the order of its arrival if the stage keeps no order. No thread waits: a
// thread whose item is not next leaves the item in the slot of its place. The slot is one word and
// the item:
//
//   empty   neither has come
//   filled  the item is in the slot; its turn has not come
//   turn    the stage is free for this place; the item has not come
//   (else)  never
//
// The item and the turn come from two threads, each by one exchange. The thread that comes second
// sees that, and has the turn and the item [pipeline_queue.turn]. So exactly one thread runs the
// stage, and none waits for it.
//
// At most `tokens` items are in flight, and there are at least as many slots. So of the items of the
// places p to p + tokens, one was read after another had ended. The item that ended had passed the
// stage, and so had place p. The other was read, and has arrived, no later than the item of place
// p + tokens: places are given in the order of reads, or of arrivals [pipeline_queue.arrival]. So
// the item of place p + tokens finds the slot as place p has left it: empty.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/parallel/detail/pipeline_item.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform, class T> class basic_pipeline_queue {
public:
    // An item that waits, and its number.
    struct waiting {
        pipeline_item<T> item;
        std::uint64_t number = 0;
    };

    // Requires: tokens is at least 1.
    // Throws: std::bad_alloc.
    explicit basic_pipeline_queue(std::uint32_t tokens)
        : mask_(std::bit_ceil(std::size_t{tokens}) - 1),
          slots_(std::make_unique<slot[]>(mask_ + 1)) {
        // Order: relaxed; no other thread knows the queue yet.
        slots_[0].state.store(turn, std::memory_order_relaxed);
    }
    basic_pipeline_queue(const basic_pipeline_queue&) = delete;
    basic_pipeline_queue& operator=(const basic_pipeline_queue&) = delete;

    // Returns a place by the order of the calls.
    std::uint64_t arrive() noexcept {
        // Order: acq_rel [pipeline_queue.arrival]; sees the slots that were emptied before an earlier
        // arrival, which is the other end [pipeline_queue.arrival].
        return arrivals_.fetch_add(1, std::memory_order_acq_rel);
    }

    // Returns true if the place has its turn: the caller runs the stage with its item.
    bool has_turn(std::uint64_t place) noexcept {
        slot& s = slots_[place & mask_];
        // Order: acquire [pipeline_queue.turn]; sees what the stage did for the place before.
        if (s.state.load(std::memory_order_acquire) != turn) {
            return false;
        }
        // Order: relaxed; the turn that the caller passes on publishes it.
        s.state.store(empty, std::memory_order_relaxed);
        return true;
    }

    // Returns the slot of a place, for its item. Only the thread that has the item may call it, and
    // leaves the slot to the stage by leave().
    waiting& slot_of(std::uint64_t place) noexcept { return slots_[place & mask_].held; }

    // Leaves the item in the slot to the stage. Returns false if the place got its turn meanwhile:
    // then the caller runs the stage with the item in the slot.
    bool leave(std::uint64_t place) noexcept {
        slot& s = slots_[place & mask_];
        // Order: acq_rel [pipeline_queue.turn]; publishes the item, or sees what the stage did.
        if (s.state.exchange(filled, std::memory_order_acq_rel) == empty) {
            return true;
        }
        // Order: relaxed; as in has_turn().
        s.state.store(empty, std::memory_order_relaxed);
        return false;
    }

    // Ends the turn of the place that has it. Returns true if the item of the next place waits: then
    // the caller has that turn, and gives it to the thread that calls next().
    bool pass_turn() noexcept {
        next_ = next_ + 1;
        slot& s = slots_[next_ & mask_];
        // Order: acq_rel [pipeline_queue.turn]; publishes what the stage did, or sees the item.
        if (s.state.exchange(turn, std::memory_order_acq_rel) == empty) {
            return false;
        }
        // Order: relaxed; as in has_turn().
        s.state.store(empty, std::memory_order_relaxed);
        return true;
    }

    // Returns the slot of the item whose turn it is. Requires: the caller has that turn.
    waiting& next() noexcept { return slots_[next_ & mask_].held; }

private:
    using word = std::uint32_t;

    static constexpr word empty = 0;
    static constexpr word filled = 1;
    static constexpr word turn = 2;

    struct slot {
        typename Platform::template atomic<word> state{empty};
        waiting held; // belongs to the thread that has the item, or to the one that has the turn
    };

    const std::size_t mask_;
    const std::unique_ptr<slot[]> slots_;
    // The place that has the turn. Belongs to the thread that has the turn.
    typename Platform::template var<std::uint64_t> next_{0};
    typename Platform::template atomic<std::uint64_t> arrivals_{0};
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
