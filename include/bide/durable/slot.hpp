#ifndef BIDE_DURABLE_SLOT_HPP
#define BIDE_DURABLE_SLOT_HPP

// A slot is where a durable lock keeps its record: one value in a store, changed by compare-and-swap.
//
// What every slot owes its locks:
//   - load() answers value and version from one read: never the value of one write with the version
//     of another;
//   - compare_exchange() is atomic against every other of any process, and says `stored` only when
//     the value will survive whatever the slot's guarantees say;
//   - load() answers nothing that a crash could still take back;
//   - a version is never used for two values, whatever is deleted and made again in between;
//   - no operation waits for ever: what hangs is given up after a time of the slot's own, and
//     answered as `failed` where certainly nothing was stored, else as `indeterminate`.
// A slot object is used by one thread at a time; its locks see to that.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>

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

namespace bide::inline BIDE_ABI {

// Of one value in a slot. 0: nothing was ever stored.
using slot_version = std::uint64_t;

struct slot_snapshot {
    slot_version version = 0;
    std::string value{};

    // A newer value may have been stored and lost: the store fell back to what it could still read.
    // What was drawn from the lost value, fencing tokens say, may have been given out.
    bool fell_back = false;

    // The newer value is known to have been acknowledged: somebody may hold by it what this one does
    // not show.
    bool lost_acknowledged = false;

    // The store's clock at the time of the read, in milliseconds since 1970, where it tells.
    std::optional<std::int64_t> server_ms{};

    // A count of the store's that is larger than the number of changes that were ever made to this
    // value, and never falls, where the store keeps one, whether the value is there or not.
    std::optional<std::int64_t> counter{};
};

enum class cas_status {
    stored,
    conflict,     // the version is another one; nothing was stored
    failed,       // nothing was stored: see the error
    indeterminate // stored or not, now or a little later: see the error, and load() again
};

struct cas_result {
    cas_status status = cas_status::failed;
    slot_version version = 0;               // stored: the new value's
    std::optional<slot_snapshot> current{}; // conflict: what is there, where that came for nothing
    std::error_code error{};                // failed, indeterminate
};

// On which clock the times of a record are; see durable/expiry.hpp.
enum class lock_clock {
    caller,   // the caller's `now`
    boottime, // this machine's, since it was booted, going on while it sleeps
    server,   // the store's
    observed  // none: a lease is over when it was seen unchanged for its length
};

struct slot_guarantees {
    // What was acknowledged is not forgotten while anybody may still rely on it: not by a crash of
    // processes, of the system, by a loss of power, or by a replica that takes over.
    bool keeps_acknowledged = false;

    // Those who share it may be on several machines.
    bool multi_host = false;

    // The clock that its locks use where they are not told.
    lock_clock clock = lock_clock::boottime;
};

template <class S>
concept cas_slot = requires(S& s, slot_version version, std::string_view value) {
    // Blocks: for one read of the store.
    { s.load() } -> std::same_as<result<slot_snapshot, std::error_code>>;

    // Stores the value if the version is (still) this one.
    // Blocks: until it is as durable as the guarantees say.
    { s.compare_exchange(version, value) } -> std::same_as<cas_result>;

    { S::guarantees } -> std::convertible_to<slot_guarantees>;
} && std::movable<S>; // last: what is made from any slot is asked whether it is one when it moves

// ---- what a slot may offer besides

// What a locked update makes of a value: another one, or nothing to leave it.
using slot_update = std::function<std::optional<std::string>(const slot_snapshot&)>;

// load() and compare_exchange() in one, under the store's own lock: no conflicts. Where the update
// answers nothing the result is `stored`, with the version that is there.
template <class S>
concept locked_slot = cas_slot<S> && requires(S& s, const slot_update& update) {
    { s.update_locked(update) } -> std::same_as<cas_result>;
};

// Tells when the value may have changed.
class slot_watch {
public:
    slot_watch() = default;
    slot_watch(const slot_watch&) = delete;
    slot_watch& operator=(const slot_watch&) = delete;
    virtual ~slot_watch() = default;

    // A file descriptor that poll(2) finds readable after each change that came after the watch was
    // made or last drained. It may be readable for nothing, and it may miss changes when the store
    // is in trouble: who waits looks again now and then.
    virtual int fd() const noexcept = 0;

    // Makes it unreadable until the next change. An error: the watch is of no more use.
    virtual std::error_code drain() noexcept = 0;
};

template <class S>
concept watchable_slot = cas_slot<S> && requires(S& s) {
    { s.watch() } -> std::same_as<result<std::unique_ptr<slot_watch>, std::error_code>>;
};

// Has a clock of its own, in milliseconds since 1970, for all who share it; load() brings it along.
template <class S>
concept clocked_slot = cas_slot<S> && requires(S& s) {
    { s.server_now() } -> std::same_as<result<std::int64_t, std::error_code>>;
};

// Loads, and stores, inside a transaction of the caller's: the change of the lock and the caller's
// own work are committed together or not at all.
template <class S>
concept transactional_slot = cas_slot<S> && requires(S& s, typename S::transaction& in,
                                                     slot_version version, std::string_view value) {
    { s.load_in(in) } -> std::same_as<result<slot_snapshot, std::error_code>>;
    { s.compare_exchange_in(in, version, value) } -> std::same_as<cas_result>;
};

// A mark by which others on this machine, in whatever container, see that whoever has it is there:
// the system takes it away when the last process that has its file open has ended or closed it.
class slot_presence {
public:
    slot_presence() = default;
    slot_presence(const slot_presence&) = delete;
    slot_presence& operator=(const slot_presence&) = delete;
    virtual ~slot_presence() = default; // closes it here

    // Its name in the record, from 1 to 2^53 - 1.
    virtual std::int64_t mark() const noexcept = 0;

    // A file descriptor, close-on-exec. A child that has it open keeps the mark.
    virtual int fd() const noexcept = 0;
};

enum class presence { yes, no, unknown };

// Each mark is one of its own. A mark that was taken before its name was stored is seen by a
// contender that reads the name. Unknown: the file of the marks is not the one that it was, or cannot
// be asked. Both may be called by any thread, beside an operation and inside an update.
template <class S>
concept present_slot = cas_slot<S> && requires(S& s, std::int64_t mark) {
    { s.be_present() } -> std::same_as<result<std::shared_ptr<slot_presence>, std::error_code>>;
    { s.is_present(mark) } -> std::same_as<presence>;
};

// Stores the value where load() answers durable_errc::corrupt_record, and only there: else, and
// where others were first, the answer is a conflict.
template <class S>
concept repairable_slot = cas_slot<S> && requires(S& s, std::string_view value) {
    { s.replace_damaged(value) } -> std::same_as<cas_result>;
};

// Is one of many in a store that all slots of this process share: they share its connections, and
// those with the same store() one thread that renews leases. for_renewals() is another slot object
// for the same value, on a connection that only renewals use: a call that hangs does not stall it.
template <class S>
concept shared_store_slot = cas_slot<S> && requires(S& s) {
    { s.store() } -> std::same_as<std::string>;
    { s.for_renewals() } -> std::same_as<S>;
};

// Says where it is, and what the store said of the last operation that failed, in one line for
// people; no passwords.
template <class S>
concept explaining_slot = cas_slot<S> && requires(S& s) {
    { s.explain() } -> std::same_as<std::string>;
};

// ---- any slot

// Says that a slot which may forget what it acknowledged is good enough: where two holders at a time
// are merely a waste, or where the resource checks fencing tokens.
struct allow_relaxed_t {
    explicit constexpr allow_relaxed_t() = default;
};
inline constexpr allow_relaxed_t allow_relaxed{};

// A slot whose type is chosen at run time. Owns it. Empty once moved from.
class slot_ref {
public:
    template <class S>
        requires(!std::is_same_v<S, slot_ref>) && cas_slot<S>
    slot_ref(S slot) : held_(std::make_unique<holding<S>>(std::move(slot))) {
        static_assert(slot_guarantees(S::guarantees).keeps_acknowledged,
                      "this slot may forget what it acknowledged: pass bide::allow_relaxed if that "
                      "is good enough");
    }
    template <class S>
        requires(!std::is_same_v<S, slot_ref>) && cas_slot<S>
    slot_ref(allow_relaxed_t, S slot) : held_(std::make_unique<holding<S>>(std::move(slot))) {}

    slot_ref(slot_ref&&) noexcept = default;
    slot_ref& operator=(slot_ref&&) noexcept = default;

    // Requires, all of them: not empty.
    slot_guarantees guarantees() const noexcept { return held_->guarantees(); }
    result<slot_snapshot, std::error_code> load() { return held_->load(); }
    cas_result compare_exchange(slot_version version, std::string_view value) {
        return held_->compare_exchange(version, value);
    }

    // What the slot does not offer answers errc::operation_not_supported.
    bool is_locked() const noexcept { return held_->is_locked(); }
    cas_result update_locked(const slot_update& update) { return held_->update_locked(update); }
    bool is_watchable() const noexcept { return held_->is_watchable(); }
    result<std::unique_ptr<slot_watch>, std::error_code> watch() { return held_->watch(); }
    bool is_clocked() const noexcept { return held_->is_clocked(); }
    result<std::int64_t, std::error_code> server_now() { return held_->server_now(); }
    bool has_presence() const noexcept { return held_->has_presence(); }
    result<std::shared_ptr<slot_presence>, std::error_code> be_present() {
        return held_->be_present();
    }
    presence is_present(std::int64_t mark) { return held_->is_present(mark); } // or `unknown`
    cas_result replace_damaged(std::string_view value) { return held_->replace_damaged(value); }
    std::string store() { return held_->store(); }                  // or empty
    // Requires: store() is not empty.
    slot_ref for_renewals() { return slot_ref(held_->for_renewals()); }
    std::string explain() { return held_->explain(); }              // or empty

private:
    struct any {
        any() = default;
        any(const any&) = delete;
        any& operator=(const any&) = delete;
        virtual ~any() = default;
        virtual slot_guarantees guarantees() const noexcept = 0;
        virtual result<slot_snapshot, std::error_code> load() = 0;
        virtual cas_result compare_exchange(slot_version version, std::string_view value) = 0;
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

} // namespace bide::inline BIDE_ABI

#endif
