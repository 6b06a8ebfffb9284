#ifndef BIDE_SCHED_DETAIL_FORK_LANE_HPP
#define BIDE_SCHED_DETAIL_FORK_LANE_HPP

// What a thread has that forks: its deque, and where it sleeps while it waits for a stolen arm. It
// is the thread's and not its worker's, which another thread takes over when this one blocks.
//
// Who waits for an arm that was stolen runs other arms meanwhile, but only of those that its thief
// has forked in the course of that arm (leapfrogging: Wagner, Calder, "Leapfrogging: A Portable
// Technique for Implementing Efficient Futures", PPoPP 1993). So what runs on top of a suspended
// frame has been forked below it: it would have run there without thieves, too. It cannot wait for a
// lock that the frame holds, unless it would do so with one thread, and the stack stays as deep.
//
// The thief may have ended the arm since it was last looked at, and have forked others. So one that
// was taken from there is looked at together with the arm that is waited for: where that has not
// ended even now, it has forked the other [J1]: it ends after all that it has forked. Otherwise the
// other is given back.

#include <bide/core/config.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/parker.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/spin.hpp>
#include <bide/sched/detail/fork_job.hpp>
#include <bide/sched/fork_deque.hpp>

#include <cstdint>
#include <new>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_pool;
template <class Platform> class basic_fork_lanes;

template <class Platform> class alignas(cache_line_pair) basic_fork_lane {
public:
    using job = basic_fork_job<Platform>;
    using depth_type = std::uint32_t;

    basic_fork_lane(basic_pool<Platform>& whose, const void* name) noexcept
        : home(name), pool_(whose) {}
    basic_fork_lane(const basic_fork_lane&) = delete;
    basic_fork_lane& operator=(const basic_fork_lane&) = delete;

    const void* const home; // of its pool's owner: what its threads know where they fork by

    // ---- The thread whose it is

    // Throws: std::bad_alloc, with nothing changed.
    void push(job& j) {
        if (deque_.push(j)) [[unlikely]] {
            wake();
        }
    }

    // What was pushed last. False: it was stolen; wait() for it.
    bool pop(depth_type at) noexcept {
        const fork_pop how = deque_.pop(at);
        if (how == fork_pop::mine) [[likely]] {
            return true;
        }
        if (how == fork_pop::mine_published) {
            wake();
        }
        return how != fork_pop::stolen;
    }

    // Until it has ended, or was given back: that is the answer.
    BIDE_NOINLINE typename job::end wait(job& mine, depth_type at) noexcept;

    // Runs what was taken from `from`.
    void run(job& j, basic_fork_lane& from) noexcept {
        if (j.run(*this)) {
            from.parker_.unpark();
        }
    }

    depth_type depth() const noexcept { return deque_.depth(); }
    bool wants_work() const noexcept { return deque_.wants_work(); }

    // What it forks is over before it is worth a wake: see fork_place.hpp.
    void set_brief(bool is) noexcept {
        // Order: relaxed; a hint.
        brief_.store(is, std::memory_order_relaxed);
    }

    // How long wakes have taken it since it was last asked.
    std::int64_t take_wake_ns() noexcept { return std::exchange(wake_ns_, 0); }

    // ---- Any thread

    job* steal() noexcept { return deque_.steal(); }
    bool is_empty() const noexcept { return deque_.is_empty_to_thieves(); }

    // Leaves to its owner what was taken from here.
    void give_back(job& j) noexcept {
        if (j.give_back()) {
            parker_.unpark();
        }
    }

    bool is_brief() const noexcept {
        // Order: relaxed; a hint.
        return brief_.load(std::memory_order_relaxed);
    }

private:
    friend basic_fork_lanes<Platform>;

    basic_fork_lane* older() const noexcept { return older_; }
    BIDE_COLD void wake() noexcept { wake_ns_ += pool_.fork_published(is_brief()); }

    basic_fork_deque<Platform, job> deque_;
    basic_pool<Platform>& pool_;
    std::int64_t wake_ns_ = 0; // the owner's
    typename Platform::template atomic<bool> brief_{false};
    basic_parker<Platform> parker_;

    // Under the lock of all lanes:
    typename Platform::template var<basic_fork_lane*> next_free_{nullptr};
    // Set once, before others find it:
    typename Platform::template var<basic_fork_lane*> older_{nullptr};
};

template <class Platform>
auto basic_fork_lane<Platform>::wait(job& mine, depth_type at) noexcept -> typename job::end {
    auto how = job::end::none;
    for (;;) {
        basic_fork_lane* thief = nullptr;
        job* other = nullptr;
        basic_spin<Platform>::until([&]() noexcept {
            how = mine.look(thief);
            if (how == job::end::none && thief != nullptr) {
                other = thief->steal();
            }
            return how != job::end::none || other != nullptr;
        });
        if (other != nullptr) {
            basic_fork_lane* now = nullptr;
            how = mine.look(now);
            if (how == job::end::none) {
                run(*other, *thief);
                continue;
            }
            thief->give_back(*other);
        }
        if (how != job::end::none) {
            break;
        }
        if (mine.sleep()) {
            parker_.park();
        }
    }
    deque_.reset(at);
    return how;
}

// All of a pool's, of those who fork now and those who have; none goes before the pool.
template <class Platform> class basic_fork_lanes {
public:
    using lane = basic_fork_lane<Platform>;
    using job = basic_fork_job<Platform>;

    basic_fork_lanes() noexcept = default;
    basic_fork_lanes(const basic_fork_lanes&) = delete;
    basic_fork_lanes& operator=(const basic_fork_lanes&) = delete;
    ~basic_fork_lanes() {
        // Order: relaxed; nobody forks any more.
        for (lane* at = newest_.load(std::memory_order_relaxed); at != nullptr;) {
            lane* const older = at->older();
            delete at;
            at = older;
        }
    }

    // One that is nobody's. nullptr: no memory.
    lane* take(basic_pool<Platform>& whose, const void* name) noexcept;

    // Requires: nothing is in it.
    void put(lane& mine) noexcept {
        lock::acquire(lock_);
        mine.next_free_ = static_cast<lane*>(free_);
        free_ = &mine;
        lock::release(lock_);
    }

    // The oldest arm of somebody's, and whose; nullptr: there is none. Who is asked first is by
    // chance.
    job* steal(std::uint64_t chance, lane*& from) noexcept;

    // The last look of a worker before it sleeps [I1].
    bool has_work() const noexcept {
        for (const lane* at = newest(); at != nullptr; at = at->older()) {
            if (!at->is_empty()) {
                return true;
            }
        }
        return false;
    }

private:
    using lock = lock_bits<Platform, std::uint32_t>;

    lane* newest() const noexcept {
        // Order: seq_cst [I1]; a lane that is not seen here has nothing that was published before
        // this thread said that it sleeps. Acquire [J3]; as it was made.
        return newest_.load(std::memory_order_seq_cst);
    }

    typename Platform::template atomic<std::uint32_t> lock_{0};
    typename Platform::template atomic<lane*> newest_{nullptr};
    // Under the lock:
    typename Platform::template var<lane*> free_{nullptr};
    // Order: relaxed; how many there are, about.
    typename Platform::template atomic<std::uint32_t> count_{0};
};

template <class Platform>
auto basic_fork_lanes<Platform>::take(basic_pool<Platform>& whose, const void* name) noexcept
    -> lane* {
    lock::acquire(lock_);
    lane* mine = free_;
    if (mine != nullptr) {
        free_ = static_cast<lane*>(mine->next_free_);
    }
    lock::release(lock_);
    if (mine != nullptr) {
        return mine;
    }
    mine = new (std::nothrow) lane(whose, name);
    if (mine == nullptr) {
        return nullptr;
    }
    lock::acquire(lock_);
    // Order: relaxed; it changes under the lock alone.
    mine->older_ = newest_.load(std::memory_order_relaxed);
    // Order: seq_cst [I1]; before anything is published there. Release [J3]; as it was made.
    newest_.store(mine, std::memory_order_seq_cst);
    // Order: relaxed; nothing depends on it.
    count_.fetch_add(1, std::memory_order_relaxed);
    lock::release(lock_);
    return mine;
}

template <class Platform>
auto basic_fork_lanes<Platform>::steal(std::uint64_t chance, lane*& from) noexcept -> job* {
    lane* const newest = this->newest();
    if (newest == nullptr) {
        return nullptr;
    }
    // Order: relaxed; see take().
    const std::uint32_t count = count_.load(std::memory_order_relaxed);
    lane* first = newest;
    for (std::uint64_t skip = count == 0 ? 0 : chance % count; skip > 0; --skip) {
        lane* const older = first->older();
        first = older != nullptr ? older : newest;
    }
    lane* at = first;
    do {
        if (job* const taken = at->steal()) {
            from = at;
            return taken;
        }
        lane* const older = at->older();
        at = older != nullptr ? older : newest;
    } while (at != first);
    return nullptr;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
