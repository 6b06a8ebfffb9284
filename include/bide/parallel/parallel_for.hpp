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
// The loop of the parallel algorithms. It divides itself when other threads have no work.
//
// One thread, the owner, visits the elements of its part from left to right, in chunks. An arm is a
// function of a fork-join. A thief is a thread that takes an arm. After a chunk, the owner checks
// whether thieves would find an arm of this thread. If not, half of the remaining elements become
// an arm. So there are few forks while all workers are busy. If elements take long, or some take
// longer than others, there are as many forks as are useful. A chunk has one element at first, and
// grows until it takes 4 us. All parts share the learned size of a chunk.
//
// While workers sleep, a part is divided until each of these workers would find an arm, but not
// into arms of less than 64 us. The time of an element is known only after the first element was
// visited. Until then, a loop of up to 1,024 elements is divided as if each element took long, and
// a larger loop is divided into two. Later, an arm of less than 32 us wakes no worker, because the
// wake takes the caller about as long.
//
// Each place in the program that begins a loop stores how long an element took. If that time
// predicts at most 2 us for a whole loop, the loop starts without a fork-join: it visits one
// element, then up to 64, and so on, in steps that grow as chunks do. If the loop has not ended
// after 4 us, the remaining elements become a fork-join. So a short loop costs about four reads of
// the clock. A longer loop starts in the same way if a fork-join would cause a wake that the loop
// is not worth (fork_lane.hpp). It becomes a fork-join if an element takes as long as a chunk, or
// if the loop takes twice as long as expected. If the first element unexpectedly takes long, the
// fork-join of the other elements begins after this one element.
//
// While the first element of a part is visited, the other elements of the part are an arm, which
// thieves may take. So an idle worker takes them, even if the first element takes longer than all
// others together. After an element that takes as long as a chunk, the next element is visited in
// this way, too.
//
// Within a chunk, the thread checks again whether thieves find an arm, because later elements may
// take longer than earlier ones. The first check in a part comes after a 64th of a chunk, but
// at least 64 and at most 2,048 elements. The next ones come after four times as many each, up to
// some thousands. If thieves find no arm, the chunk ends and the clock is read. The size of a
// longer chunk is rounded to 64 elements, for vector instructions.
//
// With fork_options::yield_to_tasks, a worker that has taken a part looks for tasks between chunks.
// If it ends its part early because of a task, it leaves the rest of the part to the owner of the
// arm, which continues there when it comes to the arm (leaves_for_task() in fork_join.hpp). The arm
// that the worker has forked last is a part of this rest, unless another thread has taken it.
//
// In some algorithms, the work on an element needs the result of all elements before it. For a
// scan, that result is their sum. For a filter, it is the number of earlier elements that are kept,
// because this number is the place of the next element. So the owner updates an object, called the
// front, which has the result of all elements that the owner has visited. A thief does not yet know
// the result of the elements before its part. So the thief does only the work that needs no such
// result: for a scan, it adds up its elements. When the owner comes to a part that a thief has
// taken, the owner calls join(). That function adds the thief's result to the front, and completes
// the thief's part by a parallel loop: for a scan, this loop writes the sums. If no thief has taken
// the part, the owner visits it.
//
// A Front has these members. `from` and `to` are numbers of elements:
//
//   run(from, to)                visits the elements. The front has the result of all elements
//                                before `from`
//   part                         the type of the result of a thief
//   ahead(loop, from, to, done)  called by a thief, while another thread calls run(). Does the work
//                                that needs no front, and stores the result in `done`, which is an
//                                empty optional
//   join(loop, part)             joins the thief's result to the front
//
// If the type `part` is Front itself, there is no ahead(). The thief then constructs Front(front,
// range) and runs it like any front. The loop has a parameter, the unit. Parts begin at multiples
// of the unit, and have at least one unit of elements.

#include <bide/parallel/fork_join.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// Sets `to` to the minimum of `to` and `at`. Until a join orders another thread after this call,
// that thread may read an older, higher number.
template <class Number> void lower(Number& to, std::uint64_t at) noexcept {
    // Order: relaxed, all three; the number publishes no other data.
    std::uint64_t seen = to.load(std::memory_order_relaxed);
    while (at < seen && !to.compare_exchange_weak(seen, at, std::memory_order_relaxed,
                                                  std::memory_order_relaxed)) {
    }
}

// The state that the leaves of one parallel loop share. A leaf is a sequence of iterations that one
// thread runs. The state says which leaves are skipped after an exception, after a stop, or after a
// leaf of a search has found a match.
//
// If a leaf throws, the number of its first iteration is recorded. The same is done if a
// combination of the results of leaves throws. From then on, leaves with higher numbers are
// skipped, but leaves with lower numbers still run. So the exception that remains at the end is the
// one that a serial loop would throw. In a search, a match has the same effect as an exception.
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

    // Returns true if the leaf or part that begins with iteration `at` must be skipped.
    bool leaves_out(std::uint64_t at) noexcept {
        // Order: relaxed; a thread that sees an old value runs a leaf in vain.
        if (last_.load(std::memory_order_relaxed) < at) {
            return true;
        }
        if (!stop_.stop_requested()) {
            return false;
        }
        // Order: relaxed; the loop's last join orders this store before the load in finish().
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

    // The destructor records that a leaf or step has thrown, unless `succeeded` is set. `at` is the
    // first iteration of the leaf or step.
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

    // Skips leaves that begin after iteration `at`, from now on.
    void end_at(std::uint64_t at) noexcept { detail::lower(last_, at); }

    // Called after the loop. Returns the first iteration of the first leaf or part that has thrown.
    // If none has thrown, returns the largest number.
    std::uint64_t failed_at() const noexcept {
        // Order: relaxed; the loop's joins order this load after the leaves.
        return failed_at_.load(std::memory_order_relaxed);
    }

    // Called between two phases of an algorithm. A phase is a loop or a tree of joins. Returns true
    // if a part was skipped because of a stop.
    bool was_stopped() const noexcept {
        // Order: relaxed; the joins of the phase order this load after the parts.
        return stopped_.load(std::memory_order_relaxed);
    }

    // Called after the loop. Throws: stopped_error if a leaf was skipped because of a stop.
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

// The front of a loop in which no part needs the results of other parts. leaf(from, to) visits the
// elements.
template <class Leaf> struct leaf_front {
    using part = leaf_front;

    explicit leaf_front(Leaf& of) noexcept : leaf(of) {}
    leaf_front(const leaf_front& of, loop_range<std::uint64_t>) noexcept : leaf(of.leaf) {}
    void run(std::uint64_t from, std::uint64_t to) { leaf(from, to); }
    template <class Loop> void join(Loop&, leaf_front&&) noexcept {}

    Leaf& leaf;
};

// In nanoseconds: the intended time of a chunk.
inline constexpr std::int64_t chunk_time = 4'000;

template <class Forker> class parallel_loop {
    using platform = typename Forker::platform;
    using state_type = basic_loop_state<platform>;

public:
    using range = loop_range<std::uint64_t>;

    // Thieves take only parts of at least `least` elements. If `keeps_unit` is true, each call of
    // the front's run() gets at least one unit of elements and less than two units. If `unit` is
    // greater than `size`, the loop uses `size` as the unit.
    parallel_loop(Forker forks, const fork_options& options, std::uint64_t size, std::uint64_t unit,
                  std::uint64_t least = 1, bool keeps_unit = false) noexcept
        : forks_(forks), unit_(lesser_of(greater_of(unit, 1), greater_of(size, 1))),
          least_(greater_of(unit_, least)), keeps_unit_(keeps_unit),
          yields_(options.yield_to_tasks), state_(options, size) {}

    // Visits all elements. Afterwards the caller calls state().finish().
    // Throws: what a serial run would throw.
    template <class Front> void run(Front& front, std::uint64_t size) {
        range part{0, size}; // the elements that run_briefly() has not visited
        const auto run_rest = [this, &front, &part] { advance(front, part, false); };
        if (keeps_unit_) {
            return forks_.enter(run_rest);
        }
        const auto brief = [this, &front, &part](std::int64_t begin, std::int64_t most_ns) {
            return run_briefly(front, part, begin, most_ns);
        };
        forks_.template enter_loop<longest_brief_ns>(size, brief, run_rest);
    }

    // Calls f(n, at, last) in parallel for each block n of [0, count) that is not skipped. `at` is
    // the number of the first element of block n: from + n * size. A call may do the work of several
    // blocks before `last`. It returns the next block.
    template <class F>
    void for_blocks(std::uint64_t count, std::uint64_t from, std::uint64_t size, const F& f) {
        const auto call = [&](std::uint64_t n, std::uint64_t last) {
            while (n != last && !state_.leaves_out(from + n * size)) {
                n = f(n, from + n * size, last);
            }
        };
        leaf_front front(call);
        const fork_options none; // `blocks` keeps a reference to none.stop
        parallel_loop blocks(forks_, none, count, 1);
        blocks.run(front, count);
    }

    state_type& state() noexcept { return state_; }
    Forker forks() const noexcept { return forks_; }

private:
    // All three are in nanoseconds. While workers sleep, a part is divided into arms for them, but
    // not into arms that are expected to take less than `arm_time`. A fork of an arm that is
    // expected to take less than `brief_arm_time` wakes no worker. Until the time of an element is
    // known, any fork may wake a worker. A loop that is expected to take at most `longest_brief_ns`
    // begins without a fork-join. (That limit is about ten times the cost of entering a
    // fork-join.)
    static constexpr std::int64_t arm_time = 64'000;
    static constexpr std::int64_t brief_arm_time = 32'000;
    static constexpr std::int64_t longest_brief_ns = 2'000;
    // Before the first element was visited, a loop of at most this many units is divided as if each
    // element took long.
    static constexpr std::uint64_t few_units = 1'024;
    // A thief that does not read the clock after a unit reads it after this many.
    static constexpr unsigned few_looks = 64;
    // The number of elements between two checks whether thieves want work. At the start of a part,
    // it is a 64th of a chunk, but at least first_piece and at most common_piece. After each
    // check, it grows by a factor of four, if it is less than a limit. The limit is an eighth of a
    // chunk, but at least common_piece and at most longest_piece.
    static constexpr std::uint64_t first_piece = 64;
    static constexpr std::uint64_t common_piece = 2'048;
    static constexpr std::uint64_t longest_piece = 8'192;
    static constexpr std::uint64_t vector = 64;
    // The largest factor by which a chunk grows, and the largest size of a chunk.
    static constexpr std::uint64_t growth = 64;
    static constexpr std::uint64_t longest_chunk = 1 << 24;

    // Visits one element, and then more at a time, in steps that grow as chunks do. So the time of
    // an element is known before many were visited. Ends when the part is empty or has taken
    // `most_ns` nanoseconds, or if an element takes as long as a chunk. Returns 0 if elements
    // remain to be visited, and else the current time.
    template <class Front>
    std::int64_t run_briefly(Front& front, range& part, const std::int64_t begin,
                             const std::int64_t most_ns) {
        std::uint64_t chunk = 1;
        for (std::int64_t before = begin;;) {
            const std::uint64_t left = part.size();
            const bool goes_on = run_piece(front, part, end_of(part, chunk));
            const std::int64_t after = platform::now();
            if (!goes_on || part.empty()) {
                return after;
            }
            const std::uint64_t visited = left - part.size();
            if (after - begin >= most_ns ||
                (after - before) / chunk_time >= static_cast<std::int64_t>(visited)) {
                return 0;
            }
            chunk = next_chunk(visited, after - before);
            before = after;
        }
    }

    // Visits the elements of the part. If a stop was requested or an earlier part has thrown, skips
    // the remaining elements. Returns the end of what was visited or skipped. It is the end of the
    // part, unless `may_leave` is true and the thread leaves for a task.
    template <class Front> std::uint64_t advance(Front& front, range part, bool may_leave) {
        return advance(front, part, may_leave, greater_of(learned(), unit_));
    }

    // Does the same, and begins with chunks of `chunk` elements.
    template <class Front>
    std::uint64_t advance(Front& front, range part, const bool may_leave, std::uint64_t chunk) {
        const std::uint64_t end = part.last;
        unsigned units = 0; // that were visited since the last look at the clock
        std::uint64_t piece = lesser_of(greater_of(first_piece, chunk / 64), common_piece);
        piece = greater_of(piece / unit_ * unit_, unit_);
        std::int64_t before = 0; // when the chunk began, or 0 if that is unknown
        bool is_long = true;     // the last unit took as long as a chunk
        // A half begins with the size of this part's chunks, not with learned(). Thieves may have
        // learned a larger size from shorter elements. A chunk of that size would keep its elements
        // from thieves, even if the first one takes long.
        const auto advance_half = [&](range half, std::uint64_t& reached) {
            reached = advance(front, half, may_leave, chunk);
            return true;
        };
        const auto run_unit = [&](range unit, std::uint64_t&) {
            return run_piece(front, unit, unit.last);
        };
        while (!part.empty()) {
            const std::uint64_t left = part.size();
            const std::uint64_t arms = most_arms(left, chunk);
            if (left / 2 >= greater_of(least_, chunk / 4) && forks_.wants_work(arms)) {
                const std::uint64_t middle = end_of(part, left / 2);
                if (state_.leaves_out(part.first) || !fork(front, part, middle, advance_half)) {
                    return end;
                }
                return part.first < middle ? part.first : advance(front, part, may_leave);
            }
            if (keeps_unit_ && !is_long) {
                if (!run_piece(front, part, end_of_unit(part))) {
                    return end;
                }
                if (may_leave && ++units % few_looks == 0 && !part.empty() &&
                    forks_.leaves_for_task(platform::now())) {
                    return part.first;
                }
                continue;
            }
            if (before == 0 && left > lesser_of(chunk, piece)) {
                before = platform::now();
            }
            const bool goes_on = chunk <= unit_ ? fork(front, part, end_of_unit(part), run_unit)
                                                : run_chunk(front, part, chunk, piece, arms);
            if (!goes_on || part.empty()) {
                return end;
            }
            const std::int64_t after = platform::now();
            if (keeps_unit_) {
                is_long = after - before >= chunk_time;
            } else {
                chunk = greater_of(next_chunk(left - part.size(), after - before), unit_);
                learn(chunk);
            }
            before = after;
            if (may_leave && forks_.leaves_for_task(after)) {
                return part.first;
            }
        }
        return end;
    }

    // Forks the elements from `end` on as an arm, which thieves may take. Meanwhile visits the
    // elements before `end`. If a thief has stored a result for the arm, joins that result to the
    // front, and sets `part` to the elements that the thief has left. If not, sets `part` to the
    // elements from `end` on.
    // Returns false if the remaining elements must be skipped.
    // visit(elements, reached) visits the elements before `end`, and returns false if they must be
    // skipped. If it leaves for a task, it sets `reached` to the first element that it has not
    // visited. Then `part` begins there, unless a thief has taken the arm: in that case, this
    // thread does not leave.
    template <class Front, class Visit>
    bool fork(Front& front, range& part, std::uint64_t end, const Visit& visit) {
        const std::uint64_t begin = part.first;
        const range rest{end, part.last};
        part = rest;
        const void* const here = forks_.thread();
        std::uint64_t reached = end;
        if (rest.size() < least_ || here == nullptr) {
            const bool goes_on = visit(range{begin, end}, reached);
            part.first = reached;
            return goes_on;
        }
        bool goes_on = false;
        std::uint64_t thief_reached = rest.last;
        std::optional<typename Front::part> ahead;
        // Without memory for the fork, both() throws, no arm begins, and all later parts are
        // skipped.
        typename state_type::attempt beginning(state_, begin);
#if BIDE_EXCEPTIONS
        try {
#endif
            forks_.both(
                [&] {
                    beginning.succeeded = true;
                    goes_on = visit(range{begin, end}, reached);
                },
                [&] {
                    if (forks_.thread() != here) {
                        thief_reached = run_ahead(front, rest, ahead);
                    }
                },
                rest.size() < learned() * (brief_arm_time / chunk_time));
#if BIDE_EXCEPTIONS
        } catch (...) {
            if (reached != end) { // the thief has thrown; an element before may throw, too
                advance(front, range{reached, end}, false);
            }
            throw;
        }
#endif
        if (!ahead) {
            part.first = reached;
        } else {
            if (reached != end) {
                advance(front, range{reached, end}, false);
            }
            part.first = thief_reached;
            if (goes_on && !state_.leaves_out(rest.first)) {
                state_.run(rest.first, 0, [&] { front.join(*this, std::move(*ahead)); });
            }
        }
        return goes_on;
    }

    // Called by a thief. Returns the end of what it has visited.
    template <class Front>
    std::uint64_t run_ahead(Front& front, range rest, std::optional<typename Front::part>& done) {
        if constexpr (std::is_same_v<typename Front::part, Front>) {
            const bool may_leave = yields_ && forks_.may_leave();
            state_.run(rest.first, 0, [&] { done.emplace(front, rest); });
            return advance(*done, rest, may_leave);
        } else {
            state_.run(rest.first, 0, [&] { front.ahead(*this, rest.first, rest.last, done); });
            return rest.last;
        }
    }

    // Visits about n elements, in pieces. If thieves want work, visits fewer. Returns false if the
    // remaining elements must be skipped.
    template <class Front>
    bool run_chunk(Front& front, range& part, std::uint64_t n, std::uint64_t& piece,
                   std::uint64_t arms) {
        const std::uint64_t end = end_of(part, n);
        const std::uint64_t most =
            lesser_of(greater_of(n / 8 / vector * vector, common_piece), longest_piece);
        for (;;) {
            const bool is_last = end - part.first < piece + unit_;
            if (!run_piece(front, part, is_last ? end : part.first + piece)) {
                return false;
            }
            piece = piece < most ? 4 * piece : piece;
            if (part.first == end || forks_.wants_work(arms)) {
                return true;
            }
        }
    }

    // Visits the elements before `end`. Returns false if they must be skipped.
    template <class Front>
    BIDE_NOINLINE bool run_piece(Front& front, range& part, std::uint64_t end) {
        const std::uint64_t at = part.first;
        if (state_.leaves_out(at)) {
            return false;
        }
        part.first = end;
        state_.run(at, end - at, [&] { front.run(at, end); });
        return true;
    }

    // Returns the end of a chunk of about n elements at the beginning of the part. The size of the
    // chunk is a multiple of the unit. If less than a unit would remain, returns the end of the
    // part.
    std::uint64_t end_of(range part, std::uint64_t n) const noexcept {
        const std::uint64_t left = part.size();
        if (n >= left) { // so the last chunk of a part needs no division
            return part.last;
        }
        const std::uint64_t step = n / vector >= unit_ ? vector * unit_ : unit_;
        const std::uint64_t whole = greater_of(n / step * step, unit_);
        return whole >= left || left - whole < unit_ ? part.last : part.first + whole;
    }

    std::uint64_t end_of_unit(range part) const noexcept {
        return part.size() / 2 < unit_ ? part.last : part.first + unit_;
    }

    // Returns the maximum number of arms that this thread should offer to the sleeping workers.
    std::uint64_t most_arms(std::uint64_t left, std::uint64_t chunk) const noexcept {
        if (learned() != 0) {
            return left / greater_of(chunk * (arm_time / chunk_time), least_);
        }
        return keeps_unit_ || left / unit_ <= few_units ? left / least_ : 1;
    }

    // Returns the size of the next chunk, if the last chunk had `elements` elements and took
    // `took_ns` nanoseconds.
    static std::uint64_t next_chunk(std::uint64_t elements, std::int64_t took_ns) noexcept {
        const auto nanoseconds = static_cast<std::uint64_t>(took_ns > 1 ? took_ns : 1);
        const std::uint64_t fitting = greater_of(elements * chunk_time / nanoseconds, 1);
        return lesser_of(fitting, lesser_of(elements * growth, longest_chunk));
    }

    // Returns the size of the latest chunk that took about chunk_time, or 0 if there was none.
    std::uint64_t learned() const noexcept {
        // Order: relaxed; an estimate.
        return learned_.load(std::memory_order_relaxed);
    }

    // Makes `chunk` the initial size for other parts. All parts read this size, so it is written
    // only if it has changed by a factor of two.
    void learn(std::uint64_t chunk) noexcept {
        const std::uint64_t old = learned();
        if (old == 0 || chunk < old / 2 || chunk / 2 > old) {
            // Order: relaxed; an estimate.
            learned_.store(chunk, std::memory_order_relaxed);
        }
    }

    const Forker forks_;
    const std::uint64_t unit_;
    const std::uint64_t least_;
    const bool keeps_unit_;
    const bool yields_; // fork_options::yield_to_tasks
    state_type state_;
    typename platform::template atomic<std::uint64_t> learned_{0};
};

// Runs `front` over all elements by a parallel_loop. The other parameters are those of the loop.
// Throws: what a serial run would throw, and stopped_error after a stop.
template <class Forker, class Front>
void run_in_order(const Forker& forks, const fork_options& options, std::uint64_t size,
                  std::uint64_t unit, Front& front, std::uint64_t least = 1,
                  bool keeps_unit = false) {
    parallel_loop loop(forks, options, size, unit, least, keeps_unit);
    if (size != 0) {
        loop.run(front, size);
    }
    loop.state().finish();
}
template <class On, class Front>
void run_in_order(const On& on, std::uint64_t size, Front& front, std::uint64_t least = 1) {
    detail::run_in_order(on.forks(), on.options(), size, on.options().grain, front, least);
}

// Calls leaf(first, last) for parts of the range that together cover it. If a grain is given, a
// part has at least `grain` elements, and less than twice as many.
template <class Forker, class Index, class Leaf>
void run_loop_over(const Forker& forks, loop_range<Index> all, const fork_options& options,
                   Leaf& leaf) {
    const auto run = [&](std::uint64_t from, std::uint64_t to) { leaf(all.at(from), all.at(to)); };
    leaf_front front(run);
    detail::run_in_order(forks, options, all.size(), options.grain, front, 1, options.grain != 0);
}
template <class On, class Index, class Leaf>
void loop_over(const On& on, loop_range<Index> all, Leaf leaf) {
    detail::run_loop_over(on.forks(), all, on.options(), leaf);
}

// Calls run(callee). `run` is a plain loop of calls callee(args...). If `body` is small and can be
// called as const, the callee is a copy of `body`. No other code knows the address of the copy, so
// the compiler keeps the captures in registers.
template <class... Args, class Body, class Run> void run_with_callee(Body& body, const Run& run) {
    using plain = std::decay_t<Body>; // a function becomes a pointer to it
    if constexpr (std::is_trivially_copyable_v<plain> && sizeof(plain) <= largest_plain_copy &&
                  std::is_constructible_v<const plain, Body&> &&
                  std::is_invocable_v<const plain&, Args...>) {
        const plain mine(body);
        run(mine);
    } else {
        run(body);
    }
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

/// Consecutive elements of a range, as the body of parallel_for_chunks() gets them. The object is a
/// range that borrows the elements. If they are contiguous, it converts to a std::span.
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
/// workers. The type of i is std::common_type_t<First, Last>. The bounds are compared as numbers.
/// If first >= last, the function does nothing. The return value of body is ignored.
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
/// Blocks, throws, cancellation: as for indices. The index of an element is its number in the
/// range.
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

/// Calls body(chunk) for parallel_chunks that together cover the range, in any order. The loop
/// chooses the number of elements of a chunk, which is at least fork_options::grain. Use this
/// function if an iteration needs an object that is costly to make, such as a buffer, or if one
/// call for many elements is faster than many calls.
/// Blocks, throws, cancellation: as parallel_for(). A stop or an exception takes effect between
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
