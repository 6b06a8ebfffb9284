// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_IMPL_ADMIN_HPP
#define BIDE_DURABLE_IMPL_ADMIN_HPP

#include <bide/core/config.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/admin.hpp>
#include <bide/durable/detail/background.hpp>
#include <bide/durable/detail/lock_engine.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/record.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// Calls what(engine) on a store thread.
template <class What>
result<bool, std::error_code> administer(const std::shared_ptr<lock_engine>& engine, What what) {
    auto answer = call_store<result<bool, std::error_code>>(
        [engine, what] { return what(*engine); }, engine->retry_time());
    if (!answer && answer.error() == errc::timeout) {
        return unexpected{make_error_code(durable_errc::indeterminate)};
    }
    return answer;
}

inline durable::admin_note note_of(const std::string& by, std::string what, std::string_view why) {
    if (!why.empty()) {
        what.append(": ").append(why);
    }
    return {0, by, std::move(what), {}};
}

// Makes change(record, note) on a store thread. The note gets the time of the change.
template <class Change>
result<bool, std::error_code> administer(const std::shared_ptr<lock_engine>& engine,
                                         const durable::admin_note& note, Change change) {
    return administer(engine, [note, change](lock_engine& on) {
        return on.administer([&](durable::record& of, std::int64_t now) {
            durable::admin_note noted = note;
            noted.at = now;
            return change(of, std::move(noted));
        });
    });
}

} // namespace detail

BIDE_DURABLE_INLINE result<bool, std::error_code>
durable_admin::force_release(std::int64_t fence, std::string_view why) {
    const auto note = detail::note_of(by_, "force_release " + std::to_string(fence), why);
    return detail::administer(engine_, note,
                              [fence](durable::record& r, durable::admin_note noted) {
                                  return durable::force_release(r, fence, std::move(noted));
                              });
}

BIDE_DURABLE_INLINE result<bool, std::error_code> durable_admin::resize(std::int64_t permits,
                                                                        std::string_view why) {
    const auto note = detail::note_of(by_, "resize " + std::to_string(permits), why);
    return detail::administer(engine_, note,
                              [permits](durable::record& r, durable::admin_note noted) {
                                  return durable::resize(r, permits, std::move(noted));
                              });
}

BIDE_DURABLE_INLINE result<bool, std::error_code> durable_admin::repair(std::int64_t min_fence,
                                                                        std::string_view why) {
    const auto note = detail::note_of(by_, "repair", why);
    return detail::administer(
        engine_, [min_fence, note](detail::lock_engine& on) { return on.repair(min_fence, note); });
}

}} // namespace bide::BIDE_ABI

#endif
