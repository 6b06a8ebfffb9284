// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_FOR_EACH_CONCURRENT_HPP
#define BIDE_TASK_FOR_EACH_CONCURRENT_HPP

/// \file
/// Runs a task for each item of a range, at most `limit` of them at a time.
///
/// The range is a container, an array, another range with forward iterators, or an object with
/// next(). Each call of next() returns an optional item: an object that converts to bool and can be
/// dereferenced, such as std::optional, or an awaitable of such an object. After the last item,
/// next() returns an empty object, and is not called again. One runner at a time calls and awaits
/// next(). A range that is an lvalue is used by reference. A range that is an rvalue is moved into
/// the operation.
///
/// For each item, `f(item)` returns a task. Items are begun in the order of the range. The function
/// is called by several tasks at the same time, on different workers. For a container, the function
/// gets references to the items. An item that next() has returned exists until its task has ended.
///
/// If an item fails, because its task, `f` or the range throws, the running tasks are cancelled and
/// no further item is begun. When these tasks have ended, the first exception is thrown, and the
/// other exceptions are dropped.
//
// The runners are the children of one when_all(), as many as the limit allows. Each runner takes
// the next item, awaits its task, and repeats. So an item costs a call and an await, but neither a
// spawn nor a permit. Runners that have not started wait like every child of when_all(). This
// when_all() is one child of a when_any(). The other child of the when_any() waits for a failure.
// When it ends, the when_any() cancels the runners.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/task/compose.hpp>
#include <bide/task/detail/task_cell.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#include <atomic>
#include <cstddef>
#include <exception>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

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

// Gives the items of a range with iterators one by one, as a range with next() does.
template <class R> class iterator_items {
    using iterator = decltype(std::begin(std::declval<R&>()));
    static_assert(std::is_base_of_v<std::forward_iterator_tag,
                                    typename std::iterator_traits<iterator>::iterator_category>,
                  "a range needs forward iterators, or next()");

public:
    struct item {
        iterator at;
        bool exists;

        explicit operator bool() const noexcept { return exists; }
        decltype(auto) operator*() const { return *at; }
    };

    explicit iterator_items(R& range) : next_(std::begin(range)), end_(std::end(range)) {}

    bool has_next() const { return next_ != end_; }
    item next() {
        const item one{next_, has_next()};
        if (one) {
            ++next_;
        }
        return one;
    }

private:
    iterator next_;
    const decltype(std::end(std::declval<R&>())) end_;
};

// An item that one runner has taken, and its index. `held` is the object that next() has returned.
template <class Held> struct item_claim {
    std::size_t index;
    Held held;

    decltype(auto) item() { return *std::move(held); }
};

// Hands out the items of a range to the runners of one for_each_concurrent(), each item once and in
// order. A runner takes an item under a lock. If next() returns an awaitable, the runner awaits it
// with the lock, for which other runners wait without a thread. Otherwise the lock blocks a thread
// while another thread takes one item. If no item is left, next() returns no claim, and
// is_exhausted() returns true. The next() of a range is not called again after it has returned no
// item or has thrown.
template <class R> class item_source {
    static constexpr bool iterates = iterated_range<R>;
    static constexpr bool awaits = awaited_range<R>;
    using range_type = std::conditional_t<iterates, iterator_items<R>, R&>;
    using returned = decltype(std::declval<range_type&>().next());
    template <class A> struct awaited {
        using type = decltype(detail::awaiter_of(std::declval<A>()).await_resume());
    };
    using found = std::remove_cvref_t<
        typename std::conditional_t<awaits, awaited<returned>, std::type_identity<returned>>::type>;

public:
    using claim = item_claim<found>;

    explicit item_source(R& range) : range_(range) {
        if constexpr (iterates) {
            exhausted_.store(!range_.has_next(), std::memory_order_relaxed); // Order: as below.
            if constexpr (requires { static_cast<std::size_t>(std::size(range)); }) {
                size_ = static_cast<std::size_t>(std::size(range));
            } else if constexpr (std::sized_sentinel_for<decltype(std::end(range)),
                                                         decltype(std::begin(range))>) {
                size_ = static_cast<std::size_t>(std::end(range) - std::begin(range));
            }
        }
    }

    // Returns the number of items; the largest number if it is not known.
    std::size_t size() const noexcept { return size_; }

    // Order: relaxed; it is set under the lock. Without the lock, it is a hint.
    bool is_exhausted() const noexcept { return exhausted_.load(std::memory_order_relaxed); }

    std::optional<claim> next()
        requires(!awaits)
    {
        const std::lock_guard mine(lock_);
        if (is_exhausted()) {
            return std::nullopt;
        }
        call one(*this);
        return one.claim_of(range_.next());
    }
    task<std::optional<claim>> next()
        requires awaits
    {
        const auto mine = co_await lock_.async_lock();
        if (is_exhausted()) {
            co_return std::nullopt;
        }
        call one(*this);
        found got = co_await range_.next();
        co_return one.claim_of(std::move(got));
    }

private:
    // One call of the range's next(), and its result.
    struct call {
        explicit call(item_source& from) noexcept : of(from) {}
        call(const call&) = delete;
        call& operator=(const call&) = delete;
        ~call() {
            if (!has_more) {
                of.exhausted_.store(true, std::memory_order_relaxed); // Order: relaxed; as above.
            }
        }

        std::optional<claim> claim_of(found&& item) {
            has_more = static_cast<bool>(item);
            if (!has_more) {
                return std::nullopt;
            }
            if constexpr (iterates) {
                has_more = of.range_.has_next();
            }
            return claim{of.index_++, std::move(item)};
        }

        item_source& of;
        bool has_more = false;
    };

    range_type range_;
    std::conditional_t<awaits, mutex, adaptive_mutex> lock_;
    std::size_t index_ = 0;
    std::size_t size_ = (std::numeric_limits<std::size_t>::max)();
    native_platform::atomic<bool> exhausted_{false};
};

// The state that the runners share. `Range` is an lvalue reference if the range is used by
// reference.
template <class Range, class F> class concurrent_run {
    using source = item_source<std::remove_reference_t<Range>>;
    using claim = typename source::claim;
    using made = std::invoke_result_t<F&, decltype(std::declval<claim&>().item())>;
    static_assert(is_task<made>, "f(item) returns a task");

public:
    using value = task_value_t<made>;

    concurrent_run(Range&& range, F&& body)
        : range_(std::forward<Range>(range)), f_(std::move(body)), source_(range_) {}

    std::size_t runners(std::size_t limit) const noexcept {
        return limit < source_.size() ? limit : source_.size();
    }

    // Awaits the tasks of items until no item is left or a task has failed. `end(index, value)`
    // gets each value, unless the value is void.
    template <class End> task<> run(End end) {
#if BIDE_EXCEPTIONS
        try {
            co_await run_items(end);
        } catch (...) {
            fail(std::current_exception());
        }
#else
        co_await run_items(end);
#endif
    }

    // Ends when a runner has failed, or the task is cancelled.
    task<> failure() { static_cast<void>(co_await failed_.async_wait().as_result()); }

    // Throws: the first failure. If items are left, throws stopped_error: a cancellation has ended
    // failure() before the runners have started.
    // Requires: the runners have ended.
    void rethrow_if_failed() {
#if BIDE_EXCEPTIONS
        if (error_) {
            std::rethrow_exception(std::move(error_));
        }
#endif
        if (!source_.is_exhausted()) {
            throw_error(errc::stopped);
        }
    }

private:
    template <class End> task<> run_items(End& end) {
        while (!has_failed()) {
            if (this_task::is_cancelled() && !source_.is_exhausted()) {
                throw_error(errc::stopped);
            }
            std::optional<claim> one;
            if constexpr (awaited_range<std::remove_reference_t<Range>>) {
                if (auto next = co_await source_.next()) {
                    one.emplace(std::move(*next));
                }
            } else if (auto next = source_.next()) {
                one.emplace(std::move(*next));
            }
            if (!one) {
                break;
            }
            if constexpr (std::is_void_v<value>) {
                co_await detail::call_with(f_, one->item());
            } else {
                value what = co_await detail::call_with(f_, one->item());
                end(one->index, std::move(what));
            }
        }
    }

    // Order: relaxed; a hint. The runners are cancelled anyway, and the end of the failed runner
    // publishes the error.
    bool has_failed() const noexcept { return has_failed_.load(std::memory_order_relaxed); }

    void fail(std::exception_ptr error) noexcept {
        // Order: relaxed; as above.
        if (!has_failed_.exchange(true, std::memory_order_relaxed)) {
            error_ = std::move(error);
            failed_.set();
        }
    }

    Range range_;
    F f_;
    source source_;
    event failed_;
    native_platform::atomic<bool> has_failed_{false};
    std::exception_ptr error_; // written by the first runner that fails
};

// Runs `count` runners. make_end(i) makes the function that gets the values of runner i.
template <class Run, class MakeEnd>
task<> run_concurrently(Run& run, std::size_t count, MakeEnd make_end) {
    if (count == 1) {
        co_await run.run(make_end(0));
    } else if (count != 0) {
        std::vector<task<>> runners;
        runners.reserve(count);
        for (std::size_t i = 0; i < count; ++i) {
            runners.push_back(run.run(make_end(i)));
        }
        co_await bide::when_any(bide::when_all(std::move(runners)), run.failure());
    }
    run.rethrow_if_failed();
}

template <class Range, class F> task<> for_each_concurrent(Range range, std::size_t limit, F f) {
    concurrent_run<Range, F> run(std::forward<Range>(range), std::move(f));
    const auto drop = [](std::size_t) noexcept { return [](std::size_t, auto&&) noexcept {}; };
    co_await detail::run_concurrently(run, run.runners(limit), drop);
}

template <class Range, class F>
task<std::vector<typename concurrent_run<Range, F>::value>> map_concurrent(Range range,
                                                                           std::size_t limit, F f) {
    using value = typename concurrent_run<Range, F>::value;
    static_assert(!std::is_void_v<value>, "for f without values there is for_each_concurrent()");
    static_assert(!std::is_reference_v<value>, "a vector of references: use pointers");
    struct numbered {
        std::size_t index;
        value what;
    };
    concurrent_run<Range, F> run(std::forward<Range>(range), std::move(f));
    std::vector<std::vector<numbered>> parts(run.runners(limit)); // one for each runner
    const auto keep = [&parts](std::size_t i) noexcept {
        return [&part = parts[i]](std::size_t index, value&& what) {
            part.push_back(numbered{index, std::move(what)});
        };
    };
    co_await detail::run_concurrently(run, parts.size(), keep);
    std::size_t size = 0;
    for (const auto& part : parts) {
        size += part.size();
    }
    std::vector<value*> in_order(size);
    for (auto& part : parts) {
        for (numbered& one : part) {
            in_order[one.index] = std::addressof(one.what);
        }
    }
    std::vector<value> all;
    all.reserve(size);
    for (value* const one : in_order) {
        all.push_back(std::move(*one));
    }
    co_return all;
}

inline void check_limit(std::size_t limit) {
    if (limit == 0) {
        BIDE_THROW(std::invalid_argument("bide: a limit of 0 tasks at a time"));
    }
}

} // namespace detail

/// Runs the task f(item) for each item of a range, at most `limit` of them at a time.
///
/// The tasks run like the children of when_all(): on the executor of the awaiting coroutine, or if
/// it has none, on the worker or the thread that runs it. They run in parallel if there are several
/// workers. The operation allocates `limit` frames; if the range knows its size and has fewer
/// items, it allocates one frame for each item.
/// Throws: std::invalid_argument in this call, if `limit` is zero. When awaited, the first
/// exception of a task, of `f` or of the range, when all tasks have ended; stopped_error, if the
/// awaiting task is cancelled before all items are begun; std::bad_alloc.
/// Cancellation: cancels the running tasks, waits for them, and begins no further item.
template <class Range, class F> task<> for_each_concurrent(Range&& items, std::size_t limit, F f) {
    detail::check_limit(limit);
    return detail::for_each_concurrent<Range, F>(std::forward<Range>(items), limit, std::move(f));
}

/// Runs f(item) for each item as for_each_concurrent() does, and returns the values in the order of
/// the items.
/// Throws: as for_each_concurrent(); what the move of a value throws.
/// Cancellation: as for_each_concurrent(). The values are dropped.
template <class Range, class F>
task<std::vector<typename detail::concurrent_run<Range, F>::value>>
map_concurrent(Range&& items, std::size_t limit, F f) {
    detail::check_limit(limit);
    return detail::map_concurrent<Range, F>(std::forward<Range>(items), limit, std::move(f));
}

}} // namespace bide::BIDE_ABI

#endif
