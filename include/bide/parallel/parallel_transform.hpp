// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_TRANSFORM_HPP
#define BIDE_PARALLEL_PARALLEL_TRANSFORM_HPP

/// \file
/// Writes a value for each element of a range: parallel_transform(). There is no
/// parallel_generate(), because calls of a generator by several threads have no order. Use a
/// function of the index instead: `parallel_transform(s, iota(0, n), out, f)`.

#include <bide/parallel/parallel_for.hpp>

#include <cstring>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// Writes f(*it, *others...) for each place of [it, last). If all ranges are contiguous, one index
// runs over all of them. Otherwise each range has an iterator of its own. Numbers are written in
// blocks: the results of a block are first kept in a local array. The compiler knows that this
// array overlaps no range, and so uses vector instructions. For integers of 64 bits, a block costs
// more than it gains.
template <class F, class It, class Out, class... Others>
BIDE_INLINE void transform_serially(F& f, It it, const It& last, Out target, Others... others) {
    if constexpr ((std::contiguous_iterator<It> && ... && std::contiguous_iterator<Others>) &&
                  std::contiguous_iterator<Out>) {
        const auto size = static_cast<std::size_t>(last - it);
        const auto write = [&f, in = detail::unwrap(it),
                            ... more = detail::unwrap(others)](auto* to, std::size_t i) {
            *to = std::invoke(f, in[i], more[i]...);
        };
        auto* const out = detail::unwrap(target);
        std::size_t i = 0;
        if constexpr (plain_numbers<Out> && (sizeof(std::iter_value_t<Out>) < 8 ||
                                             std::is_floating_point_v<std::iter_value_t<Out>>)) {
            constexpr std::size_t block = 128 / sizeof(std::iter_value_t<Out>);
            for (std::iter_value_t<Out> results[block]; size - i >= block; i += block) {
                for (std::size_t k = 0; k < block; ++k) {
                    write(results + k, i + k);
                }
                std::memcpy(out + i, results, sizeof(results));
            }
        }
        for (; i != size; ++i) {
            write(out + i, i);
        }
    } else {
        for (; it != last; ++it, ++target, (..., static_cast<void>(++others))) {
            *target = std::invoke(f, *it, *others...);
        }
    }
}

template <class It, class Out, class F, class... Others>
Out transform(const fork_policy& on, const elements<It>& all, Out out, F& f, Others... others) {
    const elements<Out> to{std::move(out), all.size};
    using reference = std::iter_reference_t<It>;
    detail::loop_over(on, all.numbers(), [&](std::uint64_t begin, std::uint64_t end) {
        detail::run_with_callee<reference, std::iter_reference_t<Others>...>(f, [&](auto& callee) {
            detail::transform_serially(callee, all.at(begin), all.at(end), to.at(begin),
                                       elements<Others>{others, all.size}.at(begin)...);
        });
    });
    return to.end();
}

template <class F, class... Its>
using transformed_t = std::invoke_result_t<F&, std::iter_reference_t<Its>...>;

} // namespace detail

/// Writes f(element) for each element of the range to consecutive places from `out` on, in any
/// order. Returns the iterator behind the last of these places. `out` may be the beginning of the
/// range itself; otherwise the places and the range must not overlap.
/// Blocks, throws, cancellation: as parallel_for(). After an exception or a stop, some of the
/// places are written.
/// Requires: f may be called by several threads at once. It may be copied, as the body of
/// parallel_for() is.
template <parallel_range Range, class Out, class F>
    requires parallel_output<Out, detail::transformed_t<F, std::ranges::iterator_t<Range>>>
Out parallel_transform(const fork_policy& on, Range&& range, Out out, F f) {
    return detail::transform(on, detail::elements_of(range), std::move(out), f);
}

/// Writes f(a, b) for each element a of the range and the element b at the same place from `second`
/// on. Everything else is as for one range; `out` may be `second`, too.
template <parallel_range Range, std::random_access_iterator Second, class Out, class F>
    requires parallel_output<Out, detail::transformed_t<F, std::ranges::iterator_t<Range>, Second>>
Out parallel_transform(const fork_policy& on, Range&& range, Second second, Out out, F f) {
    return detail::transform(on, detail::elements_of(range), std::move(out), f, std::move(second));
}

/// Transforms [first, last), alone or with a second range, in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_transform);

}} // namespace bide::BIDE_ABI

#endif
