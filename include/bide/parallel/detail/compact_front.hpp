// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_COMPACT_FRONT_HPP
#define BIDE_PARALLEL_DETAIL_COMPACT_FRONT_HPP

// Moves the elements that are kept to the beginning of their range, in their order.
//
// The thread at the front moves each kept element behind those before it. A thief does the same
// within its own part. The join moves the kept elements of the thief's part behind those of the
// front. It moves as many elements at a time, in parallel, as there is room for. So no memory is
// needed.

#include <bide/core/config.hpp>
#include <bide/parallel/detail/element_range.hpp>
#include <bide/parallel/detail/fork_each.hpp>
#include <bide/parallel/detail/loop_range.hpp>
#include <bide/parallel/detail/sort_parts.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace bide::inline BIDE_ABI {
namespace detail {

// Moves `size` elements from number `from` on to the places from `to` on, with to <= from. Moves all
// of them, also without memory to fork.
template <class Loop, class It>
void move_left(Loop& loop, const elements<It>& in, std::uint64_t from, std::uint64_t size,
               std::uint64_t to) {
    const std::uint64_t room = from - to;
    if (room == 0) {
        return;
    }
    constexpr std::uint64_t least = 4 * moved_part; // to be moved in parallel
    while (size != 0) {
        const std::uint64_t now = room < least ? size : (std::min)(room, size);
        const auto move = [&](std::uint64_t first, std::uint64_t last) {
            std::ranges::move(in.at(from + first), in.at(from + last), in.at(to + first));
        };
        if (now > room || now < least) {
            move(0, now);
        } else {
            detail::for_all_parts(loop.forks(), static_cast<std::size_t>(now), move);
        }
        from += now;
        to += now;
        size -= now;
    }
}

// True if an element may be moved in vain, as bytes: then no branch depends on whether it is kept.
template <class It>
concept moves_bytes =
    std::contiguous_iterator<It> && std::is_trivially_copyable_v<std::iter_value_t<It>> &&
    std::is_trivially_assignable_v<std::iter_value_t<It>&, const std::iter_value_t<It>&> &&
    std::is_same_v<std::iter_reference_t<It>, std::iter_value_t<It>&> &&
    sizeof(std::iter_value_t<It>) <= 32;

// Keeps the elements of a part. keeps(it, last) tells whether the element at `it` is kept; `last`
// is an iterator to the one that was kept before it in the part, or nullptr if there is none.
template <class It, class Keeps> class compact_front {
public:
    using part = compact_front;

    compact_front(const elements<It>& in, Keeps& keeps, std::uint64_t begin = 0)
        : in_(in), keeps_(keeps), begin_(begin) {}

    std::uint64_t kept() const noexcept { return kept_; }

    void run(std::uint64_t from, std::uint64_t to) {
        const It end = in_.at(to);
        const It begin = in_.at(begin_);
        It it = in_.at(from);
        It out = in_.at(begin_ + kept_);
        for (; it != end && out == begin; ++it) {
            if (keeps_(it, static_cast<const It*>(nullptr))) {
                take(it, out);
            }
        }
        for (; it != end; ++it) {
            if constexpr (moves_bytes<It>) {
                // The element before is still in its place, and is the last kept one or equal to it.
                It last = it;
                --last;
                const bool is_kept = keeps_(it, std::addressof(std::as_const(last)));
                const std::iter_value_t<It> value = *it;
                *out = value;
                out += is_kept ? 1 : 0;
            } else {
                It last = out;
                --last;
                if (keeps_(it, std::addressof(std::as_const(last)))) {
                    take(it, out);
                }
            }
        }
        kept_ = static_cast<std::uint64_t>(out - begin);
    }

    template <class Loop>
    void ahead(Loop& loop, std::uint64_t from, std::uint64_t to,
               std::optional<compact_front>& done) {
        done.emplace(in_, keeps_, from);
        loop.advance(*done, {from, to});
    }

    template <class Loop> void join(Loop& loop, compact_front&& next) {
        std::uint64_t from = next.begin_;
        std::uint64_t size = next.kept_;
        if (kept_ != 0 && size != 0 && Keeps::asks_last) {
            const It last = in_.at(begin_ + kept_ - 1);
            if (!keeps_(in_.at(from), std::addressof(last))) {
                ++from;
                --size;
            }
        }
        detail::move_left(loop, in_, from, size, begin_ + kept_);
        kept_ += size;
    }

private:
    static void take(const It& it, It& out) {
        if (it != out) {
            *out = std::ranges::iter_move(it);
        }
        ++out;
    }

    const elements<It> in_;
    Keeps& keeps_;
    const std::uint64_t begin_;
    std::uint64_t kept_ = 0;
};

// Moves the matching elements of a part before the unmatched ones. Unmatched elements wait in vectors
// until all elements were asked. If a call throws, or there is no memory for them, they are put back
// as they stand.
template <class It, class Keeps> class partition_front {
    using value = std::iter_value_t<It>;

public:
    using part = partition_front;

    partition_front(const elements<It>& in, Keeps& keeps, std::uint64_t begin = 0)
        : in_(in), keeps_(keeps), begin_(begin) {}
    partition_front(const partition_front&) = delete;
    partition_front& operator=(const partition_front&) = delete;
    ~partition_front() {
        ignore_exceptions([this] { put_back(); });
    }

    std::uint64_t kept() const noexcept { return kept_; }

    void run(std::uint64_t from, std::uint64_t to) {
        if (others_.empty()) {
            others_.emplace_back();
        }
        std::vector<value>& others = others_.back();
        struct reached {
            partition_front& front;
            It it;
            It out;
            ~reached() {
                front.kept_ = static_cast<std::uint64_t>(out - front.in_.first) - front.begin_;
            }
        } here{*this, in_.at(from), in_.at(begin_ + kept_)};
        for (const It end = in_.at(to); here.it != end; ++here.it) {
            if (!keeps_(here.it)) {
                others.push_back(std::ranges::iter_move(here.it));
                continue;
            }
            if (here.it != here.out) {
                *here.out = std::ranges::iter_move(here.it);
            }
            ++here.out;
        }
    }

    template <class Loop>
    void ahead(Loop& loop, std::uint64_t from, std::uint64_t to,
               std::optional<partition_front>& done) {
        done.emplace(in_, keeps_, from);
        loop.advance(*done, {from, to});
    }

    template <class Loop> void join(Loop& loop, partition_front&& next) {
        others_.reserve(others_.size() + next.others_.size());
        detail::move_left(loop, in_, next.begin_, next.kept_, begin_ + kept_);
        kept_ += next.kept_;
        std::ranges::move(next.others_, std::back_inserter(others_));
        next.others_.clear();
    }

    // Puts the unmatched elements behind the kept ones.
    void put_back() {
        It to = in_.at(begin_ + kept_);
        for (std::vector<value>& some : others_) {
            to = std::ranges::move(some, std::move(to)).out;
        }
        others_.clear();
    }

private:
    const elements<It> in_;
    Keeps& keeps_;
    const std::uint64_t begin_;
    std::uint64_t kept_ = 0;
    std::vector<std::vector<value>> others_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
