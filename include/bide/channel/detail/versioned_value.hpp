// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_VERSIONED_VALUE_HPP
#define BIDE_CHANNEL_DETAIL_VERSIONED_VALUE_HPP

// The common part of a broadcast and a watch: numbered versions, and readers that wait for the
// next. Each reader counts the versions that it has seen, and waits while it has seen all versions.
// The owner decides what a version is and how many are kept.
//
// A grant says only that there is a new version. The reader looks at it when it resumes, and only
// then counts it as seen. So a grant that no reader collects has no effect.

#include <bide/channel/detail/shared_state.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/thread_wait.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/waiter.hpp>

#include <cstddef>
#include <cstdint>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_versioned_value : public basic_shared_state<Platform> {
    using base = basic_shared_state<Platform>;

public:
    static constexpr const char* waited_for = "watch or broadcast";

    using typename base::node;
    using typename base::wake_list;

    // Stays in place while it waits.
    struct reader {
        explicit reader(std::uint64_t so_far) noexcept : seen(so_far) {}

        std::uint64_t seen;                                       // belongs to the reader
        typename Platform::template var<std::ptrdiff_t> waits{0}; // queued waits; under the lock
    };

    basic_versioned_value() noexcept : base(1) {}

    // ---- Requires: the lock

    std::uint64_t latest() const noexcept { return latest_; }
    std::size_t readers() const noexcept { return readers_; }
    bool is_closed() const noexcept { return closed_; }

    void add_reader() noexcept {
        readers_ = readers_ + 1;
        base::add_reference();
    }

    // The caller drops the reference after unlock(). Terminates if `r` waits.
    void drop_reader(const reader& r, const char* name) noexcept {
        if (const std::ptrdiff_t waiting = r.waits; waiting != 0) {
            fatal_destroyed(name, &r, static_cast<unsigned long long>(waiting));
        }
        readers_ = readers_ - 1;
    }

    // granted: there is a new version for `r`; closed: there never will be one; else waiting.
    wait_status look(const reader& r) const noexcept {
        return r.seen < latest_ ? wait_status::granted
               : closed_        ? wait_status::closed
                                : wait_status::waiting;
    }

    // Adds a version. Moves the waiters to `out`, to be published as granted after unlock().
    void post(wake_list& out) noexcept {
        latest_ = latest_ + 1;
        let_all_go(out);
    }

    // Closes, and moves the waiters to `out`. The caller publishes them as closed after unlock().
    // Returns true if this call closed it.
    bool end(wake_list& out) noexcept {
        const bool first = !closed_;
        closed_ = true;
        let_all_go(out);
        return first;
    }

    // ---- Without the lock

    bool close() noexcept {
        wake_list told;
        base::lock();
        const bool first = end(told);
        base::unlock();
        told.publish(wait_status::closed);
        return first;
    }

    // As look(), but waits. The limit is a deadline or a stop token.
    wait_status wait(reader& r, deadline until) noexcept {
        reader_wait mine{*this, r};
        const wait_status now = mine.try_now();
        return now != wait_status::waiting ? now : waits::until(mine, 1, until);
    }
    wait_status wait(reader& r, const typename Platform::stop_token& token) noexcept {
        reader_wait mine{*this, r};
        const wait_status now = mine.try_now();
        return now != wait_status::waiting ? now : waits::stoppable(mine, 1, token);
    }

    // The steps of an operation that waits for a version (core/wait_ops.hpp). `collect` makes its
    // result.
    struct reader_wait {
        basic_versioned_value& of;
        reader& its;

        const auto& primitive() const noexcept { return of; }
        wait_status try_now() const noexcept {
            of.lock();
            const wait_status now = of.look(its);
            of.unlock();
            return now;
        }
        wait_status enqueue(node& w) const noexcept { return of.enqueue(w, its); }
        bool cancel(node& w, wait_status why) const noexcept { return of.cancel(w, why); }
        void give_back(wait_status) const noexcept {} // a grant takes nothing
    };

private:
    using waits = thread_wait<reader_wait, Platform>;

    wait_status enqueue(node& w, reader& r) noexcept;
    bool cancel(node& w, wait_status why) noexcept;

    // A queued node carries its reader.
    static void count(const node& w, std::ptrdiff_t more) noexcept {
        auto& its = w.template carried<reader>();
        its.waits = its.waits + more;
    }
    void let_all_go(wake_list& out) noexcept;

    // Under the lock:
    typename Platform::template var<std::uint64_t> latest_{0};
    typename Platform::template var<std::size_t> readers_{0};
    typename Platform::template var<bool> closed_{false};
    typename base::wait_queue queue_;
};

template <class Platform>
wait_status basic_versioned_value<Platform>::enqueue(node& w, reader& r) noexcept {
    base::lock();
    wait_status what = look(r);
    if (what != wait_status::waiting) {
        what = base::complete(w, what);
    } else {
        w.carry(r);
        what = base::queue(queue_, w);
        if (what == wait_status::waiting) {
            count(w, 1);
        }
    }
    base::unlock();
    return what;
}

template <class Platform>
bool basic_versioned_value<Platform>::cancel(node& w, wait_status why) noexcept {
    base::lock();
    const bool ended = queue_.withdraw(w, why);
    if (ended) {
        count(w, -1);
    }
    base::unlock();
    return ended;
}

template <class Platform>
void basic_versioned_value<Platform>::let_all_go(wake_list& out) noexcept {
    while (!queue_.empty()) {
        node& w = queue_.pop();
        count(w, -1);
        if (w.claim()) { // else its choice selected another wait
            w.commit();
            out.push(w);
        }
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
