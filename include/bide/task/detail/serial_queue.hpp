// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_DETAIL_SERIAL_QUEUE_HPP
#define BIDE_TASK_DETAIL_SERIAL_QUEUE_HPP

// The queue of a strand: many threads post, and one runner at a time takes. One word has the queue
// and says whether there is a runner:
//
//   idle      nullptr: nothing is queued, and there is no runner
//   running   the address of a mark: nothing was posted since the runner looked last
//   posted    the newest posted runnable; the older ones follow by `next`, down to the mark or to
//             nullptr. There is a runner, or the poster of the oldest one starts it.
//
// A post puts its runnable in front, by a CAS. If the word was idle, the poster starts a runner: that
// was one CAS, so exactly one poster starts it. The runner exchanges the word for the mark, and turns
// what it got around: first in, first out. When it has run all of that, it changes the mark to idle.
// If that CAS fails, runnables were posted meanwhile, whose posters have started no runner, and the
// runner takes these. So no runnable is left without a runner, and there are never two.
//
// The CAS to idle is the last access of a runner. The next runner is started by the poster that saw
// idle, so it sees all that the runner before has done [strand.hand_over].

#include <bide/core/config.hpp>
#include <bide/core/executor.hpp>

#include <atomic>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_serial_queue {
public:
    constexpr basic_serial_queue() noexcept = default;
    basic_serial_queue(const basic_serial_queue&) = delete;
    basic_serial_queue& operator=(const basic_serial_queue&) = delete;

    // Posts a runnable. Returns true if the caller must start the runner; otherwise this was the
    // last access.
    bool push(runnable& r) noexcept {
        // Order: relaxed; the CAS orders.
        runnable* seen = newest_.load(std::memory_order_relaxed);
        do {
            r.next = seen;
            // Order: acq_rel [strand.hand_over]; release: the runner sees the runnable. Acquire: a
            // runner that this thread starts sees what the one before has done. Failure: again.
        } while (!newest_.compare_exchange_weak(seen, &r, std::memory_order_acq_rel,
                                                std::memory_order_relaxed));
        return seen == nullptr;
    }

    // Called by the runner. Returns false if nothing is queued: the caller is the runner no longer, and
    // this was the last access.
    bool has_next() noexcept { return oldest_ != nullptr || take(); }

    // Called by the runner: takes the oldest runnable. Requires: has_next() has returned true.
    runnable& pop() noexcept {
        runnable& r = *oldest_;
        oldest_ = r.next;
        return r;
    }

    // Returns true if nothing is queued and there is no runner.
    bool is_idle() const noexcept {
        // Order: acquire [strand.hand_over]; the runner's accesses are over.
        return newest_.load(std::memory_order_acquire) == nullptr;
    }

private:
    template <class T> using var = typename Platform::template var<T>;

    bool take() noexcept {
        runnable* none = &mark_;
        // Order: release [strand.hand_over]; the poster that starts the next runner, and the
        // destructor of the strand, see what this runner has done. Failure: relaxed, the exchange
        // acquires.
        if (newest_.compare_exchange_strong(none, nullptr, std::memory_order_release,
                                            std::memory_order_relaxed)) {
            return false;
        }
        // Order: acquire [strand.hand_over]; the posted runnables. Each post is a read-modify-write,
        // so the acquire reaches all of them.
        oldest_ = oldest_first(newest_.exchange(&mark_, std::memory_order_acquire), &mark_);
        return true;
    }

    typename Platform::template atomic<runnable*> newest_{nullptr};
    runnable mark_;
    var<runnable*> oldest_{nullptr}; // only the runner uses it
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
