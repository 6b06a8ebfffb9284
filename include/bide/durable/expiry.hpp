// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_EXPIRY_HPP
#define BIDE_DURABLE_EXPIRY_HPP

/// \file
/// The judge that the rules of durable/record.hpp ask: decides when a lease expires.
///
/// \code
/// clock     a lease expires when                                       fit for
/// caller    its end is not after the caller's `now`                    replays, tests, one machine
/// boottime  the same on CLOCK_BOOTTIME, for leases of the same boot    one machine
/// server    the same on the store's clock                              several machines
/// observed  it was seen unchanged for longer than its length + drift   any machines, any clocks
/// \endcode
///
/// Times of one machine are not compared with the clock of another machine: if the clocks differed
/// by one tick, two contenders could hold the lock at once. `observed` only relies on clocks that
/// run at about the same rate (within `drift`). Its cost: a contender that sees a lease for the
/// first time waits for the whole length of the lease.
///
/// On the other clocks, too, a lease that was seen unchanged for that long has expired. With
/// `boottime`, only this rule applies to a contender that cannot read the times of the lease: the
/// holder has another boot id (a container may have its own), or a boot is not known. The first
/// contender of a known boot stores in the record since when it has seen the entry unchanged. So
/// even contenders that each live shorter than a lease acquire the lock.
///
/// On every clock, an entry that is bound to a process expires when the process ends. But a grant
/// stays until its minimum hold time has passed. A process of the same boot and pid namespace is
/// looked up by its pid. Any other one is looked up by its mark of presence (slot_presence), if the
/// store keeps marks. A grant that is bound to a mark and to no process lasts while the mark is
/// open, even after the end of its lease.

#include <bide/durable/process.hpp>

#include <array>
#include <unordered_map>

namespace bide { inline namespace BIDE_ABI { namespace durable {

/// Remembers since when, on this machine's boottime clock, each entry of a record has not changed.
/// Thread safety: one thread at a time.
class observations {
public:
    /// Notes the entries of a record that was read at `boottime` milliseconds or earlier.
    void note(const record& r, std::int64_t boottime) {
        ++round_;
        const auto note_one = [&](const auto& entry) {
            const seen_entry now{state_of(entry), boottime, round_};
            seen_entry& seen = seen_.try_emplace(entry.nonce, now).first->second;
            if (seen.of != now.of) {
                seen = now;
            }
            seen.round = round_;
        };
        std::for_each(r.holders.begin(), r.holders.end(), note_one);
        std::for_each(r.waiters.begin(), r.waiters.end(), note_one);
        if (seen_.size() > r.holders.size() + r.waiters.size()) {
            std::erase_if(seen_, [this](const auto& one) { return one.second.round != round_; });
        }
    }

    /// Returns for how many milliseconds, until the time `boottime`, the holder or waiter has been
    /// seen unchanged; 0 if it was not seen before.
    template <class Entry> std::int64_t still_for(const Entry& e, std::int64_t boottime) const {
        const auto known = seen_.find(e.nonce);
        const bool is_known = known != seen_.end() && known->second.of == state_of(e);
        return is_known ? boottime - known->second.since : 0;
    }

private:
    // Each grant, renewal, refresh and new place in the queue changes one of these values. The
    // count of a waiter alone is not enough: it begins at 0 again if the waiter enters again.
    using state = std::array<std::int64_t, 4>;
    struct seen_entry {
        state of;
        std::int64_t since;
        std::uint64_t round; // the round in which it was seen last
    };

    static state state_of(const holder& h) noexcept {
        return {h.fence, h.renewals, h.lease_ms, h.expires_at};
    }
    static state state_of(const waiter& w) noexcept {
        return {0, w.refreshes, w.ttl_ms, w.expires_at};
    }

    std::uint64_t round_ = 0;
    std::unordered_map<std::string, seen_entry> seen_;
};

/// Knows processes without a system call for each question.
class process_knowledge {
public:
    /// Returns true if the process certainly runs; false if that is not known.
    virtual bool runs(const origin& it) const noexcept = 0;

    /// Returns what the store says about a mark.
    virtual presence is_present(std::int64_t) const { return presence::unknown; }

protected:
    ~process_knowledge() = default;
};

/// Decides whether an entry has expired: by a clock, by observation, or by the end of its process.
/// Requires: `here`, `processes` and the observations of bounded_by() outlive the judge.
class expiry_judge {
public:
    /// Constructs a judge for a clock that shows `now` (with lock_clock::observed, not used: see
    /// bounded_by()). The judge asks `processes`, if any, before it asks the system.
    expiry_judge(lock_clock clock, std::int64_t now, const origin& here,
                 const process_knowledge* processes = nullptr) noexcept
        : clock_(clock), now_(now), here_(&here), processes_(processes) {}

    /// Returns a copy of this judge with one more rule: an entry has also expired if it was seen
    /// unchanged for longer than its length plus `drift` times its length (0.1 means a tenth).
    /// Requires: `boottime` is boottime_ms() before the load of the record that `seen` noted last.
    expiry_judge bounded_by(const observations& seen, std::int64_t boottime,
                            double drift) const noexcept {
        expiry_judge more = *this;
        more.seen_ = &seen;
        more.looked_ = boottime;
        more.drift_ = drift;
        return more;
    }

    /// Tells whether the lease of a holder has expired, or its process has ended.
    bool expired(const holder& h) const {
        if (h.from.pid == 0 && ask(h.from.mark) == presence::yes) {
            return false;
        }
        return is_over(h, h.lease_ms) || (!is_held(h) && has_gone(h.from));
    }
    /// Tells whether a waiter has expired. The process is looked up only for a waiter at the head
    /// of the queue, because a later waiter delays no contender.
    bool expired(const waiter& w, bool at_head) const {
        return is_over(w, w.ttl_ms) || (at_head && has_gone(w.from));
    }

private:
    // Returns true if the minimum hold time of the grant has not passed, or if that is not known.
    bool is_held(const holder& h) const noexcept {
        const std::int64_t now = clock_ == lock_clock::observed ? looked_ : now_;
        return h.held_until > now ||
               (h.held_until != 0 && !detail::reads_times(clock_, h.held_boot, here_->boot));
    }
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

    template <class Entry> bool is_over(const Entry& e, std::int64_t length_ms) const {
        if (clock_ != lock_clock::observed && e.expires_at <= now_ &&
            detail::reads_times(clock_, e.from.boot, here_->boot)) {
            return true;
        }
        if (seen_ == nullptr) {
            return false;
        }
        std::int64_t still = seen_->still_for(e, looked_);
        if (clock_ == lock_clock::boottime && !here_->boot.empty()) {
            if (const stored_observation* const by = detail::find_observation(e, here_->boot)) {
                still = std::max(still, looked_ - by->since);
            }
        }
        return still >
               length_ms + static_cast<std::int64_t>(static_cast<double>(length_ms) * drift_);
    }

    lock_clock clock_;
    std::int64_t now_;
    const origin* here_;
    const process_knowledge* processes_;
    const observations* seen_ = nullptr;
    std::int64_t looked_ = 0;
    double drift_ = 0;
};

}}} // namespace bide::BIDE_ABI::durable

#endif
