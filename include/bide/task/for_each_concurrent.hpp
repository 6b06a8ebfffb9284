// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_FOR_EACH_CONCURRENT_HPP
#define BIDE_TASK_FOR_EACH_CONCURRENT_HPP

/// \file
/// Runs a task for each item of a range, at most `limit` of them at a time.
///
/// The range is a container, an array, another range with forward iterators, or an object with
/// next(). Each call of next() returns an optional item, or an awaitable whose value is an optional
/// item. An optional item, such as std::optional, converts to bool and can be dereferenced. After
/// next() has returned an empty one, next() is not called again. One task at a time calls next()
/// and awaits its result. A range that is an lvalue is used by reference. A range that is an rvalue
/// is moved into the operation.
///
/// For each item, `f(item)` returns a task. Items are begun in the order of the range. The function
/// may be called at the same time on different workers. For a container, the function gets
/// references to the items. An item that next() has returned exists until its task has ended.
///
/// If the task of an item, `f` or the range throws, the running tasks are cancelled and no further
/// item is begun. When these tasks have ended, the first exception is thrown, and the other
/// exceptions are dropped.
//
// The items are processed by `limit` tasks, the runners. If the range knows its size and has fewer
// items, there is one runner for each item. A runner takes an item, calls `f`, awaits the task of
// the item, and repeats. So an item costs a call and an await, but neither a spawn nor a permit.
// The runners start like the children of when_all(). The first runner that fails cancels all
// runners.

#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/task/compose.hpp>
#include <bide/task/this_task.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

template <class R>
concept pulled_range = requires(R& r) {
    static_cast<bool>(r.next());
    *r.next();
};

template <class R>
concept awaited_range = !pulled_range<R> && requires(R& r) { r.next(); };

// Adapts a range with iterators to the interface of a range with next().
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

// The state that the runners of one operation share. `Range` is an lvalue reference if the range is
// used by reference. If `Keeps` is true, the values of the tasks are kept.
//
// Each item is taken once, and in order. A runner takes an item under a lock. If next() returns an
// awaitable, the runner holds the lock while it awaits that object. Meanwhile other runners wait
// for the lock without blocking a thread. If next() returns an item, other runners block their
// threads while they wait for the lock.
template <class Range, class F, bool Keeps> class concurrent_run {
    using R = std::remove_reference_t<Range>;
    static constexpr bool awaits = awaited_range<R>;
    static constexpr bool iterates = !awaits && !pulled_range<R>;
    using source = std::conditional_t<iterates, iterator_items<R>, R&>;
    using returned = decltype(std::declval<source&>().next());
    template <class A> struct awaited {
        using type = decltype(detail::awaiter_of(std::declval<A>()).await_resume());
    };
    // The optional item that next() returns, or that is the value of its awaitable.
    using held = std::remove_cvref_t<
        typename std::conditional_t<awaits, awaited<returned>, std::type_identity<returned>>::type>;
    using made = std::invoke_result_t<F&, decltype(*std::declval<held>())>;
    static_assert(is_task<made>, "f(item) returns a task");

public:
    using value = task_value_t<made>;

    concurrent_run(Range&& range, F&& body)
        : range_(std::forward<Range>(range)), f_(std::move(body)), source_(range_) {
        if constexpr (iterates) {
            exhausted_ = !source_.has_next();
        }
    }

    // Runs the tasks of all items.
    // Throws: the first exception, when all runners have ended.
    task<> run(std::size_t limit) {
        const std::size_t count = runners(limit);
        if constexpr (Keeps) {
            parts_.resize(count);
        }
        if (count == 1) {
            co_await run_items(0);
        } else if (count != 0) {
            std::vector<task<>> tasks;
            tasks.reserve(count);
            for (std::size_t i = 0; i < count; ++i) {
                tasks.push_back(run_items(i));
            }
            when_children_vector<task<>> all(task_when_state::until::all, tasks);
            runners_ = &all.state;
            co_await all.state.wait();
        }
        if (error_) {
            std::rethrow_exception(std::move(error_));
        }
    }

    // Returns the values in the order of their items. Requires: run() has returned.
    std::vector<value> take_values() {
        std::vector<value*> in_order(taken_);
        for (auto& part : parts_) {
            for (numbered& one : part) {
                in_order[one.index] = std::addressof(one.what);
            }
        }
        std::vector<value> all;
        all.reserve(taken_);
        for (value* const one : in_order) {
            all.push_back(std::move(*one));
        }
        return all;
    }

private:
    struct claim { // an item that a runner has taken
        std::size_t index;
        held item;
    };
    struct numbered {
        std::size_t index;
        nonvoid_t<value> what;
    };

    // Returns the number of runners: the limit, or the number of items if that is known and
    // smaller.
    std::size_t runners(std::size_t limit) {
        std::size_t items = limit;
        if constexpr (iterates) {
            if constexpr (requires { static_cast<std::size_t>(std::size(range_)); }) {
                items = static_cast<std::size_t>(std::size(range_));
            } else if constexpr (std::sized_sentinel_for<decltype(std::end(range_)),
                                                         decltype(std::begin(range_))>) {
                items = static_cast<std::size_t>(std::end(range_) - std::begin(range_));
            }
        }
        return items < limit ? items : limit;
    }

    // Awaits the tasks of items until no item is left or a task has failed.
    task<> run_items([[maybe_unused]] std::size_t runner) {
        BIDE_TRY {
            while (!has_failed()) {
                std::optional<claim> one;
                const bool is_cancelled = this_task::is_cancelled();
                if constexpr (awaits) {
                    const auto mine = co_await lock_.async_lock();
                    if (begin_next(is_cancelled)) {
                        held got = co_await source_.next();
                        end_next(one, std::move(got));
                    }
                } else {
                    const std::lock_guard mine(lock_);
                    if (begin_next(is_cancelled)) {
                        end_next(one, source_.next());
                    }
                }
                if (!one) {
                    break;
                }
                if constexpr (Keeps) {
                    value what = co_await detail::call_with(f_, *std::move(one->item));
                    parts_[runner].push_back(numbered{one->index, std::move(what)});
                } else {
                    static_cast<void>(co_await detail::call_with(f_, *std::move(one->item)));
                }
            }
        }
        BIDE_CATCH { fail(std::current_exception()); }
    }

    // begin_next() and end_next() are called before and after next(), with the lock held.
    // begin_next() returns false if no item is left.
    bool begin_next(bool is_cancelled) {
        if (!exhausted_ && is_cancelled) {
            throw_error(errc::stopped);
        }
        return !std::exchange(exhausted_, true); // stays true if next() throws
    }
    void end_next(std::optional<claim>& to, held&& got) {
        if (got) {
            to.emplace(claim{taken_++, std::move(got)});
            if constexpr (iterates) {
                exhausted_ = !source_.has_next();
            } else {
                exhausted_ = false;
            }
        }
    }

    // Order: relaxed; the result is only a hint, because the runners are also cancelled. The end of
    // the failed runner publishes the error.
    bool has_failed() const noexcept { return has_failed_.load(std::memory_order_relaxed); }

    void fail(std::exception_ptr error) noexcept {
        // Order: relaxed; the end of this runner publishes the error.
        if (!has_failed_.exchange(true, std::memory_order_relaxed)) {
            error_ = std::move(error);
            if (runners_ != nullptr) {
                const wake_scope<native_platform> together;
                runners_->cancel_all(cancel_reason::sibling);
            }
        }
    }

    Range range_;
    F f_;
    // Guarded by the lock:
    std::conditional_t<awaits, mutex, adaptive_mutex> lock_;
    source source_;
    std::size_t taken_ = 0;  // items
    bool exhausted_ = false; // no item is left
    task_when_state* runners_ = nullptr;
    native_platform::atomic<bool> has_failed_{false};
    std::exception_ptr error_;                 // written by the first runner that fails
    std::vector<std::vector<numbered>> parts_; // the values, for each runner
};

template <class Range, class F> task<> for_each_concurrent(Range range, std::size_t limit, F f) {
    concurrent_run<Range, F, false> all(std::forward<Range>(range), std::move(f));
    co_await all.run(limit);
}

template <class Range, class F>
using concurrent_value_t = typename concurrent_run<Range, F, true>::value;

template <class Range, class F>
task<std::vector<concurrent_value_t<Range, F>>> map_concurrent(Range range, std::size_t limit,
                                                               F f) {
    using value = concurrent_value_t<Range, F>;
    static_assert(!std::is_void_v<value>, "for f without values there is for_each_concurrent()");
    static_assert(!std::is_reference_v<value>, "a vector of references: use pointers");
    concurrent_run<Range, F, true> all(std::forward<Range>(range), std::move(f));
    co_await all.run(limit);
    co_return all.take_values();
}

inline void check_limit(std::size_t limit) {
    if (limit == 0) {
        BIDE_THROW(std::invalid_argument("bide: a limit of 0 tasks at a time"));
    }
}

} // namespace detail

/// Runs the task f(item) for each item of a range, at most `limit` of them at a time.
///
/// The tasks run like the children of when_all(): on the executor of the awaiting coroutine. If
/// that coroutine has no executor, the tasks run on the worker or the thread that runs the
/// coroutine. The tasks run in parallel if there are several workers. The operation allocates
/// `limit` frames. If the range knows its size and has fewer items, the operation allocates one
/// frame for each item.
/// Throws: at the call: std::invalid_argument if `limit` is zero; std::bad_alloc. When awaited, and
/// only after all tasks have ended: the first exception of a task, of `f` or of the range;
/// stopped_error if the awaiting task is cancelled before all items are begun; std::bad_alloc.
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
task<std::vector<detail::concurrent_value_t<Range, F>>> map_concurrent(Range&& items,
                                                                       std::size_t limit, F f) {
    detail::check_limit(limit);
    return detail::map_concurrent<Range, F>(std::forward<Range>(items), limit, std::move(f));
}

}} // namespace bide::BIDE_ABI

#endif
