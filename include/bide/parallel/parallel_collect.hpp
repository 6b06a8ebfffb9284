// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_COLLECT_HPP
#define BIDE_PARALLEL_PARALLEL_COLLECT_HPP

/// \file
/// Makes a vector from a range. parallel_collect() makes a value for each element,
/// parallel_collect_some() makes a value for some elements, and parallel_collect_if() keeps the
/// elements that match, each in the order of the range. parallel_group_by() makes a vector of
/// groups, parallel_histogram() a vector of counts.
///
/// No value is default-constructed, and no value is written to memory that no vector owns. One
/// thread goes through the range in order and appends to the result (detail/parallel_loop.hpp). A
/// thief appends to a separate vector. At the end, the values of the thieves' vectors are moved
/// once to the result.
///
/// The results are the same on any number of workers.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/parallel/detail/parallel_loop.hpp>
#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/parallel_range.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

template <class F, class It>
concept gives_values =
    std::invocable<F&, std::iter_reference_t<It>> && std::move_constructible<mapped_t<F, It>>;

template <class F, class It>
concept gives_optionals =
    gives_values<F, It> &&
    std::same_as<mapped_t<F, It>, std::optional<typename mapped_t<F, It>::value_type>>;

// append(it, vector) appends the values of the element at `it` to the vector. `Values` is the
// number of values of each element. If `Values` is 0, that number is unknown.
template <class T, std::size_t Values, class It, class Append> class collect_front {
public:
    using part = collect_front;

    collect_front(const elements<It>& in, Append& append, std::uint64_t most)
        : in_(in), append_(append), vectors_(1) {
        vectors_.back().reserve(integer_cast<std::size_t>(most * Values));
    }

    collect_front(const collect_front& of, loop_range<std::uint64_t> own)
        : collect_front(of.in_, of.append_, own.size()) {}

    void run(std::uint64_t from, std::uint64_t to) {
        std::vector<T>& values = vectors_.back();
        const It end = in_.at(to);
        for (It it = in_.at(from); it != end; ++it) {
            append_(it, values);
        }
    }

    template <class Loop> void join(Loop&, collect_front&& next) {
        std::ranges::move(next.vectors_, std::back_inserter(vectors_));
    }

    std::vector<T> take() {
        std::vector<T> all = std::move(vectors_.front());
        std::size_t size = all.size();
        for (std::size_t n = 1; n != vectors_.size(); ++n) {
            size += vectors_[n].size();
        }
        all.reserve(size);
        for (std::size_t n = 1; n != vectors_.size(); ++n) {
            std::vector<T> some = std::move(vectors_[n]);
            all.insert(all.end(), std::make_move_iterator(some.begin()),
                       std::make_move_iterator(some.end()));
        }
        return all;
    }

private:
    const elements<It> in_;
    Append& append_;
    std::vector<std::vector<T>> vectors_; // in order, they have all values
};

template <class T, std::size_t Values, class On, class It, class Append>
std::vector<T> collect(const On& on, const elements<It>& in, Append append) {
    collect_front<T, Values, It, Append> front(in, append, in.size);
    detail::run_in_order(on, in.size, front);
    return front.take();
}

template <class On, class It, class F>
auto collect_some(const On& on, const elements<It>& in, F& f) {
    using value = typename mapped_t<F, It>::value_type;
    return detail::collect<value, 0>(on, in, [&f](const It& it, std::vector<value>& to) {
        if (auto&& some = std::invoke(f, *it); some.has_value()) {
            to.push_back(*static_cast<decltype(some)>(some));
        }
    });
}

template <class It, class Key> class histogram_front {
public:
    using part = histogram_front;

    histogram_front(const elements<It>& in, Key& key, std::size_t bins)
        : in_(in), key_(key), counts_(bins) {}
    histogram_front(const histogram_front& of, loop_range<std::uint64_t>)
        : histogram_front(of.in_, of.key_, of.counts_.size()) {}

    void run(std::uint64_t from, std::uint64_t to) {
        const It end = in_.at(to);
        std::size_t* const counts = counts_.data();
        const std::size_t bins = counts_.size();
        for (It it = in_.at(from); it != end; ++it) {
            const auto key = +std::invoke(key_, *it); // std::in_range() refuses characters
            if (!std::in_range<std::size_t>(key) || static_cast<std::size_t>(key) >= bins) {
                BIDE_THROW(std::out_of_range("bide: a key of the histogram is no number of a bin"));
            }
            ++counts[static_cast<std::size_t>(key)];
        }
    }

    template <class Loop> void join(Loop&, histogram_front&& next) {
        std::ranges::transform(counts_, next.counts_, counts_.begin(), std::plus<>());
    }

    std::vector<std::size_t> take() noexcept { return std::move(counts_); }

private:
    const elements<It> in_;
    Key& key_;
    std::vector<std::size_t> counts_;
};

template <class It, class Key, class Value, class KeyType, class ValueType, class Hash, class Equal>
class group_front {
public:
    using part = group_front;

    using groups = std::vector<std::pair<KeyType, std::vector<ValueType>>>;

    group_front(const elements<It>& in, Key& key, Value& value_of, const Hash& hash,
                const Equal& equal)
        : in_(in), key_(key), value_(value_of), numbers_(0, hash, equal) {}
    group_front(const group_front& of, loop_range<std::uint64_t>)
        : group_front(of.in_, of.key_, of.value_, of.numbers_.hash_function(),
                      of.numbers_.key_eq()) {}

    void run(std::uint64_t from, std::uint64_t to) {
        const It end = in_.at(to);
        for (It it = in_.at(from); it != end; ++it) {
            group_of(std::invoke(key_, *it)).push_back(std::invoke(value_, *it));
        }
    }

    template <class Loop> void join(Loop&, group_front&& next) {
        for (auto& [key, values] : next.groups_) {
            std::vector<ValueType>& mine = group_of(std::move(key));
            if (mine.empty()) {
                mine = std::move(values);
            } else {
                mine.insert(mine.end(), std::make_move_iterator(values.begin()),
                            std::make_move_iterator(values.end()));
            }
        }
    }

    groups take() noexcept { return std::move(groups_); }

private:
    template <class Like> std::vector<ValueType>& group_of(Like&& like) {
        const auto known = numbers_.find(like);
        if (known != numbers_.end()) {
            return groups_[known->second].second;
        }
        const auto added = numbers_.emplace(std::forward<Like>(like), groups_.size()).first;
        groups_.emplace_back(added->first, std::vector<ValueType>());
        return groups_.back().second;
    }

    const elements<It> in_;
    Key& key_;
    Value& value_;
    groups groups_; // in the order of their first elements
    std::unordered_map<KeyType, std::size_t, Hash, Equal> numbers_;
};

// The functions that compute the keys and values of groups, and that find a key again.
template <class Key, class Value, class Hash, class Equal, class It>
concept gives_groups =
    gives_values<Key, It> && gives_values<Value, It> &&
    std::copy_constructible<mapped_t<Key, It>> && std::copy_constructible<Hash> &&
    std::copy_constructible<Equal> &&
    std::is_invocable_r_v<std::size_t, const Hash&, const mapped_t<Key, It>&> &&
    std::predicate<const Equal&, const mapped_t<Key, It>&, const mapped_t<Key, It>&>;

} // namespace detail

/// Returns a vector of f(element) for each element, in the order of the range. The values are
/// moved, and need neither a default constructor nor a copy constructor.
/// Blocks: until all calls have ended. Meanwhile the caller makes some of them.
/// Throws: of the calls that threw, the exception of the first call in the order of the range. The
/// values are destroyed. stopped_error after a stop. std::bad_alloc. Other exceptions are those of
/// join().
/// Requires: f may be called by several threads at once.
/// Cancellation: see fork_options::stop.
/// Complexity: n calls of f. If several workers take part, each value is moved at most once more
/// than by a single worker.
template <parallel_range Range, class F>
    requires detail::gives_values<F, std::ranges::iterator_t<Range>>
auto parallel_collect(const fork_policy& on, Range&& range, F f) {
    using iterator = std::ranges::iterator_t<Range>;
    using value = detail::mapped_t<F, iterator>;
    return detail::collect<value, 1>(
        on, detail::elements_of(range),
        [&f](const iterator& it, std::vector<value>& to) { to.push_back(std::invoke(f, *it)); });
}

/// Calls f(element), which returns a std::optional, for each element. Returns a vector of the
/// values. Leaves out the elements for which the std::optional is empty. Everything else is as in
/// parallel_collect().
template <parallel_range Range, class F>
    requires detail::gives_optionals<F, std::ranges::iterator_t<Range>>
auto parallel_collect_some(const fork_policy& on, Range&& range, F f) {
    return detail::collect_some(on, detail::elements_of(range), f);
}

/// Returns a vector of the elements for which predicate(projection(element)) is true. Everything
/// else is as in parallel_collect(). The elements are copied. To move them out of the range, use
/// parallel_collect_some() with a function that moves its argument.
template <parallel_range Range, class Predicate, class Projection = std::identity>
    requires detail::finds_in<Predicate, std::ranges::iterator_t<Range>, Projection>
std::vector<std::ranges::range_value_t<Range>>
parallel_collect_if(const fork_policy& on, Range&& range, Predicate predicate,
                    Projection projection = {}) {
    using iterator = std::ranges::iterator_t<Range>;
    using value = std::iter_value_t<iterator>;
    return detail::collect<value, 0>(on, detail::elements_of(range),
                                     [&](const iterator& it, std::vector<value>& to) {
                                         if (std::invoke(predicate, std::invoke(projection, *it))) {
                                             to.push_back(*it);
                                         }
                                     });
}

/// Counts how many elements have each key. Returns a vector of `bins` counts. key(element) is an
/// integer of [0, bins).
/// Throws: std::out_of_range for another key. Everything else is as in parallel_collect().
/// Complexity: O(n + bins). Each thief has a separate vector of counts, and takes only parts with
/// at least `bins` elements.
template <parallel_range Range, class Key = std::identity>
    requires std::integral<detail::mapped_t<Key, std::ranges::iterator_t<Range>>>
std::vector<std::size_t> parallel_histogram(const fork_policy& on, Range&& range, std::size_t bins,
                                            Key key = {}) {
    const auto in = detail::elements_of(range);
    detail::histogram_front<std::ranges::iterator_t<Range>, Key> front(in, key, bins);
    // A part has as many elements as bins, so that its counts cost no more than its elements.
    detail::run_in_order(on, in.size, front, bins);
    return front.take();
}

/// Groups the elements by key(element). Returns a vector of pairs of a key and a vector of
/// value(element) for each element with that key. The groups stand in the order of their first
/// elements, and the values in the order of the range. To reduce each group, loop over the result.
/// Throws: as parallel_collect(), for the calls of key, value, hash and equal.
/// Requires: the key can be copied; hash and equal are those of a std::unordered_map.
/// Complexity: O(n) on average.
template <parallel_range Range, class Key, class Value = std::identity,
          class Hash = std::hash<detail::mapped_t<Key, std::ranges::iterator_t<Range>>>,
          class Equal = std::equal_to<>>
    requires detail::gives_groups<Key, Value, Hash, Equal, std::ranges::iterator_t<Range>>
auto parallel_group_by(const fork_policy& on, Range&& range, Key key, Value value = {},
                       Hash hash = {}, Equal equal = {}) {
    using iterator = std::ranges::iterator_t<Range>;
    const auto in = detail::elements_of(range);
    detail::group_front<iterator, Key, Value, detail::mapped_t<Key, iterator>,
                        detail::mapped_t<Value, iterator>, Hash, Equal>
        front(in, key, value, hash, equal);
    detail::run_in_order(on, in.size, front);
    return front.take();
}

}} // namespace bide::BIDE_ABI

#endif
