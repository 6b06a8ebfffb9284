// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_SORT_BY_CACHED_KEY_HPP
#define BIDE_PARALLEL_PARALLEL_SORT_BY_CACHED_KEY_HPP

/// \file
/// Sorts by a key that is costly to compute: parallel_sort_by_cached_key() computes the key once
/// for each element, sorts the keys, and then moves each element to its place.

#include <bide/parallel/parallel_sort.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// The key of an element, and the number of the element in the range.
template <class Key> struct cached_key {
    static constexpr bool is_plain =
        std::is_trivially_copyable_v<Key> && std::is_default_constructible_v<Key>;
    // If no Key can be constructed before the key is computed, the key is optional.
    std::conditional_t<is_plain, Key, std::optional<Key>> stored{};
    std::size_t number = 0;

    Key& key() noexcept {
        if constexpr (is_plain) {
            return stored;
        } else {
            return *stored;
        }
    }
};

template <class On, class It, class Compute, class Compare>
void sort_by_cached_key(const On& on, const elements<It>& all, Compute& compute, Compare& less) {
    using entry = cached_key<mapped_t<Compute, It>>;
    const auto begin = detail::unwrap(all.first);
    const auto size = static_cast<std::size_t>(all.size);
    detail::in_one_fork(on, all.size, 2 * all.size, [&](auto& state) {
        two_places places(begin, size);
        const std::unique_ptr<entry[]> keys(places ? new (std::nothrow) entry[size] : nullptr);
        if (!keys) {
            BIDE_THROW(std::bad_alloc());
        }
        const auto forks = on.forks();
        const auto compute_keys = [&](std::uint64_t from, std::uint64_t to) {
            const It end = all.at(to);
            entry* next = keys.get() + from;
            for (It it = all.at(from); it != end; ++it, ++next) {
                next->stored = std::invoke(compute, *it);
                next->number = static_cast<std::size_t>(next - keys.get());
            }
            state.count(to - from);
        };
        fork_options uncounted = on.options();
        uncounted.progress = nullptr;
        detail::run_loop_over(forks, all.numbers(), uncounted, compute_keys);
        auto by_key = [&less](auto&& a, auto&& b) -> bool {
            return std::invoke(less, a.key(), b.key());
        };
        std::remove_reference_t<decltype(state)> of_keys(uncounted, 0);
        detail::sort_here<true>(forks, keys.get(), keys.get() + size, by_key, of_keys);
        of_keys.finish();
        detail::move_by_number(forks, places, size, keys.get());
        state.count(all.size);
    });
}

// True if Compute returns the key of an element, and Compare compares keys.
template <class Compute, class Compare, class It>
concept caches_keys_of =
    std::permutable<It> && std::invocable<Compute&, std::iter_reference_t<It>> &&
    std::movable<mapped_t<Compute, It>> &&
    std::predicate<Compare&, mapped_t<Compute, It>&, mapped_t<Compute, It>&>;

} // namespace detail

/// Sorts the range by less(key(a), key(b)). key(element) is called once for each element. Elements
/// with equal keys keep their order, so the result is the same on any number of workers. Allocates
/// a buffer for as many elements as the range has, and two arrays with a key and a number for each
/// element. A key need only be movable.
/// Blocks: until the range is sorted. Meanwhile the caller computes and sorts.
/// Throws: the exception of a call of key or less. If several calls of key throw, the exception of
/// the call for the first element. std::bad_alloc. stopped_error. In all these cases, nothing is
/// changed. If a move of an element throws, all elements are alive, but their values are
/// unspecified.
/// Requires: less is a strict weak order; otherwise the elements end up in any order. Several
/// threads may call key and less at once.
/// Cancellation: see fork_options::stop. After the first element has moved, a stop has no effect.
/// fork_options::progress counts each element twice: when its key is computed, and when it is in
/// its place. fork_options::grain is the grain of the loop that calls key.
template <parallel_range Range, class Compute, class Compare = std::ranges::less>
    requires detail::caches_keys_of<Compute, Compare, std::ranges::iterator_t<Range>>
void parallel_sort_by_cached_key(const fork_policy& on, Range&& range, Compute key,
                                 Compare less = {}) {
    detail::sort_by_cached_key(on, detail::elements_of(range), key, less);
}

}} // namespace bide::BIDE_ABI

#endif
