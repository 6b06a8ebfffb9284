#ifndef BIDE_CHANNEL_WATCH_HPP
#define BIDE_CHANNEL_WATCH_HPP

// A value that changes, and those who want to know when: a configuration, a progress, a state. Only
// the latest is kept.

#include <bide/channel/detail/bulletin.hpp>
#include <bide/channel/detail/shared_value.hpp>
#include <bide/channel/detail/subscription.hpp>
#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class T, class Platform> class watch_state : public basic_bulletin<Platform> {
    using base = basic_bulletin<Platform>;

public:
    using shared_value = basic_shared_value<T, Platform>;
    using typename base::reader;
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

    enum class attempt { done, closed, too_late };

    // `next` in place of the latest, which goes with `next`; `still`: if that is this version.
    attempt replace(shared_value& next, const std::uint64_t* still = nullptr) noexcept {
        typename base::wake_list told;
        base::lock();
        const attempt what = base::is_closed()                              ? attempt::closed
                             : still != nullptr && base::latest() != *still ? attempt::too_late
                                                                            : attempt::done;
        if (what == attempt::done) {
            value_.swap(next);
            base::post(told);
        }
        base::unlock();
        told.publish(fate::granted);
        return what;
    }

    bool has_changed(const reader& r) const noexcept {
        base::lock();
        const bool changed = base::look(r) == fate::granted;
        base::unlock();
        return changed;
    }

    // The outcome of a wait: what is latest now counts as seen.
    result<void> collect(reader& r, fate what) noexcept {
        if (what != fate::granted) {
            return unexpected{errc_of(what)};
        }
        base::lock();
        r.seen = base::latest();
        base::unlock();
        return {};
    }

private:
    shared_value value_; // under the lock
};

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
            state::template ops<result<void>>([](const wait_target& t, fate what) {
                auto* const bulletin = static_cast<detail::basic_bulletin<Platform>*>(t.queue);
                return static_cast<state&>(*bulletin).collect(
                    *static_cast<typename state::reader*>(t.owner), what);
            });
        return {ops, wait_target{static_cast<detail::basic_bulletin<Platform>*>(&at_.state()),
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

// Any number of threads may send and modify. Values are copied and destroyed under no lock, and a
// value may be copied by several at a time; it is destroyed by the last who refers to it. A new
// value is allocated; nothing else allocates.
template <class T, class Platform> class basic_watch {
    using state = detail::watch_state<T, Platform>;

public:
    using value_type = T;
    using receiver = basic_watch_receiver<T, Platform>;

    // Throws: std::bad_alloc.
    explicit basic_watch(T first = T()) : at_(new state(std::move(first))) {}

    // As close().
    ~basic_watch() = default;

    basic_watch(const basic_watch&) = delete;
    basic_watch& operator=(const basic_watch&) = delete;

    // A new version. Never waits. False: it is closed; the value is gone.
    // Throws: std::bad_alloc, and what T's move does; nothing was sent then.
    bool send(T value) {
        typename state::shared_value next(std::move(value));
        return at_.state().replace(next) == state::attempt::done;
    }

    // A new version: f(T&) changes a copy of the latest, under no lock. Where another version comes
    // in between, it is called again on a copy of that; it is called for nothing else than its
    // effect on the copy. False: it is closed.
    // Throws: what f and T's copy do, std::bad_alloc; nothing was sent then.
    template <class F> bool modify(F&& f) {
        for (auto what = state::attempt::too_late;;) {
            std::uint64_t version = 0;
            T changed(*at_.state().latest_value(version));
            f(changed);
            typename state::shared_value next(std::move(changed));
            what = at_.state().replace(next, &version);
            if (what != state::attempt::too_late) {
                return what == state::attempt::done;
            }
        }
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

template <class T> using watch = basic_watch<T, native_platform>;
template <class T> using watch_receiver = basic_watch_receiver<T, native_platform>;

} // namespace bide::inline BIDE_ABI

#endif
