#ifndef BIDE_DURABLE_ERRORS_HPP
#define BIDE_DURABLE_ERRORS_HPP

// What a durable lock answers when it does not do what it says. Waiting adds bide::errc: timeout,
// stopped. An engine's own codes (errno, say) stay what they are where they say more.

#include <bide/core/config.hpp>
#include <bide/core/detail/never_destroyed.hpp>

#include <algorithm>
#include <iterator>
#include <string>
#include <system_error>

namespace bide::inline BIDE_ABI {

enum class durable_errc {
    conflict_timeout = 1,       // others wrote first until the time for one operation was over
    lock_lost,                  // the lease is over, or somebody else has it, or it was taken away
    corrupt_record,             // what is stored is not a record; repair() is the only way out
    unsupported_record_version, // a record of a later format: refused, not guessed at
    permits_mismatch,           // the record was made with another number of permits
    clock_mismatch,             // the record's times are on another clock than the caller's
    queue_full,                 // max_waiters are waiting already
    too_heavy,                  // more permits are asked for than there are
    storage_error,              // the store failed; nothing was changed
    indeterminate,              // the store did not say whether it was changed
    too_large,                  // the store does not take values of this size
    unsupported_filesystem,     // one whose locks or syncs are not to be relied on
    invalid_argument,           // a time, a size or a name that cannot be meant
    store_busy                  // earlier calls of this lock object did not end in time
};

namespace detail {

class durable_category_type final : public std::error_category {
public:
    const char* name() const noexcept override { return "bide.durable"; }
    std::string message(int code) const override {
        switch (static_cast<durable_errc>(code)) {
        case durable_errc::conflict_timeout: return "others kept writing first";
        case durable_errc::lock_lost: return "the lock was lost";
        case durable_errc::corrupt_record: return "the stored record is corrupt";
        case durable_errc::unsupported_record_version:
            return "the stored record is of a later format";
        case durable_errc::permits_mismatch: return "the record has another number of permits";
        case durable_errc::clock_mismatch: return "the record is kept on another clock";
        case durable_errc::queue_full: return "too many are waiting already";
        case durable_errc::too_heavy: return "more permits are asked for than there are";
        case durable_errc::storage_error: return "the store failed";
        case durable_errc::indeterminate: return "the store did not say whether it was changed";
        case durable_errc::too_large: return "larger than the store takes";
        case durable_errc::unsupported_filesystem: return "not on this kind of filesystem";
        case durable_errc::invalid_argument: return "not a valid argument";
        case durable_errc::store_busy: return "the store has not answered an earlier call";
        }
        return "unknown";
    }
};

} // namespace detail

inline const std::error_category& durable_category() noexcept {
    static constinit detail::never_destroyed<detail::durable_category_type> category;
    return category.object;
}

inline std::error_code make_error_code(durable_errc e) noexcept {
    return {static_cast<int>(e), durable_category()};
}

// Whether an operation that failed so may succeed later with nothing but time: a server that is
// down may be started again. A record that cannot be used stays so, and so do a wrong password, a
// missing directory, and whatever else is to be put right by hand.
inline bool may_pass(const std::error_code& error) noexcept {
    if (error.category() == durable_category()) {
        const auto code = static_cast<durable_errc>(error.value());
        return code == durable_errc::storage_error || code == durable_errc::indeterminate ||
               code == durable_errc::conflict_timeout || code == durable_errc::store_busy;
    }
    constexpr std::errc lasting[] = {std::errc::permission_denied,
                                     std::errc::operation_not_permitted,
                                     std::errc::read_only_file_system,
                                     std::errc::no_such_file_or_directory,
                                     std::errc::not_a_directory,
                                     std::errc::is_a_directory,
                                     std::errc::too_many_links,
                                     std::errc::too_many_symbolic_link_levels,
                                     std::errc::cross_device_link,
                                     std::errc::filename_too_long,
                                     std::errc::invalid_argument,
                                     std::errc::protocol_error,
                                     std::errc::operation_not_supported,
                                     std::errc::function_not_supported};
    return std::none_of(std::begin(lasting), std::end(lasting),
                        [&](std::errc one) { return error == one; });
}

} // namespace bide::inline BIDE_ABI

template <> struct std::is_error_code_enum<bide::durable_errc> : std::true_type {};

#endif
