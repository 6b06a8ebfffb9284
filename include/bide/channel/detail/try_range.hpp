// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_TRY_RANGE_HPP
#define BIDE_CHANNEL_DETAIL_TRY_RANGE_HPP

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>

#include <cstddef>
#include <iterator>
#include <optional>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// An input range of the items that From::try_recv() returns. It ends at the first attempt that
// finds no item. A further begin() continues to receive.
//
// The range holds one item, to which its iterators refer. `From` must not be moved meanwhile.
template <class From> class try_range {
    using item = typename From::value_type;

public:
    class iterator;

    explicit try_range(From& from) noexcept : from_(&from) {}
    // Requires: begin() was not called.
    try_range(try_range&& other) noexcept : from_(other.from_) {}
    try_range& operator=(try_range&& other) noexcept {
        from_ = other.from_;
        skip();
        return *this;
    }

    iterator begin() noexcept {
        skip();
        return iterator(*this);
    }
    std::default_sentinel_t end() const noexcept { return {}; }

private:
    // Receives the next item, but only when the caller accesses it: so each item that was received
    // is also seen. Values that a broadcast subscriber missed are passed over.
    std::optional<item>& next() {
        while (due_) {
            auto got = from_->try_recv();
            due_ = !got && detail::code_of(got.error()) == errc::lagged;
            if (got) {
                item_.emplace(std::move(*got));
            }
        }
        return item_;
    }
    void skip() noexcept {
        item_.reset();
        due_ = true;
    }

    From* from_;
    std::optional<item> item_;
    bool due_ = true;
};

template <class From> class try_range<From>::iterator {
public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = item;
    using difference_type = std::ptrdiff_t;

    explicit iterator(try_range& of) noexcept : of_(&of) {}

    // Valid until the next increment.
    item& operator*() const { return *of_->next(); }
    iterator& operator++() noexcept {
        of_->skip();
        return *this;
    }
    void operator++(int) noexcept { of_->skip(); }
    bool operator==(std::default_sentinel_t) const { return !of_->next().has_value(); }

private:
    try_range* of_;
};

}}} // namespace bide::BIDE_ABI::detail

#endif
