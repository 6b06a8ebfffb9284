// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_RECORD_TYPES_HPP
#define BIDE_DURABLE_RECORD_TYPES_HPP

/// \file
/// The parts of the record of a durable lock. durable/record.hpp has the rules,
/// durable/record_json.hpp the stored format.

#include <bide/durable/slot.hpp>

#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace durable {

inline constexpr std::int64_t record_format = 1; ///< the version of the stored format

/// Every number of a record is below 2^53, so that all languages can read it.
inline constexpr std::int64_t largest_number = (std::int64_t{1} << 53) - 1;
/// The largest first token: 2^32 tokens are left.
inline constexpr std::int64_t largest_first_fence = largest_number - (std::int64_t{1} << 32);
inline constexpr std::int64_t largest_time = std::int64_t{1} << 52; ///< the largest time
/// The longest lease or delay: a thousand years.
inline constexpr std::int64_t largest_duration = std::int64_t{1} << 45;
inline constexpr std::int64_t largest_permits = std::int64_t{1} << 31; ///< permits of a record
/// The number of tokens that are skipped if the record may not show all grants.
inline constexpr std::int64_t fence_leap = std::int64_t{1} << 20;

inline constexpr std::size_t longest_name = 256; ///< the longest name, in bytes of UTF-8
inline constexpr std::size_t longest_note = 256; ///< the longest description, in bytes of UTF-8
inline constexpr std::size_t longest_label = 64; ///< the longest key and value, in bytes of UTF-8
inline constexpr std::size_t most_labels = 16;   ///< how many labels a contender may have
/// How many observations one entry stores at most, each of another boot.
inline constexpr std::size_t most_observations = 8;

/// Where a contender runs. With a pid, it is bound to that process. With a mark of presence
/// (slot_presence) and without a pid, it is bound to all processes that have the mark's file open.
struct origin {
    std::string host{};     ///< the machine's name, for people
    std::string boot{};     ///< this_boot(): the boot that the times and the pid belong to
    std::int64_t pid = 0;   ///< the process; 0: not bound to one
    std::int64_t start = 0; ///< when the process started, in ticks since the boot: pids are reused
    std::int64_t space = 0; ///< the namespace of the pid
    std::int64_t mark = 0; ///< the mark of a slot_presence; 0: none. A multiple of 2^24 is no mark:
                           ///< by that number, other processes of the machine only wake this one.
    std::int64_t network = 0; ///< the network namespace of the process; 0: not known

    friend bool operator==(const origin&, const origin&) = default;
};

/// A label of a contender.
struct label {
    std::string key{};   ///< not empty, and unique among the labels of the contender
    std::string value{}; ///< may be empty

    friend bool operator==(const label&, const label&) = default;
};

/// What a contender tells about itself, for people. No rule reads it.
struct description {
    std::string note{};          ///< free text, up to longest_note bytes
    std::vector<label> labels{}; ///< up to most_labels; the record has them in the order of keys

    friend bool operator==(const description&, const description&) = default;
};

/// A stored observation of an entry: contenders of the boot `boot` have seen it unchanged since the
/// time `since`. See durable/expiry.hpp.
struct stored_observation {
    std::string boot{};     ///< the contender's boot: `since` is on its clock; not empty
    std::int64_t moves = 0; ///< the entry's renewals or refreshes then; void if changed since
    std::int64_t since = 0; ///< when the entry was first seen as it is
    std::string extra{};    ///< unknown fields

    friend bool operator==(const stored_observation&, const stored_observation&) = default;
};

/// A contender that asks for permits.
struct contender {
    std::string holder_id{}; ///< the name of its ticket, for people
    std::string nonce{};     ///< its identity
    std::int64_t weight = 1; ///< the permits that it asks for
    origin from{};           ///< where it runs
    description about{};     ///< what it tells about itself

    friend bool operator==(const contender&, const contender&) = default;
};

/// What a grant and a place in the queue have in common. Times are on the record's clock. With
/// lock_clock::boottime and lock_clock::observed, that is the boottime clock of the entry's boot.
struct entry : contender {
    std::int64_t expires_at = 0;                ///< when the lease or the place expires
    std::vector<stored_observation> observed{}; ///< by contenders that cannot read its times
    std::string extra{}; ///< unknown fields as a JSON object, as decode() read them; or empty

    friend bool operator==(const entry&, const entry&) = default;
};

/// A grant. If it is released before its minimum hold time has passed, it stays until then as a
/// resting entry, which has a nonce of its own and is bound to no process and to no mark.
struct holder : entry {
    std::int64_t fence = 0;      ///< the token of the grant
    std::int64_t lane = 0;       ///< the lowest number that no other holder had
    std::int64_t lease_ms = 0;   ///< the length of its lease
    std::int64_t renewals = 0;   ///< how often it was renewed
    std::int64_t held_until = 0; ///< the end of the minimum hold time; 0: none
    std::string held_boot{};     ///< the boot of held_until, if its clock has one

    friend bool operator==(const holder&, const holder&) = default;
};

/// Tells whether the entry is a resting one: released before its minimum hold time has passed.
inline bool is_resting(const holder& h) noexcept { return h.nonce.starts_with("rest-"); }

/// A place in the queue.
struct waiter : entry {
    std::int64_t ttl_ms = 0;      ///< how long the place lasts without a refresh
    std::int64_t refreshes = 0;   ///< how often it was refreshed
    std::int64_t lease_ms = 0;    ///< the lease of a grant by pass_on(); 0: no such grant
    std::int64_t at_least_ms = 0; ///< terms::at_least_ms of that grant

    friend bool operator==(const waiter&, const waiter&) = default;
};

/// A note of the latest change by an administrator.
struct admin_note {
    std::int64_t at = 0; ///< when, on the record's clock
    std::string by{};    ///< the administrator's name
    std::string what{};  ///< the change and its reason
    std::string extra{}; ///< unknown fields

    friend bool operator==(const admin_note&, const admin_note&) = default;
};

/// The record of a durable lock.
struct record {
    std::int64_t permits = 1;              ///< the number of permits
    bool resized = false;                  ///< resize() set `permits`: contenders adopt it
    lock_clock clock = lock_clock::caller; ///< the clock of all times
    std::int64_t fence = 1;                ///< the next token; it only grows
    std::vector<holder> holders{};         ///< the grants
    std::vector<waiter> waiters{};         ///< the queue, in the order of arrival
    std::optional<admin_note> admin{};     ///< the latest change by an administrator
    std::string extra{};                   ///< unknown fields

    friend bool operator==(const record&, const record&) = default;
};

/// The terms of a contender. Times are in milliseconds. All contenders of a record need the same
/// clock, and the same permits unless the record was resized.
struct terms {
    std::int64_t permits = 1;              ///< the number of permits of the record
    lock_clock clock = lock_clock::caller; ///< the clock of the record
    std::int64_t lease_ms = 30'000;        ///< durable_options::lease
    std::int64_t at_least_ms = 0;          ///< the minimum hold time of a grant; 0: none
    std::int64_t waiter_ttl_ms = 30'000;   ///< durable_options::waiter_ttl
    std::size_t max_waiters = 1024;        ///< durable_options::max_waiters
    std::int64_t first_fence = 1;          ///< the least token of a new grant; see floor_of()
    bool adopt_permits = false;            ///< durable_options::adopt_permits
    bool enqueue = true;                   ///< false: enters no queue if the permits are not free
    /// If true, the contender reads the record soon after pass_on() has granted its permits, and
    /// keeps the lease of that grant as it is. Such a contender listens.
    bool listens = false;
};

/// The status of a contender after acquire().
enum class acquire_status {
    granted, ///< it holds its permits, by a new grant
    held,    ///< it holds its permits by an earlier grant
    waiting, ///< it is in the queue; without terms::enqueue, it would have to wait
    refused  ///< see the error
};

/// The outcome of acquire().
struct acquire_outcome {
    acquire_status status = acquire_status::refused; ///< what the contender is
    /// The record changed: the outcome is valid when the record is stored. But `waiting` without
    /// terms::enqueue is valid at once.
    bool changed = false;
    std::int64_t fence = 0; ///< granted, held: the token
    std::int64_t lane = 0;  ///< granted, held: the lane
    /// held: when the lease expires, if acquire() left it as it was; otherwise 0.
    std::int64_t expires_at = 0;
    std::int64_t position = 0; ///< waiting: how many waiters are ahead
    std::int64_t next_ms = 0;  ///< waiting: when the next lease expires; 0 if that is not known
    std::error_code error{};   ///< refused: why
};

/// How release() removes a grant.
struct release_terms {
    std::int64_t but = 0; ///< the token of a grant that stays; 0: none
    /// If true, no minimum hold time counts: the contender gave up and has done no work.
    bool undo = false;
    /// If true, the caller stores the record even if release() changed nothing. Then an earlier
    /// write whose result is unknown can no longer take effect.
    bool settle = false;
};

/// What release() removed. If it removed anything, the caller has to store the record.
enum class release_status {
    released,  ///< a grant; its entry may rest
    withdrawn, ///< a place in the queue
    not_there  ///< nothing: there was neither
};

/// The holders and waiters of a lock at one time.
struct inspection {
    record live{};                  ///< the record without the entries that expired
    std::vector<holder> expired{};  ///< holders with an expired lease, which may still be working
    std::vector<waiter> vanished{}; ///< waiters that expired
    std::int64_t free = 0;          ///< the number of free permits
};

}}} // namespace bide::BIDE_ABI::durable

#endif
