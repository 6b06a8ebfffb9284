// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_FORK_EACH_HPP
#define BIDE_PARALLEL_DETAIL_FORK_EACH_HPP

#include <bide/core/config.hpp>

#include <algorithm>
#include <cstddef>

namespace bide::inline BIDE_ABI {
namespace detail {

// Calls f(i) for each i of [first, last), which is not empty: a tree of forks with one call a leaf.
// For few calls that take long. If calls throw, throws the exception of the first of them in order,
// when all have ended.
template <class Forker, class F>
void fork_each(const Forker& forks, std::size_t first, std::size_t last, const F& f) {
    if (last - first == 1) {
        return f(first);
    }
    const std::size_t middle = first + (last - first) / 2;
    forks.both([&] { detail::fork_each(forks, first, middle, f); },
               [&] { detail::fork_each(forks, middle, last, f); });
}

// As fork_each(), for calls that must all be made: if there is no memory to fork, the calling
// thread makes them.
template <class Forker, class F>
void fork_each_surely(const Forker& forks, std::size_t first, std::size_t last, const F& f) {
    if (last - first == 1) {
        return f(first);
    }
    const std::size_t middle = first + (last - first) / 2;
    [[maybe_unused]] bool began = false;
    const auto run = [&] {
        forks.both(
            [&] {
                began = true;
                detail::fork_each_surely(forks, first, middle, f);
            },
            [&] { detail::fork_each_surely(forks, middle, last, f); });
    };
#if BIDE_EXCEPTIONS
    try {
        return run();
    } catch (...) {
        if (began) {
            throw;
        }
    }
    for (std::size_t i = first; i != last; ++i) {
        f(i);
    }
#else
    run();
#endif
}

// The elements that one call of for_all_parts() moves.
inline constexpr std::size_t moved_part = 4'096;

// Calls f(first, last) for parts of [0, size), which is not empty, in parallel. All are called, also
// without memory to fork.
template <class Forker, class F>
void for_all_parts(const Forker& forks, std::size_t size, const F& f) {
    detail::fork_each_surely(forks, 0, (size - 1) / moved_part + 1, [&](std::size_t part) {
        f(part * moved_part, (std::min)((part + 1) * moved_part, size));
    });
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
