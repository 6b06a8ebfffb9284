// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_SINGLE_FLIGHT_HPP
#define BIDE_SCHED_SINGLE_FLIGHT_HPP

/// \file
/// Runs one task for all callers that ask for the same key at the same time, and gives each of them
/// a copy of its value. So a value that expires in a cache is loaded once, however many requests
/// miss it.

#include <bide/sched/detail/add_under.hpp>
#include <bide/sched/task_group.hpp>
#include <bide/sync/event.hpp>
#include <bide/task/outcome.hpp>

#include <map>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// A flight is one run of a task, the work, for the callers of a key. The table has the flights that
// a caller may still join. One lock guards the table and the fields of the flights. The comparison
// of keys runs under the lock; keys are copied and destroyed without it.
//
// The first caller of a key makes the flight and starts the work. Each caller counts itself in
// under the lock, waits for the event `landed`, and counts itself out. If the last caller leaves
// before the work has ended, it takes the flight out of the table and cancels the work. So no
// caller joins a flight whose work is cancelled.
//
// When the work has ended, it takes the flight out of the table, so a later caller begins another
// one. Then it sets `landed`. A caller that leaves early may be the last one meanwhile, so the work
// counts as one more owner until the set() has returned. The last owner destroys the flight.
template <class Key, class Flight, class Compare, class Platform> struct basic_flight {
    template <class T> using var = typename Platform::template var<T>;

    basic_event<Platform> landed; // the work has ended, and its outcome is stored
    // Guarded by the lock:
    var<std::size_t> callers{1};
    var<bool> is_listed{true};
    var<bool> is_over{false}; // the work has ended
    var<bool> is_owned{true}; // by the work
    typename std::map<Key, Flight*, Compare>::iterator at;
};

// Flight derives from basic_flight. It has a member `work`: what cancels the work.
template <class Key, class Flight, class Compare, class Platform> class basic_flight_table {
    using map = std::map<Key, Flight*, Compare>;
    using lock = lock_bits<Platform, futex_word>;
    using guard = typename lock::guard;

public:
    // Counts the caller in. If there is no flight of the key, makes one, and returns true as the
    // second value. The caller then starts the work.
    // Throws: std::bad_alloc, and what Key and Compare throw; nothing changes then.
    std::pair<Flight*, bool> join(const Key& key) {
        {
            const guard section(lock_);
            if (const auto found = map_.find(key); found != map_.end()) {
                return {&count_in(*found->second), false};
            }
        }
        auto made = std::make_unique<Flight>();
        const auto list_or_join = [&](auto at, bool is_new) {
            if (is_new) {
                made->at = at;
            }
            return std::pair(is_new ? made.release() : &count_in(*at->second), is_new);
        };
        return add_under<guard>(lock_, map_, key, list_or_join, made.get());
    }

    // Counts the caller out. If it was the last one and the work has not ended, returns the `work`
    // of the flight, which the caller cancels.
    auto leave(Flight& f) noexcept {
        decltype(f.work) abandoned{};
        typename map::node_type unlisted; // destroyed after the lock is released
        bool is_last = false;
        {
            const guard section(lock_);
            f.callers = f.callers - 1;
            if (f.callers == 0) {
                unlisted = unlist(f);
                if (!f.is_over) {
                    abandoned = std::move(f.work);
                }
                is_last = !f.is_owned;
            }
        }
        if (is_last) {
            delete &f;
        }
        return abandoned;
    }

    // Called when the work has ended, or was destroyed before its start.
    void land(Flight& f) noexcept {
        {
            typename map::node_type unlisted;
            const guard section(lock_);
            unlisted = unlist(f);
            f.is_over = true;
        }
        f.landed.set();
        bool is_last = false;
        {
            const guard section(lock_);
            f.is_owned = false;
            is_last = f.callers == 0;
        }
        if (is_last) {
            delete &f;
        }
    }

    // Takes the flight of the key out of the table.
    template <class K> void forget(const K& key) {
        typename map::node_type unlisted;
        const guard section(lock_);
        if (const auto found = map_.find(key); found != map_.end()) {
            unlisted = unlist(*found->second);
        }
    }

private:
    static Flight& count_in(Flight& f) noexcept {
        f.callers = f.callers + 1;
        return f;
    }
    typename map::node_type unlist(Flight& f) noexcept {
        if (!f.is_listed) {
            return {};
        }
        f.is_listed = false;
        return map_.extract(f.at);
    }

    typename Platform::template atomic<futex_word> lock_{0};
    map map_; // guarded by the lock
};

template <class Key, class T, class Compare>
struct flight : basic_flight<Key, flight<Key, T, Compare>, Compare, native_platform> {
    std::optional<outcome<T>> end; // empty: the work never ran
    cancel_handle work;            // set by the first caller
};

// Calls land(), in its destructor.
template <class Table, class Flight> class landing {
public:
    landing(Table& in, Flight& its) noexcept : table_(in), of_(&its) {}
    landing(landing&& other) noexcept
        : table_(other.table_), of_(std::exchange(other.of_, nullptr)) {}
    landing& operator=(landing&&) = delete;
    ~landing() {
        if (of_ != nullptr) {
            table_.land(*of_);
        }
    }
    Flight& flight() const noexcept { return *of_; }

private:
    Table& table_;
    Flight* of_;
};

template <class Landing, class S> task<> fly(Landing mine, S work) {
    auto& end = mine.flight().end;
    BIDE_TRY { end.emplace(co_await bide::as_outcome(std::move(work))); }
    BIDE_CATCH { end.emplace(unexpect, std::current_exception()); } // of a move of the value
}

} // namespace detail

/// Runs one task for all callers that ask for the same key at the same time: Go's singleflight. The
/// work is a separate task on a runner, so a caller that is cancelled cancels no other caller. If
/// the last caller leaves, the work is cancelled. A work that must run to its end has a
/// this_task::shield. A flight begins with its first caller and ends with its work; its value or
/// exception is not kept for later callers.
///
/// \code
/// bide::single_flight<std::string, page> loads(workers);
/// // in any number of tasks; load(url) begins once, the other tasks of load(url) never begin:
/// page p = co_await loads.async_run(url, load(url));
/// // in a thread:
/// page q = bide::sync_wait(loads.async_run(url, load(url)));
/// \endcode
///
/// T is copied for each caller: use a std::shared_ptr for what is large. T may be void. All callers
/// get the same exception object, so they must not change it. (libstdc++ counts its references
/// without ThreadSanitizer seeing that, which may report a race with its destruction.)
///
/// Thread safety: several threads may call the functions at once, except the destructor.
/// Requires: Compare does not use the single_flight, because a lock is held during the call. A work
/// does not ask for its own key.
/// Destroys: waits for the works that were cancelled.
template <class Key, class T = void, class Compare = std::less<>> class single_flight {
    static_assert(std::is_void_v<T> || std::is_copy_constructible_v<T>,
                  "bide: single_flight copies its value for each caller");
    using flight = detail::flight<Key, T, Compare>;
    using table = detail::basic_flight_table<Key, flight, Compare, native_platform>;

public:
    /// Constructs an object without flights. The works run on `where`. They inherit the deadline
    /// and the values of the running task, and not those of their callers.
    explicit single_flight(task_runner& where) noexcept : works_(where) {}
    single_flight& operator=(single_flight&&) = delete;

    /// Waits for works that were cancelled and have not ended.
    /// Blocks: as ~task_group() does.
    /// Requires: no task of async_run() exists that was awaited.
    ~single_flight() = default;

    /// Returns a task. When it is awaited, it joins the flight of the key. If there is none, it
    /// begins one, which runs `work`: a task<T>, or a function that returns a task<T>. Otherwise
    /// `work` never begins. The value is that of the work of the flight.
    /// Throws: when awaited, what the work of the flight throws, which is a stopped_error if the
    /// runner has shut down, or if the first caller had no memory to start the work; what the copy
    /// of the value or the key and Compare throw; stopped_error, if the awaiting task is
    /// cancelled; std::bad_alloc.
    /// Cancellation: the wait ends. The work is cancelled if no other caller waits for it. A later
    /// caller then begins another flight, even if the cancelled work has not ended yet.
    template <detail::task_source S>
        requires(std::same_as<detail::task_value_t<S>, T>)
    task<T> async_run(Key key, S work) {
        const auto [joined, is_first] = flights_.join(key);
        struct leave_at_end {
            ~leave_at_end() { in.leave(of).cancel(); }
            table& in;
            flight& of;
        } const mine{flights_, *joined};
        if (is_first) {
            detail::landing<table, flight> lands(flights_, mine.of);
            mine.of.work = works_.spawn_with_handle(detail::fly(std::move(lands), std::move(work)));
        }
        co_await mine.of.landed.async_wait();
        const std::optional<outcome<T>>& end = mine.of.end;
        if (!end) {
            detail::throw_error(errc::stopped);
        }
        if (!*end) {
            std::rethrow_exception(end->error());
        }
        if constexpr (!std::is_void_v<T>) {
            co_return **end;
        }
    }

    /// Ends the sharing of the flight of a key, for example because its value is out of date: its
    /// callers get its value, and a later caller begins another flight.
    template <class K> void forget(const K& key) { flights_.forget(key); }

private:
    table flights_;
    task_group works_;
};

}} // namespace bide::BIDE_ABI

#endif
