// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_RADIX_SORT_HPP
#define BIDE_PARALLEL_PARALLEL_RADIX_SORT_HPP

/// \file
/// Sorts by the bits of a number instead of by comparisons: parallel_radix_sort().

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/parallel/detail/sort_parts.hpp>
#include <bide/parallel/fork_join.hpp>
#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/parallel_merge.hpp>
#include <bide/parallel/parallel_range.hpp>

#include <algorithm>
#include <bit>
#include <climits>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

template <class T>
concept radix_number = (std::integral<T> && sizeof(T) <= 8) ||
                       (std::floating_point<T> && std::numeric_limits<T>::is_iec559 &&
                        (sizeof(T) == sizeof(std::uint32_t) || sizeof(T) == sizeof(std::uint64_t)));

// Converts a number to an unsigned number so that the order of the numbers stays the same. For
// integers and non-negative floating-point numbers, inverts the sign bit. For negative
// floating-point numbers, inverts all bits.
template <radix_number T> constexpr auto radix_key(T number) noexcept {
    if constexpr (std::is_same_v<T, bool>) {
        return static_cast<unsigned char>(number ? 1 : 0);
    } else if constexpr (std::integral<T>) {
        using bits = std::make_unsigned_t<T>;
        constexpr auto sign =
            static_cast<bits>(std::is_signed_v<T> ? bits{1} << (sizeof(T) * CHAR_BIT - 1) : 0);
        return static_cast<bits>(static_cast<bits>(number) ^ sign);
    } else {
        using bits =
            std::conditional_t<sizeof(T) == sizeof(std::uint32_t), std::uint32_t, std::uint64_t>;
        constexpr bits sign = bits{1} << (sizeof(T) * CHAR_BIT - 1);
        const auto given = std::bit_cast<bits>(number);
        return static_cast<bits>((given & sign) != 0 ? ~given : given | sign);
    }
}

// A stable radix sort that begins with the highest digit and uses a buffer of the same size. If the
// keys of a part differ, the part is divided into up to 256 buckets. The digit is taken from the
// highest bits in which the keys differ. Each bucket is then a part. Small parts are sorted by
// comparisons of their keys.
//
// Each element is either in the range or in the buffer, as in merge_sort. A step first stores the
// digit of each element, and then moves all elements of the part from the range to the buffer or
// back. So the projection is called before any element is moved. Even if the projection returns
// another key in each call, the elements stay within the part.
//
// `Key` is called as key(element), and returns an unsigned number.
template <class Forker, class It, class Key> class radix_sort {
    using difference = std::iter_difference_t<It>;
    using state = sort_state<Forker>;
    using places = two_places<It>;
    using place = typename places::place;
    using transfer = typename places::transfer;

public:
    radix_sort(Forker forks, It begin, It end, Key& key, state& shared) noexcept
        : forks_(forks), size_(static_cast<std::size_t>(end - begin)), key_(key), state_(shared),
          places_(begin, size_), digits_(detail::make_raw_buffer<unsigned char>(size_)),
          counts_(detail::make_raw_buffer<std::size_t>((size_ / chunk_size + 1) * most_buckets)) {}

    // Returns true if there is memory. All other functions require that.
    explicit operator bool() const noexcept { return places_ && digits_ && counts_; }

    void run() {
        places_.bring_to_start();
        sort(0, size_, places::start);
    }

private:
    static constexpr std::size_t most_buckets = 256;
    static constexpr std::size_t small_size = 32;
    static constexpr std::size_t chunk_size = 16'384;
    static constexpr std::size_t fork_size = static_cast<std::size_t>(sort_fork_size);

    // A part, and its chunks, which threads take one by one.
    struct part {
        std::size_t size() const noexcept { return last - first; }
        std::size_t chunks() const noexcept {
            return (std::max)(size() / chunk_size, std::size_t{1});
        }
        std::size_t begin_of(std::size_t chunk) const noexcept {
            const std::size_t all = chunks();
            const std::size_t rest = size() % all;
            return first + size() / all * chunk + (std::min)(chunk, rest);
        }
        // `counts_` has the counts of the buckets, for each chunk. Returns the index of the first
        // chunk of this part in `counts_`. Disjoint parts use disjoint indices.
        std::size_t first_chunk() const noexcept { return (first + chunk_size - 1) / chunk_size; }
        std::size_t first;
        std::size_t last;
    };

    // When the scope is left, moves the elements of the part to the range, sorted or not.
    transfer to_range(part all, place from) const {
        return transfer(places_, static_cast<difference>(all.first),
                        static_cast<difference>(all.last), from, place::range);
    }

    // Sorts the elements of a part and puts them into the range. The elements are at `from`. If the
    // part is skipped, only moves its elements to the range.
    void sort(std::size_t first, std::size_t last, place from) {
        const part all{first, last};
        transfer elements = to_range(all, from);
        if (state_.leaves_out(first)) {
            return;
        }
        state_.run(first, 0, [&] {
            std::uint64_t differences = 0;
            if (all.size() <= small_size) {
                places_.at(from, [&](auto begin) { sort_small(begin, all); });
            } else if (!places_.at(from, [&](auto begin) {
                           return find_differences(begin, all, differences);
                       })) {
                return;
            }
            if (differences != 0) {
                return divide(all, from, elements, differences);
            }
            elements.finish();
            state_.count(all.size());
        });
    }

    // Moves the elements to their buckets, and sorts the buckets.
    void divide(part all, place from, transfer& elements, std::uint64_t differences) {
        const int highest = static_cast<int>(std::bit_width(differences));
        const int digit_bits =
            (std::min)({8, highest, static_cast<int>(std::bit_width(all.size())) - 4});
        const int shift = highest - digit_bits;
        const std::size_t buckets = std::size_t{1} << digit_bits;
        std::size_t small_counts[most_buckets];
        std::size_t* const counts =
            all.chunks() == 1 ? small_counts : counts_.get() + all.first_chunk() * most_buckets;
        const bool is_complete = places_.at(
            from, [&](auto begin) { return note_digits(begin, all, shift, buckets, counts); });
        if (!is_complete) {
            return;
        }
        std::size_t starts[most_buckets + 1];
        add_up(all, buckets, counts, starts);
        const place to = places::other(from);
        elements.release();
        move_to_buckets(all, from, to, counts);
        sort_buckets(starts, 0, buckets, to);
    }

    // Calls f for each chunk of the part, in parallel if there are several. Returns false if a
    // chunk was skipped, or if the part is left out now.
    template <class F> bool for_chunks(part all, const F& f) const {
        if (all.chunks() == 1) {
            return f(0), true;
        }
        detail::fork_each(forks_, 0, all.chunks(), [&](std::size_t chunk) {
            if (!state_.leaves_out(all.first)) {
                f(chunk);
            }
        });
        return !state_.leaves_out(all.first); // stays true once it is true
    }

    // Finds the bits in which the keys of the part differ. Returns false if a chunk was skipped. If
    // the sorted digit contains the highest of these bits, the part has at least two buckets.
    template <class I> bool find_differences(I begin, part all, std::uint64_t& differences) const {
        typename Forker::platform::template atomic<std::uint64_t> found{0};
        const std::uint64_t one = key_(begin[static_cast<difference>(all.first)]);
        const bool is_complete = for_chunks(all, [&](std::size_t chunk) {
            std::uint64_t here = 0;
            const std::size_t end = all.begin_of(chunk + 1);
            for (std::size_t i = all.begin_of(chunk); i != end; ++i) {
                here |= key_(begin[static_cast<difference>(i)]) ^ one;
            }
            // Order: relaxed; the joins of the chunks order it before the reader.
            found.fetch_or(here, std::memory_order_relaxed);
        });
        // Order: relaxed; as above.
        differences = found.load(std::memory_order_relaxed);
        return is_complete;
    }

    template <class I>
    bool note_digits(I begin, part all, int shift, std::size_t buckets, std::size_t* counts) const {
        return for_chunks(all, [&](std::size_t chunk) {
            std::size_t* const mine = counts + chunk * most_buckets;
            unsigned char* const digits = digits_.get();
            std::fill_n(mine, buckets, std::size_t{0});
            const std::size_t end = all.begin_of(chunk + 1);
            for (std::size_t i = all.begin_of(chunk); i != end; ++i) {
                const std::uint64_t key = key_(begin[static_cast<difference>(i)]);
                const auto digit = static_cast<unsigned char>((key >> shift) & (buckets - 1));
                digits[i] = digit;
                ++mine[digit];
            }
        });
    }

    // Replaces the counts by the places at which each chunk writes to each bucket.
    static void add_up(part all, std::size_t buckets, std::size_t* counts, std::size_t* starts) {
        std::size_t sum = all.first;
        for (std::size_t bucket = 0; bucket != buckets; ++bucket) {
            starts[bucket] = sum;
            for (std::size_t chunk = 0; chunk != all.chunks(); ++chunk) {
                std::size_t& count = counts[chunk * most_buckets + bucket];
                sum += std::exchange(count, sum);
            }
        }
        starts[buckets] = sum;
    }

    void move_to_buckets(part all, place from, place to, std::size_t* counts) const {
        const auto move_chunk = [&](std::size_t chunk) {
            std::size_t* const next = counts + chunk * most_buckets;
            const std::size_t end = all.begin_of(chunk + 1);
            places_.at(from, [&](auto source) {
                places_.at(to, [&](auto target) {
                    for (std::size_t i = all.begin_of(chunk); i != end; ++i) {
                        const std::size_t place_of = next[digits_.get()[i]]++;
                        target[static_cast<difference>(place_of)] =
                            std::ranges::iter_move(source + static_cast<difference>(i));
                    }
                });
            });
        };
        if (all.chunks() == 1) {
            return move_chunk(0);
        }
        detail::fork_each<true>(forks_, 0, all.chunks(), move_chunk);
    }

    // Sorts the buckets [first, last), whose elements are at `from`, into the range.
    void sort_buckets(const std::size_t* starts, std::size_t first, std::size_t last, place from) {
        if (starts[first] == starts[last]) {
            return;
        }
        if (last - first == 1) {
            return sort(starts[first], starts[last], from);
        }
        const std::size_t middle = first + (last - first) / 2;
        transfer elements = to_range({starts[first], starts[last]}, from);
        const auto sort_first = [&] {
            elements.release(); // both calls begin
            sort_buckets(starts, first, middle, from);
        };
        const auto sort_second = [&] { sort_buckets(starts, middle, last, from); };
        if (starts[last] - starts[first] >= fork_size) {
            forks_.both(sort_first, sort_second);
        } else {
            detail::call_both(sort_first, sort_second);
        }
    }

    template <class I> void sort_small(I begin, part all) const {
        auto less = [this](auto&& a, auto&& b) -> bool { return key_(a) < key_(b); };
        const I first = begin + static_cast<difference>(all.first);
        const I last = begin + static_cast<difference>(all.last);
        detail::sort_small(first, last, less);
    }

    const Forker forks_;
    const std::size_t size_;
    Key& key_;
    state& state_;
    places places_;
    const raw_buffer<unsigned char> digits_;
    const raw_buffer<std::size_t> counts_;
};

template <class On, class It, class Projection>
void sort_by_bits(const On& on, const elements<It>& all, Projection& projection) {
    const auto begin = detail::unwrap(all.first);
    auto key = [&projection](auto&& element) {
        auto&& number = std::invoke(projection, std::forward<decltype(element)>(element));
        return detail::radix_key<std::remove_cvref_t<decltype(number)>>(number);
    };
    detail::in_one_fork(on, all.size, all.size, [&](auto& state) {
        radix_sort<decltype(on.forks()), std::remove_const_t<decltype(begin)>, decltype(key)> sort(
            on.forks(), begin, detail::unwrap(all.end()), key, state);
        if (!sort) {
            BIDE_THROW(std::bad_alloc());
        }
        sort.run();
    });
}

} // namespace detail

/// True for a projection to a number that parallel_radix_sort() sorts by: an integer of up to 64
/// bits, bool and characters included, or a float or double in the format of IEEE 754.
template <class Projection, class It>
concept radix_projection = std::regular_invocable<Projection&, std::iter_reference_t<It>> &&
                           std::regular_invocable<Projection&, std::iter_value_t<It>&> &&
                           detail::radix_number<detail::mapped_t<Projection, It>>;

/// Sorts the range by the numbers projection(element), the least one first: `parallel_radix_sort(s,
/// orders, &order::number)`. Equal numbers keep their order, so the result is the same on any
/// number of workers. Before it changes anything, it allocates a buffer for as many elements, and
/// about one byte more for each element.
///
/// Floating-point numbers have the total order of IEEE 754: NaN with the sign bit set, numbers from
/// -infinity to -0.0, then from +0.0 to +infinity, and NaN without the sign bit. So -0.0 comes
/// before +0.0, and NaN has a place, too.
/// Blocks: until the range is sorted. Meanwhile the caller sorts parts of it. A short range is
/// sorted by the calling thread alone.
/// Throws: std::bad_alloc, with nothing changed, if there is no memory for the buffers. If the
/// projection throws, or a thread finds no memory to fork, the range has the same elements as
/// before, in some order. If a move throws, all elements are alive, but their values are
/// unspecified. Other exceptions are those of parallel_sort().
/// Requires: projection may be called by several threads at once. If it returns different numbers
/// for one element, the elements end up in any order.
/// Cancellation: as parallel_sort().
/// Complexity: about one pass over the elements for each 8 bits in which the numbers differ, or for
/// each factor of 256 in the number of elements, whichever is less.
template <parallel_range Range, class Projection = std::identity>
    requires std::permutable<std::ranges::iterator_t<Range>> &&
             radix_projection<Projection, std::ranges::iterator_t<Range>>
void parallel_radix_sort(const fork_policy& on, Range&& range, Projection projection = {}) {
    detail::sort_by_bits(on, detail::elements_of(range), projection);
}

}} // namespace bide::BIDE_ABI

#endif
