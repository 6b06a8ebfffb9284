// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_SORT_HPP
#define BIDE_PARALLEL_PARALLEL_SORT_HPP

/// \file
/// Sorts in parallel: parallel_sort() in place, parallel_stable_sort() stably. No input takes
/// quadratic time. Both take nearly linear time if the range is sorted, reversed, all equal, or
/// made of a few sorted pieces. parallel_sort() also takes nearly linear time if there are few
/// distinct values.

#include <bide/parallel/parallel_merge.hpp>
#include <bide/parallel/parallel_partition.hpp>

#include <string>
#include <string_view>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// ---- Texts

// Most strings differ in their first 8 bytes. So a sort of strings sorts pairs of these bytes and
// of the string's number, and then moves each string to its place. It compares the strings
// themselves only if the first 8 bytes are equal. The pairs are copied without branches. A move of
// a std::string has a branch, because short strings are stored in the object.

// True for strings of which the < compares bytes.
template <class T> inline constexpr bool is_text = std::is_same_v<T, std::string_view>;
template <class Allocator>
inline constexpr bool is_text<std::basic_string<char, std::char_traits<char>, Allocator>> = true;

template <class F, class It>
concept gives_text =
    is_text<mapped_t<F, It>> &&
    (std::is_lvalue_reference_v<std::invoke_result_t<F&, std::iter_reference_t<It>>> ||
     std::is_same_v<mapped_t<F, It>, std::string_view>) &&
    std::is_nothrow_invocable_v<F&, std::iter_reference_t<It>>;

struct text_key {
    std::uint64_t first_bytes; // as a number: the first byte is the most significant one
    std::size_t number;        // of the element in the range
};

inline std::uint64_t first_bytes_of(std::string_view text) noexcept {
    char bytes[8] = {};
    text.copy(bytes, sizeof(bytes));
    std::uint64_t number = 0;
    for (const char byte : bytes) {
        number = number << 8 | static_cast<unsigned char>(byte);
    }
    return number;
}

// Sorts the elements by the texts that projection(element) returns. Returns false, and has changed
// nothing, if there is no memory.
template <bool Stable, class Forker, class It, class Projection>
bool sort_by_text(const Forker& forks, It begin, It end, Projection& projection,
                  sort_state<Forker>& state);

// ---- The sort

// Sorts a part of a range. If the part is one ascending run, does nothing; if it is one descending
// run, reverses it. If it consists of a few runs, merges the runs. For any other part, a stable
// sort uses merge sort, and an unstable sort uses quick sort. An unstable sort also uses quick sort
// if there is no memory to merge runs. If `text` is a projection to texts, and not nullptr, sorts
// any other part by sort_by_text() if there is memory.
// Throws: std::bad_alloc if a stable sort finds no memory.
template <bool Stable, class Forker, class It, class Compare, class Text = const std::nullptr_t>
void sort_here(Forker forks, It begin, It end, Compare& less, sort_state<Forker>& state,
               [[maybe_unused]] Text& text = nullptr) {
    constexpr std::ptrdiff_t too_small_for_runs = 64; // the search would cost more than it saves
    const auto size = static_cast<std::uint64_t>(end - begin);
    if (Stable && end - begin <= too_small_for_runs / 4) {
        detail::insertion_sort(begin, end, less);
        return state.count(size);
    }
    long_runs<It> runs;
    const bool has_runs = end - begin > too_small_for_runs && runs.find(forks, begin, end, less);
    if (has_runs && runs.size() == 1) {
        if (runs.descends(0)) {
            detail::reverse_in_parallel(forks, begin, end);
        }
        return state.count(size);
    }
    if constexpr (!std::is_null_pointer_v<Text>) {
        if (!has_runs && end - begin >= sort_fork_size &&
            detail::sort_by_text<Stable>(forks, begin, end, text, state)) {
            return;
        }
    }
    if (Stable || has_runs) {
        merge_sort merging(forks, begin, end, less, state);
        if (merging && has_runs) {
            return merging.run(runs);
        }
        if constexpr (Stable) {
            if (merging) {
                return merging.run();
            }
            BIDE_THROW(std::bad_alloc());
        }
    }
    if constexpr (!Stable) {
        quick_sort(forks, begin, less, state).run(begin, end);
    }
}

template <bool Stable, class Forker, class It, class Projection>
bool sort_by_text(const Forker& forks, It begin, It end, Projection& projection,
                  sort_state<Forker>& state) {
    const auto size = static_cast<std::size_t>(end - begin);
    two_places<It> places(begin, size);
    const std::unique_ptr<text_key[]> keys(places ? new (std::nothrow) text_key[size] : nullptr);
    if (!keys) {
        return false;
    }
    const auto text = [begin, &projection](std::size_t n) noexcept -> std::string_view {
        return std::invoke(projection, begin[static_cast<std::iter_difference_t<It>>(n)]);
    };
    detail::for_all_parts(forks, size, [&](std::size_t first, std::size_t last) {
        for (std::size_t n = first; n != last; ++n) {
            keys[n] = {detail::first_bytes_of(text(n)), n};
        }
    });
    auto by_text = [&text](const text_key& a, const text_key& b) noexcept {
        return a.first_bytes != b.first_bytes ? a.first_bytes < b.first_bytes
                                              : text(a.number) < text(b.number);
    };
    detail::sort_here<Stable>(forks, keys.get(), keys.get() + size, by_text, state);
    if (!state.was_stopped()) {
        detail::move_by_number(forks, places, size, keys.get());
    }
    return true;
}

template <bool Stable, class On, class It, class Compare, class Projection = std::identity>
void sort(const On& on, const elements<It>& all, Compare& less, Projection projection = {}) {
    auto&& call = detail::callable(less, projection);
    detail::in_one_fork(on, all.size, all.size, [&](auto& state) {
        const auto begin = detail::unwrap(all.first);
        const auto end = detail::unwrap(all.end());
        if constexpr (gives_text<Projection, It> && plain_less<Compare, mapped_t<Projection, It>>) {
            detail::sort_here<Stable>(on.forks(), begin, end, call, state, projection);
        } else {
            detail::sort_here<Stable>(on.forks(), begin, end, call, state);
        }
    });
}

} // namespace detail

/// Sorts the range in place: element a comes before element b if less(projection(a), projection(b))
/// is true. For example, `parallel_sort(s, people, {}, &person::age)` sorts people by their age.
///
/// Equal elements may change their order. Their new order depends only on the range: it is the same
/// on any number of workers. If the range consists of a few sorted pieces, the pieces are merged in
/// a buffer, if there is memory for it. If at least 1,024 std::string or std::string_view are
/// compared by <, of the elements or of what the projection returns, the sort uses a buffer and 16
/// bytes for each element, if there is memory. It compares the first 8 bytes of each string as a
/// number. In all other cases, the sort needs no memory.
///
/// An element is moved by std::ranges::iter_move() or swapped by std::ranges::iter_swap(). It is
/// copied only if it is trivially copyable. So an iterator may return a proxy in place of a
/// reference.
/// Blocks: until the range is sorted. Meanwhile the caller sorts parts of it. A short range is
/// sorted by the calling thread alone.
/// Throws: what a comparison throws. If several comparisons throw, the exception of the first one
/// in the order of the range. In this case, the range has the same elements as before, in some
/// order. If a move throws, all elements are alive, but their values are unspecified. stopped_error
/// if the scheduler is shutting down, as in join(), with nothing changed. std::bad_alloc if there
/// is no memory to fork. The range is then in the same state as if a comparison had thrown.
/// Requires: less is a strict weak order; otherwise the elements end up in any order. Several
/// threads may call less at once. Several threads also access different elements at once, which
/// excludes vector<bool>.
/// Cancellation: a stop takes effect between parts of the sort. If a part is skipped, throws
/// stopped_error, and the range has the same elements as before, in some order.
/// fork_options::progress counts the elements whose place is final. fork_options::grain is ignored.
/// Complexity: O(n log n) comparisons.
template <parallel_range Range, class Compare = std::less<>, class Projection = std::identity>
    requires std::sortable<std::ranges::iterator_t<Range>, Compare, Projection>
void parallel_sort(const fork_policy& on, Range&& range, Compare less = {},
                   Projection projection = {}) {
    detail::sort<false>(on, detail::elements_of(range), less, projection);
}

/// Sorts [first, last) in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_sort, requires detail::sortable_by<It, std::decay_t<Args>...>);

/// Sorts as parallel_sort() does, but equal elements keep their order. So the result is the same on
/// any number of workers. Before it changes anything, it allocates a buffer of the size of the
/// range.
/// Throws: as parallel_sort(). std::bad_alloc, with nothing changed, if there is no memory for the
/// buffer.
/// Cancellation: as parallel_sort(). fork_options::progress counts the elements in the last merge,
/// because their places are not final before.
template <parallel_range Range, class Compare = std::less<>, class Projection = std::identity>
    requires std::sortable<std::ranges::iterator_t<Range>, Compare, Projection>
void parallel_stable_sort(const fork_policy& on, Range&& range, Compare less = {},
                          Projection projection = {}) {
    detail::sort<true>(on, detail::elements_of(range), less, projection);
}

/// Sorts [first, last) stably, in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_stable_sort,
                            requires detail::sortable_by<It, std::decay_t<Args>...>);

}} // namespace bide::BIDE_ABI

#endif
