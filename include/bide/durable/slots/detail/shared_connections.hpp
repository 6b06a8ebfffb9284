#ifndef BIDE_DURABLE_SLOTS_DETAIL_SHARED_CONNECTIONS_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SHARED_CONNECTIONS_HPP

// What all slots of a process share: one object for each key, which goes with its last user.
//
// A child of fork() gets objects of its own. Another thread of the parent may have been changing an
// object when the process was forked, so the child never runs the destructor of what it inherited.
// The child calls leave() on it, which closes descriptors at most, and keeps its memory.

#include <bide/core/config.hpp>
#include <bide/core/detail/process_wide.hpp>
#include <bide/core/platform.hpp>
#include <bide/sync/mutex.hpp>

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

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
