#ifndef BIDE_SCHED_DETAIL_FORK_JOB_HPP
#define BIDE_SCHED_DETAIL_FORK_JOB_HPP

// The arm of a join that another thread may take: it stands in the join's frame. The thread that has
// taken it and the owner, who waits for it, agree on one word:
//
//   0                  its owner's, or taken just now
//   a lane's address   a thief runs it; there is what it has forked in its turn
//   the same | sleeps  and the owner sleeps, or is about to
//   sleeps             taken just now, and the owner sleeps
//   done               it has ended, with a value
//   failed             it has ended, with an exception
//   returned           nobody has run it: the owner is to
//   these | sleeps     the same, and then the owner was about to sleep
//   (any other: never)
//
// Each step is one read-modify-write that keeps or returns what the other side has said, so either
// the owner does not go to sleep or the thief wakes it. Its end is the thief's last touch of the
// job, which goes with the owner's frame.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>

#include <cstdint>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_fork_lane;

template <class Platform> class basic_fork_job {
    using lane = basic_fork_lane<Platform>;
    using word = std::uintptr_t;

public:
    // Runs it to its end, and keeps what came out. True: an exception.
    using function = bool (*)(basic_fork_job&) noexcept;

    explicit basic_fork_job(function call) noexcept : run_(call) {}
    basic_fork_job(const basic_fork_job&) = delete;
    basic_fork_job& operator=(const basic_fork_job&) = delete;

    enum class end : std::uint8_t { none, done, failed, returned };

    // ---- Who has taken it

    // Runs it, with that lane. True: the owner sleeps.
    [[nodiscard]] bool run(lane& on) noexcept {
        // Order: release [J2]; the lane as it was made.
        state_.fetch_or(reinterpret_cast<word>(&on), std::memory_order_release);
        return finish(run_(*this) ? failed : done);
    }

    // Leaves it to its owner. True: the owner sleeps.
    [[nodiscard]] bool give_back() noexcept { return finish(returned); }

    // ---- The owner

    // What became of it; none: nothing yet, and `thief` is who runs it, if that is known.
    end look(lane*& thief) const noexcept {
        // Order: acquire [J1] [J2]; what the thief left, and the lane as it was made.
        const word seen = state_.load(std::memory_order_acquire);
        thief = seen > highest_end ? reinterpret_cast<lane*>(seen & ~sleeps) : nullptr;
        return end_of(seen);
    }

    // It is going to sleep. False: it need not, for that has ended.
    [[nodiscard]] bool sleep() noexcept {
        // Order: relaxed; whoever is woken, or finds the end, looks again.
        return end_of(state_.fetch_or(sleeps, std::memory_order_relaxed)) == end::none;
    }

private:
    // Lanes are at larger addresses, and at multiples of more than these.
    static constexpr word sleeps = 1;
    static constexpr word done = 2;
    static constexpr word failed = 4;
    static constexpr word returned = 6;
    static constexpr word highest_end = returned | sleeps;

    static end end_of(word seen) noexcept {
        return seen <= highest_end ? static_cast<end>(seen / done) : end::none;
    }

    bool finish(word how) noexcept {
        // Order: release [J1]; all that the thief did is seen by the owner.
        return (state_.exchange(how, std::memory_order_release) & sleeps) != 0;
    }

    const function run_;
    typename Platform::template atomic<word> state_{0};
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
