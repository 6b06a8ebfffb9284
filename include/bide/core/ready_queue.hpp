#ifndef BIDE_CORE_READY_QUEUE_HPP
#define BIDE_CORE_READY_QUEUE_HPP

// Where many threads post runnables to one owner, who sleeps while there are none. One word:
//
//   0            nothing posted, the owner is awake
//   sleeping     nothing posted, the owner sleeps or is about to
//   a pointer    the newest of what was posted; the rest hangs on its `next`
//
// The poster puts its runnable on top by CAS, release [Q1]; what it replaced says whether to wake.
// The owner goes to sleep by a CAS from 0 to sleeping: a runnable that came first makes it fail,
// one that comes after finds `sleeping` and wakes. The CAS is the poster's last touch of the queue,
// the wake uses the address alone: the owner may be told by a posted runnable to destroy the queue.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/futex.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/resume.hpp>

#include <cstdint>

namespace bide::inline BIDE_ABI {

template <class Platform> class basic_ready_queue {
public:
    constexpr basic_ready_queue() noexcept = default;
    basic_ready_queue(const basic_ready_queue&) = delete;
    basic_ready_queue& operator=(const basic_ready_queue&) = delete;

    // Any thread. `r` stays alive until the owner has popped it.
    void post(runnable& r) noexcept {
        const auto* const word = &top_;
        // Order: relaxed; the CAS decides.
        std::uintptr_t seen = top_.load(std::memory_order_relaxed);
        do {
            r.next = seen == sleeping ? nullptr : reinterpret_cast<runnable*>(seen);
            // Order: release [Q1]; the runnable and what the poster did before. Failure: look
            // again.
        } while (!top_.compare_exchange_weak(seen, reinterpret_cast<std::uintptr_t>(&r),
                                             std::memory_order_release, std::memory_order_relaxed));
        if (seen == sleeping) {
            futex_wake<Platform>(word, 1);
        }
    }

    // The owner: the oldest runnable, or nullptr when there is none by the deadline.
    // Blocks: until then.
    runnable* pop(deadline until) noexcept {
        for (;;) {
            if (runnable* const r = taken_.pop()) {
                return r;
            }
            if (take_all()) {
                continue;
            }
            if (until.is_poll()) {
                return nullptr;
            }
            std::uintptr_t seen = 0;
            // Order: relaxed; it asks to be woken and publishes nothing. Failure: take_all looks
            // again.
            if (top_.compare_exchange_strong(seen, sleeping, std::memory_order_relaxed,
                                             std::memory_order_relaxed) &&
                !futex_wait<Platform>(top_, sleeping, until)) {
                until = deadline::poll();
            }
        }
    }

private:
    static constexpr std::uintptr_t sleeping = 1; // no runnable has an odd address

    // Moves what was posted to taken_, turned round: newest first becomes oldest first.
    bool take_all() noexcept {
        // Order: acquire [Q1]; the runnables and what their posters did before.
        const std::uintptr_t top = top_.exchange(0, std::memory_order_acquire);
        if (top == 0 || top == sleeping) {
            return false;
        }
        runnable* turned = nullptr;
        for (auto* r = reinterpret_cast<runnable*>(top); r != nullptr;) {
            runnable* const older = r->next;
            r->next = turned;
            turned = r;
            r = older;
        }
        while (turned != nullptr) {
            runnable* const newer = turned->next;
            taken_.push(*turned);
            turned = newer;
        }
        return true;
    }

    typename Platform::template atomic<std::uintptr_t> top_{0};
    detail::run_list taken_; // the owner's
};

} // namespace bide::inline BIDE_ABI

#endif
