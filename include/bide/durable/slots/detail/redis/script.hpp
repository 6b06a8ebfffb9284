// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_REDIS_SCRIPT_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_REDIS_SCRIPT_HPP

// The script that the server runs atomically for a slot: both the load and the compare-and-swap.

#include <bide/core/config.hpp>

namespace bide::inline BIDE_ABI {
namespace detail {

// The first element of the script's reply. The second one is the server's time in milliseconds. The
// remaining ones are:
enum class redis_found : long long {
    nothing = 0, // "0" and ""
    record = 1,  // the version and the value
    garbage = 2, // the key's type; no slot has written it, or its version is the last possible one
    stored = 3   // the new version
};

// KEYS: the key. ARGV to load: none. ARGV to store: the expected version, the value, and the
// channel to publish on or "". A new version is the server's time in microseconds. If that is not
// greater than the previous version, the new version is the previous one plus one. A number of Lua
// is exact up to 2^53. After HSET the script cannot fail.
//
// PERSIST makes a replica refuse the load, because the value of a replica may be old. PERSIST must
// not precede HSET: if the server lacks memory, it refuses HSET only if the script has written
// nothing before.
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
