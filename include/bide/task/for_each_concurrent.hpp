// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_FOR_EACH_CONCURRENT_HPP
#define BIDE_TASK_FOR_EACH_CONCURRENT_HPP

/// \file
/// Runs a task for each item of a range, at most `limit` of them at a time.
///
/// The range is a container, an array, another range with forward iterators, or an object with
/// next(). Each call of next() returns an optional item: something that converts to bool and can be
/// dereferenced, such as std::optional, or an awaitable of that. It returns an empty one after the
/// last item, and is not called again then. One runner at a time calls and awaits next(). A range
/// that is an lvalue is used by reference, an rvalue is moved into the operation.
///
/// For each item, `f(item)` returns a task. Items are begun in the order of the range. The function
/// is called by several tasks at the same time, on different workers. A container hands out
/// references to its items. An item that next() has returned lives until its task has ended.
///
/// If an item fails, because its task, `f` or the range throws, the running tasks are cancelled and
/// no further item is begun. When these tasks have ended, the first exception is thrown, and the
/// other exceptions are dropped.
//
// The children of one when_all() are the runners, as many as the limit allows: each takes the next
// item, awaits its task, and repeats. So an item costs a call and an await, but neither a spawn nor a
// permit, and runners that have not started wait like every child of when_all(). A when_any() has
// the runners as one child. Its other child waits for a failure, and cancels the runners by its end.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/sync/event.hpp>
#include <bide/task/compose.hpp>
#include <bide/task/detail/item_source.hpp>
#include <bide/task/detail/task_body.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

namespace bide::inline BIDE_ABI {
namespace detail {

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
    concurrent_run(const concurrent_run&) = delete;
    concurrent_run& operator=(const concurrent_run&) = delete;

    // The number of runners.
    std::size_t runners(std::size_t limit) const noexcept {
        return (std::min)(limit, source_.size());
    }

    // Awaits the tasks of items until none is left or one has failed. `end(index, value)` gets each
    // value, unless it is void.
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

    // Throws: the first failure; stopped_error, if items are left: a cancellation has ended failure()
    // before the runners have started, so they never start.
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
                co_await std::invoke(f_, one->item());
            } else {
                value what = co_await std::invoke(f_, one->item());
                end(one->index, std::move(what));
            }
        }
    }

    // Order: relaxed; a hint. The runners are cancelled, and the error is published by the end of
    // the runner.
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

// Runs `count` runners, which make_end(i) gives their ends.
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
        co_await when_any(when_all(std::move(runners)), run.failure());
    }
    run.rethrow_if_failed();
}

template <class Range, class F> task<> for_each_concurrent(Range range, std::size_t limit, F f) {
    concurrent_run<Range, F> run(std::forward<Range>(range), std::move(f));
    const auto drop = [](std::size_t) noexcept { return [](std::size_t, auto&&) noexcept {}; };
    co_await run_concurrently(run, run.runners(limit), drop);
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
    co_await run_concurrently(run, parts.size(), keep);
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
/// The tasks run like the children of when_all(): on the executor of the awaiting coroutine, or else
/// on the worker or the thread that runs it. They run in parallel if there are several workers. Each
/// of `limit` runners, or of as many as the range has items if it knows its size, has a frame.
/// Throws: std::invalid_argument in this call, if `limit` is zero. When awaited, the first exception
/// of a task, of `f` or of the range, when all tasks have ended; stopped_error, if the awaiting task
/// is cancelled before all items are begun; std::bad_alloc.
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

} // namespace bide::inline BIDE_ABI

#endif
