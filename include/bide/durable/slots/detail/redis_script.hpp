#ifndef BIDE_DURABLE_SLOTS_DETAIL_REDIS_SCRIPT_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_REDIS_SCRIPT_HPP

// What the server runs, undivided, for a slot: all of both its operations.

#include <bide/core/config.hpp>

namespace bide::inline BIDE_ABI {
namespace detail {

// First in the answer; the server's milliseconds follow, and then what it says here.
enum class redis_found : long long {
    nothing = 0, // "0" and ""
    record = 1,  // the version and the value
    garbage = 2, // its kind: something that no slot has written, or the last version there is
    stored = 3   // the new version
};

// KEYS: the key. ARGV: nothing, to load; or the version that it must have, the value to store, and
// the channel to tell or "". A new version is the server's time in microseconds, or one more than
// the last where that is not less. A number of Lua's counts to 2^53 exactly. Once something is
// stored nothing fails any more.
//
// PERSIST is there for a replica to refuse: what it would load may be old. (Not before HSET, which
// is refused for want of memory only where nothing was written before it.)
inline constexpr const char* redis_script =
    "local t = redis.call('TIME')\n"
    "local ms = t[1] * 1000 + math.floor(t[2] / 1000)\n"
    "local kind = redis.call('TYPE', KEYS[1]).ok\n"
    "local found, version, value = 0, '0', ''\n"
    "local is_ours = kind == 'none'\n"
    "if kind == 'hash' then\n"
    "  local both = redis.call('HMGET', KEYS[1], 'v', 'p')\n"
    "  found, version, value = 1, both[1], both[2]\n"
    "  is_ours = version and value and string.find(version, '^[1-9]%d*$')\n"
    "end\n"
    "if not is_ours then return {2, ms, kind} end\n"
    "if version ~= ARGV[1] then\n"
    "  redis.call('PERSIST', KEYS[1])\n"
    "  return {found, ms, version, value}\n"
    "end\n"
    "local number = math.max(t[1] * 1000000 + t[2], tonumber(version) + 1)\n"
    "if number > 9007199254740991 then return {2, ms, kind} end\n"
    "local text = string.format('%.0f', number)\n"
    "redis.call('HSET', KEYS[1], 'v', text, 'p', ARGV[2])\n"
    "if ARGV[3] ~= '' then redis.pcall('PUBLISH', ARGV[3], text) end\n"
    "return {3, ms, text}\n";

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
