// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_JOIN_MAP_HPP
#define BIDE_SCHED_JOIN_MAP_HPP

/// \file
/// A join_set whose children have keys: each child is cancelled by its key, and join_next() returns
/// the key with the outcome.

#include <bide/sched/detail/add_under.hpp>
#include <bide/sched/join_set.hpp>
#include <bide/task/outcome.hpp>

#include <map>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// The keys of the children whose outcomes no call has taken, each with the handle of its child. If
// a child is cancelled while it is being made, the reason is noted. One lock guards the map. The
// comparison runs under the lock; keys are copied, moved and destroyed without it.
template <class Key, class Compare> class key_map {
    struct entry {
        cancel_handle child{}; // empty while the child is being made
        cancel_reason asked = cancel_reason::none;
    };
    using map = std::map<Key, entry, Compare>;
    using lock = lock_bits<native_platform, futex_word>;
    using guard = typename lock::guard;

public:
    using place = typename map::iterator;

    // Adds a key. Returns its place, and false if the map has the key already.
    // Throws: std::bad_alloc, and what Key and Compare throw; nothing changes then.
    std::pair<place, bool> add(const Key& key) {
        return add_under<guard>(lock_, map_, key,
                                [](place at, bool is_new) { return std::pair(at, is_new); });
    }

    // Returns the reason of a cancellation that came before this call; `none` if there was none.
    cancel_reason set(place at, cancel_handle to) noexcept {
        const guard section(lock_);
        at->second.child = std::move(to);
        return at->second.asked;
    }

    typename map::node_type remove(place at) noexcept {
        const guard section(lock_);
        return map_.extract(at);
    }

    // Cancels the child of a key, or notes the reason for set(). Returns false if the map does not
    // have the key, or if the child has ended.
    template <class K> bool cancel(const K& key, cancel_reason why) {
        cancel_handle child;
        {
            const guard section(lock_);
            const auto found = map_.find(key);
            if (found != map_.end() && found->second.child.id() == nullptr) {
                found->second.asked = why;
                return true;
            }
            if (found != map_.end()) {
                child = found->second.child;
            }
        }
        return child.cancel(why);
    }

    template <class K> bool contains(const K& key) {
        const guard section(lock_);
        return map_.find(key) != map_.end();
    }

private:
    native_platform::atomic<futex_word> lock_{0};
    map map_; // guarded by the lock
};

// A child of a join_map.
template <class Key, class T, class Compare> class join_map_child : public join_set_child<T> {
    using base = join_set_child<T>;
    using keys = key_map<Key, Compare>;

public:
    join_map_child(task_home& home, bool kept, join_set_state& of, keys& in,
                   typename keys::place& at) noexcept
        : base(home, kept, of), keys_(in), at_(at) {}

    // For join_operations:
    static constexpr bool keeps_all = true;
    using next_type = std::optional<std::pair<Key, outcome<T>>>;

    static next_type take_next(ended_children& from) {
        auto& c = static_cast<join_map_child&>(from.take_reserved());
        const typename base::last_reference mine{c};
        auto node = c.keys_.remove(c.at_);
        return next_type(std::in_place, std::move(node.key()),
                         detail::take_outcome(c.kept(), c.never_ran()));
    }

protected:
    ~join_map_child() = default;

private:
    keys& keys_;
    const typename keys::place at_;
};

} // namespace detail

/// Runs tasks that have keys on a scheduler or a run_loop. join_next() returns their keys and
/// outcomes in the order in which the tasks end. A child that fails cancels no other child. Two
/// children with equal keys never run at once: a key is in the map from the spawn of its child
/// until join_next() returns it. Each key is returned once, also after a cancellation.
///
/// \code
/// bide::join_map<std::string, page> downloads(workers);
/// for (const auto& url : urls) downloads.spawn(url, fetch(url));
/// downloads.cancel(urls.front()); // this one alone
/// while (auto next = co_await downloads.async_join_next()) {
///     auto& [url, got] = *next; // got is an outcome<page>: a value or a std::exception_ptr
/// }
/// \endcode
///
/// Thread safety: several threads may call the functions of a map at once, except the destructor. A
/// child may spawn and cancel.
/// Requires: Compare does not use the map, because a lock of the map is held during the call. A
/// child does not wait for its own map.
/// Destroys: cancels the children and waits for them.
template <class Key, class T = void, class Compare = std::less<>>
class join_map : public join_operations<detail::join_map_child<Key, T, Compare>> {
    static_assert(!std::is_reference_v<T>, "join_map of references: use pointers");

    using base = join_operations<detail::join_map_child<Key, T, Compare>>;

public:
    /// Constructs an empty map. Its children run on `where`.
    explicit join_map(task_runner& where) noexcept : base(where) {}

    /// Cancels the children and waits for them. Outcomes that no call has returned are dropped.
    /// Blocks: as ~join_set() does.
    /// Requires: no thread uses the map, except its children.
    ~join_map() { base::end(); }

    /// Starts a child. `source` is that of join_set::spawn().
    /// Returns: true if it was started; false if the map has the key already. `source` is destroyed
    /// then. If the child is cancelled while the call lasts, it never starts.
    /// Throws: std::bad_alloc, what the copy of the key and Compare throw, and what the call of a
    /// function that returns a task throws. The map does not have the key then.
    template <class S>
        requires(detail::is_source_of<T, S>)
    bool spawn(const Key& key, S source) {
        auto [at, is_new] = keys_.add(key);
        if (!is_new) {
            return false;
        }
        struct removal {
            ~removal() {
                if (from != nullptr) {
                    from->remove(where);
                }
            }
            detail::key_map<Key, Compare>* from;
            typename detail::key_map<Key, Compare>::place where;
        } unless_made{&keys_, at};
        auto& cell = base::make(std::move(source), keys_, at);
        unless_made.from = nullptr;
        const cancel_handle child = detail::cancel_access::handle_of(cell);
        if (const auto asked = keys_.set(at, child); asked != cancel_reason::none) {
            child.cancel(asked);
        }
        base::template start<void>(cell);
        return true;
    }

    using base::cancel;
    /// Cancels the child of a key. Its outcome is a stopped_error if it never started, or ended by
    /// one.
    /// Returns: false if the map does not have the key, or if the child has ended.
    template <class K>
        requires(!std::same_as<K, cancel_reason>)
    bool cancel(const K& key, cancel_reason why = cancel_reason::requested) {
        return keys_.cancel(key, why);
    }

    /// Returns true if the map has the key, a snapshot.
    template <class K> bool contains(const K& key) { return keys_.contains(key); }

private:
    detail::key_map<Key, Compare> keys_;
};

}} // namespace bide::BIDE_ABI

#endif
