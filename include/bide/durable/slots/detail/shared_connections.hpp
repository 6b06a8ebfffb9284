#ifndef BIDE_DURABLE_SLOTS_DETAIL_SHARED_CONNECTIONS_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SHARED_CONNECTIONS_HPP

// What all slots of a process share: one object for each key, which goes with its last user, and
// connections that are used in turn.
//
// A child of fork() gets objects of its own. Another thread of the parent may have been changing an
// object when the process was forked, so the child never runs the destructor of what it inherited.
// The child calls leave() on it, which closes descriptors at most, and keeps its memory.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/process_wide.hpp>
#include <bide/core/platform.hpp>
#include <bide/sync/mutex.hpp>

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include <unistd.h>

namespace bide::inline BIDE_ABI {
namespace detail {

// A reference to this process's T for a key. A T has
//
//   using key = ...;            ordered, with everything by which two of them differ
//   explicit T(const key&);     with the table locked: it neither blocks nor connects
//   void leave() noexcept;      in a child of fork(): instead of the destructor
template <class T> class shared_in_process {
public:
    using key = typename T::key;

    explicit shared_in_process(key of) : key_(std::move(of)) {}

    const key& of() const noexcept { return key_; }

    // Makes it where this process has none.
    // Throws: std::bad_alloc.
    T& get() {
        if (held_ == nullptr || held_->process != ::getpid()) {
            held_ = find(key_);
        }
        return held_->object;
    }

    // This user needs it no more, until the next get().
    void reset() noexcept { held_.reset(); }

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
        entry* inherited = nullptr;                  // under lock: kept, as nothing can destroy it
    };

    static table& here() {
        table* const found =
            process_wide<table, native_platform>::get([] { return new table; });
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
            delete last; // its place in the table goes with the next find()
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

// A connection that many slots use, one at a time, first come first served. A Connection has
//
//   using key = ...;                      as above
//   explicit Connection(const key&);
//   void disown() noexcept;               in a child of fork(): closes its descriptors, no more
template <class Connection> class turn_taking {
public:
    using key = typename Connection::key;

    explicit turn_taking(const key& of) : connection_(of) {}

    void leave() noexcept {
        // Order: acquire [SC1]; where the fork found it unused, the last user's changes are whole.
        if (!in_use_.load(std::memory_order_acquire)) {
            connection_.disown();
        }
    }

    // The connection, for as long as this lives.
    class turn {
    public:
        turn() = default;
        turn(turn&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
        turn& operator=(turn&&) = delete;
        ~turn() {
            if (of_ != nullptr) {
                // Order: release [SC1]; the changes of the connection come before.
                of_->in_use_.store(false, std::memory_order_release);
                of_->lock_.unlock();
            }
        }
        explicit operator bool() const noexcept { return of_ != nullptr; }
        Connection& operator*() const noexcept { return of_->connection_; }
        Connection* operator->() const noexcept { return &of_->connection_; }

    private:
        friend class turn_taking;
        explicit turn(turn_taking* of) noexcept : of_(of) {}
        turn_taking* of_ = nullptr;
    };

    // Blocks: until it is this caller's turn, or the deadline. Empty: not in time.
    turn take(std::chrono::steady_clock::time_point until) {
        if (!lock_.try_lock_until(until)) {
            return {};
        }
        // Order: seq_cst; a fork that finds a change of the connection finds this, too.
        in_use_.exchange(true, std::memory_order_seq_cst);
        return turn(this);
    }

private:
    mutex lock_;
    native_platform::atomic<bool> in_use_{false};
    Connection connection_; // under lock_
};

// Every slot has one of these for each of the connections that it uses.
template <class Connection>
using shared_connection = shared_in_process<turn_taking<Connection>>;

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
