// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOT_HPP
#define BIDE_DURABLE_SLOT_HPP

/// \file
/// A slot is where a durable lock keeps its record: one value in a store, changed by
/// compare-and-swap.
///
/// Every slot guarantees its locks:
/// - load() returns the value and the version of one read, never the value of one write with the
///   version of another.
/// - compare_exchange() is atomic with respect to every other one of any process. It returns
///   `stored` only if the value survives what the guarantees of the slot say.
/// - load() returns no value that a later crash could undo.
/// - A version is never used for two values, whatever is deleted and created in between.
/// - No operation waits forever. Each slot has a time limit, after which it gives up an operation
///   that hangs. Then it returns `failed` if certainly nothing was stored, otherwise
///   `indeterminate`.
///
/// One thread at a time uses a slot object; the locks on the slot ensure that.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/slot_types.hpp>

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

namespace bide { inline namespace BIDE_ABI {

/// A slot with the operations that every slot has. The file comment lists what they guarantee.
template <class S>
concept cas_slot =
    requires(S& s, slot_version version, std::string_view value) {
        // Blocks: for one read of the store.
        { s.load() } -> std::same_as<result<slot_snapshot, std::error_code>>;

        // Stores the value if `version` is the current version.
        // Blocks: until the value is as durable as the guarantees say.
        { s.compare_exchange(version, value) } -> std::same_as<cas_result>;

        { S::guarantees } -> std::convertible_to<slot_guarantees>;
    } &&
    std::movable<
        S>; // last: a type that is made from any slot is checked for this concept when it moves

// ---- what a slot may offer in addition

/// The function of a locked update: returns the new value, or nothing to keep the current one.
using slot_update = std::function<std::optional<std::string>(const slot_snapshot&)>;

/// A slot that loads and stores in one step, under the store's own lock, without conflicts. If the
/// update returns nothing, the result is `stored`, with the current version.
template <class S>
concept locked_slot = cas_slot<S> && requires(S& s, const slot_update& update) {
    { s.update_locked(update) } -> std::same_as<cas_result>;
};

/// Tells when the value of a slot may have changed.
class slot_watch {
public:
    slot_watch() = default;
    slot_watch(const slot_watch&) = delete;
    slot_watch& operator=(const slot_watch&) = delete;
    virtual ~slot_watch() = default;

    /// Returns a file descriptor that poll(2) reports as readable after each change that comes
    /// after the watch was made or last drained. It may be readable without a change. It may miss
    /// changes while the store has trouble, so a waiter also reads the slot from time to time.
    virtual int fd() const noexcept = 0;

    /// Makes the descriptor unreadable until the next change.
    ///
    /// Returns: an error if the watch is of no more use.
    virtual std::error_code drain() noexcept = 0;
};

/// A slot that can be watched for changes.
template <class S>
concept watchable_slot = cas_slot<S> && requires(S& s) {
    { s.watch() } -> std::same_as<result<std::unique_ptr<slot_watch>, std::error_code>>;
};

/// A slot that has a clock for all its contenders, in milliseconds since 1970. load() also returns
/// its time.
template <class S>
concept clocked_slot = cas_slot<S> && requires(S& s) {
    { s.server_now() } -> std::same_as<result<std::int64_t, std::error_code>>;
};

/// A slot that loads and stores inside a transaction of the caller: the change of the lock and the
/// caller's own work are committed together, or not at all.
template <class S>
concept transactional_slot = cas_slot<S> && requires(S& s, typename S::transaction& in,
                                                     slot_version version, std::string_view value) {
    { s.load_in(in) } -> std::same_as<result<slot_snapshot, std::error_code>>;
    { s.compare_exchange_in(in, version, value) } -> std::same_as<cas_result>;
};

/// A mark of presence: while it is open, other processes of this machine, in every container, see
/// that its owner runs. The system removes the mark when the last process that has its file open
/// has ended or closed it.
class slot_presence {
public:
    slot_presence() = default;
    slot_presence(const slot_presence&) = delete;
    slot_presence& operator=(const slot_presence&) = delete;
    /// Closes the mark in this process.
    virtual ~slot_presence() = default;

    /// Returns the number of the mark in the record, from 1 to 2^53 - 1.
    virtual std::int64_t mark() const noexcept = 0;

    /// Returns its file descriptor, which is close-on-exec. A child that has it open keeps the
    /// mark.
    virtual int fd() const noexcept = 0;

    /// Called in a child of fork() for a mark of the parent: closes the mark in the child. The
    /// destructor cannot do that, because the child may have inherited further owners of the mark
    /// that it cannot reach.
    virtual void leave() noexcept {}
};

/// Whether a mark is held.
enum class presence {
    yes,    ///< a process has the mark open
    no,     ///< no process has the mark open
    unknown ///< the file of the marks is another one, or cannot be asked
};

/// A slot that keeps marks of presence.
///
/// Each mark has a number of its own. If a mark is taken before its number is stored in the record,
/// every contender that reads the number sees the mark.
///
/// Thread safety: any thread may call both functions, also during an operation and inside an
/// update.
template <class S>
concept present_slot = cas_slot<S> && requires(S& s, std::int64_t mark) {
    { s.be_present() } -> std::same_as<result<std::shared_ptr<slot_presence>, std::error_code>>;
    { s.is_present(mark) } -> std::same_as<presence>;
};

/// A slot that can replace a damaged value. replace_damaged() stores the value only if load()
/// returns durable_errc::corrupt_record. Otherwise, or if another process has replaced the value
/// already, it returns a conflict.
template <class S>
concept repairable_slot = cas_slot<S> && requires(S& s, std::string_view value) {
    { s.replace_damaged(value) } -> std::same_as<cas_result>;
};

/// A slot of a store that serves many slots of this process. They share its connections.
///
/// Slots with the same store() also share one thread that renews leases. for_renewals() returns
/// another slot object for the same value, with a connection that only renewals use: a call that
/// hangs on the slot does not delay them.
template <class S>
concept shared_store_slot = cas_slot<S> && requires(S& s) {
    { s.store() } -> std::same_as<std::string>;
    { s.for_renewals() } -> std::same_as<S>;
};

/// A slot that has explain(): it returns where the slot is, and the store's text about the last
/// operation that failed. It is one line for people, without passwords.
template <class S>
concept explaining_slot = cas_slot<S> && requires(S& s) {
    { s.explain() } -> std::same_as<std::string>;
};

// ---- any slot

/// Accepts a slot that may lose acknowledged values. Use it only if two holders at a time do no
/// harm, or if the resource checks fencing tokens.
struct allow_relaxed_t {
    explicit constexpr allow_relaxed_t() = default;
};
/// The only value of allow_relaxed_t.
inline constexpr allow_relaxed_t allow_relaxed{};

/// Owns a slot of a type that is chosen at run time. Empty after it was moved from.
class slot_ref {
public:
    /// Takes over a slot that keeps acknowledged values.
    template <class S>
        requires(!std::is_same_v<S, slot_ref>) && cas_slot<S>
    slot_ref(S slot) : held_(std::make_unique<holding<S>>(std::move(slot))) {
        static_assert(slot_guarantees(S::guarantees).keeps_acknowledged,
                      "this slot may forget what it acknowledged: pass bide::allow_relaxed if that "
                      "is good enough");
    }
    /// Takes over a slot that may lose acknowledged values.
    template <class S>
        requires(!std::is_same_v<S, slot_ref>) && cas_slot<S>
    slot_ref(allow_relaxed_t, S slot) : held_(std::make_unique<holding<S>>(std::move(slot))) {}

    /// Moves the slot.
    slot_ref(slot_ref&&) noexcept = default;
    /// \overload
    slot_ref& operator=(slot_ref&&) noexcept = default;

    /// Calls the function of the same name of the slot. An operation that the slot does not offer
    /// returns errc::operation_not_supported, presence::unknown, or an empty text.
    ///
    /// Requires: the slot_ref is not empty. This applies to every function below, too.
    slot_guarantees guarantees() const noexcept { return held_->guarantees(); }
    /// Calls compare_exchange() of the slot.
    result<slot_snapshot, std::error_code> load() { return held_->load(); }
    /// Calls compare_exchange() of the slot.
    cas_result compare_exchange(slot_version version, std::string_view value) {
        return held_->compare_exchange(version, value);
    }

    /// Tells whether the slot is a transactional_slot.
    bool is_transactional() const noexcept { return held_->is_transactional(); }
    /// Calls update_locked() of the slot.
    bool is_locked() const noexcept { return held_->is_locked(); }
    /// Calls update_locked() of the slot.
    cas_result update_locked(const slot_update& update) { return held_->update_locked(update); }
    /// Calls watch() of the slot.
    bool is_watchable() const noexcept { return held_->is_watchable(); }
    /// Calls watch() of the slot.
    result<std::unique_ptr<slot_watch>, std::error_code> watch() { return held_->watch(); }
    /// Calls server_now() of the slot.
    bool is_clocked() const noexcept { return held_->is_clocked(); }
    /// Calls server_now() of the slot.
    result<std::int64_t, std::error_code> server_now() { return held_->server_now(); }
    /// Calls be_present() of the slot.
    bool has_presence() const noexcept { return held_->has_presence(); }
    /// Calls be_present() of the slot.
    result<std::shared_ptr<slot_presence>, std::error_code> be_present() {
        return held_->be_present();
    }
    /// Calls replace_damaged() of the slot.
    presence is_present(std::int64_t mark) { return held_->is_present(mark); }
    /// Calls replace_damaged() of the slot.
    cas_result replace_damaged(std::string_view value) { return held_->replace_damaged(value); }
    /// Calls store() of the slot.
    std::string store() { return held_->store(); }
    /// Calls for_renewals() of the slot.
    /// Requires: store() is not empty.
    slot_ref for_renewals() { return slot_ref(held_->for_renewals()); }
    /// Calls explain() of the slot.
    std::string explain() { return held_->explain(); }

private:
    struct any {
        any() = default;
        any(const any&) = delete;
        any& operator=(const any&) = delete;
        virtual ~any() = default;
        virtual slot_guarantees guarantees() const noexcept = 0;
        virtual result<slot_snapshot, std::error_code> load() = 0;
        virtual cas_result compare_exchange(slot_version version, std::string_view value) = 0;
        virtual bool is_transactional() const noexcept = 0;
        virtual bool is_locked() const noexcept = 0;
        virtual cas_result update_locked(const slot_update& update) = 0;
        virtual bool is_watchable() const noexcept = 0;
        virtual result<std::unique_ptr<slot_watch>, std::error_code> watch() = 0;
        virtual bool is_clocked() const noexcept = 0;
        virtual result<std::int64_t, std::error_code> server_now() = 0;
        virtual bool has_presence() const noexcept = 0;
        virtual result<std::shared_ptr<slot_presence>, std::error_code> be_present() = 0;
        virtual presence is_present(std::int64_t mark) = 0;
        virtual cas_result replace_damaged(std::string_view value) = 0;
        virtual std::string store() = 0;
        virtual std::unique_ptr<any> for_renewals() = 0;
        virtual std::string explain() = 0;
    };

    explicit slot_ref(std::unique_ptr<any> held) noexcept : held_(std::move(held)) {}

    static std::error_code not_offered() noexcept {
        return std::make_error_code(std::errc::operation_not_supported);
    }

    template <class S> struct holding final : any {
        explicit holding(S slot) : of(std::move(slot)) {}

        slot_guarantees guarantees() const noexcept override { return S::guarantees; }
        result<slot_snapshot, std::error_code> load() override { return of.load(); }
        cas_result compare_exchange(slot_version version, std::string_view value) override {
            return of.compare_exchange(version, value);
        }
        bool is_transactional() const noexcept override { return transactional_slot<S>; }
        bool is_locked() const noexcept override { return locked_slot<S>; }
        cas_result update_locked(const slot_update& update) override {
            if constexpr (locked_slot<S>) {
                return of.update_locked(update);
            } else {
                return {cas_status::failed, 0, {}, not_offered()};
            }
        }
        bool is_watchable() const noexcept override { return watchable_slot<S>; }
        result<std::unique_ptr<slot_watch>, std::error_code> watch() override {
            if constexpr (watchable_slot<S>) {
                return of.watch();
            } else {
                return unexpected{not_offered()};
            }
        }
        bool is_clocked() const noexcept override { return clocked_slot<S>; }
        result<std::int64_t, std::error_code> server_now() override {
            if constexpr (clocked_slot<S>) {
                return of.server_now();
            } else {
                return unexpected{not_offered()};
            }
        }
        bool has_presence() const noexcept override { return present_slot<S>; }
        result<std::shared_ptr<slot_presence>, std::error_code> be_present() override {
            if constexpr (present_slot<S>) {
                return of.be_present();
            } else {
                return unexpected{not_offered()};
            }
        }
        presence is_present([[maybe_unused]] std::int64_t mark) override {
            if constexpr (present_slot<S>) {
                return of.is_present(mark);
            } else {
                return presence::unknown;
            }
        }
        cas_result replace_damaged([[maybe_unused]] std::string_view value) override {
            if constexpr (repairable_slot<S>) {
                return of.replace_damaged(value);
            } else {
                return {cas_status::failed, 0, {}, not_offered()};
            }
        }
        std::string store() override {
            if constexpr (shared_store_slot<S>) {
                return of.store();
            } else {
                return {};
            }
        }
        std::unique_ptr<any> for_renewals() override {
            if constexpr (shared_store_slot<S>) {
                return std::make_unique<holding>(of.for_renewals());
            } else {
                return nullptr;
            }
        }
        std::string explain() override {
            if constexpr (explaining_slot<S>) {
                return of.explain();
            } else {
                return {};
            }
        }

        S of;
    };

    std::unique_ptr<any> held_;
};

}} // namespace bide::BIDE_ABI

#endif
