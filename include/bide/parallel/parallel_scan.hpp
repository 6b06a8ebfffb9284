// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_SCAN_HPP
#define BIDE_PARALLEL_PARALLEL_SCAN_HPP

/// \file
/// Scans: each result is the combination of all elements up to its place. parallel_scan_chunks()
/// calls a function with consecutive elements and the combination of all elements before them. The
/// results do not depend on the number of threads.
///
/// The range is divided into blocks of equal size; the last block has less than twice that size.
/// The size is the grain. If no grain is given, the size is the first of 16, 32, 64 ... 2,048 whose
/// square is at least the number of elements. If there is none, the size is 2,048. Within a block,
/// elements are combined from left to right. Each result combines two operands: the total of all
/// earlier blocks, and the combination of the elements of its block up to its place. The totals of
/// the blocks are combined from left to right. So the same range gives the same bits on one worker
/// and on a hundred.
//
// A scan makes about 2 n combinations on any number of workers. The serial scan of std makes n. A
// scan that combines the same operands on any number of workers needs at least 2 n - 2 - d, where d
// is the length of its longest chain. (Snir 1986, "Depth-size trade-offs for parallel prefix
// computation".) Some operations of std give the same bits for any grouping of their operands, such
// as std::plus of integers. For these, the owner of the loop (parallel_for.hpp) makes one
// combination for each element, as the serial scan does.
//
// In a serial scan of floating-point numbers, each addition waits for the one before it. So a
// thread combines the elements of two blocks in turn: neither block needs the other one. The
// operands stay the same. It does so only for numbers, and only if no call can throw, because an
// exception of the second block could otherwise come before one of the first.

#include <bide/parallel/parallel_reduce.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

enum class scan_kind { inclusive, exclusive };

// Returns the size of a block. It is at most `size`, so that twice a block does not overflow.
inline std::uint64_t scan_block(std::uint64_t size, std::uint64_t grain) noexcept {
    std::uint64_t block = 16;
    while (block < 2'048 && block * block < size) {
        block *= 2;
    }
    return lesser_of(grain != 0 ? grain : block, size);
}

// True for an operation of a scan: it takes two values, as rvalues and as const lvalues.
template <class Op, class T>
concept combines_scan =
    std::movable<T> && std::invocable<Op&, T, T> && std::invocable<Op&, const T&, const T&> &&
    std::constructible_from<T, std::invoke_result_t<Op&, T, T>> &&
    std::constructible_from<T, std::invoke_result_t<Op&, const T&, const T&>>;

// True for an iterator to which a scan can write.
template <class Out, class Op, class T>
concept takes_scan =
    combines_scan<Op, T> && parallel_output<Out, const T&> && parallel_output<Out, T>;

template <class Op, class T>
inline constexpr bool is_plus = std::is_same_v<Op, std::plus<>> || std::is_same_v<Op, std::plus<T>>;

// True if an operation gives the same bits for any grouping of its operands. In this case, a scan
// combines the total of all earlier elements with the next element, as a serial scan does.
template <class Op, class T>
inline constexpr bool regroups =
    std::is_integral_v<T> && !std::is_same_v<T, bool> &&
    (is_plus<Op, T> || std::is_same_v<Op, std::bit_xor<>> || std::is_same_v<Op, std::bit_xor<T>> ||
     std::is_same_v<Op, std::bit_or<>> || std::is_same_v<Op, std::bit_or<T>> ||
     std::is_same_v<Op, std::bit_and<>> || std::is_same_v<Op, std::bit_and<T>>);

// The blocks of a range: [0, size) in parts of `block` numbers. The last one has less than twice as
// many.
struct scan_blocks {
    std::uint64_t end_of(std::uint64_t at) const noexcept {
        return size - at < 2 * block ? size : at + block;
    }

    // Returns true if two blocks of equal size begin at `at` and end at or before `to`.
    bool has_two(std::uint64_t at, std::uint64_t to) const noexcept {
        return to - at >= 2 * block && end_of(at + block) == at + 2 * block;
    }
    // Returns the number of blocks of a part of the loop, if blocks are scanned in pairs. While
    // there are few blocks, each block is a part, so that all threads get one.
    std::uint64_t in_part() const noexcept { return size / 128 < block ? 1 : 2; }

    std::uint64_t size;
    std::uint64_t block;
};
inline scan_blocks blocks_of(std::uint64_t size, const fork_options& options) noexcept {
    return {size, detail::scan_block(size, options.grain)};
}

// The front of a scan (parallel_for.hpp). It has the total of all earlier blocks, if there are any.
// `Blocks` does the work on a block, and has these members:
//
//   scan(before, at)      scans the block at `at`. `before` is an optional: the total of all
//                         earlier blocks, if there are any. Returns the total with this block
//   in_pairs              true if there are functions for two blocks, which follow each other
//   scan_two(before, at)  scans two blocks. Returns the total with them
//   sum(at)               called by a thief. Returns the total of the block alone
//   sum_two(at)           called by a thief. Returns the totals of the two blocks alone
//   complete(before, at)  completes a block for which a thief called sum()
//   combine(left, right)
template <class T, class Blocks> class scan_front {
public:
    struct part {
        std::uint64_t from;
        std::uint64_t blocks;
        std::unique_ptr<std::optional<T>[]> sums; // of the blocks
    };

    scan_front(scan_blocks blocks, Blocks& of, std::optional<T>&& before)
        : blocks_(blocks), of_(of), before_(std::move(before)) {}

    void run(std::uint64_t from, std::uint64_t to) {
        for (std::uint64_t at = from; at != to;) {
            if constexpr (Blocks::in_pairs) {
                if (before_ && blocks_.has_two(at, to)) {
                    before_.emplace(of_.scan_two(*before_, at));
                    at += 2 * blocks_.block;
                    continue;
                }
            }
            before_.emplace(of_.scan(before_, at));
            at = blocks_.end_of(at);
        }
    }

    template <class Loop>
    void ahead(Loop& loop, std::uint64_t from, std::uint64_t to, std::optional<part>& done) {
        part mine{from, greater_of((to - from) / blocks_.block, 1), nullptr};
        mine.sums.reset(new (std::nothrow) std::optional<T>[mine.blocks]);
        if (mine.sums == nullptr) {
            return;
        }
        const auto sum_blocks = [&](std::uint64_t n, std::uint64_t at, std::uint64_t last) {
            if constexpr (Blocks::in_pairs) {
                if (last - n >= 2 && blocks_.has_two(at, to)) {
                    const std::pair<T, T> both = of_.sum_two(at);
                    mine.sums[n].emplace(both.first);
                    mine.sums[n + 1].emplace(both.second);
                    return n + 2;
                }
            }
            mine.sums[n].emplace(of_.sum(at));
            return n + 1;
        };
        loop.for_blocks(mine.blocks, from, blocks_.block, sum_blocks);
        done.emplace(std::move(mine));
    }

    template <class Loop> void join(Loop& loop, part&& done) {
        // After this loop, done.sums[n] is no longer the sum of block n, but the total of all
        // blocks before it.
        for (std::uint64_t n = 0; n != done.blocks; ++n) {
            T behind = of_.combine(*before_, *done.sums[n]);
            done.sums[n].emplace(std::move(*before_));
            before_.emplace(std::move(behind));
        }
        const auto complete_block = [&](std::uint64_t n, std::uint64_t at, std::uint64_t) {
            loop.state().run(at, blocks_.end_of(at) - at,
                             [&] { of_.complete(*std::as_const(done.sums[n]), at); });
            return n + 1;
        };
        loop.for_blocks(done.blocks, done.from, blocks_.block, complete_block);
    }

    T& total() noexcept { return *before_; }

private:
    const scan_blocks blocks_;
    Blocks& of_;
    std::optional<T> before_;
};

// The scan of elements.
template <scan_kind Kind, class It, class Out, class T, class Op, class Map> class element_blocks {
    static constexpr bool is_exclusive = Kind == scan_kind::exclusive;
    // True if the output can hold partial results. In this case, a thief writes to each place the
    // combination of the elements of its block up to that place, as if no block came before.
    // complete() then adds the total of the earlier blocks, and needs neither the elements nor the
    // map.
    static constexpr bool keeps_in_output =
        std::same_as<std::iter_value_t<Out>, T> &&
        std::is_lvalue_reference_v<std::iter_reference_t<Out>> && !regroups<Op, T>;
    static constexpr bool never_throws =
        (is_plus<Op, T> || (std::is_nothrow_invocable_v<Op&, T, T> &&
                            std::is_nothrow_invocable_v<Op&, const T&, const T&>)) &&
        std::is_nothrow_invocable_v<Map&, std::iter_reference_t<It>>;
    // A small value is copied to a local object, which the output cannot overlap.
    using operand = std::conditional_t<is_small_copy<T>, T, const T&>;
    static_assert(
        reduces_to<std::invoke_result_t<Map&, std::iter_reference_t<It>>, T>,
        "bide: an element does not fit into the type of the initial value: convert it, or "
        "give an initial value of its type");

public:
    static constexpr bool in_pairs = keeps_in_output && std::is_arithmetic_v<T> && never_throws &&
                                     plain_numbers<It> && plain_numbers<Out>;

    element_blocks(const elements<It>& in, const Out& out, scan_blocks blocks, Op& combine,
                   Map& map)
        : in_(in), out_{out, in.size}, blocks_(blocks), op_(combine), map_(map) {}

    T scan(const std::optional<T>& before, std::uint64_t at) {
        return before ? scan_on(*before, at) : scan_alone(at);
    }
    T sum(std::uint64_t at) {
        if constexpr (keeps_in_output) {
            return scan_alone(at);
        } else {
            return fold(at, [](Out&, const T&) {});
        }
    }
    T scan_two(const T& all_before, std::uint64_t at) {
        const T before = all_before; // the output cannot overlap it
        const std::pair<T, T> sums =
            fold_two(at, [this, before](T& to, T here) { to = combine(before, here); });
        if constexpr (is_exclusive) {
            *out_.at(at) = before;
        }
        const T middle = combine(before, sums.first);
        put_before(middle, at + blocks_.block);
        return combine(middle, sums.second);
    }
    std::pair<T, T> sum_two(std::uint64_t at) {
        return fold_two(at, [](T& to, T here) { to = here; });
    }
    void complete(const T& before, std::uint64_t at) {
        if constexpr (keeps_in_output) {
            put_before(before, at);
        } else {
            static_cast<void>(scan_on(before, at));
        }
    }
    T combine(const T& left, const T& right) {
        return static_cast<T>(std::invoke(op_, left, right));
    }

private:
    std::uint64_t end_of(std::uint64_t at) const noexcept { return blocks_.end_of(at); }

    // Combines the elements of the block at `at` from left to right. Calls put(place, combination)
    // for each place, except for the first place of an exclusive scan. Each element is read before
    // its place is written, because both may be the same object.
    template <class Put> T fold(std::uint64_t at, Put put) {
        const It end = in_.at(end_of(at));
        It it = in_.at(at);
        Out to = out_.at(at);
        T sum = static_cast<T>(std::invoke(map_, *it));
        if constexpr (!is_exclusive) {
            put(to, std::as_const(sum));
        }
        while (++it != end) {
            ++to;
            T next = static_cast<T>(std::invoke(map_, *it));
            if constexpr (is_exclusive) {
                put(to, std::as_const(sum));
            }
            sum = static_cast<T>(std::invoke(op_, std::move(sum), std::move(next)));
            if constexpr (!is_exclusive) {
                put(to, std::as_const(sum));
            }
        }
        return sum;
    }

    // Does the same for the block at `at` and for the next one, in turn. Writes the combinations of
    // the second block to their places. `put` is for the first block.
    template <class Put> std::pair<T, T> fold_two(std::uint64_t at, Put put) {
        const std::uint64_t n = blocks_.block;
        auto* const from = detail::unwrap(in_.at(at));
        T* const to = detail::unwrap(out_.at(at));
        T first = static_cast<T>(std::invoke(map_, from[0]));
        T second = static_cast<T>(std::invoke(map_, from[n]));
        const auto put_both = [&](std::uint64_t i) {
            put(to[i], first);
            to[i + n] = second;
        };
        if constexpr (!is_exclusive) {
            put_both(0);
        }
        for (std::uint64_t i = 1; i != n; ++i) {
            const T next = static_cast<T>(std::invoke(map_, from[i]));
            const T next_second = static_cast<T>(std::invoke(map_, from[i + n]));
            if constexpr (is_exclusive) {
                put_both(i);
            }
            first = combine(first, next);
            second = combine(second, next_second);
            if constexpr (!is_exclusive) {
                put_both(i);
            }
        }
        return {first, second};
    }

    // Scans the block as if no block came before it. In an exclusive scan, writes nothing to the
    // first place.
    T scan_alone(std::uint64_t at) {
        return fold(at, [](Out& to, const T& sum) { *to = sum; });
    }

    // Scans the block. `all_before` is the total of all earlier blocks. Returns the total of all
    // blocks up to and including this one.
    T scan_on(const T& all_before, std::uint64_t at) {
        if constexpr (regroups<Op, T>) {
            const It end = in_.at(end_of(at));
            Out to = out_.at(at);
            T sum = all_before;
            for (It it = in_.at(at); it != end; ++it, static_cast<void>(++to)) {
                const T next = static_cast<T>(std::invoke(map_, *it));
                if constexpr (is_exclusive) {
                    *to = std::as_const(sum);
                }
                sum = static_cast<T>(std::invoke(op_, sum, next));
                if constexpr (!is_exclusive) {
                    *to = std::as_const(sum);
                }
            }
            return sum;
        } else {
            const operand before = all_before;
            T sum =
                fold(at, [this, &before](Out& to, const T& here) { *to = combine(before, here); });
            if constexpr (is_exclusive) {
                *out_.at(at) = before;
            }
            return combine(before, sum);
        }
    }

    // Completes the scan of a block for which scan_alone() was called.
    void put_before(const T& all_before, std::uint64_t at) {
        const operand before = all_before;
        const Out end = out_.at(end_of(at));
        Out to = out_.at(at);
        if constexpr (is_exclusive) {
            *to = before;
            ++to;
        }
        detail::each_element(
            to, end, [this, &before](auto&& here) { here = combine(before, std::as_const(here)); });
    }

    const elements<It> in_;
    const elements<Out> out_;
    const scan_blocks blocks_;
    Op& op_;
    Map& map_;
};

template <scan_kind Kind, class T, class On, class It, class Out, class Op, class Map>
Out scan(const On& on, const elements<It>& in, const Out& out, Op& op, Map& map,
         std::optional<T> before = std::nullopt) {
    const scan_blocks blocks = detail::blocks_of(in.size, on.options());
    using block_type = element_blocks<Kind, It, Out, T, Op, Map>;
    block_type work(in, out, blocks, op, map);
    scan_front<T, block_type> front(blocks, work, std::move(before));
    const std::uint64_t unit = blocks.block * (block_type::in_pairs ? blocks.in_part() : 1);
    detail::run_in_order(on.forks(), on.options(), in.size, unit, front);
    return elements<Out>{out, in.size}.end();
}

// The scan of chunks, which are the blocks.
template <class It, class T, class Body, class Combine> class chunk_blocks {
public:
    static constexpr bool in_pairs = false;

    chunk_blocks(const elements<It>& in, scan_blocks blocks, Body& body, Combine& combine)
        : in_(in), blocks_(blocks), body_(body), combine_(combine) {}

    T scan(const std::optional<T>& before, std::uint64_t at) {
        const T own = call(at, std::addressof(*before));
        return combine(*before, own);
    }
    T sum(std::uint64_t at) { return call(at, nullptr); }
    void complete(const T& before, std::uint64_t at) {
        static_cast<void>(call(at, std::addressof(before)));
    }
    T combine(const T& left, const T& right) {
        return static_cast<T>(std::invoke(combine_, left, right));
    }

private:
    T call(std::uint64_t at, const T* before) {
        return static_cast<T>(std::invoke(
            body_, parallel_chunk<It>(in_.at(at), blocks_.end_of(at) - at, at), before));
    }

    const elements<It> in_;
    const scan_blocks blocks_;
    Body& body_;
    Combine& combine_;
};

} // namespace detail

/// For each element of the range, writes the combination of all elements up to and including this
/// element. The results go to consecutive places from `out` on. The combinations are grouped as the
/// head of this file describes. Returns the iterator behind the last place. `out` may be the
/// beginning of the range itself; otherwise the places and the range must not overlap.
/// Blocks: until all calls have ended. Meanwhile the caller makes some of them.
/// Throws: of the calls of `op` that threw, the exception of the first call in the order of the
/// range. stopped_error after a stop. Other exceptions are those of join(). After an exception, the
/// places are unspecified.
/// Requires: op is associative and may be called by several threads at once. It gets two values of
/// the type of the elements, as rvalues or as const lvalues. The values are moved, and copied only
/// to the places. They need no default constructor.
/// Cancellation: see fork_options::stop.
/// Complexity: up to 2 n calls of op, or 3 n if the output does not have the type of the values.
template <parallel_range Range, class Out, class Op = std::plus<>>
    requires detail::takes_scan<Out, Op, std::ranges::range_value_t<Range>>
Out parallel_inclusive_scan(const fork_policy& on, Range&& range, Out out, Op op = {}) {
    std::identity map;
    return detail::scan<detail::scan_kind::inclusive, std::ranges::range_value_t<Range>>(
        on, detail::elements_of(range), out, op, map);
}

/// Scans the range with `init` in front of it. The values that are combined have the type T.
/// Requires: T can represent the value of every element.
template <parallel_range Range, class Out, class Op, class T>
    requires detail::takes_scan<Out, Op, T>
Out parallel_inclusive_scan(const fork_policy& on, Range&& range, Out out, Op op, T init) {
    std::identity map;
    return detail::scan<detail::scan_kind::inclusive, T>(on, detail::elements_of(range), out, op,
                                                         map, std::move(init));
}

/// Scans [first, last) in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_inclusive_scan);

/// Writes for each element the combination of `init` and all elements before it. Everything else is
/// as in parallel_inclusive_scan() with `init`.
template <parallel_range Range, class Out, class T, class Op = std::plus<>>
    requires detail::takes_scan<Out, Op, T>
Out parallel_exclusive_scan(const fork_policy& on, Range&& range, Out out, T init, Op op = {}) {
    std::identity map;
    return detail::scan<detail::scan_kind::exclusive, T>(on, detail::elements_of(range), out, op,
                                                         map, std::move(init));
}

/// Scans [first, last) in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_exclusive_scan);

/// Scans map(element) for each element of the range. Everything else is as in
/// parallel_inclusive_scan(). The rules there for the calls of op also apply to the calls of map.
/// If the output does not have the type of the values, map may be called twice for an element.
template <parallel_range Range, class Out, class Op, class Map>
    requires detail::takes_scan<Out, Op, detail::mapped_t<Map, std::ranges::iterator_t<Range>>>
Out parallel_transform_inclusive_scan(const fork_policy& on, Range&& range, Out out, Op op,
                                      Map map) {
    using value = detail::mapped_t<Map, std::ranges::iterator_t<Range>>;
    return detail::scan<detail::scan_kind::inclusive, value>(on, detail::elements_of(range), out,
                                                             op, map);
}

/// Scans map(element) for each element of the range, with `init` in front of them.
template <parallel_range Range, class Out, class Op, class Map, class T>
    requires std::invocable<Map&, std::ranges::range_reference_t<Range>> &&
             detail::takes_scan<Out, Op, T>
Out parallel_transform_inclusive_scan(const fork_policy& on, Range&& range, Out out, Op op, Map map,
                                      T init) {
    return detail::scan<detail::scan_kind::inclusive, T>(on, detail::elements_of(range), out, op,
                                                         map, std::move(init));
}

/// Scans [first, last) in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_transform_inclusive_scan);

/// Writes for each element the combination of `init` and map(element) of all elements before it.
/// Everything else is as in parallel_transform_inclusive_scan().
template <parallel_range Range, class Out, class T, class Op, class Map>
    requires std::invocable<Map&, std::ranges::range_reference_t<Range>> &&
             detail::takes_scan<Out, Op, T>
Out parallel_transform_exclusive_scan(const fork_policy& on, Range&& range, Out out, T init, Op op,
                                      Map map) {
    return detail::scan<detail::scan_kind::exclusive, T>(on, detail::elements_of(range), out, op,
                                                         map, std::move(init));
}

/// Scans [first, last) in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_transform_exclusive_scan);

/// Scans chunks: calls body(chunk, before) for parallel_chunks (parallel_for.hpp) that together
/// cover the range. `before` points to the combination of `init` and the results of all chunks
/// before, or is nullptr. body returns the result of the chunk alone, without `*before`. If
/// `before` is not nullptr, body also writes what depends on `*before`. Returns the combination of
/// `init` and all results, from left to right.
///
/// body is called with `before` once for each chunk. If another thread has taken a part of the
/// loop, body is called for the chunks of that part twice: first with nullptr, and later with
/// `before`. Both calls must return the same result; that of the second one is ignored. The chunks
/// are the blocks that the head of this file describes. So the results do not depend on the number
/// of threads.
///
/// Use this function if a place in the output depends on all earlier elements, and elements are
/// handled fastest several at a time. This example writes the lines of a text to an array:
///
/// \code
/// const auto body = [&](auto chunk, const std::size_t* before) {
///     std::size_t lines = 0;
///     for (const char& c : chunk) {
///         if (c == '\n' && before != nullptr) ends[*before + lines] = &c;
///         lines += c == '\n';
///     }
///     return lines;
/// };
/// const auto all = bide::parallel_scan_chunks(workers, text, std::size_t{0}, body, std::plus());
/// \endcode
///
/// Blocks: until all calls have ended. Meanwhile the caller makes some of them.
/// Throws: of the calls of body and combine that threw, the exception of the first call in the
/// order of the range. stopped_error after a stop. Other exceptions are those of join().
/// Requires: combine is associative. It gets two values of T as const lvalues. body and combine may
/// be called by several threads at once, body for different chunks.
/// Cancellation: see fork_options::stop.
template <parallel_range Range, std::movable T, class Body, class Combine>
    requires std::invocable<Body&, parallel_chunk<std::ranges::iterator_t<Range>>, const T*> &&
             std::invocable<Combine&, const T&, const T&>
T parallel_scan_chunks(const fork_policy& on, Range&& range, T init, Body&& body,
                       Combine&& combine) {
    using iterator = std::ranges::iterator_t<Range>;
    static_assert(
        detail::reduces_to<std::invoke_result_t<Body&, parallel_chunk<iterator>, const T*>, T> &&
            detail::reduces_to<std::invoke_result_t<Combine&, const T&, const T&>, T>,
        "bide: what body or combine returns does not fit into the type of the initial value: "
        "convert it, or give an initial value of its type");
    const auto all = detail::elements_of(range);
    const auto blocks = detail::blocks_of(all.size, on.options());
    using block_type = detail::chunk_blocks<iterator, T, Body, Combine>;
    block_type work(all, blocks, body, combine);
    detail::scan_front<T, block_type> front(blocks, work, std::optional<T>(std::move(init)));
    detail::run_in_order(on.forks(), on.options(), all.size, blocks.block, front);
    return std::move(front.total());
}

/// Scans the chunks of [first, last) in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_scan_chunks);

}} // namespace bide::BIDE_ABI

#endif
