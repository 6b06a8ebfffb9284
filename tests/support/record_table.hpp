#ifndef BIDE_TESTS_SUPPORT_RECORD_TABLE_HPP
#define BIDE_TESTS_SUPPORT_RECORD_TABLE_HPP

// A record of a durable lock, with contenders that have names.

#include <bide/durable/errors.hpp>
#include <bide/durable/record.hpp>

#include <support/standard.hpp>

namespace test {

using namespace bide::durable;
using bide::durable_errc;

// A lease or a place expires exactly at its time. A contender that is listed as dead is gone.
struct clock_judge {
    std::int64_t now;
    std::vector<std::string> dead{};

    bool is_dead(const std::string& nonce) const {
        return std::find(dead.begin(), dead.end(), nonce) != dead.end();
    }
    bool expired(const holder& h) const {
        return h.expires_at <= now || (h.held_until <= now && is_dead(h.nonce));
    }
    bool expired(const waiter& w, bool at_head) const {
        return w.expires_at <= now || (at_head && is_dead(w.nonce));
    }
};

// The name identifies the contender in these tests, because each asks once only.
inline contender who(std::string name, std::int64_t weight = 1) {
    const std::string nonce = name + "'s";
    return {std::move(name), nonce, weight, {}};
}

// One record and its contenders.
struct table {
    explicit table(std::int64_t permits = 1) {
        t.permits = permits;
        t.lease_ms = 100;
        t.waiter_ttl_ms = 90;
        r = fresh_record(t);
    }

    acquire_outcome acquire(const contender& self, std::int64_t now) {
        return bide::durable::acquire(r, self, t, now, judge(now));
    }
    acquire_outcome acquire(const std::string& name, std::int64_t now) {
        return acquire(who(name), now);
    }
    std::error_code renew(const std::string& name, std::int64_t fence, std::int64_t now) {
        return bide::durable::renew(r, name + "'s", fence, t, now, judge(now), {});
    }
    release_status release(const std::string& name, std::int64_t fence, std::int64_t now = 5000,
                           release_terms how = {}) {
        return bide::durable::release(r, name + "'s", fence, now, {}, how);
    }
    clock_judge judge(std::int64_t now) const { return {now, dead}; }

    std::string holders() const { return names(r.holders); }
    std::string waiters() const { return names(r.waiters); }
    template <class T> static std::string names(const std::vector<T>& entries) {
        std::string all;
        for (const T& e : entries) {
            all += all.empty() ? e.holder_id : " " + e.holder_id;
        }
        return all;
    }

    terms t{};
    record r{};
    std::vector<std::string> dead{};
};

inline bool is(const acquire_outcome& out, acquire_status as) {
    return out.status == as && !out.error;
}
inline bool is_refused(const acquire_outcome& out, durable_errc why) {
    return out.status == acquire_status::refused && !out.changed && out.error == why &&
           out.fence == 0;
}

} // namespace test

#endif
