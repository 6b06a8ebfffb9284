#ifndef BIDE_DURABLE_EXPIRY_HPP
#define BIDE_DURABLE_EXPIRY_HPP

// When a lease is over, and on whose clock: the judges that the rules of durable/record.hpp ask.
//
//   clock     a lease is over when                                     fit for
//   caller    its time is not after the caller's `now`                 replays, tests, one machine
//   boottime  the same on CLOCK_BOOTTIME, if it is of the same boot    one machine
//   server    the same on the store's clock                            several machines
//   observed  it was seen unchanged for its whole length and a margin  several machines, any clocks
//
// A time that one machine wrote must not be read on another's clock: with the caller's own clocks
// one tick apart two contenders may hold at once. `observed` reads nobody's times. It relies on
// clocks that go at about the same rate only (within `drift`); the price is that a lease found on
// first sight is waited for in full.
//
// Observation also bounds the other clocks: a lease that was seen unchanged for its length and the
// margin is over, wherever its clock was set. And it takes the place of the boottime clock where
// that cannot be read: the holder is of another boot (a container may show another boot id, or have
// a time namespace), or a boot is not known. Then contenders of one boot, which is known, observe
// together: the first one stores in the record since when it has seen the entry. So contenders that
// each live shorter than a lease get in, too.
//
// Whatever the clock, a contender that is bound to a process is gone when the process is. A process
// of the same boot and namespace is looked up by its pid; any other by its mark, if the store keeps
// marks. A hold of a mark alone lasts as long as the mark, whatever the clock says. The resource's
// fencing tokens hold where every clock fails.

#include <bide/core/config.hpp>
#include <bide/durable/detail/record_entries.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/slot.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>

namespace bide::inline BIDE_ABI {
namespace durable {

// What one contender has seen of the others, for lock_clock::observed: since when each has not
// moved, on this machine's boottime clock.
class observations {
public:
    // Takes note of a record that was just read, at `boottime` milliseconds or somewhat later.
    void note(const record& r, std::int64_t boottime) {
        ++round_;
        for (const holder& h : r.holders) {
            note(h.nonce, state_of(h), boottime);
        }
        for (const waiter& w : r.waiters) {
            note(w.nonce, state_of(w), boottime);
        }
        if (seen_.size() > r.holders.size() + r.waiters.size()) {
            std::erase_if(seen_, [this](const auto& one) { return one.second.round != round_; });
        }
    }

    // For how many milliseconds it has stood still, up to `boottime`. 0: first seen now.
    std::int64_t still_for(const holder& h, std::int64_t boottime) const {
        return still_for(h.nonce, state_of(h), boottime);
    }
    std::int64_t still_for(const waiter& w, std::int64_t boottime) const {
        return still_for(w.nonce, state_of(w), boottime);
    }

private:
    // What is another with each grant, renewal, refresh and new place in the queue. The count alone
    // would not do: who has lost its place and comes back begins to count anew. The times are not
    // read, only compared with what they were.
    struct state {
        std::int64_t fence;
        std::int64_t moves;
        std::int64_t length;
        std::int64_t expires_at;

        friend bool operator==(const state&, const state&) = default;
    };
    struct sighting {
        state of;
        std::int64_t since;
        std::uint64_t round; // in which it was seen last
    };

    static state state_of(const holder& h) noexcept {
        return {h.fence, h.renewals, h.lease_ms, h.expires_at};
    }
    static state state_of(const waiter& w) noexcept {
        return {0, w.refreshes, w.ttl_ms, w.expires_at};
    }

    void note(const std::string& nonce, const state& of, std::int64_t boottime) {
        const auto [known, is_new] = seen_.try_emplace(nonce, sighting{of, boottime, round_});
        if (!is_new && known->second.of != of) {
            known->second = {of, boottime, round_};
        }
        known->second.round = round_;
    }
    std::int64_t still_for(const std::string& nonce, const state& of, std::int64_t boottime) const {
        const auto known = seen_.find(nonce);
        return known != seen_.end() && known->second.of == of ? boottime - known->second.since : 0;
    }

    std::uint64_t round_ = 0;
    std::unordered_map<std::string, sighting> seen_;
};

// Who knows of processes without asking the system for each again.
class process_knowledge {
public:
    // It runs for certain; false: that is not known.
    virtual bool runs(const origin& it) const noexcept = 0;

    // What the store says of a mark.
    virtual presence is_present(std::int64_t) const { return presence::unknown; }

protected:
    ~process_knowledge() = default;
};

// Judges by a clock, by what was observed, and by what is known of processes. Refers to what it is
// given.
class expiry_judge {
public:
    // caller, server: `now` on that clock. boottime: boottime_ms().
    expiry_judge(lock_clock clock, std::int64_t now, const origin& here) noexcept
        : clock_(clock), now_(now), here_(&here) {}

    // observed: see bounded_by().
    expiry_judge(const observations& seen, std::int64_t boottime, double drift,
                 const origin& here) noexcept
        : expiry_judge(lock_clock::observed, 0, here) {
        *this = bounded_by(seen, boottime, drift);
    }

    // The same judge, for which what has stood still for its length and `drift` (0.1: a tenth) of it
    // is over, too. `boottime`: boottime_ms() before the record was loaded of which `seen` has taken
    // note.
    expiry_judge bounded_by(const observations& seen, std::int64_t boottime,
                            double drift) const noexcept {
        expiry_judge more = *this;
        more.seen_ = &seen;
        more.looked_ = boottime;
        more.drift_ = drift;
        return more;
    }

    // The same judge, which asks there before it asks the system; nullptr: the system only.
    expiry_judge knowing(const process_knowledge* processes) const noexcept {
        expiry_judge more = *this;
        more.processes_ = processes;
        return more;
    }

    bool expired(const holder& h, std::int64_t grace_ms) const {
        if (h.from.pid == 0 && ask(h.from.mark) == presence::yes) {
            return false;
        }
        // A process that is gone may still have something on its way: then its time counts.
        return is_over(h, h.lease_ms, grace_ms) || (grace_ms == 0 && has_gone(h.from));
    }
    // Of those who wait only the first ones are looked up: who is not in front keeps nobody waiting.
    bool expired(const waiter& w, bool at_head) const {
        return is_over(w, w.ttl_ms, 0) || (at_head && has_gone(w.from));
    }

private:
    bool has_gone(const origin& it) const {
        if (processes_ != nullptr && processes_->runs(it)) {
            return false;
        }
        if (can_look_up(it, *here_)) {
            return is_gone(it, *here_);
        }
        return ask(it.mark) == presence::no;
    }
    presence ask(std::int64_t mark) const {
        return mark != 0 && processes_ != nullptr ? processes_->is_present(mark)
                                                  : presence::unknown;
    }

    template <class Entry>
    bool is_over(const Entry& e, std::int64_t length_ms, std::int64_t grace_ms) const {
        const bool has_clock = clock_ != lock_clock::observed &&
                               (clock_ != lock_clock::boottime || is_of_this_boot(e.from));
        return (has_clock && e.expires_at + grace_ms <= now_) ||
               (seen_ != nullptr && has_stood_still(e, length_ms, grace_ms));
    }
    template <class Entry>
    bool has_stood_still(const Entry& e, std::int64_t length_ms, std::int64_t grace_ms) const {
        const auto margin = static_cast<std::int64_t>(static_cast<double>(length_ms) * drift_);
        return std::max(seen_->still_for(e, looked_), observed_for(e)) >
               length_ms + margin + grace_ms;
    }
    // For how long contenders of this boot have seen it as it is now, by what they stored.
    template <class Entry> std::int64_t observed_for(const Entry& e) const noexcept {
        const bool has_clock = clock_ == lock_clock::boottime && !here_->boot.empty();
        const stored_observation* const by =
            has_clock ? detail::find_observation(e, here_->boot) : nullptr;
        return by != nullptr ? looked_ - by->since : 0;
    }
    bool is_of_this_boot(const origin& it) const noexcept {
        return it.boot == here_->boot && !it.boot.empty();
    }

    lock_clock clock_;
    std::int64_t now_;
    const origin* here_;
    const observations* seen_ = nullptr;
    std::int64_t looked_ = 0;
    double drift_ = 0;
    const process_knowledge* processes_ = nullptr;
};

} // namespace durable
} // namespace bide::inline BIDE_ABI

#endif
