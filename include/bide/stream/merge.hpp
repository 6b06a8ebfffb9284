// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_STREAM_MERGE_HPP
#define BIDE_STREAM_MERGE_HPP

/// \file
/// Defines merge(), which runs several streams as tasks of a scheduler or a run_loop and receives
/// the items of all of them.
///
/// A merged stream has async_recv(). So a wait for its items can have a time-out or a stop token,
/// or be a case of a select. merge() makes this possible for a single generator, too.
//
// Each stream has a pump: a task that sends the items of the stream into the common channel. Each
// pump has a sender of the channel, so the end of the last pump closes the channel. A receiver that
// finds the channel closed sees everything that the pumps wrote before they ended: [handles.close]
// (channel/handles.hpp).

#include <bide/channel/handles.hpp>
#include <bide/sched/join_set.hpp>
#include <bide/stream/stream.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

template <class T> class merge_state {
    using item_channel = basic_channel_core<T, native_platform, std::uint64_t>;
    using waits = item_wait<T, native_platform, item_channel>;

    struct items : receiver<T> {
        explicit items(receiver<T>&& from) noexcept : receiver<T>(std::move(from)) {}
        item_channel& channel() noexcept { return this->core(); }
    };

public:
    // Throws: std::bad_alloc.
    merge_state(task_runner& on, receiver<T>&& from, std::size_t pumps)
        : items_(std::move(from)), unfinished_(pumps), pumps_(on) {}

    template <stream S> void add(S source, sender<T> to) {
        auto kept = std::make_shared<S>(std::move(source));
        sources_.push_back(kept);
        pumps_.spawn(pump(*kept, std::move(to)));
    }

    // The operation of async_recv() (core/wait_ops.hpp).
    struct receiving : waits::receiving {
        merge_state& of;

        result<std::optional<T>> collect(wait_status what, recv_payload<T>& got) const {
            if (what == wait_status::closed) {
                of.rethrow_if_failed();
            }
            return waits::receiving::collect(what, got);
        }
    };
    async_op<std::optional<T>> recv() noexcept {
        return {receiving{{items_.channel()}, *this}, recv_payload<T>()};
    }

private:
    template <stream S> task<> pump(S& source, sender<T> to) {
        BIDE_TRY {
            while (auto item = co_await detail::next_of(source)) {
                const auto sent = co_await to.async_send(static_cast<stream_item_t<S>&&>(*item));
                if (!sent) {
                    co_return; // the pump is cancelled
                }
            }
            // Order: relaxed; the end of this pump publishes the change.
            unfinished_.fetch_sub(1, std::memory_order_relaxed);
        }
        BIDE_CATCH { fail(std::current_exception()); }
    }

    void fail(std::exception_ptr why) noexcept {
        // Order: relaxed; the exchange only decides which pump writes `error_`. That pump publishes
        // the exception when it ends.
        if (!failed_.exchange(true, std::memory_order_relaxed)) {
            error_ = std::move(why);
        }
        pumps_.cancel();
    }

    // Requires: the channel was found closed.
    void rethrow_if_failed() const {
        if (error_) {
            std::rethrow_exception(error_);
        }
        // Order: relaxed; the pumps have ended.
        if (unfinished_.load(std::memory_order_relaxed) != 0) {
            throw_error(errc::stopped); // the runner has shut down
        }
    }

    std::vector<std::shared_ptr<void>> sources_; // destroyed after the items, which may use them
    items items_;
    native_platform::atomic<std::size_t> unfinished_; // pumps whose streams have not ended
    native_platform::atomic<bool> failed_{false};
    std::exception_ptr error_; // written by the first pump that fails
    join_set<> pumps_;         // the last member: destroyed first, so that the pumps end
};

} // namespace detail

/// The items of streams that run on a scheduler or a run_loop. Each item is received once. Items of
/// one stream are received in their order. Move-only.
///
/// If a stream fails, the other streams are cancelled, and async_recv() throws the exception after
/// the items that were sent before. An item that a cancelled stream has made and that was not sent
/// is destroyed.
/// Thread safety: one async_recv() at a time.
/// Destroys: cancels the streams and waits for their ends. Then destroys the items that were not
/// received. Last, destroys the streams with their functions and captures, which items may use.
/// Blocks until all streams have ended: see ~join_set() (sched/join_set.hpp). If async_recv() has
/// already returned nothing or thrown an exception of a stream, does not block.
template <class T> class [[nodiscard]] merged {
public:
    /// The type of an item.
    using value_type = T;

    /// Waits for the next item of any stream.
    /// Returns: an operation for co_await. Its value is the item, or nothing if all streams ended.
    /// Throws: when awaited, even with as_result(). After the last item, each await throws the
    /// exception of a failed stream, or stopped_error if the runner shut down before the streams
    /// ended.
    /// Cancellation: the wait is stopped, and the streams continue. No item is lost.
    async_op<std::optional<T>> async_recv() noexcept { return state_->recv(); }

private:
    using state = detail::merge_state<T>;
    template <stream First, stream... Others> friend auto merge(task_runner&, First, Others...);
    template <stream S> friend auto merge(task_runner&, std::vector<S>);

    // `add` adds the streams to a state.
    template <class Add> merged(task_runner& on, std::size_t streams, Add add) {
        auto [to, from] = bide::make_channel<T>(streams);
        state_ = std::make_unique<state>(on, std::move(from), streams);
        add(*state_, to);
    }

    std::unique_ptr<state> state_;
};

/// Runs each stream as a task on `on`, and merges their items. The merged stream has room for as
/// many items as there are streams. A stream waits if there is no room for its next item.
///
/// Requires: the move constructor of the item does not throw, as for any element of a channel. If a
/// stream yields references, the items are copied.
/// Throws: std::bad_alloc.
template <stream First, stream... Others>
auto merge(task_runner& on, First first, Others... others) {
    using T = std::remove_cvref_t<stream_item_t<First>>;
    static_assert((std::same_as<T, std::remove_cvref_t<stream_item_t<Others>>> && ...),
                  "merge: all streams have the same type of items");
    return merged<T>(on, 1 + sizeof...(Others),
                     [&](detail::merge_state<T>& all, const sender<T>& to) {
                         all.add(std::move(first), to);
                         (all.add(std::move(others), to), ...);
                     });
}
/// Merges a vector of streams as the function above does.
template <stream S> auto merge(task_runner& on, std::vector<S> streams) {
    using T = std::remove_cvref_t<stream_item_t<S>>;
    return merged<T>(on, streams.size(), [&](detail::merge_state<T>& all, const sender<T>& to) {
        for (S& s : streams) {
            all.add(std::move(s), to);
        }
    });
}

}} // namespace bide::BIDE_ABI

#endif
