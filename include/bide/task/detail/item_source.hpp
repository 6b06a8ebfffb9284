// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_DETAIL_ITEM_SOURCE_HPP
#define BIDE_TASK_DETAIL_ITEM_SOURCE_HPP

// Hands out the items of a range to the runners of one for_each_concurrent(), each item once and in
// order. There are four kinds of ranges:
//
//   indexed   random-access iterators: a runner counts an index up, without a lock
//   walked    forward iterators: a runner copies and increments one iterator, under a lock
//   pulled    next() returns an optional item: a runner calls it under a lock
//   awaited   next() returns an awaitable of an optional item: a runner awaits it with a lock, for
//             which other runners wait without a thread
//
// The locks of walked and pulled ranges block a thread for as long as one step of the range takes. A
// claim is an item that belongs to one runner, and its place in the order. No claim: there is no
// item left.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/task/detail/awaiter_of.hpp>
#include <bide/task/task.hpp>

#include <atomic>
#include <cstddef>
#include <iterator>
#include <limits>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

inline constexpr std::size_t unknown_size = (std::numeric_limits<std::size_t>::max)();

template <class R>
concept pulled_range = requires(R& r) {
    static_cast<bool>(r.next());
    *r.next();
};

template <class R>
concept awaited_range = !pulled_range<R> && requires(R& r) { r.next(); };

template <class R>
concept iterated_range =
    !pulled_range<R> && !awaited_range<R> && requires(R& r) { std::begin(r) != std::end(r); };

template <class R> using range_iterator = decltype(std::begin(std::declval<R&>()));

template <class R>
concept indexed_range =
    iterated_range<R> &&
    std::is_same_v<range_iterator<R>, decltype(std::end(std::declval<R&>()))> &&
    std::is_base_of_v<std::random_access_iterator_tag,
                      typename std::iterator_traits<range_iterator<R>>::iterator_category>;

// An item of a range with iterators.
template <class Iterator> struct iterator_claim {
    std::size_t index;
    Iterator at;

    decltype(auto) item() const { return *at; }
};

template <class R> class item_source;

template <indexed_range R> class item_source<R> {
    using iterator = range_iterator<R>;
    using distance = typename std::iterator_traits<iterator>::difference_type;

public:
    using claim = iterator_claim<iterator>;

    explicit item_source(R& range)
        : first_(std::begin(range)), size_(static_cast<std::size_t>(std::end(range) - first_)) {}

    std::size_t size() const noexcept { return size_; }

    std::optional<claim> next() {
        // Order: relaxed; the await of the runners has published the range to them.
        const std::size_t index = next_.fetch_add(1, std::memory_order_relaxed);
        if (index >= size_) {
            return std::nullopt;
        }
        return claim{index, first_ + static_cast<distance>(index)};
    }

    // Returns true if next() returns no more claim.
    bool is_exhausted() const noexcept {
        // Order: relaxed; as above.
        return next_.load(std::memory_order_relaxed) >= size_;
    }

private:
    const iterator first_;
    const std::size_t size_;
    // Counts beyond the size by one for each runner.
    native_platform::atomic<std::size_t> next_{0};
};

template <iterated_range R>
    requires(!indexed_range<R>)
class item_source<R> {
    using iterator = range_iterator<R>;
    static_assert(std::is_base_of_v<std::forward_iterator_tag,
                                    typename std::iterator_traits<iterator>::iterator_category>,
                  "a range needs forward iterators, or next()");

public:
    using claim = iterator_claim<iterator>;

    explicit item_source(R& range) : next_(std::begin(range)), end_(std::end(range)) {
        if constexpr (requires { static_cast<std::size_t>(range.size()); }) {
            size_ = static_cast<std::size_t>(range.size());
        }
    }

    std::size_t size() const noexcept { return size_; }

    std::optional<claim> next() {
        const std::lock_guard mine(lock_);
        if (!(next_ != end_)) {
            return std::nullopt;
        }
        claim one{index_++, next_};
        ++next_;
        return one;
    }

    bool is_exhausted() {
        const std::lock_guard mine(lock_);
        return !(next_ != end_);
    }

private:
    adaptive_mutex lock_;
    iterator next_;
    const decltype(std::end(std::declval<R&>())) end_;
    std::size_t index_ = 0;
    std::size_t size_ = unknown_size;
};

// Set when next() has returned no item or has thrown: it is not called again.
class exhaustion {
public:
    // Order: relaxed, for both; it is written under the lock of the source. Without the lock, it is
    // a hint.
    bool is_set() const noexcept { return set_.load(std::memory_order_relaxed); }
    void set() noexcept { set_.store(true, std::memory_order_relaxed); }

private:
    native_platform::atomic<bool> set_{false};
};

// One call of next().
struct pull {
    explicit pull(exhaustion& whose) noexcept : of(whose) {}
    pull(const pull&) = delete;
    pull& operator=(const pull&) = delete;
    ~pull() {
        if (!has_item) {
            of.set();
        }
    }

    exhaustion& of;
    bool has_item = false;
};

// An item that next() has returned, in the optional that held it.
template <class Item> struct pulled_claim {
    std::size_t index;
    Item found;

    decltype(auto) item() { return *std::move(found); }
};

template <pulled_range R> class item_source<R> {
public:
    using claim = pulled_claim<std::remove_cvref_t<decltype(std::declval<R&>().next())>>;

    explicit item_source(R& range) noexcept : range_(range) {}

    std::size_t size() const noexcept { return unknown_size; }

    std::optional<claim> next() {
        const std::lock_guard mine(lock_);
        if (!is_exhausted()) {
            pull now(exhausted_);
            if (auto found = range_.next()) {
                now.has_item = true;
                return claim{index_++, std::move(found)};
            }
        }
        return std::nullopt;
    }

    bool is_exhausted() const noexcept { return exhausted_.is_set(); }

private:
    R& range_;
    adaptive_mutex lock_;
    std::size_t index_ = 0;
    exhaustion exhausted_;
};

template <awaited_range R> class item_source<R> {
    using awaitable = decltype(std::declval<R&>().next());
    using awaited = decltype(awaiter_of(std::declval<awaitable>()).await_resume());

public:
    using claim = pulled_claim<std::remove_cvref_t<awaited>>;

    explicit item_source(R& range) noexcept : range_(range) {}

    std::size_t size() const noexcept { return unknown_size; }

    task<std::optional<claim>> next() {
        const auto mine = co_await lock_.async_lock();
        if (!is_exhausted()) {
            pull now(exhausted_);
            if (auto found = co_await range_.next()) {
                now.has_item = true;
                co_return claim{index_++, std::move(found)};
            }
        }
        co_return std::nullopt;
    }

    bool is_exhausted() const noexcept { return exhausted_.is_set(); }

private:
    R& range_;
    mutex lock_;
    std::size_t index_ = 0;
    exhaustion exhausted_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
