// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_VERSIONED_VALUE_HPP
#define BIDE_CHANNEL_DETAIL_VERSIONED_VALUE_HPP

// The common part of a broadcast and a watch: numbered versions, and readers that wait for the
// next. Each reader knows how many versions it has seen, and waits while it has seen all. The owner
// decides what a version is and how many are kept.
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
#include <stop_token>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_versioned_value : public basic_shared_state<Platform> {
    using base = basic_shared_state<Platform>;

public:
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

    // Closes. Moves the waiters to `out`, to be published as closed after unlock(). Returns true if
    // this call closed it.
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
        const wait_status now = try_now(wait_target{this, &r});
        reader_queue mine{*this, r};
        return now != wait_status::waiting ? now : waits::until(mine, 1, until);
    }
    wait_status wait(reader& r, const std::stop_token& token) noexcept {
        const wait_status now = try_now(wait_target{this, &r});
        reader_queue mine{*this, r};
        return now != wait_status::waiting ? now : waits::stoppable(mine, 1, token);
    }

    // The wait_ops of a target of (versioned_value, reader).
    template <class R>
    static constexpr wait_ops<R, Platform> ops(R (*collect)(const wait_target&,
                                                            wait_status)) noexcept {
        return {&try_now, &enqueue_op, &cancel_op, collect,
                [](const wait_target&, wait_status) noexcept {}}; // a grant takes nothing
    }

private:
    struct reader_queue { // the interface that thread_wait needs
        basic_versioned_value& of;
        reader& its;
        wait_status enqueue(node& w) noexcept { return of.enqueue(w, its); }
        bool cancel(node& w, wait_status why) noexcept { return of.cancel(w, why); }
    };
    using waits = thread_wait<reader_queue, Platform>;

    static basic_versioned_value& self(const wait_target& t) noexcept {
        return *static_cast<basic_versioned_value*>(t.queue);
    }
    static reader& reader_of(const wait_target& t) noexcept {
        return *static_cast<reader*>(t.owner);
    }
    static wait_status try_now(const wait_target& t) noexcept {
        self(t).lock();
        const wait_status now = self(t).look(reader_of(t));
        self(t).unlock();
        return now;
    }
    static bool enqueue_op(const wait_target& t, node& w) noexcept {
        return self(t).enqueue(w, reader_of(t)) != wait_status::waiting;
    }
    static bool cancel_op(const wait_target& t, node& w, wait_status why) noexcept {
        return self(t).cancel(w, why);
    }

    wait_status enqueue(node& w, reader& r) noexcept;
    bool cancel(node& w, wait_status why) noexcept;

    // The amount of a queued node is the address of its reader's count.
    static void count(const node& w, std::ptrdiff_t more) noexcept {
        auto& waits_of =
            *reinterpret_cast<decltype(reader::waits)*>(static_cast<std::ptrdiff_t>(w.amount));
        waits_of = waits_of + more;
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
        w.amount = reinterpret_cast<std::ptrdiff_t>(&r.waits);
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
