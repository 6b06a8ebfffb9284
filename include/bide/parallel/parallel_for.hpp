// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_FOR_HPP
#define BIDE_PARALLEL_PARALLEL_FOR_HPP

/// \file
/// Loops that run their iterations in parallel: over indices, over the elements of a range, and
/// over chunks of a range. The other algorithms use the same loop.
///
/// \code
/// bide::scheduler workers;
/// bide::parallel_for(workers, 0, n, [&](int i) { squares[i] = i * i; });
/// bide::parallel_for(workers, names, [](std::string& name) { trim(name); });
/// \endcode
//
// The loop of the parallel algorithms. It divides itself when other threads want work.
//
// Each part of the loop runs in chunks. After a chunk, the thread checks whether thieves would find
// an arm of this thread. (An arm is a function of a fork-join.) If not, half of the remaining
// iterations are forked. So there are few forks while all workers are busy. If iterations take
// long, or some take longer than others, there are as many forks as are useful. A chunk has one
// iteration at first, and grows until it takes 4 us by the clock. All parts share the learned size
// of a chunk.
//
// While workers sleep, a part is divided until each of these workers would find an arm, but not
// into arms of less than 64 us. Before the first iteration has run, the time of an iteration is not
// known. Then a loop of up to 1,024 iterations is divided as if each iteration took long, and a
// larger loop is divided into two. Once the time is known, an arm of less than 32 us wakes no
// worker, because the caller needs about as long for the wake.
//
// Each place in the program that begins a loop stores the time of an iteration. If a loop is
// expected to take at most 2 us by that time, it starts without a fork-join: it runs one iteration,
// then up to 64, and so on, as a chunk grows. If the loop has not ended after 4 us, the remaining
// iterations become a fork-join. So a brief loop reads the clock four times more than a serial one.
// If the first iteration unexpectedly takes long, it delays the other iterations only by its own
// time.
//
// While the first iteration of a part runs, the other iterations of the part are an arm. So a
// worker that becomes free takes them, even if the first iteration takes longer than all others
// together. The same is done in two other cases: for an iteration after one that took as long as a
// chunk, and for a leaf of a given grain.
//
// Within a chunk, the part checks again whether thieves want work, because later iterations may
// take longer than earlier ones. It checks after the first 64 iterations of a part, then after 256,
// 1,024 and 2,048 more. If iterations are short, later checks come after up to 8,192 more. If
// thieves want work, the chunk ends and the clock is read. The ends of parts are rounded to
// multiples of 64, for vector instructions.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/parallel/fork_join.hpp>
#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/parallel_range.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// Sets `to` to the minimum of `to` and `at`. Threads may see a higher number until they join.
template <class Number> void lower(Number& to, std::uint64_t at) noexcept {
    // Order: relaxed, all three; it publishes nothing but the number.
    std::uint64_t seen = to.load(std::memory_order_relaxed);
    while (at < seen && !to.compare_exchange_weak(seen, at, std::memory_order_relaxed,
                                                  std::memory_order_relaxed)) {
    }
}

// The state that the leaves of one parallel loop share. It decides which leaves are skipped after
// an exception, after a stop, or after a leaf of a search has found a match.
//
// If a leaf or a combination of leaves throws, the number of its first iteration is recorded. From
// then on, leaves with higher numbers are skipped; leaves with lower numbers still run. So the
// exception that remains at the end is the one that a serial loop would throw. In a search, a match
// has the same effect as an exception.
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

    // Runs a leaf of `iterations` iterations that begins with iteration `at`, and counts the
    // iterations. `leaf` may also be another step of the algorithm, such as a combination of two
    // results. Such a step counts no iterations: `iterations` is 0.
    template <class Leaf> void run(std::uint64_t at, std::uint64_t iterations, Leaf&& leaf) {
        attempt mine(*this, at);
        leaf();
        mine.succeeded = true;
        count(iterations);
    }

    // Records that what begins at `at` has thrown, unless `succeeded` is set.
    struct attempt {
        attempt(basic_loop_state& in, std::uint64_t where) noexcept : state(in), at(where) {}
        attempt(const attempt&) = delete;
        attempt& operator=(const attempt&) = delete;
        ~attempt() {
            if (!succeeded) {
                detail::lower(state.failed_at_, at);
                state.end_at(at);
            }
        }
        basic_loop_state& state;
        const std::uint64_t at;
        bool succeeded = false;
    };

    void count(std::uint64_t iterations) noexcept {
        if (progress_ != nullptr && iterations != 0) {
            progress_->count(iterations);
        }
    }

    // From now on, leaves that begin after iteration `at` are left out.
    void end_at(std::uint64_t at) noexcept { detail::lower(last_, at); }

    // Called after the loop. Returns the first iteration of the first leaf or part that has thrown.
    // If none has thrown, returns the largest number.
    std::uint64_t failed_at() const noexcept {
        // Order: relaxed; the loop's joins order it after the leaves.
        return failed_at_.load(std::memory_order_relaxed);
    }

    // Called between two phases of an algorithm. A phase is a loop or a tree of joins. Returns true
    // if a part was left out because of a stop.
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
    using number = typename Platform::template atomic<std::uint64_t>;

    number last_{(std::numeric_limits<std::uint64_t>::max)()};
    number failed_at_{(std::numeric_limits<std::uint64_t>::max)()};
    typename Platform::template atomic<bool> stopped_{false};
    const std::stop_token& stop_;
    fork_progress* const progress_;
};

// The number of iterations of the chunks of a loop. A chunk has one iteration at first, and grows
// until it takes 4 us by the clock. All parts of the loop share the learned size.
template <class Platform> class basic_chunk_sizes {
public:
    // In nanoseconds: the intended time of a chunk, and the time of an arm that is worth a wake.
    static constexpr std::int64_t chunk_time = 4'000;
    static constexpr std::int64_t arm_time = 64'000;

    // Returns the latest chunk that took about chunk_time, or 0 if none has run.
    std::uint64_t learned() const noexcept {
        // Order: relaxed; an estimate.
        return learned_.load(std::memory_order_relaxed);
    }

    // Returns the size of the next chunk, if the last chunk had `iterations` iterations and took
    // `took_ns` nanoseconds.
    static std::uint64_t next(std::uint64_t iterations, std::int64_t took_ns) noexcept {
        const auto nanoseconds = static_cast<std::uint64_t>(took_ns > 1 ? took_ns : 1);
        const std::uint64_t fitting = greater_of(iterations * chunk_time / nanoseconds, 1);
        return lesser_of(fitting, lesser_of(iterations * growth, longest));
    }

    // Makes `chunk` the initial size for other parts. All parts read the cache line of the size. So
    // the size is written only if it has changed by a factor of two.
    void learn(std::uint64_t chunk) noexcept {
        const std::uint64_t old = learned();
        if (old == 0 || chunk < old / 2 || chunk / 2 > old) {
            // Order: relaxed; an estimate.
            learned_.store(chunk, std::memory_order_relaxed);
        }
    }

private:
    // The largest factor by which a chunk grows; its largest size.
    static constexpr std::uint64_t growth = 64;
    static constexpr std::uint64_t longest = 1 << 24;

    typename Platform::template atomic<std::uint64_t> learned_{0};
};

// Calls run_rest() in a fork-join. If the loop of `size` iterations is expected to take at most
// LongestNs nanoseconds, first runs it outside of the fork-join, until it has taken as long as a
// chunk. run(n) runs about n iterations, and returns how many iterations are left. n grows as the
// size of chunks does, so the time of an iteration is known before many iterations have run. If no
// iteration is left, run_rest() is not called.
template <std::int64_t LongestNs, class Forker, class Run, class RunRest>
void enter_loop(const Forker& forks, std::uint64_t size, const Run& run, const RunRest& run_rest) {
    using platform = typename Forker::platform;
    using chunks = basic_chunk_sizes<platform>;
    const auto run_briefly = [size, run](const std::int64_t begin) -> std::int64_t {
        std::uint64_t left = size;
        std::uint64_t chunk = 1;
        for (std::int64_t before = begin;;) {
            const std::uint64_t rest = run(lesser_of(chunk, left));
            const std::int64_t after = platform::now();
            if (rest == 0) {
                return after;
            }
            if (after - begin >= chunks::chunk_time) {
                return 0;
            }
            chunk = chunks::next(left - rest, after - before);
            before = after;
            left = rest;
        }
    };
    forks.template enter_loop<LongestNs>(size, run_briefly, run_rest);
}

// In nanoseconds. A loop that is expected to take at most this time first runs without a fork-join.
// The limit is about ten times the cost of entering a fork-join.
inline constexpr std::int64_t longest_brief_ns = 2'000;

// Calls leaf(first, last) for parts of the range that together cover it. The loop decides how large
// each part is. A leaf may return the number of an iteration. Then leaves that begin after that
// iteration are skipped.
template <class Forker, class Index, class Leaf> class parallel_loop {
    using platform = typename Forker::platform;
    using range = loop_range<Index>;
    using chunks = basic_chunk_sizes<platform>;

public:
    parallel_loop(Forker forks, loop_range<Index> all, const fork_options& chosen,
                  Leaf& leaf) noexcept
        : forks_(forks), all_(all), grain_(chosen.grain), leaf_(leaf), state_(chosen, all.size()) {}

    // Calls the leaves. The caller then calls finish() of state().
    void run() {
        range rest = all_; // a brief loop has run the iterations before it
        const auto run_rest = [this, &rest] { run_part(rest, first_chunk()); };
        const auto run_some = [this, &rest](std::uint64_t count) {
            return run_leaf(rest, count) ? rest.size() : 0;
        };
        if (grain_ == 0) {
            detail::enter_loop<longest_brief_ns>(forks_, all_.size(), run_some, run_rest);
        } else {
            forks_.enter(run_rest);
        }
    }
    basic_loop_state<platform>& state() noexcept { return state_; }

private:
    // In nanoseconds. A second arm that takes less time wakes no worker. The first fork of the loop
    // is an exception.
    static constexpr std::int64_t brief_arm_time = 32'000;
    // While no iteration has run, a loop of at most this many iterations is divided as if each
    // iteration took long.
    static constexpr std::uint64_t few_iterations = 1'024;
    // The maximum number of iterations between two checks whether thieves want work. It is
    // first_block at the start of a part. Then it grows by a factor of four each time, up to an
    // eighth of a chunk. That limit is at least common_block and at most longest_block.
    static constexpr std::uint64_t first_block = 64;
    static constexpr std::uint64_t common_block = 2'048;
    static constexpr std::uint64_t longest_block = 8'192;
    static constexpr std::uint64_t vector = 64;

    void run_part(range part, std::uint64_t chunk) {
        std::uint64_t block = first_block;
        std::int64_t before = 0; // when the chunk began, or 0 if that is unknown
        bool is_long = true;     // the last leaf of a given grain took as long as a chunk
        while (!part.empty()) {
            const std::uint64_t left = part.size();
            const std::uint64_t arms = most_arms(left, chunk);
            if (is_worth_forking(left, chunk) && forks_.wants_work(arms)) {
                return fork(part, chunk);
            }
            if (grain_ != 0) {
                const std::uint64_t leaf = left / 2 < grain_ ? left : grain_;
                if (!(is_long ? run_long_leaf(part, leaf, is_long) : run_leaf(part, leaf))) {
                    return;
                }
                continue;
            }
            if (before == 0 && left > lesser_of(chunk, block)) {
                before = platform::now();
            }
            const bool goes_on =
                chunk == 1 ? run_beside_rest(part, 1)
                           : run_chunk(part, left <= chunk ? left : rounded(part.first, chunk),
                                       block, arms);
            if (!goes_on || part.empty()) {
                return;
            }
            const std::int64_t after = platform::now();
            chunk = chunks::next(left - part.size(), after - before);
            before = after;
            sizes_.learn(chunk);
        }
    }

    // Forks the second half of `part`. When that half starts, it takes the chunk size that all
    // parts share at that time. If the part is skipped, does not divide it.
    void fork(range part, std::uint64_t chunk) {
        if (state_.leaves_out(number_of(part.first))) {
            return;
        }
        std::uint64_t half = part.size() / 2;
        if (grain_ == 0) {
            half = rounded(part.first, half);
        }
        const Index middle = part.at(half);
        both(
            part, middle, [this, part, middle, chunk] { run_part({part.first, middle}, chunk); },
            [this, part, middle] { run_part({middle, part.last}, first_chunk()); });
    }

    // Forks `part` at `middle`: f runs the iterations before `middle`, and g, the second arm of the
    // fork, runs the others. If there is no memory to fork, throws, calls neither f nor g, and
    // records the part as one that has thrown.
    template <class F, class G> void both(range part, Index middle, F&& f, G&& g) {
        typename basic_loop_state<platform>::attempt fork(state_, number_of(part.first));
        const auto first = [&] {
            fork.succeeded = true;
            f();
        };
        forks_.both(first, std::forward<G>(g), is_brief(range{middle, part.last}.size()));
    }

    // Returns true if this number of iterations is not worth a wake.
    bool is_brief(std::uint64_t iterations) const noexcept {
        return grain_ == 0 && iterations < sizes_.learned() * brief_arm_time / chunks::chunk_time;
    }

    // With a grain, returns true if both halves would have at least `grain` iterations. Without a
    // grain, returns true if the remaining iterations take longer than a fork.
    bool is_worth_forking(std::uint64_t left, std::uint64_t chunk) const noexcept {
        return left >= 2 && left / 2 >= (grain_ != 0 ? grain_ : chunk / 4);
    }

    // Returns the maximum number of public arms that this thread should have for the sleeping
    // workers.
    std::uint64_t most_arms(std::uint64_t left, std::uint64_t chunk) const noexcept {
        if (grain_ != 0 || sizes_.learned() != 0) {
            return grain_ != 0 ? left / grain_
                               : left / (chunk * chunks::arm_time / chunks::chunk_time);
        }
        return left <= few_iterations ? left : 1;
    }

    // Rounds n iterations down. Afterwards, the distance from the first index of the loop to the
    // end of the n iterations is a multiple of `vector`.
    std::uint64_t rounded(Index from, std::uint64_t n) const noexcept {
        const std::uint64_t at = number_of(from);
        return n < vector ? n : n - (at + n) % vector;
    }

    std::uint64_t first_chunk() const noexcept {
        return grain_ != 0 ? grain_ : greater_of(sizes_.learned(), 1);
    }

    // Runs up to n iterations, in blocks. If thieves want work, runs fewer. Returns false if the
    // remaining iterations must be skipped.
    bool run_chunk(range& part, std::uint64_t n, std::uint64_t& block, std::uint64_t arms) {
        const std::uint64_t most =
            lesser_of(greater_of(n / 8 / vector * vector, common_block), longest_block);
        for (;;) {
            const std::uint64_t now = lesser_of(n, block);
            if (!run_leaf(part, now)) {
                return false;
            }
            block = lesser_of(4 * block, most);
            n -= now;
            if (n == 0 || forks_.wants_work(arms)) {
                return true;
            }
        }
    }

    // Runs n iterations, while the remaining iterations of the part are an arm. Returns false if a
    // thief has taken the arm, or if the remaining iterations must be skipped.
    bool run_beside_rest(range& part, std::uint64_t n) {
        const range rest{part.at(n), part.last};
        const void* const here = forks_.thread();
        if (rest.empty() || here == nullptr) {
            return run_leaf(part, n);
        }
        bool goes_on = false;
        bool was_taken = false;
        both(
            part, rest.first, [&] { goes_on = run_leaf(part, n); },
            [&] {
                was_taken = forks_.thread() != here;
                if (was_taken) {
                    run_part(rest, first_chunk());
                }
            });
        return goes_on && !was_taken;
    }

    // As run_leaf(), and sets `is_long` to true if the leaf was long.
    bool run_long_leaf(range& part, std::uint64_t n, bool& is_long) {
        const std::int64_t begin = platform::now();
        const bool goes_on = run_beside_rest(part, n);
        is_long = platform::now() - begin >= chunks::chunk_time;
        return goes_on;
    }

    BIDE_NOINLINE bool run_leaf(range& part, std::uint64_t n) {
        const std::uint64_t at = number_of(part.first);
        if (state_.leaves_out(at)) {
            return false;
        }
        const Index begin = part.first;
        part.first = part.at(n);
        state_.run(at, n, [&] {
            if constexpr (std::is_void_v<std::invoke_result_t<Leaf&, Index, Index>>) {
                leaf_(begin, part.first);
            } else {
                state_.end_at(leaf_(begin, part.first));
            }
        });
        return true;
    }

    // Returns the number of the iteration at this index.
    std::uint64_t number_of(Index at) const noexcept { return range{all_.first, at}.size(); }

    const Forker forks_;
    const range all_;
    const std::uint64_t grain_;
    Leaf& leaf_;
    basic_loop_state<platform> state_;
    chunks sizes_;
};

// Calls run(callee). `run` is a plain loop of calls callee(args...). If `body` is small and can be
// called as const, the callee is a copy of `body`. No other code knows the address of the copy, so
// the compiler keeps the captures in registers.
template <class... Args, class Body, class Run> void run_with_callee(Body& body, const Run& run) {
    using plain = std::decay_t<Body>; // a function becomes a pointer to it
    if constexpr (std::is_trivially_copyable_v<plain> && sizeof(plain) <= 64 &&
                  std::is_constructible_v<const plain, Body&> &&
                  std::is_invocable_v<const plain&, Args...>) {
        const plain mine(body);
        run(mine);
    } else {
        run(body);
    }
}

// Runs a parallel_loop over the range with this leaf.
template <class Forker, class Index, class Leaf>
void run_loop_over(const Forker& forks, loop_range<Index> all, const fork_options& options,
                   Leaf& leaf) {
    if (!all.empty()) {
        parallel_loop loop(forks, all, options, leaf);
        loop.run();
        loop.state().finish();
    }
}
template <class On, class Index, class Leaf>
void loop_over(const On& on, loop_range<Index> all, Leaf leaf) {
    detail::run_loop_over(on.forks(), all, on.options(), leaf);
}

// Calls body(element) for all elements.
template <class On, class It, class Body>
void for_elements(const On& on, const elements<It>& all, Body& body) {
    detail::loop_over(on, all.numbers(), [&](std::uint64_t from, std::uint64_t to) {
        detail::run_with_callee<std::iter_reference_t<It>>(body, [&](auto& callee) {
            detail::each_element(all.at(from), all.at(to), [&callee](auto&& element) {
                static_cast<void>(std::invoke(callee, static_cast<decltype(element)>(element)));
            });
        });
    });
}

} // namespace detail

/// Consecutive elements of a range. parallel_for_chunks() passes it to its body. It is a range that
/// borrows the elements. If they are contiguous, it converts to a std::span.
template <std::random_access_iterator It> class parallel_chunk {
public:
    /// The number of an element within the chunk.
    using size_type = std::size_t;

    /// Refers to `size` elements from `first` on, of which the first one has the number `index`.
    parallel_chunk(It first, std::size_t size, std::size_t index)
        : first_(first), size_(size), index_(index) {}

    /// Returns an iterator to the first element.
    It begin() const { return first_; }
    /// Returns the iterator behind the last element.
    It end() const { return first_ + static_cast<std::iter_difference_t<It>>(size_); }
    /// Returns the number of elements, which is at least 1.
    std::size_t size() const noexcept { return size_; }
    /// Returns the element at `n`. Requires: n < size().
    std::iter_reference_t<It> operator[](std::size_t n) const {
        return first_[static_cast<std::iter_difference_t<It>>(n)];
    }
    /// Returns the number that the chunk's first element has in the whole range.
    std::size_t index() const noexcept { return index_; }

private:
    It first_;
    std::size_t size_;
    std::size_t index_;
};

namespace detail {

template <class On, class First, class Last, class Body>
void for_indices(const On& on, First first, Last last, Body& body) {
    using index = std::common_type_t<First, Last>;
    detail::loop_over(on, detail::range_of(first, last), [&body](index begin, index end) {
        detail::run_with_callee<index>(body, [begin, end](auto& callee) {
            detail::each_index(begin, end, [&callee](index at) { static_cast<void>(callee(at)); });
        });
    });
}

} // namespace detail

/// Calls body(i) for each index i of [first, last), in any order, on the calling thread and on idle
/// workers. The type of i is std::common_type_t<First, Last>. The bounds are compared as
/// numbers; if first >= last, the function does nothing. The return value of body is ignored.
/// Blocks: until all calls have ended. Meanwhile the caller runs parts of the loop.
/// Throws: of the calls that threw, the exception of the call with the lowest index. If there was
/// no stop, all calls with lower indices have run. Calls with higher indices may have run.
/// stopped_error after a stop. std::invalid_argument if the first index is negative and the type of
/// the index is unsigned. Other exceptions are those of join().
/// Requires: body may be called by several threads at once. If it is trivially copyable, has at
/// most 64 bytes and can be called as const, it is called through copies.
/// Cancellation: see fork_options::stop.
template <class First, class Last, class Body>
    requires detail::loop_index<First> && detail::loop_index<Last> &&
             std::invocable<Body&, std::common_type_t<First, Last>>
void parallel_for(const fork_policy& on, First first, Last last, Body&& body) {
    detail::for_indices(on, first, last, body);
}

/// Calls body(element) for each element of the range, in any order, on the calling thread and on
/// idle workers. The argument of body is the result of the iterator's operator*, so body may change
/// the elements of a range that is not const. The return value of body is ignored. To loop over
/// every third index, or over several ranges at once, pass a view.
/// Blocks, throws, cancellation: as above; the number of an element is its index.
/// Requires: body may be called by several threads at once, for different elements. If it is
/// trivially copyable, has at most 64 bytes and can be called as const, it is called through
/// copies. Copies of the range's iterators may be used by several threads at once.
template <parallel_range Range, class Body>
    requires std::invocable<Body&, std::ranges::range_reference_t<Range>>
void parallel_for(const fork_policy& on, Range&& range, Body&& body) {
    detail::for_elements(on, detail::elements_of(range), body);
}

/// Runs the loop over the elements of [first, last). If `last` is before `first`, does nothing.
BIDE_DETAIL_TAKES_ITERATORS(parallel_for,
                            requires(sizeof...(Args) == 1 &&
                                     (std::invocable<Args&, std::iter_reference_t<It>> && ...)));

/// Calls body(chunk) for parallel_chunks that together are the range, in any order. The loop
/// decides how many elements a chunk has, at least fork_options::grain. Use it if an iteration
/// needs an object that is costly to make, such as a buffer, or if one call for many elements is
/// faster than many calls.
/// Blocks, throws, cancellation: as parallel_for(); a stop and an exception take effect between
/// chunks. Progress counts the elements of a chunk when the chunk has ended.
/// Requires: body may be called by several threads at once, for different chunks.
template <parallel_range Range, class Body>
    requires std::invocable<Body&, parallel_chunk<std::ranges::iterator_t<Range>>>
void parallel_for_chunks(const fork_policy& on, Range&& range, Body&& body) {
    const auto all = detail::elements_of(range);
    using chunk = parallel_chunk<std::ranges::iterator_t<Range>>;
    detail::loop_over(on, all.numbers(), [&](std::uint64_t from, std::uint64_t to) {
        static_cast<void>(std::invoke(body, chunk(all.at(from), to - from, from)));
    });
}

}} // namespace bide::BIDE_ABI

// The iterators of a chunk stay valid after the chunk was destroyed.
/// \cond
template <class It>
inline constexpr bool std::ranges::enable_borrowed_range<bide::parallel_chunk<It>> = true;
/// \endcond

#endif
