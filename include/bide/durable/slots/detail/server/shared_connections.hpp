// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SERVER_SHARED_CONNECTIONS_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SERVER_SHARED_CONNECTIONS_HPP

// Objects that all slots of a process share: one object for each key. Its last user destroys it.
//
// A child of fork() makes objects of its own. At the fork, another thread of the parent may have
// been changing an object. Therefore the child never runs the destructor of an inherited object. It
// calls leave(), which closes descriptors at most, and keeps the object's memory.

#include <bide/core/config.hpp>
#include <bide/core/detail/process_wide.hpp>
#include <bide/core/platform.hpp>
#include <bide/sync/mutex.hpp>

#include <compare>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

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

// A reference to this process's T for a key. A T has
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

}}} // namespace bide::BIDE_ABI::detail

#endif
