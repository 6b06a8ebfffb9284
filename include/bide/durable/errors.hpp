// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_ERRORS_HPP
#define BIDE_DURABLE_ERRORS_HPP

/// \file
/// The errors of durable locks. A wait can also end with bide::errc::timeout (the lock is held),
/// bide::errc::stopped, or an error of the store, for example an errno code.

#include <bide/core/errc.hpp>
#include <bide/sched/detail/quoted.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

namespace bide { inline namespace BIDE_ABI {

/// The reasons why an operation of a durable lock failed.
enum class durable_errc {
    conflict_timeout = 1, ///< other contenders kept changing the record first
    lock_lost,            ///< the lease expired, or the grant was taken away or given to another
    corrupt_record,       ///< the stored value is not a record; only repair() replaces it
    unsupported_record_version, ///< the record has a later format than this version reads
    permits_mismatch,           ///< the record was made with another number of permits
    clock_mismatch,             ///< the record's times are on another clock than the caller's
    queue_full,                 ///< durable_options::max_waiters contenders wait already
    too_heavy,                  ///< the request asks for more permits than the lock has
    storage_error,              ///< the store failed; the record was not changed
    indeterminate,              ///< the store did not say whether it stored the change
    too_large,                  ///< the record is larger than the store accepts
    unsupported_filesystem,     ///< the locks or syncs of the filesystem are not reliable
    invalid_argument,           ///< a time, a size or a name is out of range
    store_busy,                 ///< earlier calls of this lock object did not end in time
    no_answer ///< the store did not answer in time: it is not known whether the lock is held
};

namespace detail {

// Calls f. Returns what f threw; nullptr if it threw nothing.
template <class F> std::exception_ptr thrown_by(F&& f) noexcept {
#if BIDE_EXCEPTIONS
    try {
        std::forward<F>(f)();
    } catch (...) {
        return std::current_exception();
    }
#else
    std::forward<F>(f)();
#endif
    return nullptr;
}

// Calls f. Returns false if it threw, for example std::bad_alloc.
template <class F> bool try_to(F&& f) noexcept { return thrown_by(std::forward<F>(f)) == nullptr; }

// Replaces each run of bytes that are not printable UTF-8 by a blank. Cuts the text to `most`.
inline std::string one_line(std::string_view text, std::size_t most = 300) {
    std::string line;
    while (!text.empty()) {
        const std::size_t length = std::max<std::size_t>(utf8_length(text), 1);
        const std::string_view one = text.substr(0, length);
        const bool is_control = length == 1 ? one[0] <= ' ' || one[0] > '~' : one < "\xc2\xa0";
        if (line.size() + length > most) {
            break;
        }
        if (!is_control) {
            line += one;
        } else if (!line.empty() && line.back() != ' ') {
            line += ' ';
        }
        text.remove_prefix(length);
    }
    line.resize(line.find_last_not_of(' ') + 1);
    return line;
}

class BIDE_SHARED durable_category_type final : public std::error_category {
public:
    const char* name() const noexcept override { return "bide.durable"; }
    std::string message(int code) const override {
        // In the order of durable_errc, which begins at 1.
        constexpr const char* texts[] = {"unknown",
                                         "other contenders kept changing the record first",
                                         "the lock was lost",
                                         "the stored record is corrupt",
                                         "the stored record is of a later format",
                                         "the record has another number of permits",
                                         "the record's times are on another clock",
                                         "too many contenders are waiting already",
                                         "the request asks for more permits than the lock has",
                                         "the store failed",
                                         "the store did not say whether it was changed",
                                         "the record is larger than the store accepts",
                                         "the locks of this filesystem are not reliable",
                                         "an argument is out of range",
                                         "the store has not answered an earlier call",
                                         "the store did not answer in time"};
        static_assert(std::size(texts) == static_cast<std::size_t>(durable_errc::no_answer) + 1);
        return texts[code > 0 && code < static_cast<int>(std::size(texts)) ? code : 0];
    }
};

} // namespace detail

/// Returns the category of durable_errc.
BIDE_SHARED inline const std::error_category& durable_category() noexcept {
    static constinit detail::never_destroyed<detail::durable_category_type> category;
    return category.object;
}

/// Makes a std::error_code of a durable_errc.
inline std::error_code make_error_code(durable_errc e) noexcept {
    return {static_cast<int>(e), durable_category()};
}

/// Returns true if an operation that failed with `error` may succeed later, for example when a
/// server is started again. A wrong password, a missing directory, a corrupt record and similar
/// errors last until an operator corrects them.
inline bool may_pass(const std::error_code& error) noexcept {
    if (error.category() == durable_category()) {
        const auto code = static_cast<durable_errc>(error.value());
        return code == durable_errc::storage_error || code == durable_errc::indeterminate ||
               code == durable_errc::conflict_timeout || code == durable_errc::store_busy ||
               code == durable_errc::no_answer;
    }
    constexpr std::errc lasting[] = {
        std::errc::permission_denied,       std::errc::operation_not_permitted,
        std::errc::read_only_file_system,   std::errc::no_such_file_or_directory,
        std::errc::not_a_directory,         std::errc::is_a_directory,
        std::errc::too_many_links,          std::errc::too_many_symbolic_link_levels,
        std::errc::cross_device_link,       std::errc::filename_too_long,
        std::errc::invalid_argument,        std::errc::protocol_error,
        std::errc::operation_not_supported, std::errc::function_not_supported};
    return std::ranges::none_of(lasting, [&](std::errc one) { return error == one; });
}

}} // namespace bide::BIDE_ABI

/// \cond
// durable_errc converts to std::error_code.
template <> struct std::is_error_code_enum<bide::durable_errc> : std::true_type {};
/// \endcond

#endif
