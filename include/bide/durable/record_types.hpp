#ifndef BIDE_DURABLE_RECORD_TYPES_HPP
#define BIDE_DURABLE_RECORD_TYPES_HPP

// What the record of a durable lock consists of. durable/record.hpp has its rules,
// durable/record_json.hpp how it is written.

#include <bide/core/config.hpp>
#include <bide/durable/slot.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bide::inline BIDE_ABI {
namespace durable {

// Every number of a record is one that all languages can read: below 2^53.
inline constexpr std::int64_t largest_number = (std::int64_t{1} << 53) - 1;
inline constexpr std::int64_t largest_first_fence = largest_number - (std::int64_t{1} << 32);
inline constexpr std::int64_t largest_time = std::int64_t{1} << 52;
inline constexpr std::int64_t largest_duration = std::int64_t{1} << 45; // a thousand years
inline constexpr std::int64_t largest_permits = std::int64_t{1} << 31;
inline constexpr std::size_t longest_name = 256; // bytes of UTF-8

// By how much the tokens leap where some may have been given out that the record does not know of.
inline constexpr std::int64_t fence_leap = std::int64_t{1} << 20;

// Where a contender runs. With a pid it is bound to that process. With a mark and no pid it is bound
// to all processes that have the mark's file open.
struct origin {
    std::string host{}; // for people
    std::string boot{}; // the clock and the processes that pid and times refer to; see process.hpp
    std::int64_t pid = 0;
    std::int64_t start = 0; // of the process, in ticks since the boot: pids are used again
    std::int64_t space = 0; // the namespace of the pid
    std::int64_t mark = 0;  // of a slot_presence; 0: none

    friend bool operator==(const origin&, const origin&) = default;
};

// A contender saw an entry at this time as the entry is now. An entry is over when contenders of one
// boot have seen it unchanged for its length and more: see durable/expiry.hpp.
struct stored_observation {
    std::string boot{};     // of the contender: `since` is on that clock; not empty
    std::int64_t moves = 0; // the entry's renewals or refreshes; void if the entry has another count
    std::int64_t since = 0;
    std::string extra{};

    friend bool operator==(const stored_observation&, const stored_observation&) = default;
};

// Of one entry, one for each boot. A further boot takes the place of the first one.
inline constexpr std::size_t most_observations = 4;

// Times are milliseconds, on the record's clock.
struct holder {
    std::string holder_id{}; // the name that it was given
    std::string nonce{};
    std::int64_t fence = 0;
    std::int64_t lane = 0;
    std::int64_t weight = 1; // permits that it holds
    std::int64_t lease_ms = 0;
    std::int64_t expires_at = 0;
    std::int64_t renewals = 0;
    origin from{};
    std::vector<stored_observation> observed{}; // by contenders that cannot read its times
    std::string extra{}; // what this version does not know, as a JSON object; or empty

    friend bool operator==(const holder&, const holder&) = default;
};

struct waiter {
    std::string holder_id{};
    std::string nonce{};
    std::int64_t weight = 1;
    std::int64_t ttl_ms = 0;
    std::int64_t expires_at = 0;
    std::int64_t refreshes = 0;
    origin from{};
    std::vector<stored_observation> observed{};
    std::string extra{};

    friend bool operator==(const waiter&, const waiter&) = default;
};

// The last thing that somebody did from outside.
struct admin_note {
    std::int64_t at = 0; // on the record's clock
    std::string by{};
    std::string what{};
    std::string extra{};

    friend bool operator==(const admin_note&, const admin_note&) = default;
};

struct record {
    std::int64_t permits = 1;
    lock_clock clock = lock_clock::caller;
    std::int64_t fence = 1; // the next token; only ever grows
    std::vector<holder> holders{};
    std::vector<waiter> waiters{}; // first come, first
    std::optional<admin_note> admin{};
    std::string extra{};

    friend bool operator==(const record&, const record&) = default;
};

// Who asks.
struct contender {
    std::string holder_id{};
    std::string nonce{};
    std::int64_t weight = 1;
    origin from{};
};

// What one goes by; times in milliseconds. All who share a record need the same permits and clock.
struct terms {
    std::int64_t permits = 1;
    lock_clock clock = lock_clock::caller;
    std::int64_t lease_ms = 30'000;
    std::int64_t waiter_ttl_ms = 30'000;
    std::int64_t reclaim_delay_ms = 0; // after a lease, for resources that cannot check tokens
    std::size_t max_waiters = 1024;
    std::int64_t first_fence = 1; // the first token of a record that is made; see floor_of()
    bool adopt_permits = false;   // a record without holders and waiters takes these permits
    bool enqueue = true; // false: take no place in the queue where it cannot be had at once
    bool revive = false; // renew() may take up a lease that is over and that nobody waits for
};

// Who holds a lock and who waits for it, at some time.
struct inspection {
    record live{};                  // without those who are gone
    std::vector<holder> expired{};  // holders whose lease is over, and who may still be at work
    std::vector<waiter> vanished{}; // waiters that nobody hears of any more
    std::int64_t free = 0;          // permits
};

} // namespace durable
} // namespace bide::inline BIDE_ABI

#endif
