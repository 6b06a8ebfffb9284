// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_STREAM_BUFFERED_HPP
#define BIDE_STREAM_BUFFERED_HPP

/// \file
/// Defines buffered() and buffer_unordered(), which run the tasks of a stream on a scheduler or a
/// run_loop, several at once, and yield their values.
///
/// \code
/// auto pages = bide::map(std::move(addresses), [](address a) { return fetch(a); }); // tasks
/// auto fetched = bide::buffered(workers, std::move(pages), 8); // eight at a time
/// while (auto page = co_await fetched.next()) { ... }
/// \endcode

#include <bide/stream/merge.hpp>

#include <deque>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// The value or the exception of the task with the given number.
template <class T> struct numbered_outcome {
    std::uint64_t number = 0;
    std::optional<T> value;
    std::exception_ptr error;
};

template <class T> task<numbered_outcome<T>> run_numbered(std::uint64_t number, task<T> work) {
    numbered_outcome<T> to{number, {}, {}};
    BIDE_TRY { to.value.emplace(co_await std::move(work)); }
    BIDE_CATCH { to.error = std::current_exception(); }
    co_return to;
}

template <class T, receivable S>
async_generator<T> run_buffered(task_runner& on, S source, std::size_t n, bool in_order) {
    using outcome = numbered_outcome<T>;
    join_set<outcome> running(on);
    std::exception_ptr error;
    BIDE_TRY {
        std::size_t runs = 0;
        std::uint64_t started = 0;
        std::uint64_t yielded = 0;
        std::deque<std::optional<outcome>> unyielded; // if `in_order`: one for each started task
        for (bool more = true; more || runs != 0;) {
            std::optional<outcome> ended;
            if (more && (in_order ? unyielded.size() : runs) < n) {
                std::optional<task<T>> next;
                if (runs == 0) {
                    auto item = co_await detail::next_of(source);
                    more = item.has_value();
                    next = std::move(item);
                } else {
                    auto arrival = bide::on_recv(detail::deref(source));
                    auto end = bide::on_join_next(running);
                    auto chosen =
                        co_await bide::async_select_biased(std::move(arrival), std::move(end));
                    if (chosen.index() == 1) {
                        ended.emplace(std::move(*chosen.template get<1>()));
                    } else {
                        next = std::move(chosen.template get<0>());
                        more = next.has_value();
                    }
                }
                if (next) {
                    running.spawn(detail::run_numbered(started++, std::move(*next)));
                    ++runs;
                    if (in_order) {
                        unyielded.emplace_back();
                    }
                }
            } else {
                auto next = co_await running.async_join_next();
                ended.emplace(std::move(*next));
            }
            if (ended) {
                --runs;
                if (in_order) {
                    unyielded[static_cast<std::size_t>(ended->number - yielded)].emplace(
                        std::move(*ended));
                } else {
                    unyielded.emplace_back(std::move(ended));
                }
            }
            while (!unyielded.empty() && unyielded.front()) {
                outcome first(std::move(*unyielded.front()));
                unyielded.pop_front();
                ++yielded;
                if (first.error) {
                    std::rethrow_exception(first.error);
                }
                T value = std::move(*first.value);
                co_yield std::move(value);
            }
        }
    }
    BIDE_CATCH { error = std::current_exception(); }
    if (error) { // of the stream or of a task, or the consumer is cancelled
        running.cancel();
        // After the cancellation, async_join_next() returns only when all tasks have ended.
        BIDE_TRY { static_cast<void>(co_await running.async_join_next()); }
        BIDE_CATCH {} // a task has failed, or the consumer is cancelled
        std::rethrow_exception(error);
    }
}

// The type of the values of a stream's tasks.
template <class S> using task_item_t = task_value_t<std::remove_cvref_t<stream_item_t<S>>>;

template <stream S>
async_generator<task_item_t<S>> make_buffered(task_runner& on, S source, std::size_t n,
                                              bool in_order) {
    using T = task_item_t<S>;
    static_assert(!std::is_void_v<T> && !std::is_reference_v<T>,
                  "buffered: the tasks have values, which are no references");
    if (n == 0) {
        BIDE_THROW(std::invalid_argument("bide::buffered of no tasks"));
    }
    if constexpr (receivable<S>) {
        return detail::run_buffered<T>(on, std::move(source), n, in_order);
    } else {
        return detail::run_buffered<T>(on, bide::merge(on, std::move(source)), n, in_order);
    }
}

} // namespace detail

/// Runs the tasks of a stream on `on`, at most n at once, and yields their values in the order of
/// the stream. A task that has ended still counts as one of the n until its value was yielded.
///
/// A stream that is not receivable runs as a task, too (stream/merge.hpp), and may produce two
/// items in advance. If the consumer is cancelled, or a task or the stream fails, the other tasks
/// are cancelled. next() awaits their ends without blocking, and then throws. Values that were not
/// yielded are destroyed.
///
/// The tasks may use objects that the stream owns: the captures of a lambda that was passed to
/// map(), for example, or the parameters of a generator. These objects exist until the tasks have
/// ended.
///
/// If the generator is destroyed before its end, its destructor cancels the tasks and blocks until
/// they have ended: see ~join_set() (sched/join_set.hpp).
/// Throws: std::invalid_argument if n is 0; std::bad_alloc. next() throws what the stream throws,
/// std::bad_alloc, and the exception of a task when it would have to yield the value of that task.
template <stream S>
    requires detail::is_task<stream_item_t<S>>
auto buffered(task_runner& on, S source, std::size_t n) {
    return detail::make_buffered(on, std::move(source), n, true);
}

/// Runs the tasks of a stream as buffered() does, and yields their values in the order in which the
/// tasks end. A task counts as one of the n until it has ended and the consumer asks for an item.
template <stream S>
    requires detail::is_task<stream_item_t<S>>
auto buffer_unordered(task_runner& on, S source, std::size_t n) {
    return detail::make_buffered(on, std::move(source), n, false);
}

}} // namespace bide::BIDE_ABI

#endif
