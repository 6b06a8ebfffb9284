#ifndef BIDE_CHANNEL_WATCH_HPP
#define BIDE_CHANNEL_WATCH_HPP

// A value that changes, and those who want to know when: a configuration, a progress, a state. Only
// the latest is kept.

#include <bide/channel/detail/shared_value.hpp>
#include <bide/channel/detail/subscription.hpp>
#include <bide/channel/detail/versioned_value.hpp>
#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/detail/thread_mark.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/thread_wait.hpp>
#include <bide/core/waiter.hpp>
#include <bide/fwd.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// The value, its readers, and its writers. A modify() has the writers' turn while its function runs;
// other writers queue for the turn and get it in the order in which they came. A send() that finds
// the turn free needs no more than the lock. Readers need no turn.
//
//   writer_        writers_     under the lock
//   nullptr        empty        the turn is free
//   a thread       any          the thread's modify() runs, or its queued write has the turn next
//   nullptr        not empty    never: the turn is passed on to the first that waits
template <class T, class Platform> class watch_state : public basic_versioned_value<Platform> {
    using base = basic_versioned_value<Platform>;

public:
    using shared_value = basic_shared_value<T, Platform>;
    using typename base::node;
    using typename base::reader;
    using typename base::wake_list;
    static constexpr const char* reader_name = "watch receiver";

    explicit watch_state(T&& first) : value_(std::move(first)) {}

    // The latest, and which version of it that is.
    shared_value latest_value(std::uint64_t& version) const noexcept {
        base::lock();
        version = base::latest();
        shared_value latest = value_;
        base::unlock();
        return latest;
    }

    // Puts `next` in place of the latest, which goes with `next`. False: it is closed.
    bool send(shared_value& next) noexcept {
        lock_in_turn();
        return end_turn(&next);
    }

    // A writer's turn.
    class turn {
    public:
        explicit turn(watch_state& s) noexcept : of_(s) {
            s.lock_in_turn();
            s.writer_ = this_thread();
            closed_ = s.is_closed();
            s.unlock();
        }
        turn(const turn&) = delete;
        turn& operator=(const turn&) = delete;
        ~turn() {
            if (!over_) {
                of_.lock();
                of_.end_turn(nullptr);
            }
        }

        bool is_closed() const noexcept { return closed_; }

        // It is replaced in a writer's turn alone, and stays what it is until the end of this one.
        const T& latest() const noexcept { return *of_.value_; }

        // Ends it: as send().
        bool send(shared_value& next) noexcept {
            over_ = true;
            of_.lock();
            return of_.end_turn(&next);
        }

    private:
        watch_state& of_;
        bool closed_;
        bool over_ = false;
    };

    // As basic_versioned_value's, for the destructor of the watch, which close() has no part in.
    bool end(wake_list& out) noexcept {
        if (writer_ != nullptr) {
            fatal("watch", this, "destroyed during a modify()");
        }
        return base::end(out);
    }

    bool has_changed(const reader& r) const noexcept {
        base::lock();
        const bool changed = base::look(r) == wait_status::granted;
        base::unlock();
        return changed;
    }

    // The outcome of a wait: what is latest now counts as seen.
    result<void> collect(reader& r, wait_status what) noexcept {
        if (what != wait_status::granted) {
            return unexpected{errc_of(what)};
        }
        base::lock();
        r.seen = base::latest();
        base::unlock();
        return {};
    }

private:
    static const void* this_thread() noexcept { return thread_mark<Platform>(); }

    struct half { // as thread_wait wants it
        watch_state& of;
        wait_status enqueue(node& w) noexcept { return of.enqueue(w); }
        bool cancel(node&, wait_status) noexcept { return false; } // no writer gives up
    };
    using waits = thread_wait<half, Platform>;

    // Takes the lock when the turn is free, or this thread's.
    void lock_in_turn() noexcept;
    wait_status enqueue(node& w) noexcept;

    // With the lock, in the turn: lets go of both. Sends `next`, if there is one and it is not closed.
    bool end_turn(shared_value* next) noexcept;

    // Under the lock:
    shared_value value_;
    typename Platform::template var<const void*> writer_{nullptr};
    typename base::wait_queue writers_; // their amount is their thread's mark
};

template <class T, class Platform> void watch_state<T, Platform>::lock_in_turn() noexcept {
    base::lock();
    const void* const writer = writer_;
    if (writer == nullptr) {
        return;
    }
    if (writer == this_thread()) {
        fatal("watch", this, "sent to, or modified, by a function that modify() runs");
    }
    base::unlock();
    half mine{*this};
    waits::until(mine, reinterpret_cast<std::ptrdiff_t>(this_thread()), deadline::never());
    base::lock();
}

template <class T, class Platform> wait_status watch_state<T, Platform>::enqueue(node& w) noexcept {
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

template <class T, class Platform>
bool watch_state<T, Platform>::end_turn(shared_value* next) noexcept {
    wake_list told;
    const bool sends = next != nullptr && !base::is_closed();
    if (sends) {
        value_.swap(*next);
        base::post(told);
    }
    writer_ = nullptr;
    if (!writers_.empty()) {
        node& w = writers_.pop();
        writer_ = reinterpret_cast<const void*>(static_cast<std::ptrdiff_t>(w.amount));
        told.push(w);
    }
    base::unlock();
    told.publish(wait_status::granted);
    return sends;
}

} // namespace detail

// How one of many sees the value, and when it has changed: there is a version that is newer than
// the last that it has seen. To be used by one at a time, but for get(). A copy of it has seen as
// much. It may outlive the watch, but not its own waits: it stays where it is while it waits.
template <class T, class Platform> class basic_watch_receiver {
    using state = detail::watch_state<T, Platform>;

public:
    using value_type = T;

    // Copies and moves are its members'. To destroy it, to move it and to assign to it
    // Requires: nobody waits on it; terminates otherwise.

    // A copy of the latest value. It does not count as seen: changed() tells.
    // Throws: what T's copy does.
    T get() const {
        std::uint64_t version = 0;
        return T(*at_.state().latest_value(version));
    }

    // The same, and it counts as seen: changed() waits for a newer one.
    T see() {
        std::uint64_t version = 0;
        const auto latest = at_.state().latest_value(version);
        T copy(*latest);
        at_.reader().seen = version;
        return copy;
    }

    // There is a version that was not seen yet.
    bool has_changed() const noexcept { return at_.state().has_changed(at_.reader()); }

    // Blocks: until there is a version that was not seen yet; then the latest counts as seen.
    // errc::closed: the last version was seen, and no more will come.
    // Order: everything before the send happens-before the return.
    result<void> changed() { return wait(deadline::never()); }

    // As changed(); errc::stopped when a stop is requested first.
    result<void> changed(std::stop_token token) { return wait(token); }

    // As changed(), for at most that long; errc::timeout.
    template <class R, class P> result<void> changed_for(const std::chrono::duration<R, P>& rest) {
        return wait(deadline::after(rest));
    }
    template <class C, class D>
    result<void> changed_until(const std::chrono::time_point<C, D>& when) {
        return wait(deadline::at(when));
    }

    // As changed(), for a coroutine. One that is destroyed has seen nothing.
    basic_async_op<result<void>, Platform> async_changed() noexcept {
        static constexpr auto ops =
            state::template ops<result<void>>([](const wait_target& t, wait_status what) {
                auto* const versioned_value =
                    static_cast<detail::basic_versioned_value<Platform>*>(t.queue);
                return static_cast<state&>(*versioned_value)
                    .collect(*static_cast<typename state::reader*>(t.owner), what);
            });
        return {ops,
                wait_target{static_cast<detail::basic_versioned_value<Platform>*>(&at_.state()),
                            &at_.reader()}};
    }

private:
    template <class U, class P> friend class basic_watch;

    explicit basic_watch_receiver(state& s) noexcept : at_(s) {}

    template <class Limit> result<void> wait(const Limit& limit) {
        return at_.state().collect(at_.reader(), at_.state().wait(at_.reader(), limit));
    }

    detail::subscription<state> at_;
};

// Any number of threads may send and modify. Values are copied and destroyed under no lock that a
// reader waits for, and a value may be copied by several at a time; it is destroyed by the last who
// refers to it. A new value is allocated; nothing else allocates.
template <class T, class Platform> class basic_watch {
    using state = detail::watch_state<T, Platform>;

public:
    using value_type = T;
    using receiver = basic_watch_receiver<T, Platform>;

    // Throws: std::bad_alloc.
    explicit basic_watch(T first = T()) : at_(new state(std::move(first))) {}

    // As close().
    // Requires: no modify() and no send() that waits for one; terminates otherwise.
    ~basic_watch() = default;

    basic_watch(const basic_watch&) = delete;
    basic_watch& operator=(const basic_watch&) = delete;

    // Sends a new version. False: it is closed; the value is gone.
    // Blocks: while a modify() on another thread runs its function.
    // Throws: std::bad_alloc, and `value` is as it was; what T's move or copy does. Nothing was sent
    // then.
    // Requires: not called by a function that modify() of this watch runs; terminates otherwise.
    bool send(T&& value) {
        typename state::shared_value next(std::move(value));
        return at_.state().send(next);
    }
    bool send(const T& value)
        requires std::is_copy_constructible_v<T>
    {
        return send(T(value));
    }

    // Sends a new version: f(T&) changes a copy of the latest. It is called once; no other version
    // comes in between, for other sends and modifications wait until it returns, in the order in
    // which they came: so f must not wait for one. Reads, waits for changes and close() do not wait
    // for f, and f may use them.
    // False: it is closed; f was not called if it was closed before.
    // Blocks: while other modify() run their functions.
    // Throws: what f and T's copy do, std::bad_alloc; nothing was sent then.
    // Requires: as send().
    template <class F> bool modify(F&& f) {
        const wake_scope<Platform> later;  // coroutines that f resumes may send: after the turn
        typename state::shared_value next; // in the end, what it replaces; destroyed after the turn
        typename state::turn mine(at_.state());
        if (mine.is_closed()) {
            return false;
        }
        next = typename state::shared_value(mine.latest());
        std::forward<F>(f)(next.sole());
        return mine.send(next);
    }

    // A copy of the latest value.
    // Throws: what T's copy does.
    T get() const {
        std::uint64_t version = 0;
        return T(*at_.state().latest_value(version));
    }

    // One that has seen the version of now.
    receiver subscribe() noexcept { return receiver(at_.state()); }
    std::size_t receivers() const noexcept { return at_.readers(); }

    // No more versions: who waits for one is told, once the last was seen. True the first time.
    bool close() noexcept { return at_.state().close(); }
    bool is_closed() const noexcept { return at_.is_closed(); }

private:
    detail::publication<state> at_;
};

} // namespace bide::inline BIDE_ABI

#endif
