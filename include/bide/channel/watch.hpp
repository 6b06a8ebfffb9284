// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_WATCH_HPP
#define BIDE_CHANNEL_WATCH_HPP

/// \file
/// A value that changes, and receivers that wait for a change: a configuration, a progress, a
/// state. Only the latest version is kept.

#include <bide/channel/detail/versioned_value.hpp>
#include <bide/core/result.hpp>

#include <optional>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// The value with its readers and writers. Writers exclude each other by a write lock, which
// modify() holds while its function runs. Other writers queue for the write lock, first in, first
// out. A send() that finds the write lock free acquires only the lock of the state, which is held
// for a few instructions. Readers do not use the write lock.
//
//   writer_        writers_     under the lock
//   nullptr        empty        the write lock is free
//   a thread       any          the thread holds the write lock, or was woken to hold it
//   nullptr        not empty    never: the first waiter gets the write lock
template <class T, class Platform> class watch_state : public basic_versioned_value<Platform> {
    using base = basic_versioned_value<Platform>;

public:
    using shared_value = basic_shared_value<T, Platform>;
    using typename base::node;
    using typename base::reader;
    using typename base::wake_list;
    static constexpr const char* reader_name = "watch receiver";

    explicit watch_state(T&& first) : value_(std::move(first)) {}

    // Returns the latest value, and sets `version` to its version.
    shared_value latest_value(std::uint64_t& version) const noexcept {
        base::lock();
        version = base::latest();
        shared_value latest = value_;
        base::unlock();
        return latest;
    }

    // Replaces the latest value by `next`. After that, `next` refers to the old value. Returns
    // false if the watch is closed.
    bool send(shared_value& next) noexcept {
        lock_to_write();
        return end_write(&next);
    }

    // Holds the write lock.
    class write_lock {
    public:
        explicit write_lock(watch_state& of) noexcept : of_(of) {
            of.lock_to_write();
            of.writer_ = this_thread();
            closed_ = of.is_closed();
            of.unlock();
        }
        write_lock& operator=(write_lock&&) = delete;
        ~write_lock() {
            if (!over_) {
                of_.lock();
                of_.end_write(nullptr);
            }
        }

        bool is_closed() const noexcept { return closed_; }

        // While a thread holds the write lock, no other thread replaces the value. So the reference
        // stays valid until the caller releases the write lock.
        const T& latest() const noexcept { return *of_.value_; }

        // Sends as send() does, and releases the write lock.
        bool send(shared_value& next) noexcept {
            over_ = true;
            of_.lock();
            return of_.end_write(&next);
        }

    private:
        watch_state& of_;
        bool closed_;
        bool over_ = false;
    };

    // Closes the watch. Called by its destructor. Requires: no modify() runs; terminates otherwise.
    bool end(wake_list& out) noexcept {
        if (writer_ != nullptr) {
            detail::fatal("watch", this, "destroyed during a modify()");
        }
        return base::end(out);
    }

    bool has_changed(const reader& r) const noexcept {
        return base::locked([&]() noexcept { return base::look(r); }) == wait_status::granted;
    }

    // Returns the result of a wait. If the wait was granted, the latest version counts as seen.
    result<void> collect(reader& r, wait_status what) noexcept {
        if (what != wait_status::granted) {
            return unexpected{errc_of(what)};
        }
        r.seen = base::locked([this]() noexcept { return base::latest(); });
        return {};
    }

private:
    static const void* this_thread() noexcept { return thread_mark<Platform>(); }

    struct write_wait { // the interface that thread_wait needs
        watch_state& of;
        const void* thread = this_thread();
        const auto& primitive() const noexcept { return of; }
        wait_status enqueue(node& w) noexcept {
            w.carry(*this);
            return of.enqueue(w);
        }
        bool cancel(node&, wait_status) noexcept { return false; } // it waits without a limit
    };
    using waits = thread_wait<write_wait, Platform>;

    // Acquires the lock of the state. If another thread holds the write lock, first waits until the
    // calling thread gets the write lock.
    void lock_to_write() noexcept {
        base::lock();
        const void* const writer = writer_;
        if (writer == nullptr) {
            return;
        }
        if (writer == this_thread()) {
            detail::fatal("watch", this, "sent to, or modified, by a function that modify() runs");
        }
        base::unlock();
        write_wait mine{*this};
        waits::until(mine, 1, deadline::never());
        base::lock();
    }
    wait_status enqueue(node& w) noexcept {
        base::lock();
        wait_status what = wait_status::granted;
        if (writer_ == nullptr) {
            writer_ = this_thread();
            what = base::complete(w, what);
        } else {
            what = base::queue(writers_, w);
        }
        base::unlock();
        return what;
    }

    // Sends `next`, unless `next` is nullptr or the watch is closed. Then releases the lock of the
    // state, and the write lock if the caller holds it. Returns true if `next` was sent.
    // Requires: the caller has called lock_to_write(), or holds both locks.
    bool end_write(shared_value* next) noexcept {
        wake_list woken;
        const bool sends = next != nullptr && !base::is_closed();
        if (sends) {
            value_.swap(*next);
            base::post(woken);
        }
        writer_ = nullptr;
        if (!writers_.empty()) {
            node& w = writers_.pop();
            writer_ = w.template carried<write_wait>().thread;
            woken.push(w);
        }
        base::unlock();
        woken.publish(wait_status::granted);
        return sends;
    }

    // Under the lock:
    shared_value value_;
    typename Platform::template var<const void*> writer_{nullptr};
    typename base::wait_queue writers_; // each carries its write_wait
};

} // namespace detail

/// Reads the value of a watch and waits for changes. A change is a version that is newer than the
/// last version that this receiver has seen. One thread or coroutine uses a receiver at a time, but
/// several may call get() at the same time. A copy has seen the same versions as its original. A
/// receiver may outlive the watch.
/// Requires: the receiver is not moved or destroyed while it waits; terminates otherwise.
template <class T, class Platform> class basic_watch_receiver {
    using state = detail::watch_state<T, Platform>;

public:
    /// The type of the value.
    using value_type = T;

    /// Returns a copy of the latest value, which does not count as seen.
    /// Throws: what the copy of T throws.
    T get() const {
        std::uint64_t version = 0;
        return T(*at_.state().latest_value(version));
    }

    /// Returns a copy of the latest value, which counts as seen: changed() waits for a newer one.
    /// Throws: what the copy of T throws; the value does not count as seen then.
    T see() {
        std::uint64_t version = 0;
        const auto latest = at_.state().latest_value(version);
        T copy(*latest);
        at_.reader().seen = version;
        return copy;
    }

    /// Returns true if there is a version that this receiver has not seen.
    bool has_changed() const noexcept { return at_.state().has_changed(at_.reader()); }

    /// Waits for a version that this receiver has not seen. After that, the latest version counts
    /// as seen.
    /// Blocks: until there is such a version.
    /// Returns: errc::closed if this receiver has seen the last version and no more will come.
    /// Memory order: what happens before the send happens before the return.
    result<void> changed() { return wait_by(deadline::never()); }

    /// Waits as changed() does, unless a stop is requested first.
    /// Returns: as changed(), or errc::stopped.
    result<void> changed(typename Platform::stop_token token) { return wait_by(token); }

    /// Waits as changed() does, but at most `rest`.
    /// Returns: as changed(), or errc::timeout.
    result<void> changed_for(deadline::from_now rest) { return wait_by(deadline(rest)); }
    /// Waits as changed() does, but at most until a point in time.
    result<void> changed_until(deadline when) { return wait_by(when); }

    /// Waits until predicate(const T&) is true for the latest value. The value for which it was
    /// true, and all before it, count as seen. The predicate is called at once, and after each
    /// change, by the calling thread, which holds no lock. It may miss a value that is replaced
    /// soon. In a coroutine: async_wait() (task/watch_wait.hpp).
    /// Blocks: until the predicate is true.
    /// Returns: a copy of that value; errc::closed if the predicate is false for the last version
    /// and no more will come.
    /// Throws: what the predicate and the copy of T throw; the value does not count as seen then.
    template <std::predicate<const T&> Predicate> result<T> wait(Predicate predicate) {
        return wait_until(deadline::never(), std::move(predicate));
    }
    /// Waits as wait() does, unless a stop is requested first.
    /// Returns: as wait(), or errc::stopped.
    template <std::predicate<const T&> Predicate>
    result<T> wait(typename Platform::stop_token token, Predicate predicate) {
        return wait_to_see(token, predicate);
    }
    /// Waits as wait() does, but at most `rest`.
    /// Returns: as wait(), or errc::timeout.
    template <std::predicate<const T&> Predicate>
    result<T> wait_for(deadline::from_now rest, Predicate predicate) {
        return wait_to_see(deadline(rest), predicate);
    }
    /// Waits as wait() does, but at most until a point in time.
    template <std::predicate<const T&> Predicate>
    result<T> wait_until(deadline when, Predicate predicate) {
        return wait_to_see(when, predicate);
    }

    /// Returns a copy of the latest value as see() does, if predicate(const T&) is true for it.
    /// Otherwise returns nothing, but the value counts as seen.
    /// Throws: as wait().
    template <std::predicate<const T&> Predicate> std::optional<T> see_if(Predicate& predicate) {
        std::uint64_t version = 0;
        const auto latest = at_.state().latest_value(version);
        std::optional<T> copy;
        if (predicate(*latest)) {
            copy.emplace(*latest);
        }
        at_.reader().seen = version;
        return copy;
    }

    /// Waits as changed() does, for a coroutine.
    /// Cancellation: if the operation is destroyed, the latest version does not count as seen.
    basic_async_op<result<void>, Platform> async_changed() noexcept {
        return {changing{{at_.state(), at_.reader()}}};
    }

private:
    template <class U, class P> friend class basic_watch;

    explicit basic_watch_receiver(state& of) noexcept : at_(of) {}

    // The operation of async_changed() (core/wait_ops.hpp).
    struct changing : state::reader_wait {
        result<void> collect(wait_status what) const noexcept {
            return static_cast<state&>(this->of).collect(this->its, what);
        }
    };

    template <class Limit> result<void> wait_by(const Limit& limit) {
        return at_.state().collect(at_.reader(), at_.state().wait(at_.reader(), limit));
    }
    static wait_status status_of(const deadline& limit) noexcept {
        return limit.has_passed() ? wait_status::timed_out : wait_status::waiting;
    }
    static wait_status status_of(const typename Platform::stop_token& limit) noexcept {
        return limit.stop_requested() ? wait_status::stopped : wait_status::waiting;
    }
    template <class Limit, class Predicate>
    result<T> wait_to_see(const Limit& limit, Predicate& predicate) {
        for (;;) {
            if (auto seen = see_if(predicate)) {
                return std::move(*seen);
            }
            // A wait does not look at its limit if there is a newer version already.
            wait_status what = status_of(limit);
            if (what == wait_status::waiting) {
                what = at_.state().wait(at_.reader(), limit);
            }
            if (what != wait_status::granted) { // see_if() then counts the version as seen
                return unexpected{errc_of(what)};
            }
        }
    }

    detail::subscription<state> at_;
};

/// A value that changes, with any number of receivers. Any number of threads may send and modify.
/// While a value is copied or destroyed, no lock is held that a reader might wait for. Several
/// threads may copy a value at the same time; the last thread that refers to it destroys it. A send
/// and a modify() allocate the new value; nothing else allocates.
///
/// \code
/// bide::watch<int> level(1);
/// std::jthread reader([seen = level.subscribe()]() mutable {
///     while (seen.changed()) std::printf("%d\n", seen.get()); // until closed
/// });
/// level.send(2);
/// level.modify([](int& l) { ++l; });
/// level.close();
/// \endcode
///
/// In a coroutine: `co_await seen.async_changed()`. `seen.wait(predicate)` waits for a value.
template <class T, class Platform> class basic_watch {
    using state = detail::watch_state<T, Platform>;

public:
    /// The type of the value.
    using value_type = T;
    /// The type of a receiver.
    using receiver = basic_watch_receiver<T, Platform>;

    /// Constructs a watch with its first version.
    /// Throws: std::bad_alloc; what the move of T throws.
    explicit basic_watch(T first = T()) : at_(new state(std::move(first))) {}

    /// Closes the watch as close() does.
    /// Requires: no modify() runs, and no send() waits for a modify(); terminates otherwise.
    ~basic_watch() = default;

    basic_watch& operator=(basic_watch&&) = delete;

    /// Sends a new version.
    /// Blocks: while a modify() on another thread runs its function.
    /// Returns: true if it was sent. If the watch is closed, destroys the value and returns false.
    /// Throws: std::bad_alloc, with `value` unchanged; what the move or copy of T throws. In both
    /// cases nothing was sent.
    /// Requires: the caller is not a function that modify() of this watch runs; terminates
    /// otherwise.
    bool send(T&& value) {
        BIDE_SWITCH_AFTER();
        typename state::shared_value next(std::move(value));
        return at_.state().send(next);
    }
    /// Does the same with a copy of `value`.
    bool send(const T& value)
        requires std::is_copy_constructible_v<T>
    {
        return send(T(value));
    }

    /// Sends a new version that f(T&) makes from a copy of the latest version. f is called once.
    /// While f runs, other sends and modifications of this watch wait, in the order in which they
    /// came. So f must not wait for one of them, or for a change. f delays no read, no wait for a
    /// change, and no close(). f itself may read and close.
    /// Blocks: while another modify() runs its function.
    /// Returns: true if it was sent; false if the watch is closed. If it was closed before the
    /// call, f is not called.
    /// Throws: what f and the copy of T throw, std::bad_alloc; nothing was sent then.
    /// Requires: as send().
    template <class F> bool modify(F&& f) {
        BIDE_SWITCH_AFTER();
        // Coroutines that f wakes may send. So they resume only after the write lock is released.
        const wake_scope<Platform> later;
        typename state::shared_value
            next; // after the send: the old value, destroyed without a lock
        typename state::write_lock mine(at_.state());
        if (mine.is_closed()) {
            return false;
        }
        next = typename state::shared_value(mine.latest());
        std::forward<F>(f)(next.sole());
        return mine.send(next);
    }

    /// Returns a copy of the latest value.
    /// Throws: what the copy of T throws.
    T get() const {
        std::uint64_t version = 0;
        return T(*at_.state().latest_value(version));
    }

    /// Returns a receiver that has seen the latest version.
    receiver subscribe() noexcept { return receiver(at_.state()); }
    /// Returns the number of receivers.
    std::size_t receivers() const noexcept { return at_.readers(); }

    /// Closes the watch. Later sends fail. A receiver that has seen the last version learns that
    /// the watch is closed.
    /// Returns: true if this call closed it.
    bool close() noexcept {
        BIDE_SWITCH_AFTER();
        return at_.state().close();
    }
    /// Returns true if close() was called.
    bool is_closed() const noexcept { return at_.is_closed(); }

private:
    detail::publication<state> at_;
};

}} // namespace bide::BIDE_ABI

#endif
