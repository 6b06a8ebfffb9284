// Six tasks that each take a lock once. After Tokio's benches/sync_semaphore.rs and sync_rwlock.rs.

#include "sched/job.hpp"
#include "sched/pools.hpp"
#include "sched/workloads.hpp"

#include <bide/sched/scheduler.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/sync/shared_mutex.hpp>
#include <bide/task/join_handle.hpp>
#include <bide/task/task.hpp>

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace bench {
namespace {

bide::task<> take(bide::semaphore& s) { static_cast<void>(co_await s.async_acquire()); }

bide::task<> read(bide::shared_mutex& m) { static_cast<void>(co_await m.async_lock_shared()); }

bide::task<> join_all(std::vector<bide::join_handle<>>& handles) {
    for (bide::join_handle<>& handle : handles) {
        co_await std::move(handle).async_join();
    }
}

bide::task<> take_all(bide::scheduler& s, bide::semaphore& permits, std::uint64_t count) {
    std::vector<bide::join_handle<>> handles;
    handles.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
        handles.push_back(s.spawn(take(permits)));
    }
    co_await join_all(handles);
}

bide::task<> semaphore_uncontended(bide::scheduler& s, std::uint64_t count) {
    bide::semaphore permits(10);
    co_await take_all(s, permits, count);
}

bide::task<> semaphore_contended(bide::scheduler& s, std::uint64_t count) {
    bide::semaphore permits(5);
    co_await take_all(s, permits, count);
}

// A writer has it while the readers are spawned, or no task has.
bide::task<> read_all(bide::scheduler& s, std::uint64_t count, bool contended) {
    bide::shared_mutex m;
    std::unique_lock<bide::shared_mutex> writing(m, std::defer_lock);
    if (contended) {
        writing = co_await m.async_lock();
    }
    std::vector<bide::join_handle<>> handles;
    handles.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
        handles.push_back(s.spawn(read(m)));
    }
    if (contended) {
        writing.unlock();
    }
    co_await join_all(handles);
}

bide::task<> rwlock_uncontended(bide::scheduler& s, std::uint64_t count) {
    return read_all(s, count, false);
}

bide::task<> rwlock_contended(bide::scheduler& s, std::uint64_t count) {
    return read_all(s, count, true);
}

} // namespace

void add_locks(harness& h) {
    struct shape {
        const char* table;
        const char* note;
        const char* tokio;
        bide_root root;
    };
    for (const shape& each : {
             shape{"locks/semaphore", "six tasks, ten permits", "semaphore_uncontended",
                   semaphore_uncontended},
             shape{"locks/semaphore_contended", "six tasks, five permits", "semaphore_contended",
                   semaphore_contended},
             shape{"locks/rwlock", "six readers", "rwlock_uncontended", rwlock_uncontended},
             shape{"locks/rwlock_contended", "six readers, behind a writer", "rwlock_contended",
                   rwlock_contended},
         }) {
        run_table t(h, each.table, each.note, 6, us_a_run());
        t.add(tokio_peer, each.tokio);
        add_bide_roots(t, each.root);
        t.finish();
    }
}

} // namespace bench
