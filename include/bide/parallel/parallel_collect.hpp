// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_COLLECT_HPP
#define BIDE_PARALLEL_PARALLEL_COLLECT_HPP

/// \file
/// Makes a vector from a range, in the order of the range. parallel_collect() makes a value for
/// each element, parallel_collect_some() makes a value for some elements, and parallel_collect_if()
/// keeps the elements that match.
///
/// The values are constructed in vectors, and none is default-constructed. One thread visits the
/// range in order and appends to the result (parallel_for.hpp). Another thread that takes a part of
/// the loop appends to a separate vector. At the end, these values are moved to the result.
///
/// The results are the same on any number of workers.

#include <bide/parallel/parallel_for.hpp>

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
    std::vector<std::vector<T>> vectors_; // one after the other, they contain all values in order
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

} // namespace detail

/// Returns a vector of f(element) for each element, in the order of the range. The values are
/// moved, and need neither a default constructor nor a copy constructor.
/// Blocks: until all calls have ended. Meanwhile the caller makes some of them.
/// Throws: of the calls that threw, the exception of the first call in the order of the range; the
/// values are destroyed. stopped_error after a stop. std::bad_alloc. Other exceptions are those of
/// join().
/// Requires: f may be called by several threads at once.
/// Cancellation: see fork_options::stop.
/// Complexity: n calls of f. If several threads make the calls, each value is moved at most one
/// time more than with one thread.
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

}} // namespace bide::BIDE_ABI

#endif
