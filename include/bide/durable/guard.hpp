#ifndef BIDE_DURABLE_GUARD_HPP
#define BIDE_DURABLE_GUARD_HPP

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/hold.hpp>
#include <bide/durable/detail/store_call.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/ticket.hpp>
#include <bide/task/task.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <system_error>
#include <utility>

namespace bide::inline BIDE_ABI {

// Permits of a durable lock, held. Renews its lease in the background (durable_options::auto_renew)
// and says when it has lost it all the same.
//
// Nothing on this machine can keep a holder from being suspended for longer than its lease: between
// a look at lost() and a write, others may come to hold the lock. Give the resource the token, and
// let it refuse older ones.
class [[nodiscard]] durable_guard {
public:
    durable_guard(durable_guard&&) noexcept = default;
    durable_guard& operator=(durable_guard&& other) noexcept {
        if (this != &other) {
            durable_guard dropped(std::move(*this));
            hold_ = std::move(other.hold_);
        }
        return *this;
    }

    // Releases it. If the store fails, the lease ends instead.
    // Blocks: for the store, as release().
    ~durable_guard() {
        if (hold_ != nullptr) {
            detail::end_hold(hold_);
        }
    }

    // Requires, all of them: not moved from, nor detached.

    // Larger than that of every grant before.
    std::int64_t fence() const noexcept { return hold_->ticket().fence; }

    // Below the number of permits; no other holder has it. 0 for a mutex and for a writer.
    std::int64_t lane() const noexcept { return hold_->lane(); }

    const durable_ticket& ticket() const noexcept { return hold_->ticket(); }

    // Stopped by the first renewal that finds the hold gone; and, whatever the store does, by the
    // end of the lease on this machine's clock, less its margin, at the latest. Its callbacks run
    // on a thread that watches over all leases of the process, or on one that renews some: keep
    // them short. A callback that blocks delays that, and the first renewals of other holds.
    // release() and the destructor do not stop it.
    std::stop_token lost() const noexcept { return hold_->lost(); }

    // Not lost, and the lease is not over.
    bool is_held() const noexcept { return hold_->is_held(); }

    // Throws: std::system_error (durable_errc::lock_lost) unless is_held().
    void check() const {
        if (!is_held()) {
            detail::throw_error(make_error_code(durable_errc::lock_lost));
        }
    }

    // Until the end of the lease on this machine, its margin taken off; zero when it is lost.
    std::chrono::milliseconds remaining() const noexcept { return hold_->remaining(); }

    // A lease from now on. Errors: durable_errc::lock_lost; the store's, and then it may be tried
    // again while is_held().
    // Blocks: for the store. A guard of acquire() or try_acquire() calls it on the calling thread:
    // the call takes durable_options::patience, and what one operation of the slot takes besides. A
    // slot that never returns blocks it for ever. A guard of async_acquire() calls it on a store
    // thread, and waits no longer than durable_options::patience and attempt_limit.
    result<void, std::error_code> renew() { return detail::renew_hold(hold_); }

    // Gives the permits back; the guard holds nothing afterwards, whatever the answer. Errors:
    // durable_errc::lock_lost: it was lost before; the store's, or errc::timeout: its lease ends at
    // the latest.
    // Blocks: as renew().
    result<void, std::error_code> release() {
        return detail::release_hold(std::exchange(hold_, nullptr));
    }

    // As release(), on a store thread, and waits no longer than that. errc::timeout: it is not
    // known to be released yet; the store thread goes on.
    // Blocks: for `limit`, and durable_options::attempt_limit besides.
    result<void, std::error_code> release_for(std::chrono::nanoseconds limit) {
        const std::shared_ptr<detail::hold> ended = std::exchange(hold_, nullptr);
        detail::call_limits limits = ended->patience();
        limits.until = deadline::after(limit);
        return detail::call_store(detail::giving_back(ended), limits,
                                  detail::call_kind::has_to_run);
    }

    // As renew() and release(), for a coroutine: the store is called on a store thread, and no
    // thread waits. They take no longer than durable_options::patience and attempt_limit:
    // errc::timeout. The guard holds nothing once async_release() was called. A task of it that is
    // dropped before it was awaited releases as the guard's destructor does.
    // Cancel: errc::stopped; the store thread goes on.
    task<result<void, std::error_code>> async_renew() {
        const std::shared_ptr<detail::hold> held = hold_;
        return detail::async_call_store<result<void, std::error_code>>(
            [held] { return held->renew(); }, held->patience());
    }
    task<result<void, std::error_code>> async_release() { return release_task(std::move(*this)); }

    // Of a hold that is acquire_request::inheritable: a file descriptor, close-on-exec, which a child
    // inherits where that flag is taken off between fork() and exec. -1: it is none. Do not close it
    // here.
    int descriptor() const noexcept { return hold_->descriptor(); }

    // Leaves an inheritable hold to the children that have the descriptor open; true. False: no
    // process has, and the permits are released. The guard holds nothing afterwards. Errors: as
    // release().
    // Blocks: as renew().
    result<bool, std::error_code> hand_over() {
        return detail::hand_over_hold(std::exchange(hold_, nullptr));
    }

    // Leaves the permits held, renewed no more: who has the ticket goes on with them. A hold that is
    // inheritable goes on as long as a child has its descriptor open. A ticket that is bound to this
    // process keeps a mark of presence, which is a file descriptor, until a lock object of this
    // process has released it or found it lost.
    // Throws: std::bad_alloc; nothing changes then.
    durable_ticket detach() {
        durable_ticket t = hold_->ticket();
        hold_->detach();
        hold_.reset();
        return t;
    }

private:
    friend class detail::acquisition;
    explicit durable_guard(std::shared_ptr<detail::hold> held) noexcept : hold_(std::move(held)) {}

    static task<result<void, std::error_code>> release_task(durable_guard mine) {
        const std::shared_ptr<detail::hold> ended = std::exchange(mine.hold_, nullptr);
        auto released = detail::async_call_store(detail::giving_back(ended), ended->patience(),
                                                 detail::call_kind::has_to_run);
        co_return co_await std::move(released);
    }

    std::shared_ptr<detail::hold> hold_;
};

} // namespace bide::inline BIDE_ABI

#endif
