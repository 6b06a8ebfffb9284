#include <bide/durable/expiry.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/record_admin.hpp>

#include <support/catch.hpp>
#include <support/jitter.hpp>
#include <support/stress.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

// The rules against the same rules written a second time, in the most obvious way, by long random
// runs: what the two answer and what they have afterwards must be the same after every step. A run
// that ends badly is made shorter, step by step, while it still ends badly, and then printed.

namespace {

using namespace bide::durable;
using bide::durable_errc;
using bide::lock_clock;

constexpr int most_contenders = 8;

// ---- the model

struct model_holder {
    std::string nonce{};
    std::int64_t fence = 0;
    std::int64_t lane = 0;
    std::int64_t weight = 0;
    std::int64_t length = 0;
    std::int64_t ends = 0;
    std::int64_t stamp = 0; // another one for each time that it was written
};
struct model_waiter {
    std::string nonce{};
    std::int64_t weight = 0;
    std::int64_t length = 0;
    std::int64_t ends = 0;
    std::int64_t stamp = 0;
    std::int64_t refreshes = 0; // since it came
};

struct model {
    std::int64_t permits = 1;
    std::int64_t next_fence = 1;
    std::deque<model_holder> holders{};
    std::deque<model_waiter> waiters{};
};

// What one contender has seen, by stamps: since when.
using sightings = std::map<std::int64_t, std::int64_t>;

// ---- one step of a run

enum class what {
    acquire,
    renew,
    release,
    withdraw,
    late_release,
    late_renew,
    evict,
    force,
    resize
};

struct step {
    what is{};
    int by = 0;            // contender
    std::int64_t pass = 0; // time, before
    std::int64_t weight = 1;
    std::int64_t lease = 1;
    std::int64_t ttl = 1;
    std::int64_t grace = 0;
    bool enqueue = true;
    bool revive = false;
    bool stored = true;    // false: its compare-and-swap came too late, nothing has happened
    std::int64_t pick = 0; // for who is taken away, and for permits
};

struct course {
    lock_clock clock = lock_clock::caller;
    std::int64_t permits = 1;
    std::size_t max_waiters = 5;
    std::vector<step> steps{};
};

std::string shown(const course& c) {
    static constexpr const char* names[] = {"acquire",  "renew",        "release",
                                            "withdraw", "late release", "late renew",
                                            "evict",    "force",        "resize"};
    std::string text = "permits " + std::to_string(c.permits) +
                       (c.clock == lock_clock::observed ? ", observed\n" : ", on one clock\n");
    for (const step& s : c.steps) {
        text += "  +" + std::to_string(s.pass) + " " + std::to_string(s.by) + " " +
                names[static_cast<std::size_t>(s.is)] + ": weight " + std::to_string(s.weight) +
                ", lease " + std::to_string(s.lease) + ", ttl " + std::to_string(s.ttl) +
                ", grace " + std::to_string(s.grace) + (s.enqueue ? "" : ", no queue") +
                (s.revive ? ", revive" : "") + (s.stored ? "" : ", not stored") + ", pick " +
                std::to_string(s.pick) + "\n";
    }
    return text;
}

// The real rules and the model, side by side.
class pair_of {
public:
    explicit pair_of(const course& c) : clock_(c.clock), max_waiters_(c.max_waiters) {
        terms t;
        t.permits = c.permits;
        t.clock = c.clock;
        real_ = fresh_record(t);
        model_.permits = c.permits;
    }

    // Empty, or where the two differ.
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
        }
        return compare();
    }

private:
    static std::string nonce_of(int by) { return "n" + std::to_string(by); }

    terms on_terms(const step& s) const {
        terms t;
        t.permits = real_.permits;
        t.clock = clock_;
        t.lease_ms = s.lease;
        t.waiter_ttl_ms = s.ttl;
        t.reclaim_delay_ms = s.grace;
        t.max_waiters = max_waiters_;
        t.enqueue = s.enqueue;
        t.revive = s.revive;
        return t;
    }

    expiry_judge judge(int by) const {
        return clock_ == lock_clock::observed
                   ? expiry_judge(seen_[static_cast<std::size_t>(by)], now_, 0, here_)
                   : expiry_judge(clock_, now_, here_);
    }

    void look(int by) {
        auto& seen = stamps_[static_cast<std::size_t>(by)];
        sightings now;
        for (const model_holder& h : model_.holders) {
            now[h.stamp] = seen.contains(h.stamp) ? seen[h.stamp] : now_;
        }
        for (const model_waiter& w : model_.waiters) {
            now[w.stamp] = seen.contains(w.stamp) ? seen[w.stamp] : now_;
        }
        seen = now;
        if (clock_ == lock_clock::observed) {
            seen_[static_cast<std::size_t>(by)].note(real_, now_);
        }
    }

    // ---- the model's rules

    template <class Entry> bool is_over(const Entry& e, std::int64_t grace) const {
        if (clock_ == lock_clock::observed) {
            const auto& seen = stamps_[static_cast<std::size_t>(step_.by)];
            const auto at = seen.find(e.stamp);
            return at != seen.end() && now_ - at->second > e.length + grace;
        }
        return now_ >= e.ends + grace;
    }
    void drop_who_is_gone(model& m, std::int64_t grace, const std::string& self) const {
        for (auto h = m.holders.begin(); h != m.holders.end();) {
            h = is_over(*h, grace) ? m.holders.erase(h) : h + 1;
        }
        for (auto w = m.waiters.begin(); w != m.waiters.end();) {
            w = w->nonce != self && is_over(*w, 0) ? m.waiters.erase(w) : w + 1;
        }
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
        const bool is_observed = clock_ == lock_clock::observed; // then nobody knows what is left
        const std::int64_t rest = is_observed ? h.length : std::min(h.ends - now_, h.length);
        h.length = rest > lease ? rest : lease;
        h.ends = std::max(h.ends, now_ + lease);
        h.stamp = ++stamp_;
    }

    // Who leaves, comes back, and is refreshed as often within one millisecond was not away, for
    // others.
    std::int64_t stamp_of(const model_waiter& w) {
        const auto key = std::make_tuple(w.nonce, w.refreshes, w.ends, w.length);
        if (!arrivals_.contains(key)) {
            arrivals_[key] = ++stamp_;
        }
        return arrivals_[key];
    }

    struct model_answer {
        standing is{};
        std::int64_t fence = 0;
        std::int64_t lane = 0;
        std::int64_t position = 0;
        bool changed = false;
        std::error_code error{};
    };

    model_answer model_refused(durable_errc why) const {
        return {standing::refused, 0, 0, 0, false, make_error_code(why)};
    }

    model_answer model_acquire(const step& s) {
        const std::string self = nonce_of(s.by);
        if (s.weight > model_.permits) {
            return model_refused(durable_errc::too_heavy);
        }
        drop_who_is_gone(model_, s.grace, self);
        if (model_holder* const mine = held_by(self)) {
            if (mine->weight != s.weight) {
                return model_refused(durable_errc::invalid_argument);
            }
            prolong(*mine, s.lease);
            return {standing::held, mine->fence, mine->lane, 0, true, {}};
        }
        // Everybody in line, the newcomer last; who is next while there is room?
        std::deque<model_waiter> line = model_.waiters;
        const bool is_new =
            std::none_of(line.begin(), line.end(), [&](const auto& w) { return w.nonce == self; });
        if (is_new) {
            line.push_back({self, s.weight, s.ttl, now_ + s.ttl});
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
            std::set<std::int64_t> lanes;
            for (const model_holder& h : model_.holders) {
                lanes.insert(h.lane);
            }
            std::int64_t lane = 0;
            for (; lanes.contains(lane); ++lane) {
            }
            for (auto w = model_.waiters.begin(); w != model_.waiters.end();) {
                w = w->nonce == self ? model_.waiters.erase(w) : w + 1;
            }
            const std::int64_t fence = model_.next_fence++;
            model_.holders.push_back(
                {self, fence, lane, s.weight, s.lease, now_ + s.lease, ++stamp_});
            return {standing::granted, fence, lane, 0, true, {}};
        }
        if (is_new) {
            if (!s.enqueue) {
                return {standing::waiting, 0, 0, position, false, {}};
            }
            if (model_.waiters.size() >= max_waiters_) {
                return model_refused(durable_errc::queue_full);
            }
            line.back().stamp = stamp_of(line.back());
            model_.waiters = line;
            return {standing::waiting, 0, 0, position, true, {}};
        }
        model_waiter& mine = model_.waiters[static_cast<std::size_t>(position)];
        const std::int64_t rest = mine.ends - now_;
        const bool is_stale = rest < s.ttl - s.ttl / 3 || rest > s.ttl;
        if (is_stale) {
            mine.length = s.ttl;
            mine.ends = now_ + s.ttl;
            ++mine.refreshes;
            mine.stamp = stamp_of(mine);
        }
        return {standing::waiting, 0, 0, position, is_stale, {}};
    }

    bool model_renew(const step& s, const std::string& nonce, std::int64_t fence) {
        model_holder* const mine = held_by(nonce);
        if (mine == nullptr || mine->fence != fence) {
            return false;
        }
        if (is_over(*mine, 0)) {
            model others = model_;
            drop_who_is_gone(others, 0, "");
            if (!s.revive ||
                (!others.waiters.empty() && others.waiters[0].weight <= free_in(others))) {
                return false;
            }
        }
        prolong(*mine, s.lease);
        return true;
    }

    bool model_release(const std::string& nonce, std::int64_t fence) {
        for (auto h = model_.holders.begin(); h != model_.holders.end(); ++h) {
            if (h->nonce == nonce && (fence == 0 || h->fence == fence)) {
                model_.holders.erase(h);
                return true;
            }
        }
        for (auto w = model_.waiters.begin(); w != model_.waiters.end(); ++w) {
            if (w->nonce == nonce && fence == 0) {
                model_.waiters.erase(w);
                return true;
            }
        }
        return false;
    }

    // ---- both

    std::string run_both(const step& s) {
        const std::string self = nonce_of(s.by);
        std::int64_t& fence = fence_of_[static_cast<std::size_t>(s.by)];
        switch (s.is) {
        case what::acquire: {
            const auto out =
                acquire(real_, {"same", self, s.weight, {}}, on_terms(s), now_, judge(s.by));
            const auto due = model_acquire(s);
            if (out.is == standing::granted && out.fence <= largest_) {
                return "a token that is not larger than all before";
            }
            largest_ = std::max(largest_, out.fence);
            if (out.is == standing::granted || out.is == standing::held) {
                fence = out.fence;
            }
            const bool same = out.is == due.is && out.fence == due.fence && out.lane == due.lane &&
                              out.position == due.position && out.changed == due.changed &&
                              out.error == due.error;
            if (due.is == standing::refused || !due.changed) {
                // Neither stores what came of it.
                step_.stored = false;
            }
            return same ? "" : "acquire answers something else";
        }
        case what::renew:
        case what::late_renew: {
            const std::int64_t with = s.is == what::renew ? fence : s.pick;
            const auto out = renew(real_, self, with, on_terms(s), now_, judge(s.by), {});
            const bool due = model_renew(s, self, with);
            return (out.is == renewal::renewed) == due && out.changed == due
                       ? ""
                       : "renew answers something else";
        }
        case what::release:
        case what::late_release: {
            const std::int64_t with =
                s.is == what::release ? std::max<std::int64_t>(fence, 1) : s.pick + 1;
            return release(real_, self, with).changed == model_release(self, with)
                       ? ""
                       : "release answers something else";
        }
        case what::withdraw:
            return release(real_, self, 0).changed == model_release(self, 0)
                       ? ""
                       : "withdrawal answers something else";
        case what::evict: {
            const std::string whom = nonce_of(static_cast<int>(s.pick % most_contenders));
            bool was_there = false;
            for (auto w = model_.waiters.begin(); w != model_.waiters.end() && !was_there; ++w) {
                if (w->nonce == whom) {
                    model_.waiters.erase(w);
                    was_there = true;
                    break;
                }
            }
            return evict_waiter(real_, whom, {}) == was_there ? "" : "evict answers something else";
        }
        case what::force: {
            const std::int64_t which =
                std::max<std::int64_t>(1, model_.next_fence - 1 - s.pick % 4);
            bool was_there = false;
            for (auto h = model_.holders.begin(); h != model_.holders.end(); ++h) {
                if (h->fence == which) {
                    model_.holders.erase(h);
                    was_there = true;
                    break;
                }
            }
            return force_release(real_, which, {}) == was_there ? ""
                                                                : "force answers something else";
        }
        case what::resize:
            model_.permits = 1 + s.pick % 4;
            return resize(real_, model_.permits, {}) ? "" : "resize answers something else";
        }
        return "no such step";
    }

    std::string compare() const {
        bool same = real_.permits == model_.permits && real_.fence == model_.next_fence &&
                    real_.holders.size() == model_.holders.size() &&
                    real_.waiters.size() == model_.waiters.size();
        for (std::size_t i = 0; same && i < model_.holders.size(); ++i) {
            const holder& a = real_.holders[i];
            const model_holder& b = model_.holders[i];
            same = a.nonce == b.nonce && a.fence == b.fence && a.lane == b.lane &&
                   a.weight == b.weight && a.expires_at == b.ends && a.lease_ms == b.length;
        }
        for (std::size_t i = 0; same && i < model_.waiters.size(); ++i) {
            const waiter& a = real_.waiters[i];
            const model_waiter& b = model_.waiters[i];
            same = a.nonce == b.nonce && a.weight == b.weight && a.expires_at == b.ends &&
                   a.ttl_ms == b.length;
        }
        return same ? "" : "the records differ";
    }

    lock_clock clock_;
    std::size_t max_waiters_;
    record real_{};
    model model_{};
    std::int64_t now_ = 1000;
    std::int64_t stamp_ = 0;
    std::int64_t largest_ = 0;
    std::map<std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t>, std::int64_t>
        arrivals_{};
    step step_{};
    origin here_{};
    std::vector<std::int64_t> fence_of_ = std::vector<std::int64_t>(most_contenders, 0);
    std::vector<sightings> stamps_ = std::vector<sightings>(most_contenders);
    std::vector<observations> seen_ = std::vector<observations>(most_contenders);
};

// Where it goes wrong, and how; steps.size() and nothing where it does not.
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

// The shortest course that was found to go wrong still, by leaving steps out: halves first.
course shrunk(course c) {
    c.steps.resize(run(c).at + 1);
    for (std::size_t chunk = c.steps.size() / 2; chunk != 0;) {
        bool is_shorter = false;
        for (std::size_t from = 0; from + chunk <= c.steps.size();) {
            course shorter = c;
            const auto begin = shorter.steps.begin() + static_cast<std::ptrdiff_t>(from);
            shorter.steps.erase(begin, begin + static_cast<std::ptrdiff_t>(chunk));
            const failure still = run(shorter);
            if (still.how.empty()) {
                from += chunk;
            } else {
                shorter.steps.resize(still.at + 1);
                c = std::move(shorter);
                is_shorter = true;
            }
        }
        chunk = is_shorter ? std::min(chunk, c.steps.size() / 2) : chunk / 2;
    }
    return c;
}

course random_course(test::jitter& any, lock_clock clock, std::size_t length) {
    const auto one_of = [&](std::uint32_t n) { return static_cast<std::int64_t>(any.below(n)); };
    course c;
    c.clock = clock;
    c.permits = 1 + one_of(4);
    const bool steady = any.below(2) == 0; // everybody with the same terms
    c.max_waiters = any.below(2) == 0 ? 5 : 100;
    for (std::size_t i = 0; i < length; ++i) {
        step s;
        const auto kind = any.below(20);
        s.is = kind < 11   ? what::acquire
               : kind < 13 ? what::renew
               : kind < 15 ? what::release
                           : static_cast<what>(3 + any.below(any.below(8) == 0 ? 6 : 3));
        s.by = static_cast<int>(one_of(most_contenders));
        s.pass = any.below(3) == 0 ? one_of(8) : 0;
        s.pass = any.below(100) == 0 ? 40 : s.pass;
        s.weight = 1 + s.by % 2 + (any.below(50) == 0 ? 1 : 0);
        s.lease = steady ? 20 : 1 + one_of(30);
        s.ttl = steady ? 15 : 1 + one_of(30);
        s.grace = steady ? 0 : one_of(3);
        s.enqueue = any.below(8) != 0;
        s.revive = any.below(2) == 0;
        s.stored = any.below(10) != 0;
        s.pick = one_of(16);
        c.steps.push_back(s);
    }
    return c;
}

void try_courses(lock_clock clock, int courses, std::size_t length) {
    const std::uint32_t seed = test::run_seed();
    INFO("BIDE_TEST_SEED=" << seed);
    test::jitter any(seed);
    test::stress_time longer;
    const bool is_long_run = test::stress_time::length().count() >= 5'000;
    std::size_t steps = 0;
    for (int i = 0; i < courses || (is_long_run && longer.is_left()); ++i) {
        const course c = random_course(any, clock, length);
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

TEST_CASE("record: fifty thousand random steps on one clock are those of the model") {
    try_courses(lock_clock::caller, 100, 500);
}

TEST_CASE("record: fifty thousand random steps with observed leases are those of the model") {
    try_courses(lock_clock::observed, 100, 500);
}
