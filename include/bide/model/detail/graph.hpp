// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_GRAPH_HPP
#define BIDE_MODEL_DETAIL_GRAPH_HPP

// The parts of an execution: events, and vector clocks that order the events.

#include <bide/core/config.hpp>
#include <bide/model/detail/ops.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

using bits = ops::bits;
using ops::order;
using ops::site;

inline constexpr int max_threads = 8;

// The number of an object that was not constructed in an execution.
inline constexpr int outside = ops::outside;

inline std::size_t index(int i) noexcept { return static_cast<std::size_t>(i); }

// Counts the steps of a thread. It has 16 bits, so that a clock fits into one vector register.
using step_count = std::uint16_t;
inline constexpr int most_steps = 60'000;

// Identifies an event: it is the index-th step of a thread, counted from 1. The event has the same
// identifier in every execution in which the thread makes that step.
struct event_id {
    std::uint8_t thread = initial_thread;
    step_count index = 0;

    static constexpr std::uint8_t initial_thread = 255; // writes the initial values of objects

    bool is_initial() const noexcept { return thread == initial_thread; }
    friend bool operator==(const event_id&, const event_id&) = default;
};

// For each thread, the number of its events that come before.
struct clock {
    std::array<step_count, max_threads> seen{};

    void join(const clock& other) noexcept {
        vector mine = as_vector();
        const vector theirs = other.as_vector();
        mine = mine < theirs ? theirs : mine;
        std::memcpy(&seen, &mine, sizeof mine);
    }
    bool covers(event_id e) const noexcept { return e.is_initial() || seen[e.thread] >= e.index; }

private:
    // Clocks are often copied. A copy is slow if the clock was stored number by number, so a clock
    // is stored as a whole.
    using vector [[gnu::vector_size(max_threads * sizeof(step_count))]] = step_count;
    vector as_vector() const noexcept {
        vector all;
        std::memcpy(&all, &seen, sizeof all);
        return all;
    }
};

struct event {
    enum class kind : std::uint8_t {
        read,  // of an atomic or queue object; with `exclusive`, a write of the same step follows
        write, // with `exclusive`, the second half of a read-modify-write
        fence,
        choice,
        local, // another step of a thread: start, end, join, wake-up
    };

    event_id id;
    kind what = kind::local;
    order with = order::relaxed;
    bool exclusive = false;
    int object = -1;
    int message = -1; // the message that a read has read, or that a write has made
    bits value = 0;
    int pick = 0;
    int node = -1;           // in the seq_cst order
    std::uint32_t stamp = 0; // the order of addition; a revisit keeps it (exhaustive.hpp)
    clock hb;                // the events that happen before it, and itself
    clock causes;            // as `hb`, by program order and all reads-from edges
    site where;
    const char* text = ""; // for traces
};

const char* text(order o); // trace.cpp

constexpr bool is_acquire(order o) noexcept {
    return o == order::acquire || o == order::consume || o == order::acq_rel || o == order::seq_cst;
}
constexpr bool is_release(order o) noexcept {
    return o == order::release || o == order::acq_rel || o == order::seq_cst;
}

}}} // namespace bide::BIDE_ABI::model::detail

#endif
