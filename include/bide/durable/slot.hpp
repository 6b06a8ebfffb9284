// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOT_HPP
#define BIDE_DURABLE_SLOT_HPP

/// \file
/// A slot keeps the record of a durable lock: one value in a store, changed by compare-and-swap.
///
/// Every slot guarantees:
/// - load() returns the value and the version of one write, which no later crash undoes.
/// - compare_exchange() is atomic with respect to every process. It returns `stored` only if the
///   value survives every crash that the guarantees of the slot cover.
/// - No two values have the same version, even after the value was deleted and created again.
/// - Each operation has a time limit. If an operation exceeds the limit, it returns `failed` if
///   nothing was stored, and `indeterminate` if that is not certain.
///
/// Thread safety: one thread at a time. The locks on the slot ensure this.

#include <bide/core/result.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

namespace bide { inline namespace BIDE_ABI {

/// The version of a value in a slot. 0: no value was ever stored.
using slot_version = std::uint64_t;

/// A value of a slot, with its version.
struct slot_snapshot {
    slot_version version = 0; ///< the version of the value
    std::string value{};      ///< the value

    /// True if a newer value, which may have granted tokens, may have been stored and then lost.
    bool fell_back = false;

    /// True if the lost value was acknowledged: it may contain a grant that `value` does not show.
    bool lost_acknowledged = false;

    /// The store's clock at the time of the read, in milliseconds since 1970, if it has one. A slot
    /// that guarantees lock_clock::server always sets it.
    std::optional<std::int64_t> server_ms{};

    /// A counter of the store; empty if the store keeps none. It is larger than the number of
    /// changes ever made to this value. It never decreases, even while the value is absent.
    std::optional<std::int64_t> counter{};
};

/// What a compare-and-swap did.
enum class cas_status {
    stored,       ///< the value was stored
    conflict,     ///< the version is another one; nothing was stored
    failed,       ///< nothing was stored: see the error
    indeterminate ///< stored or not, now or a little later: see the error, and load() again
};

/// The result of a compare-and-swap, with its details.
struct cas_result {
    cas_status status = cas_status::failed; ///< what happened
    slot_version version = 0;               ///< stored: the version of the new value
    std::optional<slot_snapshot> current{}; ///< conflict: the current value, if the store told it
    std::error_code error{};                ///< failed, indeterminate: why
};

/// The clock of the times of a record. See durable/expiry.hpp.
enum class lock_clock {
    caller,   ///< the caller's `now`
    boottime, ///< this machine's clock since its boot, which continues while it sleeps
    server,   ///< the store's clock
    observed  ///< none: a lease expires when it was seen unchanged for longer than its length
};

/// What a slot guarantees.
struct slot_guarantees {
    /// True if an acknowledged value is never lost while a contender may rely on it. It survives a
    /// crash of processes or of the system, a loss of power, and a failover to a replica.
    bool keeps_acknowledged = false;

    /// The contenders that share the slot may be on several machines.
    bool multi_host = false;

    /// The clock that its locks use by default.
    lock_clock clock = lock_clock::boottime;
};

/// A mark of presence shows that its owner runs. All containers of the machine can see the mark.
/// The system removes it when no process has it open. The destructor closes it in this process.
class slot_presence {
public:
    slot_presence& operator=(slot_presence&&) = delete;
    virtual ~slot_presence() = default;

    /// Returns the number of the mark in the record, from 1 to 2^53 - 1.
    virtual std::int64_t mark() const noexcept = 0;

    /// Returns the file descriptor of the mark, which is close-on-exec.
    virtual int fd() const noexcept = 0;

    /// Closes the mark in a child of fork(), which cannot reach every std::shared_ptr to it.
    virtual void leave() noexcept {}
};

/// Whether a process has a mark of presence open.
enum class presence {
    yes,    ///< a process has the mark open
    no,     ///< no process has the mark open
    unknown ///< the file with the mark was replaced, or cannot be read
};

/// The function of a locked update: returns the new value, or nothing to keep the current one.
using slot_update = std::function<std::optional<std::string>(const slot_snapshot&)>;

/// The base class of all slots. A slot has a `static constexpr slot_guarantees guarantees`, is
/// movable, and overrides the functions that its store supports. Their defaults return
/// errc::operation_not_supported, presence::unknown, or nothing.
class slot {
public:
    virtual ~slot() = default;

    /// Reads the value. If the guarantees of the slot have lock_clock::server, also reads the time.
    /// Blocks: for one read of the store.
    virtual result<slot_snapshot, std::error_code> load() = 0;

    /// Stores the value if `version` is the current version.
    /// Blocks: until the value is as durable as the guarantees say.
    virtual cas_result compare_exchange(slot_version version, std::string_view value) = 0;

    // ---- what a slot may offer in addition

    /// Loads the value, calls the update with it, and stores what the update returns, in one step
    /// under the store's own lock. If it returns nothing, the value stays as it is; this also
    /// counts as `stored`, with its version.
    virtual cas_result update_locked(const slot_update&) {
        return {cas_status::failed, 0, {}, not_offered()};
    }

    /// Opens a mark of presence with a number that no other mark has.
    /// Thread safety: any thread may call this function and is_present(), even during an operation.
    virtual result<std::shared_ptr<slot_presence>, std::error_code> be_present() {
        return unexpected{not_offered()};
    }
    /// Tells whether a process has the mark open.
    virtual presence is_present(std::int64_t /* mark */) const { return presence::unknown; }

    /// Makes an inotify(7) instance readable after each change of the value, and after a process
    /// has closed a mark. Returns false if that is not possible.
    virtual bool watch(int /* inotify */) const { return false; }

    /// If the store is damaged, so that load() returns durable_errc::corrupt_record, stores the
    /// value. If the store is not damaged, or not any more, returns a conflict.
    virtual cas_result replace_damaged(std::string_view /* value */) {
        return {cas_status::failed, 0, {}, not_offered()};
    }

    /// Returns the name of the store. In each process, one thread renews the leases of all slots
    /// with the same name. If the name is empty, which is the default, the slot shares no thread.
    virtual std::string store() const { return {}; }
    /// Returns another slot object for the same value, with a connection that only renewals use. So
    /// a call that hangs on this slot delays no renewal. Not nullptr if store() is not empty.
    virtual std::unique_ptr<slot> for_renewals() const { return nullptr; }

    /// Returns where the slot is, and the store's text about the last operation that failed. It is
    /// one line for people, without passwords.
    virtual std::string explain() const { return {}; }

protected:
    slot() = default;
    /// \cond
    slot(const slot&) = default;
    slot& operator=(const slot&) = default;
    /// \endcond

private:
    static std::error_code not_offered() noexcept {
        return std::make_error_code(std::errc::operation_not_supported);
    }
};

namespace detail {

// Forwards to a slot that it owns, so that a program need not include the slot's implementation.
class slot_handle : public slot {
public:
    result<slot_snapshot, std::error_code> load() override { return core_->load(); }
    cas_result compare_exchange(slot_version version, std::string_view value) override {
        return core_->compare_exchange(version, value);
    }
    std::string store() const override { return core_->store(); }
    std::unique_ptr<slot> for_renewals() const override { return core_->for_renewals(); }
    std::string explain() const override { return core_->explain(); }
    cas_result update_locked(const slot_update& update) override {
        return core_->update_locked(update);
    }
    result<std::shared_ptr<slot_presence>, std::error_code> be_present() override {
        return core_->be_present();
    }
    presence is_present(std::int64_t mark) const override { return core_->is_present(mark); }
    bool watch(int inotify) const override { return core_->watch(inotify); }
    cas_result replace_damaged(std::string_view value) override {
        return core_->replace_damaged(value);
    }

protected:
    // Requires: a derived class that passes no slot sets `core_`.
    explicit slot_handle(std::unique_ptr<slot> core = nullptr) noexcept : core_(std::move(core)) {}

    std::unique_ptr<slot> core_;
};

} // namespace detail

/// A type of slot, which a lock can take over.
template <class S>
concept any_slot = std::derived_from<S, slot> && std::movable<S> && requires {
    { S::guarantees } -> std::convertible_to<slot_guarantees>;
};

/// The type of allow_relaxed.
struct allow_relaxed_t {
    explicit constexpr allow_relaxed_t() = default;
};
/// Accepts a slot that may lose acknowledged values. Use it only if two holders at a time do no
/// harm, or if the resource checks fencing tokens.
inline constexpr allow_relaxed_t allow_relaxed{};

/// Owns a slot of a type that is chosen at run time. Empty after it was moved from.
class slot_ref {
public:
    /// Takes over a slot that keeps acknowledged values.
    template <any_slot S>
    slot_ref(S of) : slot_ref(std::make_unique<S>(std::move(of)), S::guarantees) {
        static_assert(slot_guarantees(S::guarantees).keeps_acknowledged,
                      "this slot may forget what it acknowledged: pass bide::allow_relaxed if that "
                      "is good enough");
    }
    /// Takes over a slot that may lose acknowledged values.
    template <any_slot S>
    slot_ref(allow_relaxed_t, S of) : slot_ref(std::make_unique<S>(std::move(of)), S::guarantees) {}

    /// Returns what the slot guarantees.
    slot_guarantees guarantees() const noexcept { return guarantees_; }

    /// Requires: the slot_ref is not empty.
    slot* operator->() const noexcept { return held_.get(); }
    /// \overload
    slot& operator*() const noexcept { return *held_; }

    /// Returns a slot_ref that owns the slot object of slot::for_renewals().
    /// Requires: slot::store() is not empty.
    slot_ref for_renewals() const { return slot_ref(held_->for_renewals(), guarantees_); }

private:
    slot_ref(std::unique_ptr<slot> held, slot_guarantees of) noexcept
        : held_(std::move(held)), guarantees_(of) {}

    std::unique_ptr<slot> held_;
    slot_guarantees guarantees_;
};

}} // namespace bide::BIDE_ABI

#endif
