// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_PIPELINE_SOURCE_HPP
#define BIDE_PARALLEL_DETAIL_PIPELINE_SOURCE_HPP

// Where a pipeline gets its items from. One thread at a time reads.

#include <bide/core/config.hpp>
#include <bide/parallel/detail/is_optional.hpp>
#include <bide/parallel/detail/pipeline_item.hpp>

#include <algorithm> // the concepts of ranges; <ranges> would add its views, which take long to compile
#include <concepts>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// A function that returns an item, or std::nullopt at the end.
template <class F>
concept item_generator =
    std::invocable<F&> && is_optional<std::remove_cvref_t<std::invoke_result_t<F&>>>;

// Elements of a forward range stay valid when the iterator moves on, so they are passed as what
// operator* returns: by reference if that is an lvalue reference. An element of a single-pass range
// is gone then, so its value is taken.
template <class It> struct pipeline_element {
    using type = std::iter_value_t<It>;
};
template <std::forward_iterator It> struct pipeline_element<It> {
    using type = pipeline_value_t<std::iter_reference_t<It>>;
};

template <class It, class End> class iterator_source {
public:
    using item = typename pipeline_element<It>::type;

    iterator_source(It first, End last, std::uint64_t items)
        : at_(std::move(first)), last_(std::move(last)), size_(items) {}

    // Returns the number of items, or the largest number if it is not known.
    std::uint64_t size() const noexcept { return size_; }

    // Returns true if it is known without reading that there are no more items.
    bool is_at_end() {
        if constexpr (std::forward_iterator<It>) {
            step();
            return at_ == last_;
        } else {
            return false;
        }
    }

    // Reads an item. Returns false at the end.
    bool read(pipeline_item<item>& to) {
        step();
        if (at_ == last_) {
            return false;
        }
        to.emplace([this]() -> decltype(auto) {
            if constexpr (std::same_as<std::iter_reference_t<It>, item>) {
                return *at_;
            } else {
                return item(*at_);
            }
        });
        has_read_ = true;
        return true;
    }

private:
    // The iterator moves on only before the next read: ++ may block, and the item is valid until
    // then at least.
    void step() {
        if (std::exchange(has_read_, false)) {
            ++at_;
        }
    }

    It at_;
    [[no_unique_address]] End last_;
    const std::uint64_t size_;
    bool has_read_ = false;
};

template <class F> class generator_source {
    using result = std::invoke_result_t<F&>;

public:
    using item = typename std::remove_cvref_t<result>::value_type;

    explicit generator_source(F& body) noexcept : f_(body) {}

    std::uint64_t size() const noexcept { return (std::numeric_limits<std::uint64_t>::max)(); }
    bool is_at_end() const noexcept { return false; }
    bool read(pipeline_item<item>& to) {
        result next = std::invoke(f_);
        if (!next.has_value()) {
            return false;
        }
        to.emplace([&]() -> decltype(auto) { return *std::forward<result>(next); });
        return true;
    }

private:
    F& f_;
};

template <class It, class End> auto source_of(It first, End last) {
    std::uint64_t size = (std::numeric_limits<std::uint64_t>::max)();
    if constexpr (std::sized_sentinel_for<End, It>) {
        const auto n = last - first;
        size = n > 0 ? static_cast<std::uint64_t>(n) : 0;
    }
    return iterator_source<It, End>(std::move(first), std::move(last), size);
}

template <class Source> auto source_of(Source& source) {
    if constexpr (std::ranges::input_range<Source&>) {
        using iterator = std::ranges::iterator_t<Source&>;
        using sentinel = std::ranges::sentinel_t<Source&>;
        std::uint64_t size = (std::numeric_limits<std::uint64_t>::max)();
        if constexpr (std::ranges::sized_range<Source&>) {
            size = static_cast<std::uint64_t>(std::ranges::size(source));
        }
        return iterator_source<iterator, sentinel>(std::ranges::begin(source),
                                                   std::ranges::end(source), size);
    } else {
        return generator_source<Source>(source);
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
