#ifndef BIDE_DURABLE_ADMIN_HPP
#define BIDE_DURABLE_ADMIN_HPP

#include <bide/core/config.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/lock_engine.hpp>
#include <bide/durable/detail/store_call.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/record_admin.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {
class durable_lock;
} // namespace detail

// What somebody may do to a durable lock from outside. The last of it is noted in the record: when,
// by whom, what and why.
// Blocks, all of them: for the store, on a store thread, and no longer than
// durable_options::patience and attempt_limit. Errors: durable_errc, errno's, the store's;
// durable_errc::indeterminate where the time is up and it may still be done.
class durable_admin {
public:
    // Takes the hold with this token away. Its holder's next renewal fails; until then it goes on,
    // unless the resource checks tokens. False: there is none.
    result<bool, std::error_code> force_release(std::int64_t fence, std::string_view why) {
        auto done = note("force_release " + std::to_string(fence), why);
        return administer([fence, done](durable::record& r, std::int64_t now) {
            return durable::force_release(r, fence, at(done, now));
        });
    }

    // Takes a place in the queue away; a waiter that lives comes back at its end. False: there is
    // none.
    result<bool, std::error_code> evict_waiter(std::string_view nonce, std::string_view why) {
        const std::string of(nonce);
        auto done = note("evict_waiter " + of, why);
        return administer([of, done](durable::record& r, std::int64_t now) {
            return durable::evict_waiter(r, of, at(done, now));
        });
    }

    // Another number of permits. Contenders with the old one, this lock included, are refused from
    // now on: make them anew. Holders go on and are renewed. If they have more permits than there are
    // then, no contender is granted one until they have released enough; to refuse that, inspect()
    // first. False: there is no record, or permits is not a number that a lock can have.
    result<bool, std::error_code> resize(std::int64_t permits, std::string_view why) {
        auto done = note("resize " + std::to_string(permits), why);
        return administer([permits, done](durable::record& r, std::int64_t now) {
            return durable::resize(r, permits, at(done, now));
        });
    }

    // A new record in the place of one that cannot be read, or of none: without holders and waiters.
    // The tokens begin with `min_fence` or, where that is larger, with the clock's (see
    // durable::floor_of()), which is larger than every one that was given out unless the clock was
    // set back. False: what is there can be read, and was left as it is. A store that is damaged is
    // replaced where the slot can do that (repairable_slot); else what is left of it has to be removed
    // before, and the error is durable_errc::corrupt_record.
    result<bool, std::error_code> repair(std::int64_t min_fence, std::string_view why) {
        auto done = note("repair", why);
        return call([min_fence, done](detail::lock_engine& engine) {
            return engine.repair(min_fence, done);
        });
    }

private:
    friend class detail::durable_lock;
    durable_admin(std::shared_ptr<detail::lock_engine> engine, std::string by)
        : engine_(std::move(engine)), by_(std::move(by)) {}

    durable::admin_note note(std::string what, std::string_view why) const {
        if (!why.empty()) {
            what.append(": ").append(why);
        }
        return {0, by_, std::move(what)};
    }
    static durable::admin_note at(durable::admin_note done, std::int64_t now) {
        done.at = now;
        return done;
    }

    template <class Change> result<bool, std::error_code> administer(Change change) {
        return call([change](detail::lock_engine& engine) { return engine.administer(change); });
    }
    template <class What> result<bool, std::error_code> call(What what) {
        const auto engine = engine_;
        auto answer = detail::call_store<result<bool, std::error_code>>(
            [engine, what] { return what(*engine); }, engine->patience());
        if (!answer && answer.error() == errc::timeout) {
            return unexpected{make_error_code(durable_errc::indeterminate)};
        }
        return answer;
    }

    std::shared_ptr<detail::lock_engine> engine_;
    std::string by_;
};

} // namespace bide::inline BIDE_ABI

#endif
