#ifndef BIDE_TESTS_EXAMPLES_LOCK_ADMIN_HPP
#define BIDE_TESTS_EXAMPLES_LOCK_ADMIN_HPP

// bide-lock inspect, release, resize and repair.

#include "lock_calls.hpp"
#include "lock_options.hpp"
#include "lock_slots.hpp"

#include <bide/durable/admin.hpp>
#include <bide/durable/durable_semaphore.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/record_json.hpp>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <pwd.h>
#include <unistd.h>

namespace lock_parts {

using bide::durable::inspection;

// One line, without control characters.
inline std::string printable(std::string_view text) {
    std::string out(text);
    for (char& c : out)
        if (static_cast<unsigned char>(c) < ' ' || c == 0x7f)
            c = '?';
    return out;
}

// The time on the record's clock; none where that is no clock of ours.
inline std::optional<std::int64_t> time_of(const bide::durable::record& r, const options& o) {
    switch (r.clock) {
    case bide::lock_clock::boottime: return bide::durable::boottime_ms();
    case bide::lock_clock::server:
        if (const auto now = open_slot(o).server_now())
            return *now;
        return std::nullopt;
    case bide::lock_clock::caller:
    case bide::lock_clock::observed: break;
    }
    return std::nullopt;
}

inline void print_text(const options& o, const inspection& seen) {
    const auto now = time_of(seen.live, o);
    const auto print = [&](const char* what, std::int64_t number, const char* numbered,
                           const auto& one, std::int64_t lane) {
        std::string line = std::string(what) + " " + numbered + "=" + std::to_string(number);
        if (lane >= 0)
            line += " lane=" + std::to_string(lane);
        line += " weight=" + std::to_string(one.weight);
        if (now) {
            char left[64];
            std::snprintf(left, sizeof left, " left=%.1fs",
                          static_cast<double>(one.expires_at - *now) / 1e3);
            line += left;
        }
        if (!one.from.host.empty())
            line += " host=" + printable(one.from.host);
        if (one.from.pid != 0)
            line += " pid=" + std::to_string(one.from.pid);
        std::printf("%s id=%s\n", line.c_str(), printable(one.holder_id).c_str());
    };
    const auto holder = [&](const char* what, const bide::durable::holder& h) {
        print(what, h.fence, "fence", h, h.lane);
    };

    std::printf("%s: %lld of %lld permits free, %zu waiting\n", o.name.c_str(),
                static_cast<long long>(seen.free), static_cast<long long>(seen.live.permits),
                seen.live.waiters.size());
    for (const auto& h : seen.live.holders)
        holder("holder ", h);
    for (const auto& h : seen.expired)
        holder("expired", h);
    std::int64_t position = 0;
    for (const auto& w : seen.live.waiters)
        print("waiter ", ++position, "place", w, -1);
    for (const auto& w : seen.vanished)
        print("gone   ", 0, "place", w, -1);
    if (const auto& note = seen.live.admin)
        std::printf("note    %s: %s\n", printable(note->by).c_str(), printable(note->what).c_str());
}

// The record as others see it now, and beside it what they do not count any more.
inline void print_json(const options& o, const inspection& seen) {
    bide::durable::record rest = seen.live;
    rest.holders = seen.expired;
    rest.waiters = seen.vanished;
    auto all = nlohmann::json::parse(bide::durable::encode(seen.live));
    auto others = nlohmann::json::parse(bide::durable::encode(rest));
    all["name"] = o.name;
    all["free"] = seen.free;
    all["expired"] = std::move(others["holders"]);
    all["vanished"] = std::move(others["waiters"]);
    if (const auto now = time_of(seen.live, o))
        all["now"] = *now;
    std::printf("%s\n", all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

// A lock, and how it is asked.
struct administration {
    const options& o;
    bide::durable_semaphore& lock;
    inbox& events;

    // The answer of call(), or a failure.
    template <class Call> auto ask(Call call) const {
        auto answer = answer_of(o, events, std::move(call));
        if (!answer)
            throw failure{status_of(answer.error()), words_of(o, lock, answer.error())};
        return std::move(*answer);
    }
    std::optional<inspection> look() const {
        return ask([&lock = lock] { return lock.inspect(); });
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
    if (seen && o.json)
        print_json(o, *seen);
    else if (seen)
        print_text(o, *seen);
    else if (o.json)
        std::puts("null");
    else
        std::printf("%s: never used\n", o.name.c_str());
    if (std::fflush(stdout) != 0)
        throw failure{EX_IOERR, "cannot write to stdout"};
    return 0;
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
    int released = 0;
    for (const std::int64_t fence : fences)
        if (by.ask([admin = by.admin(), fence, &o]() mutable {
                return admin.force_release(fence, o.reason);
            })) {
            ++released;
            if (o.verbose)
                complain(o.name + ": released fence " + std::to_string(fence));
        }
    if (released == 0)
        throw failure{1, o.fence != 0 ? o.name + ": no holder has fence " + std::to_string(o.fence)
                                      : o.name + ": there is no holder"};
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
    return 0;
}

inline int repair(const administration& by) {
    const options& o = by.o;
    if (!by.ask([admin = by.admin(), &o]() mutable { return admin.repair(o.min_fence, o.reason); }))
        throw failure{1, o.name + ": the record can be read; nothing was changed"};
    return 0;
}

} // namespace lock_parts

#endif
