#include <bide/durable/expiry.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/record.hpp>

#include <support/stress.hpp>
#include <support/test.hpp>

// The rules are compared with a model, which has the same rules in the most obvious form, by long
// random runs: the outcomes and the records must be the same after every step. In addition, a grant
// is in the record until the lease that its holder was told has expired, unless it was released or
// taken away. A run that fails is shortened, step by step, while it still fails, and then printed.

namespace {

using namespace bide::durable;
using namespace bide;

constexpr int most_contenders = 8;

// ---- the model

// When contenders of a boot saw an entry, and its state then.
struct model_observation {
    int boot = 0;
    std::int64_t stamp = 0; // of the entry
    std::int64_t since = 0; // in true time
};

struct model_entry {
    std::string nonce{};
    std::int64_t weight = 0;
    std::int64_t length = 0;
    std::int64_t ends = 0;
    int boot = 0;
    std::int64_t mark = 0;
    std::int64_t moves = 0;
    std::int64_t fence = 0;
    std::int64_t stamp = 0; // a new number each time it was written
    std::deque<model_observation> observed{};
};
using model_waiter = model_entry;
struct model_holder : model_entry {
    std::int64_t lane = 0;
    std::int64_t held = 0; // the end of its minimum hold time; 0: none
    int held_boot = 0;     // on whose clock
    bool rests = false;
};

struct model {
    std::int64_t permits = 1;
    std::int64_t next_fence = 1;
    bool is_resized = false;
    std::deque<model_holder> holders{};
    std::deque<model_waiter> waiters{};
};

// Since when one contender has seen each stamp.
using observed_times = std::map<std::int64_t, std::int64_t>;

// ---- one step of a run

enum class what {
    acquire,
    renew,
    release,
    withdraw,
    late_release,
    late_renew,
    force,
    resize,
    move,     // goes on in the other boot
    set_back, // the clock
    end_mark, // its processes end
    lose,     // the newest record; and acquires at once
    vanish
};

struct step {
    what is{};
    int by = 0;            // contender
    std::int64_t pass = 0; // time, before
    std::int64_t weight = 1;
    std::int64_t lease = 1;
    std::int64_t ttl = 1;
    std::int64_t at_least = 0;
    bool undo = false;
    bool enqueue = true;
    bool stored = true;    // false: its compare-and-swap came too late, and changed nothing
    std::int64_t pick = 0; // chooses the entry that is taken away, or the permits
};

// Options of a run.
struct besides {
    bool bounded = false; // observation bounds leases
    int boots = 0;        // the number of boots, whose clocks differ
    bool brief = false;   // each try is of a new process
    bool marked = false;  // grants are bound to marks alone
    bool adopts = false;  // contenders adopt different numbers of permits
    bool holds = false;   // grants have minimum hold times
    bool mishaps = false; // records are lost
};

struct course {
    lock_clock clock = lock_clock::caller;
    besides with{};
    std::int64_t permits = 1;
    std::size_t max_waiters = 5;
    std::vector<step> steps{};
};

std::string shown(const course& c) {
    static constexpr const char* names[] = {
        "acquire", "renew", "release",  "withdraw",        "late release", "late renew", "force",
        "resize",  "move",  "set back", "end of its mark", "lose",         "vanish"};
    std::ostringstream text;
    text << std::boolalpha << "permits " << c.permits << ", clock " << static_cast<int>(c.clock)
         << ", bounded " << c.with.bounded << ", boots " << c.with.boots << ", brief "
         << c.with.brief << ", marked " << c.with.marked << ", adopts " << c.with.adopts
         << ", holds " << c.with.holds << "\n";
    for (const step& s : c.steps) {
        text << "  +" << s.pass << " " << s.by << " " << names[static_cast<std::size_t>(s.is)]
             << ": weight " << s.weight << ", lease " << s.lease << ", ttl " << s.ttl
             << ", at least " << s.at_least << ", undo " << s.undo << ", enqueue " << s.enqueue
             << ", stored " << s.stored << ", pick " << s.pick << "\n";
    }
    return text.str();
}

// The real rules and the model, side by side.
class pair_of {
public:
    explicit pair_of(const course& c)
        : clock_(c.clock), max_waiters_(c.max_waiters), with_(c.with) {
        model_.permits = c.permits;
        begin();
        last_real_ = real_;
        last_model_ = model_;
    }

    // Returns where the two differ; empty if they do not.
    std::string run(const step& s) {
        now_ += s.pass;
        step_ = s;
        const record real_before = real_;
        const model model_before = model_;
        const auto grants_before = fence_of_;
        const std::int64_t largest_before = largest_;
        look(s.by);
        const std::string wrong = run_both(s);
        if (!wrong.empty()) {
            return wrong;
        }
        if (!step_.stored) {
            real_ = real_before;
            model_ = model_before;
            fence_of_ = grants_before;
            largest_ = largest_before;
        } else if (s.is != what::lose && real_ != real_before) {
            last_real_ = real_before;
            last_model_ = model_before;
        }
        const std::string broken = believe(s);
        return broken.empty() ? compare() : broken;
    }

private:
    static std::string nonce_of(int by) { return "n" + std::to_string(by); }

    // The record is new.
    void begin() {
        terms t{.permits = model_.permits, .clock = clock_, .first_fence = floor_of(now_)};
        real_ = fresh_record(t);
        model_.next_fence = now_ * 1024 + 1;
        model_.is_resized = false;
        model_.holders.clear();
        model_.waiters.clear();
    }

    bool is_observed() const {
        return clock_ == lock_clock::observed || with_.bounded || with_.boots != 0;
    }
    int boot_of(int by) const {
        return with_.boots != 0 ? 1 + (by + moved_[static_cast<std::size_t>(by)]) % with_.boots : 0;
    }
    // The time that the record's clock shows to a contender.
    std::int64_t time_of(int by) const { return now_ - set_back_ + ahead_of_first(boot_of(by)); }
    static std::int64_t ahead_of_first(int boot) { return boot == 0 ? 0 : (boot - 1) * 700; }
    std::int64_t mark_of(int by) const {
        return with_.marked ? 1 + by + most_contenders * ended_[static_cast<std::size_t>(by)] : 0;
    }
    bool is_mark_gone(std::int64_t mark) const {
        return mark != 0 && mark != mark_of(static_cast<int>((mark - 1) % most_contenders));
    }
    origin origin_of(int by) const {
        origin from{.boot = boot_text(boot_of(by)), .mark = mark_of(by)};
        return from;
    }
    // Of one group or another.
    std::int64_t permits_of(int by) const { return with_.adopts ? 1 + by % 3 : real_.permits; }

    terms on_terms(const step& s) const {
        terms t{.permits = permits_of(s.by),
                .clock = clock_,
                .lease_ms = s.lease,
                .at_least_ms = s.at_least,
                .waiter_ttl_ms = s.ttl,
                .max_waiters = max_waiters_,
                .first_fence = floor_of(now_),
                .adopt_permits = with_.adopts,
                .enqueue = s.enqueue};
        return t;
    }

    // Asks for marks.
    struct knowledge final : process_knowledge {
        explicit knowledge(const pair_of& all) : of(&all) {}
        bool runs(const origin&) const noexcept override { return false; }
        bide::presence is_present(std::int64_t mark) const override {
            return of->is_mark_gone(mark) ? bide::presence::no : bide::presence::yes;
        }
        const pair_of* of;
    };

    expiry_judge judge(int by) {
        here_ = origin_of(by);
        const expiry_judge by_clock(clock_, time_of(by), here_, &knowledge_);
        const auto& seen = seen_[static_cast<std::size_t>(by)];
        return is_observed() ? by_clock.bounded_by(seen, time_of_look(by), 0) : by_clock;
    }

    void look(int by) {
        auto& seen = stamps_[static_cast<std::size_t>(by)];
        if (with_.brief) {
            seen.clear();
            seen_[static_cast<std::size_t>(by)] = observations();
        }
        observed_times now;
        const auto note = [&](const model_entry& e) {
            now[e.stamp] = seen.contains(e.stamp) ? seen[e.stamp] : now_;
        };
        std::for_each(model_.holders.begin(), model_.holders.end(), note);
        std::for_each(model_.waiters.begin(), model_.waiters.end(), note);
        seen = now;
        if (is_observed()) {
            seen_[static_cast<std::size_t>(by)].note(real_, time_of_look(by));
        }
    }
    // On the boottime clock, wherever the record's is.
    std::int64_t time_of_look(int by) const { return now_ + ahead_of_first(boot_of(by)); }

    // ---- the model's rules

    bool is_over(const model_entry& e) const {
        const auto& seen = stamps_[static_cast<std::size_t>(step_.by)];
        const auto at = seen.find(e.stamp);
        bool stood = at != seen.end() && now_ - at->second > e.length;
        for (const model_observation& o : e.observed) {
            stood = stood || (o.boot == boot_of(step_.by) && o.stamp == e.stamp &&
                              now_ - o.since > e.length);
        }
        return (is_observed() && stood) || (reads_times_of(e) && time_of(step_.by) >= e.ends);
    }
    bool reads_times_of(const model_entry& e) const {
        return clock_ != lock_clock::observed && (with_.boots == 0 || e.boot == boot_of(step_.by));
    }
    bool has_boots() const {
        return clock_ == lock_clock::boottime || clock_ == lock_clock::observed;
    }
    bool knows_hold(const model_holder& h) const {
        return !has_boots() || (with_.boots != 0 && h.held_boot == boot_of(step_.by));
    }
    bool is_held(const model_holder& h) const {
        return h.held != 0 && (!knows_hold(h) || h.held > time_of(step_.by));
    }
    void hold(model_holder& h, std::int64_t until) const {
        h.held = until;
        h.held_boot = has_boots() ? boot_of(step_.by) : 0;
    }
    bool is_gone(const model_holder& h) const {
        if (h.mark != 0 && !is_mark_gone(h.mark)) {
            return false;
        }
        return is_over(h) || (is_mark_gone(h.mark) && !is_held(h));
    }
    // Returns true if there was such an entry.
    bool drop_who_is_gone(model& m, const std::string& self) const {
        const std::size_t before = m.holders.size() + m.waiters.size();
        std::erase_if(m.holders, [&](const model_holder& h) { return is_gone(h); });
        bool in_front = true;
        for (auto w = m.waiters.begin(); w != m.waiters.end();) {
            const bool gone = is_over(*w) || (in_front && is_mark_gone(w->mark));
            if (w->nonce != self && gone) {
                w = m.waiters.erase(w);
            } else {
                in_front = false;
                ++w;
            }
        }
        return m.holders.size() + m.waiters.size() != before;
    }
    static std::int64_t free_in(const model& m) {
        std::int64_t taken = 0;
        for (const model_holder& h : m.holders) {
            taken += h.weight;
        }
        return m.permits - taken;
    }
    model_holder* held_by(const std::string& nonce) {
        for (model_holder& h : model_.holders) {
            if (h.nonce == nonce) {
                return &h;
            }
        }
        return nullptr;
    }
    void prolong(model_holder& h, std::int64_t lease) {
        const std::int64_t now = time_of(step_.by);
        const bool reads = !has_boots() || (with_.boots != 0 && h.boot == boot_of(step_.by));
        const std::int64_t rest = reads ? std::min(h.ends - now, h.length) : h.length; // at most
        if (h.held != 0 && !knows_hold(h)) {
            hold(h, rest > 0 ? now + rest : now);
        }
        h.length = rest > lease ? rest : lease;
        h.ends = reads ? std::max(h.ends, now + lease) : now + h.length;
        h.boot = boot_of(step_.by);
        ++h.moves;
        h.stamp = stamp_of(h);
        h.observed.clear();
    }
    // For observers, a contender that leaves and returns within one millisecond was not away; nor
    // did a contender that repeats its step after the record was lost.
    std::int64_t stamp_of(const model_entry& e) {
        const auto key = std::make_tuple(e.nonce, e.ends, e.length, e.moves, e.fence);
        if (!arrivals_.contains(key)) {
            arrivals_[key] = ++stamp_;
        }
        return arrivals_[key];
    }

    // The contender tells those of its boot since when it sees the others; of nine boots, one is
    // forgotten.
    bool model_observe(model_entry& e) const {
        const int boot = boot_of(step_.by);
        const auto is_stale = [&](const model_observation& o) { return o.stamp != e.stamp; };
        const auto is_mine = [&](const model_observation& o) { return o.boot == boot; };
        std::deque<model_observation> fresh;
        std::remove_copy_if(e.observed.begin(), e.observed.end(), std::back_inserter(fresh),
                            is_stale);
        if (with_.boots == 0 || clock_ == lock_clock::observed || e.boot == boot ||
            std::any_of(fresh.begin(), fresh.end(), is_mine)) {
            return false;
        }
        if (fresh.size() == 8) { // the golden ratio spreads the times over all of them
            const auto bits = static_cast<std::uint64_t>(time_of(step_.by)) * 0x9e3779b97f4a7c15U;
            fresh.erase(fresh.begin() + static_cast<std::ptrdiff_t>((bits >> 33) % 8));
        }
        fresh.push_back({boot, e.stamp, now_});
        e.observed = fresh;
        return true;
    }
    bool model_observe_others(const std::string& self) {
        bool changed = false;
        for (model_holder& h : model_.holders) {
            changed = model_observe(h) || changed;
        }
        for (model_waiter& w : model_.waiters) {
            changed = (w.nonce != self && model_observe(w)) || changed;
        }
        return changed;
    }

    struct model_answer {
        acquire_status status{};
        std::int64_t fence = 0;
        std::int64_t lane = 0;
        std::int64_t position = 0;
        bool changed = false;
        std::error_code error{};
    };

    model_answer model_refused(durable_errc why, bool changed = false) const {
        return {acquire_status::refused, 0, 0, 0, changed, make_error_code(why)};
    }

    std::int64_t free_lane() const {
        std::set<std::int64_t> lanes;
        for (const model_holder& h : model_.holders) {
            lanes.insert(h.lane);
        }
        std::int64_t lane = 0;
        for (; lanes.contains(lane); ++lane) {
        }
        return lane;
    }

    model_answer model_acquire(const step& s) {
        const std::string self = nonce_of(s.by);
        const std::int64_t now = time_of(s.by);
        const bool has_removed = drop_who_is_gone(model_, self);
        if (with_.adopts && !model_.is_resized && model_.permits != permits_of(s.by)) {
            if (model_.holders.size() + model_.waiters.size() != 0) {
                return model_refused(durable_errc::permits_mismatch, model_observe_others(self));
            }
            model_.permits = permits_of(s.by);
        }
        if (s.weight > model_.permits) {
            return model_refused(model_.permits == permits_of(s.by)
                                     ? durable_errc::too_heavy
                                     : durable_errc::permits_mismatch);
        }
        if (model_holder* const mine = held_by(self)) {
            if (mine->weight != s.weight) {
                return model_refused(durable_errc::invalid_argument);
            }
            prolong(*mine, s.lease);
            mine->mark = mark_of(s.by);
            return {acquire_status::held, mine->fence, mine->lane, 0, true, {}};
        }
        // The queue with the newcomer last: grants to the next waiter while there is room.
        std::deque<model_waiter> line = model_.waiters;
        const bool is_new =
            std::none_of(line.begin(), line.end(), [&](const auto& w) { return w.nonce == self; });
        if (is_new) {
            line.push_back({self, s.weight, s.ttl, now + s.ttl, boot_of(s.by), mark_of(s.by)});
        }
        std::int64_t room = free_in(model_);
        std::int64_t position = 0;
        for (const model_waiter& w : line) {
            if (w.nonce == self) {
                if (w.weight != s.weight) {
                    return model_refused(durable_errc::invalid_argument);
                }
                break;
            }
            room -= w.weight;
            ++position;
        }
        if (s.weight <= room) {
            const std::int64_t lane = free_lane();
            std::erase_if(model_.waiters, [&](const auto& w) { return w.nonce == self; });
            const std::int64_t fence = std::max(model_.next_fence, now_ * 1024 + 1);
            model_.next_fence = fence + 1;
            const std::int64_t length = s.at_least > s.lease ? s.at_least : s.lease;
            model_holder mine{
                {self, s.weight, length, now + length, boot_of(s.by), mark_of(s.by), 0, fence},
                lane};
            if (s.at_least != 0) {
                hold(mine, now + s.at_least);
            }
            mine.stamp = stamp_of(mine);
            model_.holders.push_back(mine);
            return {acquire_status::granted, fence, lane, 0, true, {}};
        }
        if (is_new) {
            if (!s.enqueue) {
                return {acquire_status::waiting, 0, 0, position, model_observe_others(self), {}};
            }
            if (model_.waiters.size() >= max_waiters_) {
                return model_refused(durable_errc::queue_full, model_observe_others(self));
            }
            line.back().stamp = stamp_of(line.back());
            model_.waiters = line;
            model_observe_others(self);
            return {acquire_status::waiting, 0, 0, position, true, {}};
        }
        model_waiter& mine = model_.waiters[static_cast<std::size_t>(position)];
        const std::int64_t rest = mine.ends - now;
        const bool is_stale = rest < s.ttl - s.ttl / 3 || rest > s.ttl ||
                              mine.boot != boot_of(s.by) || mine.mark != mark_of(s.by);
        if (is_stale) {
            mine.boot = boot_of(s.by);
            mine.mark = mark_of(s.by);
            mine.length = s.ttl;
            mine.ends = now + s.ttl;
            ++mine.moves;
            mine.stamp = stamp_of(mine);
            mine.observed.clear();
            model_observe_others(self);
        }
        const bool is_changed = is_stale || (has_removed && s.enqueue);
        return {acquire_status::waiting, 0, 0, position, is_changed, {}};
    }

    bool model_renew(const step& s, const std::string& nonce, std::int64_t fence) {
        model_holder* const mine = held_by(nonce);
        if (mine == nullptr || mine->fence != fence || is_gone(*mine)) {
            return false;
        }
        model_holder longer = *mine;
        prolong(longer, s.lease);
        if (is_mark_gone(longer.mark)) {
            return false;
        }
        *mine = longer;
        return true;
    }

    bool model_release(const step& s, const std::string& nonce, std::int64_t fence) {
        for (auto h = model_.holders.begin(); h != model_.holders.end(); ++h) {
            if (h->nonce == nonce && (fence == 0 || h->fence == fence)) {
                const std::int64_t now = time_of(s.by);
                const std::int64_t left = h->held == 0     ? 0
                                          : knows_hold(*h) ? std::min(h->length, h->held - now)
                                                           : h->length;
                if (s.undo || left <= 0) {
                    model_.holders.erase(h);
                    return true;
                }
                h->nonce = "rest-" + std::to_string(h->fence);
                h->length = left;
                h->ends = now + left;
                hold(*h, h->ends);
                h->boot = boot_of(s.by);
                h->mark = 0;
                h->rests = true;
                ++h->moves;
                h->stamp = stamp_of(*h);
                h->observed.clear();
                return true;
            }
        }
        return fence == 0 &&
               std::erase_if(model_.waiters, [&](const auto& w) { return w.nonce == nonce; }) != 0;
    }

    // ---- what holders believe

    // A holder believes in its lease, by its token, from the reply until the lease expires. Returns
    // a message if the record contradicts that.
    std::string believe(const step& s) {
        const auto is_kept = [&](std::int64_t fence, bool may_rest = true) {
            return std::any_of(real_.holders.begin(), real_.holders.end(), [&](const holder& h) {
                return h.fence == fence && (may_rest || !is_resting(h));
            });
        };
        const auto is_held = [&](std::int64_t fence) { return is_kept(fence, false); };
        const bool is_left = s.is == what::release || s.is == what::withdraw ||
                             s.is == what::late_release || s.is == what::force;
        if (s.is == what::lose || s.is == what::vanish || s.is == what::end_mark) {
            believed_.clear();
        }
        if (s.is == what::lose || s.is == what::vanish) {
            kept_.clear();
        }
        const bool is_taken = s.is == what::force || s.undo;
        std::erase_if(kept_, [&](const auto& one) {
            return one.second <= now_ || (is_taken && !is_kept(one.first));
        });
        for (const auto& [fence, until] : kept_) {
            if (!is_kept(fence)) {
                return "a hold ended before its minimum time";
            }
        }
        if (step_.stored && s.at_least != 0 && granted_ != 0) {
            kept_[granted_] = now_ + s.at_least;
        }
        std::erase_if(believed_, [&](const auto& one) {
            return one.second <= now_ || (is_left && !is_held(one.first));
        });
        for (const auto& [fence, until] : believed_) {
            if (!is_held(fence)) {
                return "a hold was taken away before its lease was over";
            }
        }
        if (step_.stored && told_ != 0) {
            believed_[told_] = std::max(believed_[told_], now_ + s.lease);
        }
        return "";
    }

    // ---- both

    std::string run_both(const step& s) {
        const std::string self = nonce_of(s.by);
        std::int64_t& fence = fence_of_[static_cast<std::size_t>(s.by)];
        told_ = granted_ = 0;
        switch (s.is) {
        case what::lose:
            ++now_;
            step_.stored = true;
            real_ = last_real_;
            model_ = last_model_;
            make_up_for_lost(real_, s.pick % 2 != 0, on_terms(s), time_of(s.by), origin_of(s.by));
            model_make_up(s);
            look(s.by);
            [[fallthrough]];
        case what::acquire: {
            const auto out = acquire(real_, {"same", self, s.weight, origin_of(s.by), {}},
                                     on_terms(s), time_of(s.by), judge(s.by));
            const auto due = model_acquire(s);
            if (out.status == acquire_status::granted && out.fence <= largest_) {
                return "a token that is not larger than all before";
            }
            largest_ = std::max(largest_, out.fence);
            if (out.status == acquire_status::granted || out.status == acquire_status::held) {
                fence = out.fence;
                told_ = fence;
                granted_ = out.status == acquire_status::granted ? fence : 0;
            }
            const bool same = out.status == due.status && out.fence == due.fence &&
                              out.lane == due.lane && out.position == due.position &&
                              out.changed == due.changed && out.error == due.error;
            if (s.is != what::lose && !due.changed) {
                // Neither stores the outcome.
                step_.stored = false;
            }
            return same ? "" : "acquire answers something else";
        }
        case what::renew:
        case what::late_renew: {
            const std::int64_t with = s.is == what::renew ? fence : s.pick;
            const auto out =
                renew(real_, self, with, on_terms(s), time_of(s.by), judge(s.by), origin_of(s.by));
            const bool due = model_renew(s, self, with);
            told_ = due ? with : 0;
            return !out == due ? "" : "renew answers something else";
        }
        case what::release:
        case what::late_release: {
            const std::int64_t with =
                s.is == what::release ? std::max<std::int64_t>(fence, 1) : s.pick + 1;
            return (release(real_, self, with, time_of(s.by), origin_of(s.by), {.undo = s.undo}) !=
                    release_status::not_there) == model_release(s, self, with)
                       ? ""
                       : "release answers something else";
        }
        case what::withdraw:
            return (release(real_, self, 0, time_of(s.by), origin_of(s.by), {.undo = s.undo}) !=
                    release_status::not_there) == model_release(s, self, 0)
                       ? ""
                       : "withdrawal answers something else";
        case what::force: {
            const std::int64_t which =
                std::max<std::int64_t>(1, model_.next_fence - 1 - s.pick % 4);
            const bool was_there =
                std::erase_if(model_.holders, [&](const auto& h) { return h.fence == which; }) != 0;
            return force_release(real_, which, {}) == was_there ? ""
                                                                : "force answers something else";
        }
        case what::resize:
            model_.permits = 1 + s.pick % 4;
            model_.is_resized = true;
            return resize(real_, model_.permits, {}) ? "" : "resize answers something else";
        case what::move:
            moved_[static_cast<std::size_t>(s.by)] += 1 + static_cast<int>(s.pick);
            seen_[static_cast<std::size_t>(s.by)] = observations();
            stamps_[static_cast<std::size_t>(s.by)].clear();
            return "";
        case what::set_back: set_back_ += 100 + s.pick * 37 % 400; return "";
        case what::end_mark: ++ended_[static_cast<std::size_t>(s.by)]; return "";
        case what::vanish:
            ++now_;
            begin();
            return "";
        }
        return "no such step";
    }

    void model_make_up(const step& s) {
        const std::int64_t before = model_.next_fence;
        const std::int64_t by_time = now_ * 1024 + 1;
        model_.next_fence = by_time > before ? by_time : before + (std::int64_t{1} << 20);
        std::int64_t length = std::max(s.lease, s.at_least);
        for (model_holder& h : model_.holders) {
            length = std::max(length, h.length);
            h.moves = model_.next_fence;
            h.stamp = stamp_of(h);
        }
        if (s.pick % 2 == 0) {
            return;
        }
        model_holder unknown{{"lost-" + std::to_string(before), model_.permits, length,
                              time_of(s.by) + length, boot_of(s.by), 0, 0, model_.next_fence - 1},
                             free_lane()};
        unknown.stamp = stamp_of(unknown);
        model_.holders.push_back(unknown);
    }

    std::string boot_text(int boot) const { return with_.boots != 0 ? std::to_string(boot) : ""; }
    template <class Real> bool same_observed(const Real& real, const model_entry& of) const {
        bool same = real.observed.size() == of.observed.size();
        for (std::size_t i = 0; same && i < of.observed.size(); ++i) {
            const stored_observation& a = real.observed[i];
            const model_observation& b = of.observed[i];
            same = a.boot == boot_text(b.boot) && a.since == b.since + ahead_of_first(b.boot);
        }
        return same;
    }

    std::string compare() const {
        bool same = real_.permits == model_.permits && real_.resized == model_.is_resized &&
                    real_.fence == model_.next_fence &&
                    real_.holders.size() == model_.holders.size() &&
                    real_.waiters.size() == model_.waiters.size();
        const auto is_same = [&](const auto& a, std::int64_t length, const model_entry& b) {
            return a.nonce == b.nonce && a.weight == b.weight && a.expires_at == b.ends &&
                   length == b.length && a.from.mark == b.mark &&
                   a.from.boot == boot_text(b.boot) && same_observed(a, b);
        };
        for (std::size_t i = 0; same && i < model_.holders.size(); ++i) {
            const holder& a = real_.holders[i];
            const model_holder& b = model_.holders[i];
            same = is_same(a, a.lease_ms, b) && a.fence == b.fence && a.lane == b.lane &&
                   a.held_until == b.held &&
                   a.held_boot == (b.held_boot != 0 ? boot_text(b.held_boot) : "");
        }
        for (std::size_t i = 0; same && i < model_.waiters.size(); ++i) {
            same = is_same(real_.waiters[i], real_.waiters[i].ttl_ms, model_.waiters[i]);
        }
        return same ? "" : "the records differ";
    }

    lock_clock clock_;
    std::size_t max_waiters_;
    besides with_;
    knowledge knowledge_{*this};
    std::vector<int> moved_ = std::vector<int>(most_contenders, 0);
    std::vector<std::int64_t> ended_ = std::vector<std::int64_t>(most_contenders, 0);
    std::int64_t set_back_ = 0;
    record last_real_{}; // before the newest
    model last_model_{};
    record real_{};
    model model_{};
    std::int64_t now_ = 1'000'000;
    std::int64_t stamp_ = 0;
    std::int64_t largest_ = 0;
    std::int64_t told_ = 0;                           // the token of the grant that a step returned
    std::int64_t granted_ = 0;                        // the same, if the grant is a new one
    std::map<std::int64_t, std::int64_t> believed_{}; // until when, by tokens
    std::map<std::int64_t, std::int64_t> kept_{};     // until when no other contender may have it
    using entry = std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
    std::map<entry, std::int64_t> arrivals_{};
    step step_{};
    origin here_{};
    std::vector<std::int64_t> fence_of_ = std::vector<std::int64_t>(most_contenders, 0);
    std::vector<observed_times> stamps_ = std::vector<observed_times>(most_contenders);
    std::vector<observations> seen_ = std::vector<observations>(most_contenders);
};

// The index of the step that fails, and the message; steps.size() and no message if none fails.
struct failure {
    std::size_t at = 0;
    std::string how{};
};
failure run(const course& c) {
    pair_of both(c);
    for (std::size_t i = 0; i < c.steps.size(); ++i) {
        const std::string how = both.run(c.steps[i]);
        if (!how.empty()) {
            return {i, how};
        }
    }
    return {c.steps.size(), {}};
}

// Shortens a run that fails: leaves out each step without which it still fails.
course shrunk(course c) {
    c.steps.resize(run(c).at + 1);
    for (auto i = static_cast<std::ptrdiff_t>(c.steps.size()); i-- > 0;) {
        course shorter = c;
        shorter.steps.erase(shorter.steps.begin() + i);
        if (!run(shorter).how.empty()) {
            c = std::move(shorter);
        }
    }
    return c;
}

course random_course(test::jitter& any, lock_clock clock, std::size_t length, besides with) {
    const auto one_of = [&](std::uint32_t n) { return static_cast<std::int64_t>(any.below(n)); };
    course c{.clock = clock, .with = with};
    c.permits = 1 + one_of(4);
    const bool steady = any.below(2) == 0; // all contenders have the same terms
    c.max_waiters = any.below(2) == 0 ? 5 : 100;
    for (std::size_t i = 0; i < length; ++i) {
        step s;
        const auto kind = any.below(20);
        s.is = kind < 11   ? what::acquire
               : kind < 13 ? what::renew
               : kind < 15 ? what::release
                           : static_cast<what>(3 + any.below(any.below(8) == 0 ? 5 : 3));
        s.by = static_cast<int>(one_of(most_contenders));
        s.pass = any.below(3) == 0 ? one_of(8) : 0;
        s.pass = any.below(100) == 0 ? 40 : s.pass;
        s.weight = 1 + s.by % 2 + (any.below(50) == 0 ? 1 : 0);
        s.lease = steady ? 20 : 1 + one_of(30);
        s.ttl = steady ? 15 : 1 + one_of(30);
        s.at_least = !with.holds ? 0 : steady ? 25 : one_of(40);
        s.undo = with.holds && any.below(4) == 0;
        s.enqueue = any.below(8) != 0;
        s.stored = any.below(10) != 0;
        s.pick = one_of(16);
        const auto rare = any.below(40);
        s.is = with.boots != 0 && rare < 2 ? what::move
               : with.bounded && rare == 2 ? what::set_back
               : with.marked && rare < 7   ? what::end_mark
               : with.mishaps && rare < 9  ? what::lose
               : with.mishaps && rare == 9 ? what::vanish
                                           : s.is;
        c.steps.push_back(s);
    }
    return c;
}

void try_courses(lock_clock clock, int courses, std::size_t length, besides with = {}) {
    const std::uint32_t seed = test::run_seed();
    INFO("BIDE_TEST_SEED=" << seed);
    test::jitter any(seed);
    test::stress_time longer;
    std::size_t steps = 0;
    for (int i = 0; i < courses || (test::is_long_run() && longer.is_left()); ++i) {
        const course c = random_course(any, clock, length, with);
        const failure found = run(c);
        if (!found.how.empty()) {
            INFO(shown(shrunk(c)));
            FAIL(found.how);
        }
        steps += found.at;
    }
    CHECK(steps >= static_cast<std::size_t>(courses) * length);
}

} // namespace

TEST_CASE("record: 50,000 random steps on one clock match the model", "[promise.durable-fifo]") {
    try_courses(lock_clock::caller, 100, 500);
}

TEST_CASE("record: 50,000 random steps with observed leases match the model",
          "[promise.durable-exclusion]") {
    try_courses(lock_clock::observed, 100, 500);
}

TEST_CASE("record: 20,000 random steps of two boots match the model") {
    try_courses(lock_clock::boottime, 40, 500, {.boots = 2});
}

TEST_CASE("record: 40,000 random tries of brief contenders of many boots match the model") {
    try_courses(lock_clock::boottime, 40, 500, {.boots = 3, .brief = true});
    try_courses(lock_clock::boottime, 40, 500, {.boots = 12, .brief = true});
}

TEST_CASE("record: 20,000 random steps on a clock that is set back match the model") {
    try_courses(lock_clock::server, 40, 500, {.bounded = true});
}

TEST_CASE("record: 20,000 random steps with grants bound to marks match the model") {
    try_courses(lock_clock::server, 20, 500, {.bounded = true, .marked = true});
    try_courses(lock_clock::boottime, 20, 500, {.boots = 2, .marked = true});
}

TEST_CASE("record: 60,000 random steps with minimum hold times match the model") {
    try_courses(lock_clock::caller, 20, 500, {.holds = true});
    try_courses(lock_clock::observed, 20, 500, {.holds = true});
    try_courses(lock_clock::observed, 20, 500, {.boots = 2, .holds = true});
    try_courses(lock_clock::boottime, 20, 500, {.boots = 2, .marked = true, .holds = true});
    try_courses(lock_clock::boottime, 20, 500, {.boots = 3, .brief = true, .holds = true});
    try_courses(lock_clock::server, 20, 500, {.bounded = true, .holds = true, .mishaps = true});
}

TEST_CASE("record: 20,000 random steps with adopted permits match the model") {
    try_courses(lock_clock::caller, 40, 500, {.adopts = true});
}

TEST_CASE("record: 30,000 random steps with lost records match the model") {
    try_courses(lock_clock::server, 20, 500, {.bounded = true, .mishaps = true});
    try_courses(lock_clock::observed, 20, 500, {.mishaps = true});
    try_courses(lock_clock::boottime, 20, 500, {.boots = 3, .brief = true, .mishaps = true});
}
