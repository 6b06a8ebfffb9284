#include <bide/core/async_op.hpp>
#include <bide/core/result.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/scoped_lock.hpp>
#include <bide/sync/synchronized_value.hpp>

#include <mutex>
#include <utility>

bide::mutex mutex_is_not_movable(bide::mutex& from) { // deleted (function|constructor)|is deleted
    return from.try_lock() ? bide::mutex() : bide::mutex(); // elided: nothing moves
    //! return std::move(from);
}

int mutex_try_lock_is_not_discarded(bide::mutex& m) { // nodiscard
    return m.try_lock() ? 0 : 1;
    //! m.try_lock(); // locked or not?
}

void scoped_lock_is_not_unnamed(bide::mutex& a, bide::mutex& b) { // name it
    const bide::scoped_lock held(a, b);
    //! bide::scoped_lock(a, b); // unlocked at once
}

void scoped_lock_takes_mutexes_only(bide::mutex& a) { // pass the mutexes, not a std::unique_lock
    bide::mutex b;
    std::unique_lock lock(a, std::defer_lock);
    const bide::scoped_lock held(a, b);
    //! const bide::scoped_lock held(lock, b); // in the order of the locks' addresses: deadlocks
}

using synchronized_int = bide::synchronized_value<int>;

void synchronized_value_has_no_bare_reference() { // no match for|indirection requires pointer operand
    synchronized_int value(1);
    *value.lock() = 2;
    //! *value = 2;
}

int synchronized_value_keeps_its_value_private(synchronized_int& value) { // private
    return value.with([](int& inside) { return inside; });
    //! return value.value_;
}

void synchronized_value_waits_only_with_our_mutexes() { // constraints? not satisfied|unsatisfied constraints|invalid reference to function
    bide::synchronized_value<int> value(1);
    //! bide::synchronized_value<int, std::mutex> value(1); // it knows no coroutines
    [[maybe_unused]] const auto operation = value.async_lock();
}
