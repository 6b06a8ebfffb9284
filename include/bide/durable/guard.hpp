#ifndef BIDE_DURABLE_GUARD_HPP
#define BIDE_DURABLE_GUARD_HPP

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/hold.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/ticket.hpp>

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

    // Releases it, as well as can be: what cannot be released is over with its lease.
    // Blocks: for the store, as long as that takes to answer or to give up.
    ~durable_guard() {
        if (hold_ != nullptr) {
            hold_->end();
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
    // them short. release() and the destructor do not stop it.
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
    // Blocks: for the store.
    result<void, std::error_code> renew() { return hold_->renew(); }

    // Gives the permits back; the guard holds nothing afterwards, whatever the answer. Errors:
    // durable_errc::lock_lost: it was lost before; the store's: it is over with its lease at the
    // latest.
    // Blocks: for the store.
    result<void, std::error_code> release() {
        const std::shared_ptr<detail::hold> ended = std::move(hold_);
        return ended->release();
    }

    // Of a hold that is acquire_request::inheritable: a file descriptor, close-on-exec, which a child
    // inherits where that flag is taken off between fork() and exec. -1: it is none. Do not close it
    // here.
    int descriptor() const noexcept { return hold_->descriptor(); }

    // Leaves an inheritable hold to the children that have the descriptor open; true. False: no
    // process has, and the permits are released. The guard holds nothing afterwards. Errors: as
    // release().
    // Blocks: for the store.
    result<bool, std::error_code> hand_over() {
        const std::shared_ptr<detail::hold> ended = std::move(hold_);
        return ended->hand_over();
    }

    // Leaves the permits held, renewed no more: who has the ticket goes on with them. A hold that is
    // inheritable goes on as long as a child has its descriptor open.
    // Throws: std::bad_alloc; nothing changes then.
    durable_ticket detach() {
        durable_ticket t = hold_->ticket();
        std::exchange(hold_, nullptr)->detach();
        return t;
    }

private:
    friend class detail::acquisition;
    explicit durable_guard(std::shared_ptr<detail::hold> held) noexcept : hold_(std::move(held)) {}

    std::shared_ptr<detail::hold> hold_;
};

} // namespace bide::inline BIDE_ABI

#endif
