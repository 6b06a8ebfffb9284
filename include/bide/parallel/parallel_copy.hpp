// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_COPY_HPP
#define BIDE_PARALLEL_PARALLEL_COPY_HPP

/// \file
/// Copies elements of a range to consecutive places, in their order. parallel_copy() copies all
/// elements; parallel_copy_if(), parallel_unique_copy() and parallel_partition_copy() copy some.
///
/// The results are those of std's algorithms, on any number of workers. The predicate is called
/// once for each element.

#include <bide/parallel/parallel_for.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// The places of the elements that are kept.
template <class It, class Out> struct kept_output {
    elements<Out> kept;

    static constexpr bool copies_in_vain = copies_bytes<It, Out>;

    // If the element at `it` is kept, copies it. `before` is the number of kept elements before it.
    void put(const It& it, bool is_kept, std::uint64_t, std::uint64_t before) const {
        if (is_kept) {
            *kept.at(before) = *it;
        }
    }

    // Of the `size` elements from `it` on, copies those for which `is_kept` is 1. `count` is the
    // number of these elements.
    void put_all(const It& it, const unsigned char* is_kept, std::uint64_t size,
                 std::uint64_t count, std::uint64_t before) const {
        auto* const to = detail::unwrap(kept.at(before));
        auto* const from = detail::unwrap(it);
        if (count == size) {
            std::copy(from, from + size, to);
            return;
        }
        // Copies each element, kept or not, to the current place. The place advances only after a
        // kept element, so an element that is not kept is overwritten. The place behind the last
        // kept element may not exist, so the loop ends at the last kept element.
        std::uint64_t done = 0;
        for (std::uint64_t n = 0; done != count; ++n) {
            to[done] = from[n];
            done += is_kept[n];
        }
    }
};

template <class It, class Out, class Other> struct parted_output {
    elements<Out> kept;
    elements<Other> others;

    static constexpr bool copies_in_vain = false;

    void put(const It& it, bool is_kept, std::uint64_t index, std::uint64_t before) const {
        if (is_kept) {
            *kept.at(before) = *it;
        } else {
            *others.at(index - before) = *it;
        }
    }
};

// Copies the kept elements to consecutive places, in their order.
//
// keeps(it) returns true if the element at `it` is kept. It is called once for each element. The
// place of an element is known only after keeps() was called for all elements before it. The owner
// of the loop (parallel_for.hpp) calls keeps() for an element and then copies it. A thief, that is,
// another thread that has taken a part of the loop, only calls keeps(). The thief stores the
// answers, one byte each, and the number of kept elements of each block. pack_front::join() adds up
// these numbers, and then copies all blocks in parallel.
template <class It, class Keeps, class Output> class pack_front {
    // The number of elements for which keeps() is called before they are copied.
    static constexpr std::uint64_t batch = 1'024;

    struct block {
        std::uint64_t asked = 0; // the number of elements for which keeps() has returned
        std::uint64_t kept = 0;  // how many of these are kept; after join(): kept in earlier blocks
    };

public:
    struct part {
        std::uint64_t from;
        std::uint64_t to;
        std::uint64_t block_size;
        std::uint64_t count;
        std::unique_ptr<unsigned char[]> is_kept; // for each element
        std::unique_ptr<block[]> blocks;
        std::exception_ptr error;

        std::uint64_t size(std::uint64_t n) const noexcept {
            return n + 1 == count ? to - from - n * block_size : block_size;
        }
    };

    pack_front(const elements<It>& in, std::uint64_t grain, Keeps& keeps, const Output& output)
        : in_(in), grain_(grain), keeps_(keeps), output_(output) {}

    std::uint64_t kept() const noexcept { return kept_; }

    void run(std::uint64_t from, std::uint64_t to) {
        if constexpr (Output::copies_in_vain) {
            unsigned char is_kept[batch];
            for (std::uint64_t at = from; at != to;) {
                const std::uint64_t size = (std::min)(to - at, batch);
                // If a call throws, copies the kept elements before that call.
                struct copied {
                    ~copied() {
                        front.output_.put_all(front.in_.at(at), is_kept, here.asked, here.kept,
                                              front.kept_);
                        front.kept_ += here.kept;
                    }
                    pack_front& front;
                    const std::uint64_t at;
                    const unsigned char* const is_kept;
                    block here{};
                } done{*this, at, is_kept};
                ask(at, size, is_kept, done.here);
                at += size;
            }
        } else {
            It it = in_.at(from);
            std::uint64_t kept = kept_;
            for (std::uint64_t at = from; at != to; ++at, static_cast<void>(++it)) {
                const bool is_kept = keeps_(it);
                output_.put(it, is_kept, at, kept);
                kept += is_kept ? 1 : 0;
            }
            kept_ = kept;
        }
    }

    template <class Loop>
    void ahead(Loop& loop, std::uint64_t from, std::uint64_t to, std::optional<part>& done) {
        const std::uint64_t size = to - from;
        const std::uint64_t block_size =
            (std::max)(std::clamp<std::uint64_t>(size / 256, 1, 4'096), grain_);
        part mine{from, to, block_size, (std::max)(size / block_size, std::uint64_t{1}),
                  {},   {}, {}};
        mine.is_kept.reset(new (std::nothrow) unsigned char[size]);
        mine.blocks.reset(new (std::nothrow) block[mine.count]);
        if (mine.is_kept == nullptr || mine.blocks == nullptr) {
            return;
        }
        const auto ask_block = [&](std::uint64_t n, std::uint64_t at, std::uint64_t) {
            ask(at, mine.size(n), &mine.is_kept[at - from], mine.blocks[n]);
            return n + 1;
        };
        // If a call throws, the join copies what a serial run would have copied before that call.
        detail::call_or([&] { loop.for_blocks(mine.count, from, block_size, ask_block); },
                        [&] { mine.error = std::current_exception(); });
        done.emplace(std::move(mine));
    }

    template <class Loop> void join(Loop& loop, part&& done) {
        std::uint64_t blocks = 0;
        for (bool goes_on = true; goes_on && blocks != done.count; ++blocks) {
            block& here = done.blocks[blocks];
            goes_on = here.asked == done.size(blocks);
            kept_ += std::exchange(here.kept, kept_);
        }
        const auto copy_block = [&](std::uint64_t n, std::uint64_t at, std::uint64_t) {
            loop.state().run(at, done.blocks[n].asked, [&] {
                const std::uint64_t behind = n + 1 == blocks ? kept_ : done.blocks[n + 1].kept;
                copy(at, &done.is_kept[at - done.from], done.blocks[n], behind);
            });
            return n + 1;
        };
        loop.for_blocks(blocks, done.from, done.block_size, copy_block);
#if BIDE_EXCEPTIONS
        if (done.error != nullptr) {
            std::rethrow_exception(done.error);
        }
#endif
    }

private:
    // Calls keeps() for `size` elements from `at` on, in order. Stores in `result` how many calls
    // have returned and how many elements are kept, even if a call throws.
    void ask(std::uint64_t at, std::uint64_t size, unsigned char* is_kept, block& result) {
        struct stored {
            ~stored() { result = counts; }
            block& result;
            block counts{};
        } so_far{result};
        std::uint64_t& asked = so_far.counts.asked;
        for (It it = in_.at(at); asked != size; ++it, static_cast<void>(++asked)) {
            const unsigned char here = keeps_(it) ? 1 : 0;
            is_kept[asked] = here;
            so_far.counts.kept += here;
        }
    }

    // Copies the kept elements of a block. `behind` counts the kept elements up to the end of this
    // block.
    void copy(std::uint64_t at, const unsigned char* is_kept, const block& from,
              std::uint64_t behind) {
        if constexpr (Output::copies_in_vain) {
            output_.put_all(in_.at(at), is_kept, from.asked, behind - from.kept, from.kept);
        } else {
            It it = in_.at(at);
            std::uint64_t kept = from.kept;
            for (std::uint64_t n = 0; n != from.asked; ++n, static_cast<void>(++it)) {
                output_.put(it, is_kept[n] != 0, at + n, kept);
                kept += is_kept[n];
            }
        }
    }

    const elements<It> in_;
    const std::uint64_t grain_;
    Keeps& keeps_;
    const Output output_;
    std::uint64_t kept_ = 0;
};

// Copies the kept elements to the output, and returns their number.
template <class On, class It, class Keeps, class Output>
std::uint64_t pack(const On& on, const elements<It>& in, Keeps keeps, const Output& output) {
    pack_front<It, Keeps, Output> front(in, on.options().grain, keeps, output);
    detail::run_in_order(on, in.size, front);
    return front.kept();
}

template <class On, class It, class Out, class Predicate, class Projection>
Out copy_if(const On& on, const elements<It>& in, const Out& out, Predicate& predicate,
            Projection& projection) {
    const elements<Out> to{out, in.size};
    return to.at(detail::pack(
        on, in,
        [&](const It& it) -> bool { return std::invoke(predicate, std::invoke(projection, *it)); },
        kept_output<It, Out>{to}));
}

} // namespace detail

/// Copies the elements of the range to consecutive places from `out` on. Returns the iterator
/// behind the last of these places. The places must not overlap the range. Everything else is as in
/// parallel_transform().
template <parallel_range Range, class Out>
    requires parallel_output<Out, std::ranges::range_reference_t<Range>>
Out parallel_copy(const fork_policy& on, Range&& range, Out out) {
    const auto all = detail::elements_of(range);
    const detail::elements<Out> to{std::move(out), all.size};
    detail::loop_over(on, all.numbers(), [&](std::uint64_t from, std::uint64_t until) {
        std::ranges::copy(all.at(from), all.at(until), to.at(from));
    });
    return to.end();
}

/// Copies [first, last) in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_copy);

/// Copies the elements for which predicate(projection(element)) is true to consecutive places from
/// `out` on, in their order. Returns the iterator behind the last of these places. The places and
/// the range must not overlap; no place behind the last one is written.
/// Blocks: until all calls have ended. Meanwhile the caller makes some of them.
/// Throws: of the calls that threw, the exception of the first call in the order of the range; the
/// elements before it are copied. stopped_error after a stop. Other exceptions are those of join().
/// If a copy throws, the predicate may have been called for some elements behind it.
/// Requires: predicate and projection may be called by several threads at once.
/// Cancellation: see fork_options::stop.
/// Complexity: n calls of the predicate. Up to n bytes of memory.
template <parallel_range Range, class Out, class Predicate, class Projection = std::identity>
    requires detail::finds_in<Predicate, std::ranges::iterator_t<Range>, Projection> &&
             parallel_output<Out, std::ranges::range_reference_t<Range>>
Out parallel_copy_if(const fork_policy& on, Range&& range, Out out, Predicate predicate,
                     Projection projection = {}) {
    return detail::copy_if(on, detail::elements_of(range), out, predicate, projection);
}

/// Copies elements of [first, last) in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_copy_if);

/// Copies the first of each group of neighbours that are equal by equal(projection(a),
/// projection(b)). Everything else is as in parallel_copy_if().
/// Requires: equal is an equivalence relation, because each element is compared with its neighbour,
/// and not with the last copied element as in std.
template <parallel_range Range, class Out, class Equal = std::ranges::equal_to,
          class Projection = std::identity>
    requires detail::compares_in<Equal, std::ranges::iterator_t<Range>, Projection> &&
             parallel_output<Out, std::ranges::range_reference_t<Range>>
Out parallel_unique_copy(const fork_policy& on, Range&& range, Out out, Equal equal = {},
                         Projection projection = {}) {
    using iterator = std::ranges::iterator_t<Range>;
    const auto in = detail::elements_of(range);
    const detail::elements<Out> to{std::move(out), in.size};
    const auto is_first = [&](const iterator& it) -> bool {
        if (it == in.first) {
            return true;
        }
        iterator before = it;
        --before;
        return !std::invoke(equal, std::invoke(projection, *before), std::invoke(projection, *it));
    };
    return to.at(detail::pack(on, in, is_first, detail::kept_output<iterator, Out>{to}));
}

/// Copies elements of [first, last) in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_unique_copy);

/// Copies the elements for which predicate(projection(element)) is true to consecutive places from
/// `matches` on. Copies the other elements to places from `others` on. Both groups keep their
/// order. Returns the iterators behind the last places. Everything else is as in
/// parallel_copy_if().
template <parallel_range Range, class Out, class Other, class Predicate,
          class Projection = std::identity>
    requires detail::finds_in<Predicate, std::ranges::iterator_t<Range>, Projection> &&
             parallel_output<Out, std::ranges::range_reference_t<Range>> &&
             parallel_output<Other, std::ranges::range_reference_t<Range>>
std::pair<Out, Other> parallel_partition_copy(const fork_policy& on, Range&& range, Out matches,
                                              Other others, Predicate predicate,
                                              Projection projection = {}) {
    using iterator = std::ranges::iterator_t<Range>;
    const auto in = detail::elements_of(range);
    const detail::elements<Out> to{std::move(matches), in.size};
    const detail::elements<Other> rest{std::move(others), in.size};
    const auto matched = [&](const iterator& it) -> bool {
        return std::invoke(predicate, std::invoke(projection, *it));
    };
    const std::uint64_t kept =
        detail::pack(on, in, matched, detail::parted_output<iterator, Out, Other>{to, rest});
    return {to.at(kept), rest.at(in.size - kept)};
}

/// Copies the elements of [first, last) in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_partition_copy);

}} // namespace bide::BIDE_ABI

#endif
