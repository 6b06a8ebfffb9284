#include <bide/core/async_op.hpp>
#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/lock_operations.hpp>
#include <bide/sync/shared_mutex.hpp>
#include <bide/task/task.hpp>

#include <mutex>
#include <shared_mutex>

bide::adaptive_mutex mutex;
int sum BIDE_THREAD_SAFETY(guarded_by(mutex)) = 0;
bide::shared_mutex shared;
int setting BIDE_THREAD_SAFETY(guarded_by(shared)) = 0;

void add(int n) BIDE_THREAD_SAFETY(requires_capability(mutex)) { sum += n; }

void guarded_data_is_not_written_without_the_mutex(int n) { // requires holding mutex 'mutex'
    bide::lock_guard lock(mutex);
    sum += n;
    //! } void unguarded(int n) { sum += n;
}

void mutex_is_unlocked_at_the_end(int n) { // not held on every path
    if (!mutex.try_lock())
        return;
    sum += n;
    mutex.unlock();
    //! sum += n;
}

void function_is_not_called_without_its_mutex(int n) { // requires holding mutex 'mutex'
    bide::lock_guard lock(mutex);
    //! (void)n;
    add(n);
}

void reader_does_not_write() { // requires holding mutex 'shared' exclusively
    shared.lock();
    ++setting;
    shared.unlock_and_lock_shared();
    (void)setting;
    //! ++setting;
    shared.unlock_shared();
}

bide::task<> task_locks_before_it_writes(int n) { // requires holding mutex 'mutex'
    auto lock = co_await mutex.async_lock();
    mutex.assume_locked();
    //! (void)lock;
    sum += n;
}

void lock_of_std_is_assumed(int n) { // requires holding mutex 'mutex'
    std::unique_lock lock(mutex);
    mutex.assume_locked();
    //! (void)lock;
    sum += n;
}

int shared_lock_is_assumed() { // requires holding mutex 'shared'
    std::shared_lock lock(shared);
    shared.assume_locked_shared();
    //! (void)lock;
    return setting;
}
