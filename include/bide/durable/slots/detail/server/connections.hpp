// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SERVER_CONNECTIONS_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SERVER_CONNECTIONS_HPP

// The connections to one server that all slots of a process share.
//
// A call takes an idle connection. If none is idle and fewer than the bound are open, the call opens
// another one. Otherwise it waits for a connection, in order of arrival, until its deadline.
//
//   a broken connection  The call that finds it closes all idle connections, too: they probably broke
//                        at the same time. The next calls open new ones.
//   a refusal            If the server refuses a further connection while another one is open, the
//                        call waits for an open one. After `ask_again_after` calls try again.
//   no more need         When a call ends, connections that were idle for `keep_idle` are closed.
//   fork()               A child opens its own connections. It closes the descriptors of inherited
//                        connections that were idle at the fork, and never runs their destructors:
//                        another thread of the parent may have been using them.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/process_wide.hpp>
#include <bide/core/platform.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>

#include <algorithm>
#include <chrono>
#include <compare>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include <sys/types.h>
#include <unistd.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// The most connections to one server that a process opens for calls. A server commits calls of
// several connections with one write to its disk, so the throughput grows with their number. But a
// server has few connections: 100 for all clients is PostgreSQL's default.
inline constexpr std::size_t most_call_connections = 8;

// The key of a connection_pool. Calls and renewals have connections of their own.
template <class Target> struct BIDE_SHARED connection_key {
    Target target;
    bool is_for_renewals = false;

    std::size_t most_connections() const noexcept {
        return is_for_renewals ? 1 : most_call_connections;
    }
    friend auto operator<=>(const connection_key&, const connection_key&) = default;
};

// A reference to this process's T for a key: all slots of a process share one. Its last user
// destroys it. A T has
//
//   using key = ...;            ordered; objects with equal keys are interchangeable
//   explicit T(const key&);     runs with the table locked: it must not block or connect
//   void leave() noexcept;      in a child of fork(): called instead of the destructor
template <class T> class BIDE_SHARED shared_in_process {
public:
    using key = typename T::key;

    explicit shared_in_process(key of) : key_(std::move(of)) {}

    const key& of() const noexcept { return key_; }

    // Returns the object. Makes it if this process has none.
    // Throws: std::bad_alloc.
    T& get() {
        if (held_ == nullptr || held_->process != ::getpid()) {
            held_ = find(key_);
        }
        return held_->object;
    }

private:
    struct entry {
        explicit entry(const key& of) : object(of) {}
        T object;
        const pid_t process = ::getpid();
        entry* inherited_before = nullptr; // in a child of fork()
    };
    struct table {
        mutex lock;
        std::map<key, std::weak_ptr<entry>> entries; // under lock
        entry* inherited = nullptr;                  // under lock: objects that are never destroyed
    };

    static table& here() {
        table* const found = process_wide<table, native_platform>::get([] { return new table; });
        if (found == nullptr) {
            BIDE_THROW(std::bad_alloc());
        }
        return *found;
    }

    static std::shared_ptr<entry> find(const key& of) {
        table& all = here();
        const std::lock_guard held(all.lock);
        std::erase_if(all.entries, [](const auto& each) { return each.second.expired(); });
        std::weak_ptr<entry>& known = all.entries[of];
        std::shared_ptr<entry> found = known.lock();
        if (found == nullptr) {
            found = std::shared_ptr<entry>(new entry(of), &let_go);
            known = found;
        }
        return found;
    }

    static void let_go(entry* last) noexcept {
        if (last->process == ::getpid()) {
            delete last; // the next find() erases its expired entry in the table
            return;
        }
        last->object.leave();
        table& all = here();
        const std::lock_guard held(all.lock);
        last->inherited_before = std::exchange(all.inherited, last);
    }

    key key_;
    std::shared_ptr<entry> held_{};
};

// A Connection is used by one caller at a time and has
//
//   using key = ...;                       ordered; key.most_connections() is the pool's bound
//   explicit Connection(const key&);
//   std::error_code make_ready(deadline);  begins a call, which ends at the deadline; connects if
//                                          the connection is not usable
//   bool is_open() const noexcept;         whether it was opened, and no call has lost it
//   bool is_usable() noexcept;             whether it is open, and its socket is quiet
//   void drop() noexcept;                  closes it without waiting for the server
//   void disown() noexcept;                in a child of fork(): only closes its descriptors
//
// `Clock` is the clock for idle times and pauses.
template <class Connection, class Clock = std::chrono::steady_clock> class connection_pool {
    struct entry;

public:
    using key = typename Connection::key;

    static constexpr std::chrono::seconds keep_idle{10};
    static constexpr std::chrono::seconds ask_again_after{5};

    explicit connection_pool(const key& of)
        : key_(of), entries_(of.most_connections()),
          turns_(static_cast<std::ptrdiff_t>(entries_.size())) {}

    // In a child of fork(), instead of the destructor.
    void leave() noexcept {
        for (entry& each : entries_) {
            // Order: acquire [pool.rest]; if the connection was idle at the fork, the changes of its
            // last user are complete.
            if (each.is_at_rest.load(std::memory_order_acquire)) {
                each.connection->disown();
            }
        }
    }

    // Exclusive use of a connection, until the destructor.
    class turn {
    public:
        turn() = default;
        turn(turn&& other) noexcept
            : pool_(std::exchange(other.pool_, nullptr)), entry_(other.entry_) {}
        turn& operator=(turn&&) = delete;
        ~turn() {
            if (pool_ != nullptr) {
                pool_->give_back(*entry_);
            }
        }
        explicit operator bool() const noexcept { return pool_ != nullptr; }
        Connection& operator*() const noexcept { return *entry_->connection; }
        Connection* operator->() const noexcept { return &*entry_->connection; }

    private:
        friend class connection_pool;
        turn(connection_pool* its_pool, entry* of) noexcept : pool_(its_pool), entry_(of) {}
        connection_pool* pool_ = nullptr;
        entry* entry_ = nullptr;
    };

    // The result of take(). Without an error, the connection is open. With an error and a turn, the
    // connection cannot be opened, and no other is open. With timed_out and no turn, other callers
    // had all connections until the deadline.
    struct taken {
        turn of{};
        std::error_code error{};
    };

    // Takes a connection and opens it if needed.
    // Blocks: until the caller has a turn and the connection is open, or until the deadline.
    auto take(deadline end) -> taken {
        for (;;) {
            if (!turns_.try_acquire()) {
                allow_refused();
                const std::chrono::nanoseconds until(end.steady_ns());
                if (!turns_.try_acquire_until(std::chrono::steady_clock::time_point(until))) {
                    return {{}, std::make_error_code(std::errc::timed_out)};
                }
            }
            turn mine(this, &pick());
            entry& own = *mine.entry_;
            if (!own.connection) {
                own.connection.emplace(key_);
            }
            const std::error_code error = mine->make_ready(end);
            if (!error && !own.is_open) {
                const std::lock_guard held(lock_);
                own.is_open = true;
            }
            if (!error || !waits_for_another(mine)) {
                return {std::move(mine), error};
            }
            if (end.has_passed()) {
                return {{}, std::make_error_code(std::errc::timed_out)};
            }
        }
    }

    // Snapshots: how many connections are open as far as the pool knows, and how many callers wait.
    std::size_t open() const {
        const std::lock_guard held(lock_);
        return count_open();
    }
    std::size_t waiting() const noexcept { return turns_.waiters(); }

private:
    using time = typename Clock::time_point;

    struct entry {
        // The connection exists and is not in use: a child of fork() may close it.
        native_platform::atomic<bool> is_at_rest{false};
        std::optional<Connection> connection{}; // for its user; without a user, under lock_
        bool is_used = false;                   // under lock_, like the members below
        bool is_open = false; // its user has an open connection; only it sets this
        time idle_since{};
    };

    // These require the lock.
    std::size_t count_open() const noexcept {
        return static_cast<std::size_t>(
            std::count_if(entries_.begin(), entries_.end(),
                          [](auto& one) { return one.is_used ? one.is_open : is_idle(one); }));
    }
    static bool is_idle(const entry& e) noexcept {
        return !e.is_used && e.connection && e.connection->is_open();
    }
    void rest(entry& e) noexcept {
        e.is_used = false;
        // Order: release [pool.rest]; publishes the user's changes of the connection.
        e.is_at_rest.store(e.connection.has_value(), std::memory_order_release);
    }

    // Returns an entry that is not in use: the first with an open connection, so that later ones
    // stay idle; otherwise the first one. The caller's permit guarantees that there is one.
    auto pick() -> entry& {
        const std::lock_guard held(lock_);
        auto found = std::find_if(entries_.begin(), entries_.end(), &is_idle);
        if (found == entries_.end()) {
            found = std::find_if(entries_.begin(), entries_.end(),
                                 [](const entry& each) { return !each.is_used; });
        }
        found->is_used = true;
        found->is_open = found->connection && found->connection->is_open();
        // Order: seq_cst; if a fork finds a change of the connection, it finds this change, too.
        found->is_at_rest.exchange(false, std::memory_order_seq_cst);
        return *found;
    }

    // Handles a connection that cannot be opened. If another one is open, ends the turn and returns
    // true; its permit stays away until allow_refused(). Each open connection keeps a permit.
    bool waits_for_another(turn& refused) noexcept {
        const std::lock_guard held(lock_);
        refused.entry_->is_open = false;
        for (entry& each : entries_) {
            if (is_idle(each) && !each.connection->is_usable()) {
                each.connection->drop(); // not open after all: the server was restarted
            }
        }
        if (count_open() == 0) {
            return false;
        }
        ++refused_;
        allowed_at_ = Clock::now() + ask_again_after;
        rest(*refused.entry_);
        refused.pool_ = nullptr;
        return true;
    }

    // Returns the permits of refused connections, if the last refusal was `ask_again_after` ago.
    void allow_refused() noexcept {
        std::unique_lock held(lock_);
        if (refused_ != 0 && Clock::now() >= allowed_at_) {
            const std::ptrdiff_t count = std::exchange(refused_, 0);
            held.unlock();
            turns_.release(count);
        }
    }

    void give_back(entry& e) noexcept {
        {
            const std::lock_guard held(lock_);
            const bool is_broken = !e.connection->is_open();
            const time now = Clock::now();
            for (entry& each : entries_) {
                if (is_idle(each) && (is_broken || each.idle_since + keep_idle <= now)) {
                    each.connection->drop();
                }
            }
            e.is_open = false;
            e.idle_since = now;
            rest(e);
        }
        turns_.release(1);
    }

    const key key_;
    mutable mutex lock_;
    std::vector<entry> entries_; // never resized
    semaphore turns_;            // a permit for each entry, minus refused_
    std::ptrdiff_t refused_ = 0; // under lock_, like allowed_at_; less than the entries
    time allowed_at_{};
};

// A slot's reference to a pool of this process.
template <class T> using shared_connection = shared_in_process<connection_pool<T>>;

}}} // namespace bide::BIDE_ABI::detail

#endif
