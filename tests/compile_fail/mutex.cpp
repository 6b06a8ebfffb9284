#include <bide/sync/mutex.hpp>
#include <bide/sync/scoped_lock.hpp>
#include <bide/sync/synchronized_value.hpp>

#include <mutex>
#include <utility>

namespace mutex_is_not_movable { // 1: deleted (function|constructor)|is deleted
#if BIDE_MISUSE != 1
bide::mutex make() { return bide::mutex(); } // elided: nothing moves
#else
bide::mutex make(bide::mutex& from) { return std::move(from); }
#endif
} // namespace mutex_is_not_movable

int mutex_try_lock_is_not_discarded() { // 2: nodiscard
    bide::mutex m;
#if BIDE_MISUSE != 2
    return m.try_lock() ? 0 : 1;
#else
    m.try_lock(); // locked or not?
#endif
}

void scoped_lock_is_not_unnamed() { // 3: name it
    bide::mutex a;
    bide::mutex b;
#if BIDE_MISUSE != 3
    const bide::scoped_lock held(a, b);
#else
    bide::scoped_lock(a, b); // unlocked at once
#endif
}

void scoped_lock_takes_mutexes_only() { // 4: pass the mutexes, not a std::unique_lock
    bide::mutex a;
    bide::mutex b;
#if BIDE_MISUSE != 4
    const bide::scoped_lock held(a, b);
#else
    std::unique_lock lock(a, std::defer_lock);
    const bide::scoped_lock held(lock, b); // in the order of the locks' addresses: deadlocks
#endif
}

void synchronized_value_has_no_bare_reference() { // 5: no match for|indirection requires pointer operand
    bide::synchronized_value<int> value(1);
#if BIDE_MISUSE != 5
    *value.lock() = 2;
#else
    *value = 2;
#endif
}

int synchronized_value_keeps_its_value_private() { // 6: private
    bide::synchronized_value<int> value(1);
#if BIDE_MISUSE != 6
    return value.with([](int& inside) { return inside; });
#else
    return value.value_;
#endif
}

void synchronized_value_waits_only_with_our_mutexes() { // 7: constraints? not satisfied|unsatisfied constraints|invalid reference to function
#if BIDE_MISUSE != 7
    bide::synchronized_value<int> value(1);
#else
    bide::synchronized_value<int, std::mutex> value(1); // it knows no coroutines
#endif
    [[maybe_unused]] const auto operation = value.async_lock();
}
