#ifndef BIDE_DURABLE_SLOTS_DETAIL_CONNECTION_POOL_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_CONNECTION_POOL_HPP

// Connections to one place, which all slots of a process share. A call takes an idle connection. If
// none is idle and fewer than the bound are open, it opens another one. Else it waits for its turn,
// first come first served, until its deadline.
//
//   a call that hangs    occupies one connection; the others serve the other calls
//   a broken connection  is opened anew by the next call that gets it. The idle ones may have broken
//                        with it, so they are opened anew, too
//   a refusal            If the server refuses one more connection and others are open, the pool
//                        lives with those: the call waits for its turn on one of them. The pool asks
//                        again later, and at once for all when a connection was opened
//   no more need         Connections that were idle for `keep_idle` are closed, but for the last one

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/durable/detail/vigil.hpp>
#include <bide/durable/detail/watched.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/slots/detail/shared_connections.hpp>
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

namespace bide::inline BIDE_ABI {
namespace detail {

// How many connections to one server a process opens for calls. A server commits calls of several
// connections with one write to its disk, so the throughput grows with their number. But the
// connections of a server are few, 100 for all clients of a PostgreSQL server unless it is told
// otherwise.
inline constexpr std::size_t most_call_connections = 8;

// A Connection, of which one caller at a time has the turn, has
//
//   using key = ...;                       ordered; key.most_connections() is the pool's bound
//   explicit Connection(const key&);
//   std::error_code make_ready(Until);     opens it, unless it is usable
//   bool is_open() const noexcept;         it was opened, and no call has lost it
//   bool is_usable() noexcept;             and nothing has happened to its socket meanwhile
//   void drop() noexcept;                  closes it; neither waits nor asks the server
//   void disown() noexcept;                in a child of fork(): closes its descriptors, no more
//
// `Clock` is what idle times and pauses are measured with.
template <class Connection, class Clock = std::chrono::steady_clock> class connection_pool {
    struct entry;

public:
    using key = typename Connection::key;

    static constexpr std::chrono::seconds keep_idle{10};
    static constexpr std::chrono::seconds ask_again_after{5};

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
            // Order: acquire [CP1]; where the fork found it at rest, its last user's changes are
            // whole.
            if (each.is_at_rest.load(std::memory_order_acquire)) {
                each.connection->disown();
            }
        }
    }

    // A connection, for as long as this lives.
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
        turn(connection_pool* pool, entry* of) noexcept : pool_(pool), entry_(of) {}
        connection_pool* pool_ = nullptr;
        entry* entry_ = nullptr;
    };

    // No error: the connection is open. An error and a turn: it cannot be opened, and no other one is
    // open. timed_out and no turn: other callers had the connections for all the time.
    struct taken {
        turn of{};
        std::error_code error{};
    };

    // Blocks: until it is this caller's turn and the connection is open, or the deadline, which is a
    // time of the steady clock or a bide::deadline.
    template <class Until> taken take(Until until);

    // Closes what was idle for too long. Never waits.
    void close_idle() noexcept;

    // Snapshots: how many connections are open, as far as is known, and how many callers wait for
    // their turn.
    std::size_t open() const {
        const std::lock_guard held(lock_);
        return count_open();
    }
    std::size_t waiting() const noexcept { return turns_.waiters(); }

private:
    using time = typename Clock::time_point;

    struct entry {
        // The connection is there, and is not in use: a child of fork() may close it.
        native_platform::atomic<bool> is_at_rest{false};
        std::optional<Connection> connection{}; // its user's; without one, under lock_
        bool is_used = false;                   // under lock_, as what follows
        bool is_open = false;                   // as far as is known
        time idle_since{};
    };

    // Told by the vigil when it is time to close_idle().
    struct tidier final : watched {
        explicit tidier(connection_pool* pool) : of(pool) {}
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

    using steady_time = std::chrono::steady_clock::time_point;
    static steady_time time_of(steady_time end) noexcept { return end; }
    static steady_time time_of(deadline end) noexcept {
        return steady_time(std::chrono::nanoseconds(end.steady_ns()));
    }

    // With the lock.
    std::size_t count_open() const noexcept {
        return static_cast<std::size_t>(
            std::count_if(entries_.begin(), entries_.end(), [](auto& e) { return e.is_open; }));
    }
    void use(entry& e) noexcept {
        e.is_used = true;
        // Order: seq_cst; a fork that finds a change of the connection finds this, too.
        e.is_at_rest.exchange(false, std::memory_order_seq_cst);
    }
    void rest(entry& e) noexcept {
        e.is_used = false;
        // Order: release [CP1]; the changes of the connection come before.
        e.is_at_rest.store(e.connection.has_value(), std::memory_order_release);
    }

    // An idle connection besides one that is open: close_idle() has something to do, now or later.
    bool has_spare() const noexcept {
        return std::count_if(entries_.begin(), entries_.end(), [](const entry& e) {
                   return e.is_open || (!e.is_used && e.connection && e.connection->is_open());
               }) > 1;
    }

    // Permits of the semaphore, which has no more of them than there are entries.
    void release(std::size_t n) noexcept { turns_.release(static_cast<std::ptrdiff_t>(n)); }
    std::size_t forget(std::size_t n) noexcept {
        return static_cast<std::size_t>(turns_.forget_permits(static_cast<std::ptrdiff_t>(n)));
    }

    entry& pick();
    void ask_again() noexcept;
    bool give_up(turn& refused) noexcept;
    void note_open(entry& e) noexcept;
    void give_back(entry& e) noexcept;
    void tidy() noexcept;
    void arm() noexcept;

    const key key_;
    mutable mutex lock_;
    std::vector<entry> entries_; // never resized
    semaphore turns_;            // a permit for each entry, but for `refused_` ones
    std::size_t refused_ = 0; // under lock_, as what follows; less than the entries
    time ask_again_at_{};
    bool is_armed_ = false;
    const std::shared_ptr<tidier> tidier_;
};

template <class Connection, class Clock>
template <class Until>
auto connection_pool<Connection, Clock>::take(Until until) -> taken {
    for (;;) {
        if (!turns_.try_acquire()) {
            ask_again();
            if (!turns_.try_acquire_until(time_of(until))) {
                return {{}, std::make_error_code(std::errc::timed_out)};
            }
        }
        turn mine(this, &pick());
        entry& own = *mine.entry_;
        if (!own.connection) {
            own.connection.emplace(key_);
        }
        const std::error_code error = mine->make_ready(until);
        if (!error) {
            note_open(own);
            return {std::move(mine), {}};
        }
        if (!give_up(mine)) {
            return {std::move(mine), error};
        }
    }
}

// Of those that nobody uses, of which a permit promises one: the first open one, so that the later
// ones stay idle.
template <class Connection, class Clock>
auto connection_pool<Connection, Clock>::pick() -> entry& {
    const std::lock_guard held(lock_);
    entry* found = nullptr;
    for (entry& each : entries_) {
        if (!each.is_used && (found == nullptr || (each.is_open && !found->is_open))) {
            found = &each;
        }
    }
    use(*found);
    if (!found->is_open && found->connection) {
        found->connection->drop(); // others broke: what its socket looks like proves nothing
    }
    return *found;
}

// A server that has refused a connection may take one.
template <class Connection, class Clock>
void connection_pool<Connection, Clock>::ask_again() noexcept {
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

// The connection cannot be opened. True: others are open, one of which has to do, and the turn is
// over. False: none is, so it is not for their number.
template <class Connection, class Clock>
bool connection_pool<Connection, Clock>::give_up(turn& refused) noexcept {
    std::size_t more = 0;
    bool is_given_up = false;
    {
        const std::lock_guard held(lock_);
        refused.entry_->is_open = false;
        for (entry& each : entries_) {
            if (!each.is_used && each.connection) {
                each.is_open = each.connection->is_usable();
            }
        }
        const std::size_t open = count_open();
        if (open != 0) {
            // As many permits stay as connections are open. Free ones would lead to a refusal each.
            const std::size_t excess = std::max(entries_.size() - refused_, open) - open;
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

template <class Connection, class Clock>
void connection_pool<Connection, Clock>::note_open(entry& e) noexcept {
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

template <class Connection, class Clock>
void connection_pool<Connection, Clock>::give_back(entry& e) noexcept {
    {
        const std::lock_guard held(lock_);
        const bool is_open = e.connection && e.connection->is_open();
        if (e.is_open && !is_open) { // the idle ones may have broken with it
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

template <class Connection, class Clock>
void connection_pool<Connection, Clock>::close_idle() noexcept {
    while (turns_.try_acquire()) {
        entry* idle = nullptr;
        std::unique_lock held(lock_);
        const time before = Clock::now() - keep_idle;
        for (entry& each : entries_) {
            if (!each.is_used && each.connection && each.connection->is_open() &&
                each.idle_since <= before) {
                idle = &each; // the last one: the first ones are used most
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

template <class Connection, class Clock>
void connection_pool<Connection, Clock>::tidy() noexcept {
    close_idle();
    std::unique_lock held(lock_);
    is_armed_ = has_spare();
    if (is_armed_) {
        held.unlock();
        arm();
    }
}

// Without the vigil the connections stay open.
template <class Connection, class Clock> void connection_pool<Connection, Clock>::arm() noexcept {
    const std::int64_t at = durable::boottime_ms() + std::chrono::milliseconds(keep_idle).count();
#if BIDE_EXCEPTIONS
    try {
        vigil::here().alarm(tidier_, at);
    } catch (...) { // no thread, or no memory: asked again with the next connection
        const std::lock_guard held(lock_);
        is_armed_ = false;
    }
#else
    vigil::here().alarm(tidier_, at);
#endif
}

// Every slot has one of these for each of the pools that it uses.
template <class Connection>
using shared_connection = shared_in_process<connection_pool<Connection>>;

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
