// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_FOR_HPP
#define BIDE_PARALLEL_PARALLEL_FOR_HPP

// A loop that runs its iterations in parallel. The loop divides itself when other threads want
// work.
//
// Each part of the loop runs in chunks. If thieves would find no arm of this thread, half of what
// is left is forked. So there are few forks while all workers are busy, and as many as are useful
// if an iteration takes long or some take longer than others. A chunk has one iteration at first,
// and grows until it takes 4 us by the clock. All parts share what was learned.
//
// Within a chunk, the part asks again whether thieves want work: at the start of a part after 64
// iterations, then after 256, 1,024 and 2,048 more, and later after up to 8,192 if iterations are
// short. The next iterations may take longer; if thieves want work, the chunk ends and the clock is
// read. The ends of parts are rounded to multiples of 64, so that vector instructions fit.

#include <bide/core/config.hpp>
#include <bide/parallel/detail/fork_entry.hpp>
#include <bide/parallel/detail/loop_range.hpp>
#include <bide/parallel/detail/loop_state.hpp>
#include <bide/parallel/fork_progress.hpp>
#include <bide/sched/scheduler.hpp>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace bide::inline BIDE_ABI {
namespace detail {

// A leaf: a plain loop. If the body is small and can be called as const, the loop copies it first.
// No other code knows the address of the copy, so the compiler keeps the captures in registers.
template <class Index, class Body> void run_iterations(Index first, Index last, Body& body) {
    using plain = std::decay_t<Body>; // a function becomes a pointer to it
    if constexpr (std::is_trivially_copyable_v<plain> && sizeof(plain) <= 64 &&
                  std::is_constructible_v<const plain, Body&> &&
                  std::is_invocable_v<const plain&, Index>) {
        const plain mine(body);
        for (Index i = first; i != last; ++i) {
            static_cast<void>(mine(i));
        }
    } else {
        for (Index i = first; i != last; ++i) {
            static_cast<void>(body(i));
        }
    }
}

template <class Forker, class Index, class Body> class parallel_loop {
    using platform = typename Forker::platform;
    using range = loop_range<Index>;

public:
    parallel_loop(Forker forks, range all, const fork_options& options, Body& body) noexcept
        : forks_(forks), first_(all.first), grain_(options.grain), body_(body),
          state_(options, all.size()) {}

    void run(range all) {
        forks_.enter([this, all] { run_part(all, first_chunk()); });
        state_.finish();
    }

private:
    // The intended time of a chunk in nanoseconds; the largest factor by which a chunk grows; its
    // largest size.
    static constexpr std::int64_t chunk_time = 4'000;
    static constexpr std::uint64_t growth = 64;
    static constexpr std::uint64_t longest_chunk = 1 << 24;
    // The most iterations between two questions: first_block at the start of a part, then four
    // times as many each time, up to an eighth of a chunk, which is clamped to the other two.
    static constexpr std::uint64_t first_block = 64;
    static constexpr std::uint64_t common_block = 2'048;
    static constexpr std::uint64_t longest_block = 8'192;
    static constexpr std::uint64_t vector = 64;

    void run_part(range part, std::uint64_t chunk) {
        std::uint64_t block = first_block;
        std::int64_t before = 0; // when the chunk began, or 0 if that is unknown
        while (!part.empty()) {
            const std::uint64_t left = part.size();
            if (is_worth_forking(left, chunk) && forks_.wants_work()) {
                return fork(part, chunk);
            }
            if (grain_ != 0) {
                if (!run_leaf(part, left / 2 < grain_ ? left : grain_)) {
                    return;
                }
                continue;
            }
            if (before == 0 && left > (std::min)(chunk, block)) {
                before = platform::now();
            }
            if (!run_chunk(part, left <= chunk ? left : rounded(part.first, chunk), block) ||
                part.empty()) {
                return;
            }
            const std::int64_t after = platform::now();
            chunk = next_chunk(left - part.size(), after - before);
            before = after;
            learn(chunk);
        }
    }

    // The second half begins with the chunk that was learned by then. A part that is left out is
    // not divided.
    void fork(range part, std::uint64_t chunk) {
        if (state_.leaves_out(range{first_, part.first}.size())) {
            return;
        }
        std::uint64_t half = part.size() / 2;
        if (grain_ == 0) {
            half = rounded(part.first, half);
        }
        const Index middle = part.at(half);
        forks_.both([this, part, middle, chunk] { run_part({part.first, middle}, chunk); },
                    [this, part, middle] { run_part({middle, part.last}, first_chunk()); });
    }

    // With a grain: both halves are at least that large. Without: what is left takes longer than a
    // fork.
    bool is_worth_forking(std::uint64_t left, std::uint64_t chunk) const noexcept {
        return left >= 2 && left / 2 >= (grain_ != 0 ? grain_ : chunk / 4);
    }

    // Returns at most n iterations, so that the end is at a multiple of `vector` from the first
    // index.
    std::uint64_t rounded(Index from, std::uint64_t n) const noexcept {
        const std::uint64_t at = range{first_, from}.size();
        return n < vector ? n : n - (at + n) % vector;
    }

    std::uint64_t first_chunk() const noexcept {
        // Order: relaxed; an estimate.
        return grain_ != 0 ? grain_ : learned_.load(std::memory_order_relaxed);
    }

    static std::uint64_t next_chunk(std::uint64_t iterations, std::int64_t took) noexcept {
        const auto nanoseconds = static_cast<std::uint64_t>((std::max)(took, std::int64_t{1}));
        const std::uint64_t fitting =
            (std::max)(iterations * chunk_time / nanoseconds, std::uint64_t{1});
        return (std::min)({fitting, iterations * growth, longest_chunk});
    }

    // Other parts begin with this chunk. It is written only if it has changed by a factor of two,
    // because all parts read the cache line.
    void learn(std::uint64_t chunk) noexcept {
        // Order: relaxed, both; an estimate.
        const std::uint64_t old = learned_.load(std::memory_order_relaxed);
        if (chunk < old / 2 || chunk / 2 > old) {
            learned_.store(chunk, std::memory_order_relaxed);
        }
    }

    // Runs up to n iterations in blocks, fewer if thieves want work. Returns false if the rest is
    // left out.
    bool run_chunk(range& part, std::uint64_t n, std::uint64_t& block) {
        const std::uint64_t most = std::clamp(n / 8 / vector * vector, common_block, longest_block);
        for (;;) {
            const std::uint64_t now = (std::min)(n, block);
            if (!run_leaf(part, now)) {
                return false;
            }
            block = (std::min)(4 * block, most);
            n -= now;
            if (n == 0 || forks_.wants_work()) {
                return true;
            }
        }
    }

    bool run_leaf(range& part, std::uint64_t n) {
        const std::uint64_t at = range{first_, part.first}.size();
        if (state_.leaves_out(at)) {
            return false;
        }
        const Index begin = part.first;
        part.first = part.at(n);
        state_.run(at, n, [&] { detail::run_iterations(begin, part.first, body_); });
        return true;
    }

    const Forker forks_;
    const Index first_;
    const std::uint64_t grain_;
    Body& body_;
    basic_loop_state<platform> state_;
    // The latest chunk that took about chunk_time.
    typename platform::template atomic<std::uint64_t> learned_{1};
};

template <class Forker, class First, class Last, class Body>
void parallel_for_on(Forker forks, First first, Last last, const fork_options& options,
                     Body& body) {
    const auto all = range_of(first, last);
    if (!all.empty()) {
        parallel_loop<Forker, decltype(all.first), Body>(forks, all, options, body).run(all);
    }
}

} // namespace detail

/// Calls body(i) for each index i of [first, last), in any order, on the calling thread and on idle
/// workers of `s`. The type of i is std::common_type_t<First, Last>. The bounds are compared as
/// numbers; if first >= last, the function does nothing. The return value of body is ignored.
/// Blocks: until all calls have ended. Meanwhile the caller runs parts of the loop.
/// Throws: of the calls that threw, what the one with the lowest index threw. The calls with lower
/// indices have run then, unless there was a stop; those with higher indices may have.
/// stopped_error after a stop. std::invalid_argument if the first index is negative and the type of
/// the index is unsigned. Otherwise as join().
/// Requires: body may be called by several threads at once. If it is trivially copyable, has at
/// most 64 bytes and can be called as const, it is called through copies.
/// Cancellation: see fork_options::stop.
template <class First, class Last, class Body>
    requires detail::loop_index<First> && detail::loop_index<Last>
void parallel_for(scheduler& s, First first, Last last, const fork_options& options, Body&& body) {
    detail::parallel_for_on(detail::forker(s), first, last, options, body);
}

/// The same, with default options.
template <class First, class Last, class Body>
    requires detail::loop_index<First> && detail::loop_index<Last>
void parallel_for(scheduler& s, First first, Last last, Body&& body) {
    detail::parallel_for_on(detail::forker(s), first, last, fork_options{}, body);
}

/// The same, with a grain: a leaf has at least `grain` iterations, unless the loop has fewer, and
/// less than twice that number. 0 is the default.
/// Throws: also std::invalid_argument if the grain is negative.
template <class First, class Last, class Grain, class Body>
    requires detail::loop_index<First> && detail::loop_index<Last> && detail::loop_index<Grain>
void parallel_for(scheduler& s, First first, Last last, Grain grain, Body&& body) {
    fork_options options;
    options.grain = detail::grain_of(grain);
    detail::parallel_for_on(detail::forker(s), first, last, options, body);
}

} // namespace bide::inline BIDE_ABI

#endif
