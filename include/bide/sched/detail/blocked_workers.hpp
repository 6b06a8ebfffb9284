// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_BLOCKED_WORKERS_HPP
#define BIDE_SCHED_DETAIL_BLOCKED_WORKERS_HPP

// What becomes of a worker when its thread blocks in a task.
//
// The thread first puts everything that the worker holds where other workers find it. It keeps the
// worker while another worker sleeps, because that sleeper is woken for new jobs. If no worker
// sleeps, another thread takes the worker over. The decision is made at two times: when the thread
// blocks, and when the last sleeper is about to run a job. Both read the idle word after they have
// changed it [idle.blocked].

#include <bide/core/config.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/platform.hpp>
#include <bide/sched/detail/worker.hpp>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_maintenance;
template <class Platform> class basic_pool_owner;
template <class Platform> class basic_work_queues;

template <class Platform> class basic_blocked_workers {
public:
    using worker = basic_worker<Platform>;
    using thread_role = basic_thread_role<Platform>;

    basic_blocked_workers(basic_pool_owner<Platform>& of, basic_work_queues<Platform>& queues,
                          basic_maintenance<Platform>& maintenance) noexcept
        : owner_(of), queues_(queues), maintenance_(maintenance) {}
    basic_blocked_workers(const basic_blocked_workers&) = delete;
    basic_blocked_workers& operator=(const basic_blocked_workers&) = delete;

    // The owner of `w` is about to block, and has returned from that. See worker_host.
    bool blocks(worker& w) noexcept;
    void unblocks(worker& w) noexcept;

    // If a worker is blocked and no worker sleeps, makes another thread run a blocked one.
    void replace_blocked() noexcept {
        take_over(
            [this, none = false](worker& other) mutable noexcept { return replace(other, none); });
    }

    // The same for a thread that will run the worker itself. Returns nullptr if there is no need.
    worker* take_blocked() noexcept {
        return take_over([this](worker& other) noexcept {
            return other.ownership.transfer([this]() noexcept {
                queues_.idle().add_blocked(-1);
                return true;
            });
        });
    }

    // Wakes that worker, if it sleeps: its thread may hand it over.
    void wake(worker& w) noexcept {
        queues_.unpark(queues_.idle().wake_worker(w.index) ? w.index : queues_.idle().none);
    }

private:
    bool replace(worker& w, bool& found_no_thread) noexcept;

    // If a worker is blocked and no worker sleeps, returns the first worker that take() accepts.
    template <class Take> worker* take_over(Take&& take) noexcept {
        if (queues_.idle().needs_replacement()) {
            for (worker& w : queues_.workers()) {
                if (take(w)) {
                    return &w;
                }
            }
        }
        return nullptr;
    }

    basic_pool_owner<Platform>& owner_;
    basic_work_queues<Platform>& queues_;
    basic_maintenance<Platform>& maintenance_;
};

template <class Platform> bool basic_blocked_workers<Platform>::blocks(worker& w) noexcept {
    bool found_no_thread = false;
    worker_local<Platform>::get().host = nullptr;
    queues_.hand_over(w);
    maintenance_.hand_over(w);
    w.ownership.block(&thread_role::here());
    if (queues_.idle().add_blocked(1) == 0 && replace(w, found_no_thread)) {
        thread_role::here().worker = nullptr;
    }
    return !found_no_thread;
}

template <class Platform> void basic_blocked_workers<Platform>::unblocks(worker& w) noexcept {
    thread_role& here = thread_role::here();
    if (here.worker != &w) {
        return;
    }
    if (w.ownership.unblock(&here)) {
        queues_.idle().add_blocked(-1);
        worker_local<Platform>::get().host = &w;
    } else {
        here.worker = nullptr;
    }
}

// If the owner of `w` is blocked, makes another thread run `w`. Returns false if the owner is not
// blocked, or if there is no thread: then the next thread that becomes free does it. Sets
// `found_no_thread` if no thread will become free later, either.
template <class Platform>
bool basic_blocked_workers<Platform>::replace(worker& w, bool& found_no_thread) noexcept {
    found_no_thread = false;
    const bool replaced = w.ownership.transfer([this, &w, &found_no_thread]() noexcept {
        queues_.idle().add_blocked(-1);
        found_no_thread = !owner_.replace(w);
        if (found_no_thread) {
            queues_.idle().add_blocked(1);
        }
        return !found_no_thread;
    });
    if (found_no_thread) {
        // After the transfer: a thread that comes earlier would find no blocked worker.
        found_no_thread = !owner_.request_replacement();
    }
    return replaced;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
