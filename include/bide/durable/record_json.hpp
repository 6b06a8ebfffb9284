// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_RECORD_JSON_HPP
#define BIDE_DURABLE_RECORD_JSON_HPP

/// \file
/// The stored format of the record: JSON, which every language can read. It is written without
/// white space. Times and numbers are integers below 2^53, and text is UTF-8.
///
/// \code
/// {"v":1,"permits":3,"clock":"boottime","fence":42,
///  "holders":[{"holderId":"billing-7","nonce":"9f..","fence":41,"lane":0,"weight":1,
///              "leaseMs":30000,"leaseExpiresAt":1717000030000,"renewals":4,
///              "host":"h1","boot":"..","pid":812,"start":99123,"space":4026531836,
///              "mark":71,"observed":[{"boot":"..","moves":4,"since":1200500}],
///              "heldUntil":1717000060000,"heldBoot":"..",
///              "note":"nightly run","labels":{"team":"billing"}}],
///  "waiters":[{"holderId":"billing-9","nonce":"a1..","weight":1,"ttlMs":30000,
///              "expiresAt":1717000030000,"refreshes":0,"host":"h2","boot":"..","pid":90,
///              "network":4026531840,"leaseMs":30000,"atLeastMs":5000}],
///  "admin":{"at":1717000000000,"by":"ops","what":"force_release 40"}}
/// \endcode
///
/// `clock` is one of caller, boottime, server, observed. `fence` is the next token, which is larger
/// than the token of every holder. `"resized":true` behind `permits` says that an administrator has
/// set the permits. This field and the fields host, boot, pid, start, space, mark, observed, note,
/// labels, heldUntil, heldBoot and admin may be absent. A waiter may also have observed, note and
/// labels. An observation is void if its `moves` differs from the entry's `renewals` or
/// `refreshes`: programs of earlier versions keep the observation when they renew. They keep
/// `heldUntil`, too, so `heldBoot` tells which boot's clock `heldUntil` is on. The nonce of a
/// resting entry is `rest-` and its token. A waiter with `leaseMs` may be granted its permits by
/// another contender (durable/record.hpp). `network`, its network namespace, tells which processes
/// can wake it.
///
/// Fields with other names are kept unchanged. Every other deviation makes the record corrupt. So
/// does an object with two fields of one name, and nesting deeper than 64 levels. A record that
/// cannot be read is never treated as an empty one. The fields may come in any order. Known fields
/// are written in a fixed order; unknown fields follow, unchanged.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/record_types.hpp>

#include <string>
#include <string_view>
#include <system_error>

namespace bide { inline namespace BIDE_ABI { namespace durable {

/// Writes a record as JSON. Text that is not valid UTF-8 is replaced.
///
/// Throws: std::bad_alloc.
std::string encode(const record& r);

/// Reads a record from JSON.
///
/// Returns: the record, or durable_errc::corrupt_record or unsupported_record_version.
/// Throws: std::bad_alloc.
result<record, std::error_code> decode(std::string_view text);

}}} // namespace bide::BIDE_ABI::durable

#if defined(BIDE_DURABLE_HEADER_ONLY)
#include <bide/durable/impl/record_json.hpp>
#endif

#endif
