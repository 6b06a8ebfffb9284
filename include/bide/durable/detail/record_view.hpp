// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_RECORD_VIEW_HPP
#define BIDE_DURABLE_DETAIL_RECORD_VIEW_HPP

// A view of a record at one moment: the value that was read from the slot, the time of that read,
// and the judge that decides which leases have expired.

#include <bide/core/config.hpp>
#include <bide/durable/detail/store_time.hpp>
#include <bide/durable/expiry.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/record_admin.hpp>
#include <bide/durable/record_json.hpp>
#include <bide/durable/slot_types.hpp>

#include <cstdint>
#include <system_error>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// It refers to its arguments, which have to outlive it.
class record_view {
public:
    record_view(const store_time& time, const durable::process_knowledge& known,
                const durable::origin& here, const durable::observations& seen) noexcept
        : time_(time), processes_(known), here_(here), seen_(seen) {}

    durable::record record{};
    read_time at{};
    bool exists = false;
    bool is_mended = false; // the record differs from what was read, and has to be stored

    // Reads the snapshot.
    // Throws: what durable_options::now throws, std::bad_alloc.
    std::error_code read(const slot_snapshot& from, std::int64_t looked_ms, given_time now,
                         const durable::terms& terms);

    // Notes the record in `by`, for the judge.
    // Requires: read() was called.
    void note_in(durable::observations& seen) const {
        if (!at.is_given) {
            seen.note(record, durable::boottime_ms());
        }
    }

    const durable::origin& here() const noexcept { return here_; }
    durable::expiry_judge judge() const {
        return time_.judge(at, here_, seen_).knowing(&processes_);
    }
    std::int64_t good_until() const noexcept { return time_.good_until(at); }

private:
    const store_time& time_;
    const durable::process_knowledge& processes_;
    const durable::origin& here_;
    const durable::observations& seen_;
};

inline std::error_code record_view::read(const slot_snapshot& from, std::int64_t looked_ms,
                                         given_time now, const durable::terms& terms) {
    const auto time = time_.of(from, looked_ms, now);
    if (!time) {
        return time.error();
    }
    at = *time;
    exists = from.version != 0;
    durable::terms first = terms;
    first.first_fence = at.first_fence;
    if (!exists) {
        record = durable::fresh_record(first);
        return {};
    }
    auto decoded = durable::decode(from.value);
    if (!decoded) {
        return decoded.error();
    }
    record = std::move(*decoded);
    if (from.fell_back) {
        durable::make_up_for_lost(record, from.lost_acknowledged, first, at.now_ms, here_);
        is_mended = true;
    }
    return {};
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
