// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SERVER_CONNECTION_POOL_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SERVER_CONNECTION_POOL_HPP

// Connections to one server, which all slots of a process share. A call takes an idle connection.
// If no connection is idle and fewer than the bound are open, the call opens another one. Otherwise
// it waits for its turn, in order of arrival, until its deadline.
//
//   a call that hangs    It occupies one connection; other calls use the remaining ones.
//   a broken connection  The next call that takes it opens it again. The idle connections may have
//                        broken with it: they are suspect, and are opened again, too.
//   a refusal            If the server refuses a further connection while some are open, the call
//                        waits for its turn on one of these. The pool tries a further one after
//                        `ask_again_after`, and tries all when a connection was opened.
//   a connect that hangs While another connection is open, a connect gets a quarter of the time
//                        that is left, at most `longest_share`. Then it counts as a refusal.
//   no more need         Connections that are idle for `keep_idle` are closed, except the last one.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/durable/detail/background.hpp>
#include <bide/durable/detail/try_to.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/slots/detail/server/shared_connections.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// Returns the deadline of a connect while other connections are open.
inline deadline connect_share(deadline end, std::chrono::nanoseconds longest) noexcept {
    const std::int64_t now = native_platform::now();
    const std::int64_t rest = (end.steady_ns() - now) / 4;
    return deadline::at_ns(now + std::min<std::int64_t>(rest, longest.count()));
}

// A Connection is used by one caller at a time and has
//
//   using key = ...;                       ordered; key.most_connections() is the pool's bound
//   explicit Connection(const key&);
//   std::error_code make_ready(deadline);  opens it if it is not usable
//   bool is_open() const noexcept;         whether it was opened, and no call has lost it
//   bool is_usable() noexcept;             whether it is open, and its socket is quiet
//   void drop() noexcept;                  closes it without waiting or asking the server
//   void disown() noexcept;                in a child of fork(): only closes its descriptors
//
// `Clock` is the clock for idle times and pauses.
template <class Connection, class Clock = std::chrono::steady_clock> class connection_pool {
    struct entry;

public:
    using key = typename Connection::key;

    static constexpr std::chrono::seconds keep_idle{10};
    static constexpr std::chrono::seconds ask_again_after{5};
    static constexpr std::chrono::seconds longest_share{1};

    explicit connection_pool(const key& of)
        : key_(of), entries_(of.most_connections()),
          turns_(static_cast<std::ptrdiff_t>(entries_.size())),
          tidier_(std::make_shared<tidier>(this)) {}
    connection_pool(const connection_pool&) = delete;
    connection_pool& operator=(const connection_pool&) = delete;
    // Requires: no turn is held or waited for.
    ~connection_pool() { tidier_->end(); }

    // In a child of fork(), instead of the destructor.
    void leave() noexcept {
        for (entry& each : entries_) {
            // Order: acquire [pool.rest]; if the connection was at rest at the fork, the changes of
            // its last user are complete.
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
    // connection cannot be opened, and no other is open. With timed_out and no turn, either other
    // callers had all connections until the deadline, or the deadline passed while a further
    // connection was opened.
    struct taken {
        turn of{};
        std::error_code error{};
    };

    // Takes a connection and opens it if needed.
    // Blocks: until the caller has a turn and the connection is open, or until the deadline.
    auto take(deadline end) -> taken {
        const std::chrono::steady_clock::time_point until{
            std::chrono::nanoseconds(end.steady_ns())};
        for (;;) {
            if (!turns_.try_acquire()) {
                ask_again();
                if (!turns_.try_acquire_until(until)) {
                    return {{}, std::make_error_code(std::errc::timed_out)};
                }
            }
            bool is_other_open = false;
            turn mine(this, &pick(is_other_open));
            entry& own = *mine.entry_;
            if (!own.connection) {
                own.connection.emplace(key_);
            }
            const std::error_code error =
                mine->make_ready(is_other_open ? connect_share(end, longest_share) : end);
            if (!error) {
                note_open(own);
                return {std::move(mine), {}};
            }
            const bool is_late = end.has_passed();
            bool is_worth_retry = is_other_open; // without other open ones it has all the time
            if (!give_up(mine, is_worth_retry)) {
                if (is_late || !is_worth_retry) {
                    return {std::move(mine), error};
                }
            } else if (is_late) {
                return {{}, std::make_error_code(std::errc::timed_out)};
            }
        }
    }

    // Closes connections that were idle for `keep_idle`, except the last open one. Never blocks.
    void close_idle() noexcept {
        while (turns_.try_acquire()) {
            entry* idle = nullptr;
            std::unique_lock held(lock_);
            const time before = Clock::now() - keep_idle;
            for (entry& each : entries_) {
                if (!each.is_used && each.connection && each.connection->is_open() &&
                    each.idle_since <= before) {
                    idle = &each; // the last one: pick() prefers the first ones
                }
            }
            if (idle == nullptr || !has_spare()) {
                held.unlock();
                release(1);
                return;
            }
            use(*idle);
            idle->is_open = false;
            held.unlock();
            const turn its(this, idle);
            its->drop();
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
        bool is_open = false;                   // as far as the pool knows
        time idle_since{};
    };

    // Called by the lease monitor when it is time to tidy() the pool.
    struct tidier final : monitor_client {
        explicit tidier(connection_pool* whose) : of(whose) {}
        void happened() noexcept override {
            const std::lock_guard held(lock);
            if (of != nullptr) {
                of->tidy();
            }
        }
        void end() noexcept {
            const std::lock_guard held(lock);
            of = nullptr;
        }
        mutex lock;
        connection_pool* of; // under lock
    };

    // These require the lock. An idle connection is suspect if another one broke.
    static bool is_suspect(const entry& e) noexcept {
        return !e.is_used && !e.is_open && e.connection && e.connection->is_open();
    }
    std::size_t count_open() const noexcept {
        return static_cast<std::size_t>(
            std::count_if(entries_.begin(), entries_.end(), [](auto& one) { return one.is_open; }));
    }
    void use(entry& e) noexcept {
        e.is_used = true;
        // Order: seq_cst; if a fork finds a change of the connection, it finds this change, too.
        e.is_at_rest.exchange(false, std::memory_order_seq_cst);
    }
    void rest(entry& e) noexcept {
        e.is_used = false;
        // Order: release [pool.rest]; publishes the user's changes of the connection.
        e.is_at_rest.store(e.connection.has_value(), std::memory_order_release);
    }

    // Whether more than one connection is open: close_idle() has something to close, now or later.
    bool has_spare() const noexcept {
        return std::count_if(entries_.begin(), entries_.end(),
                             [](const entry& one) { return one.is_open || is_suspect(one); }) > 1;
    }

    // The semaphore has at most as many permits as there are entries, so the casts lose nothing.
    void release(std::size_t n) noexcept { turns_.release(static_cast<std::ptrdiff_t>(n)); }
    std::size_t forget(std::size_t n) noexcept {
        return static_cast<std::size_t>(turns_.forget_permits(static_cast<std::ptrdiff_t>(n)));
    }

    // Returns an entry that is not in use: the first open one, so that later entries stay idle;
    // else the first suspect one; else the first of all. The caller's permit guarantees that there
    // is one.
    auto pick(bool& is_other_open) -> entry& {
        const auto rank = [](const entry& one) {
            return one.is_open ? 2 : is_suspect(one) ? 1 : 0;
        };
        const std::lock_guard held(lock_);
        entry* found = nullptr;
        for (entry& each : entries_) {
            if (!each.is_used && (found == nullptr || rank(each) > rank(*found))) {
                found = &each;
            }
        }
        is_other_open = count_open() > (found->is_open ? 1U : 0U);
        use(*found);
        if (!found->is_open && found->connection) {
            found->connection
                ->drop(); // another connection broke, and a quiet socket proves nothing
        }
        return *found;
    }

    // Adds a turn, if the server's last refusal was `ask_again_after` ago: it may accept a
    // connection.
    void ask_again() noexcept {
        {
            const std::lock_guard held(lock_);
            if (refused_ == 0 || Clock::now() < ask_again_at_) {
                return;
            }
            --refused_;
            ask_again_at_ = Clock::now() + ask_again_after;
        }
        release(1);
    }

    // Handles a connection that cannot be opened. If other connections are open, ends the turn and
    // returns true; the caller then waits for one of them. If none is open, the server did not
    // refuse because of the number of connections; returns false.
    bool give_up(turn& refused, bool& is_worth_retry) noexcept {
        std::size_t more = 0;
        bool is_given_up = false;
        {
            const std::lock_guard held(lock_);
            refused.entry_->is_open = false;
            for (entry& each : entries_) {
                is_worth_retry = is_worth_retry || is_suspect(each); // closing it makes room
                if (!each.is_used && each.is_open) { // a suspect connection stays suspect
                    each.is_open = each.connection->is_usable();
                }
            }
            const std::size_t open = count_open();
            if (open != 0) {
                // Keeps one permit for each open connection. Each further permit would cause a
                // refusal. Only note_open() raises the number of open connections, and it returns
                // all permits.
                const std::size_t excess = entries_.size() - refused_ - open;
                if (excess != 0) {
                    refused_ += 1 + forget(excess - 1);
                }
                more = excess != 0 ? 0 : 1;
                ask_again_at_ = Clock::now() + ask_again_after;
                rest(*refused.entry_);
                refused.pool_ = nullptr;
            } else {
                more = std::exchange(refused_, 0);
            }
            is_given_up = open != 0;
        }
        release(more);
        return is_given_up;
    }

    void note_open(entry& e) noexcept {
        std::size_t more = 0;
        bool has_to_arm = false;
        {
            const std::lock_guard held(lock_);
            if (e.is_open) {
                return;
            }
            e.is_open = true;
            more = std::exchange(refused_, 0);
            has_to_arm = !is_armed_ && has_spare();
            is_armed_ = is_armed_ || has_to_arm;
        }
        release(more);
        if (has_to_arm) {
            arm();
        }
    }

    void give_back(entry& e) noexcept {
        {
            const std::lock_guard held(lock_);
            const bool is_open = e.is_open && e.connection->is_open();
            if (e.is_open && !is_open) { // the idle connections may have broken with it
                for (entry& each : entries_) {
                    each.is_open = each.is_open && each.is_used;
                }
            }
            e.is_open = is_open;
            e.idle_since = Clock::now();
            rest(e);
        }
        release(1);
    }

    void tidy() noexcept {
        close_idle();
        std::unique_lock held(lock_);
        is_armed_ = has_spare();
        if (is_armed_) {
            held.unlock();
            arm();
        }
    }
    // Without the lease monitor the connections stay open.
    void arm() noexcept {
        const std::int64_t at =
            durable::boottime_ms() + std::chrono::milliseconds(keep_idle).count();
        if (!try_to([&] { lease_monitor::here().alarm(tidier_, at); })) {
            const std::lock_guard held(
                lock_); // no thread or no memory: the next connection tries again
            is_armed_ = false;
        }
    }

    const key key_;
    mutable mutex lock_;
    std::vector<entry> entries_; // never resized
    semaphore turns_;            // a permit for each entry, minus refused_
    std::size_t refused_ = 0;    // under lock_, like the members below; less than the entries
    time ask_again_at_{};
    bool is_armed_ = false;
    const std::shared_ptr<tidier> tidier_;
};

// A slot's reference to a pool of this process.
template <class T> using shared_connection = shared_in_process<connection_pool<T>>;

}}} // namespace bide::BIDE_ABI::detail

#endif
