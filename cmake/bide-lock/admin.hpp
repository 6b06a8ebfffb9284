#ifndef BIDE_PROGRAMS_BIDE_LOCK_ADMIN_HPP
#define BIDE_PROGRAMS_BIDE_LOCK_ADMIN_HPP

// bide-lock inspect, list, watch, release, resize and repair.

#include "store.hpp"

#include <bide/durable/locks.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/record_json.hpp>

namespace lock_parts {

using bide::durable::inspection;

// The time on the record's clock; none where that is no clock of ours.
inline std::optional<std::int64_t> time_of(const bide::durable::record& r, const options& o) {
    switch (r.clock) {
    case bide::lock_clock::boottime: return bide::durable::boottime_ms();
    case bide::lock_clock::server:
        if (const auto seen = open_slot(o)->load())
            return seen->server_ms;
        return std::nullopt;
    case bide::lock_clock::caller:
    case bide::lock_clock::observed: break;
    }
    return std::nullopt;
}

inline std::string text_of(const options& o, const inspection& seen) {
    const auto now = time_of(seen.live, o);
    std::string all = o.name + ": " + std::to_string(seen.free) + " of " +
                      std::to_string(seen.live.permits) + " permits free, " +
                      std::to_string(seen.live.waiters.size()) + " waiting\n";
    const auto add = [&](const std::string& what, const auto& one) {
        all += what + " weight=" + std::to_string(one.weight);
        if (now) {
            char left[64];
            std::snprintf(left, sizeof left, " left=%.1fs",
                          static_cast<double>(one.expires_at - *now) / 1e3);
            all += left;
        }
        if (!one.from.host.empty())
            all += " host=" + printable(one.from.host);
        if (one.from.pid != 0)
            all += " pid=" + std::to_string(one.from.pid);
        all += " id=" + printable(one.holder_id) + "\n";
        if (!one.about.note.empty())
            all += "        note=" + printable(one.about.note) + "\n";
        for (const auto& [name, value] : one.about.labels)
            all += "        " + printable(name) + "=" + printable(value) + "\n";
    };
    const auto holder = [&](const char* what, const bide::durable::holder& h) {
        add(what + std::to_string(h.fence) + " lane=" + std::to_string(h.lane), h);
    };
    for (const auto& h : seen.live.holders)
        holder(bide::durable::is_resting(h) ? "resting fence=" : "holder  fence=", h);
    for (const auto& h : seen.expired)
        holder("expired fence=", h);
    std::int64_t position = 0;
    for (const auto& w : seen.live.waiters)
        add("waiter  place=" + std::to_string(++position), w);
    for (const auto& w : seen.vanished)
        add("gone    place=0", w);
    if (const auto& note = seen.live.admin)
        all += "note    " + printable(note->by) + ": " + printable(note->what) + "\n";
    return all;
}

// The state in a few words: held 1/1 waiting=2 by=a;b
inline std::string summary_of(const inspection& seen) {
    if (seen.live.holders.empty() && seen.live.waiters.empty())
        return "free";
    std::string all = "held " + std::to_string(seen.live.permits - seen.free) + "/" +
                      std::to_string(seen.live.permits) +
                      " waiting=" + std::to_string(seen.live.waiters.size()) + " by=";
    for (const auto& h : seen.live.holders)
        all += (all.ends_with('=') ? "" : ";") + printable(h.holder_id);
    return all;
}

// The record as others see it now, and beside it what they do not count any more.
inline json json_of(const options& o, const inspection& seen) {
    bide::durable::record rest = seen.live;
    rest.holders = seen.expired;
    rest.waiters = seen.vanished;
    auto all = json::parse(bide::durable::encode(seen.live));
    auto others = json::parse(bide::durable::encode(rest));
    all["name"] = o.name;
    all["free"] = seen.free;
    all["expired"] = std::move(others["holders"]);
    all["vanished"] = std::move(others["waiters"]);
    if (const auto now = time_of(seen.live, o))
        all["now"] = *now;
    return all;
}

inline void print(const std::string& text) {
    if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
        throw failure{EX_IOERR, "cannot write to stdout"};
}

// Ends bide-lock if no process reads its output any more, as a write would.
inline void check_reader() {
    pollfd out{STDOUT_FILENO, 0, 0};
    if (::poll(&out, 1, 0) > 0 && (out.revents & (POLLERR | POLLHUP)) != 0) {
        ::raise(SIGPIPE);
        throw failure{EX_IOERR, "cannot write to stdout"}; // the caller ignores SIGPIPE
    }
}

// A lock, and how it is asked.
struct administration {
    const options& o;
    bide::durable_semaphore& lock;
    inbox& events;

    // Throws: failure, if the answer of call() is an error.
    template <class Call> auto ask(Call call) const {
        return checked(answer_of(o, events, std::move(call)));
    }
    template <class Answer> auto checked(Answer answer) const {
        if (!answer)
            throw failure{status_of(answer.error()), words_of(o, lock, answer.error())};
        return *std::move(answer);
    }
    std::optional<inspection> look() const {
        return ask([&lock = lock] { return lock.inspect(); });
    }
    void report(const json& done) const {
        if (o.json)
            print(one_line(done) + "\n");
    }
    bide::durable_admin admin() const {
        if (!o.by.empty())
            return lock.admin(o.by);
        const passwd* const user = ::getpwuid(::geteuid());
        return lock.admin((user != nullptr ? user->pw_name : std::to_string(::geteuid())) + "@" +
                          bide::durable::this_host());
    }
};

inline int inspect(const administration& by) {
    const options& o = by.o;
    const auto seen = by.look();
    if (o.json)
        print((seen ? one_line(json_of(o, *seen)) : "null") + "\n");
    else
        print(seen ? text_of(o, *seen) : o.name + ": never used\n");
    return 0;
}

// One line for each lock, or an array. A record that cannot be read is shown as such.
inline int list(const options& all, inbox& events) {
    json array = json::array();
    for (const std::string& name : answer_of(all, events, [&all] { return names_in(all); })) {
        options o = all;
        o.name = name;
        const auto lock = std::make_shared<bide::durable_semaphore>(open_slot(o), 1);
        const auto seen = answer_of(o, events, [lock] { return lock->inspect(); });
        if (seen && !*seen)
            continue;
        const std::string why = seen ? std::string() : reason_of(*lock, seen.error());
        if (o.json)
            array.push_back(seen ? json_of(o, **seen) : json{{"name", name}, {"error", why}});
        else
            print(name + "\t" + (seen ? summary_of(**seen) : "unreadable: " + why) + "\n");
    }
    if (all.json)
        print(one_line(array) + "\n");
    return 0;
}

// Reads the lock once a second, and shows each change until a signal ends bide-lock. --observe: only the
// leader.
inline int watch(const administration& by) {
    const options& o = by.o;
    const bool redraws = !o.json && !o.observes && ::isatty(STDOUT_FILENO) != 0;
    for (std::string before;;) {
        const auto seen = by.look();
        const bide::durable::holder* const leader =
            seen && !seen->live.holders.empty() ? &seen->live.holders.front() : nullptr;
        std::string now = "never used";
        if (o.observes) {
            now = leader != nullptr
                      ? std::to_string(leader->fence) + " " + printable(leader->holder_id)
                      : "no leader";
        } else if (seen) {
            now = summary_of(*seen);
            for (const auto& h : seen->live.holders)
                now += " " + std::to_string(h.fence);
            for (const auto& w : seen->live.waiters)
                now += " " + w.nonce;
        }
        const bool has_changed = std::exchange(before, now) != now;
        if (redraws) {
            print("\033[H\033[J" + (seen ? text_of(o, *seen) : o.name + ": never used\n"));
        } else if (has_changed && o.json && o.observes) {
            print(one_line({{"name", o.name},
                            {"fence", leader != nullptr ? json(leader->fence) : json()},
                            {"holderId", leader != nullptr ? json(leader->holder_id) : json()}}) +
                  "\n");
        } else if (has_changed && o.json) {
            print((seen ? one_line(json_of(o, *seen)) : "null") + "\n");
        } else if (has_changed) {
            print((o.observes ? now : o.name + ": " + (seen ? summary_of(*seen) : now)) + "\n");
        }
        check_reader();
        const auto e = by.events.next(steady::now() + std::chrono::seconds(1));
        if (e && e->signal != 0 && e->signal != SIGCHLD)
            die_of(e->signal);
    }
}

inline int release(const administration& by) {
    const options& o = by.o;
    std::vector<std::int64_t> fences{o.fence};
    if (o.fence == 0) {
        fences.clear();
        if (const auto seen = by.look()) {
            for (const auto& h : seen->live.holders)
                fences.push_back(h.fence);
            for (const auto& h : seen->expired)
                fences.push_back(h.fence);
        }
    }
    json released = json::array();
    for (const std::int64_t fence : fences)
        if (by.ask([admin = by.admin(), fence, &o]() mutable {
                return admin.force_release(fence, o.reason);
            })) {
            released.push_back(fence);
            if (o.verbose)
                complain(o.name + ": released fence " + std::to_string(fence));
        }
    if (released.empty())
        throw failure{1, o.fence != 0 ? o.name + ": no holder has fence " + std::to_string(o.fence)
                                      : o.name + ": there is no holder"};
    by.report({{"name", o.name}, {"released", released}});
    return 0;
}

inline int resize(const administration& by) {
    const options& o = by.o;
    if (const auto seen = by.look()) {
        const std::int64_t held = seen->live.permits - seen->free;
        if (held > o.permits)
            throw failure{EX_CONFIG, o.name + ": not resized: holders have " +
                                         std::to_string(held) + " of " +
                                         std::to_string(seen->live.permits) + " permits"};
    }
    if (!by.ask([admin = by.admin(), &o]() mutable { return admin.resize(o.permits, o.reason); }))
        throw failure{1, o.name + ": never used; its first holder sets the permits"};
    by.report({{"name", o.name}, {"permits", o.permits}});
    return 0;
}

inline int repair(const administration& by) {
    const options& o = by.o;
    if (!by.ask([admin = by.admin(), &o]() mutable { return admin.repair(o.min_fence, o.reason); }))
        throw failure{1, o.name + ": the record can be read; nothing was changed"};
    by.report({{"name", o.name}, {"repaired", true}});
    return 0;
}

} // namespace lock_parts

#endif
