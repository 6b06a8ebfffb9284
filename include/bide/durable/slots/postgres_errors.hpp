// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_POSTGRES_ERRORS_HPP
#define BIDE_DURABLE_SLOTS_POSTGRES_ERRORS_HPP

/// \file
/// SQLSTATE as an error code: its five characters are the digits of a number in base 36.
///
/// Conditions tell which errors are permanent. A code that compares equal to
/// errc::permission_denied, no_such_file_or_directory, invalid_argument, operation_not_permitted or
/// protocol_error lasts until an operator acts. Codes of class ZB are the slot's own.

#include <bide/core/config.hpp>
#include <bide/core/errc.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>

namespace bide { inline namespace BIDE_ABI {

/// Returns the SQLSTATE of a code of postgres_category().
inline std::string sqlstate(const std::error_code& code) {
    constexpr std::string_view digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    std::string state(5, '0');
    int rest = code.value();
    for (std::size_t i = 5; i-- > 0; rest /= 36) {
        state[i] = digits[static_cast<std::size_t>(rest > 0 ? rest % 36 : 0)];
    }
    return state;
}

namespace detail {

struct sqlstate_name {
    std::string_view state;
    std::string_view name;
    std::errc like; // the condition that it equals
};

inline constexpr sqlstate_name sqlstate_names[] = {
    {"08001", "no connection to the server", std::errc::not_connected},
    {"08006", "the connection was lost", std::errc::connection_reset},
    {"25006", "the server, or the transaction, only reads", // passes when a standby takes over
     std::errc::resource_unavailable_try_again},
    {"28000", "refused by the server's rules of access", std::errc::permission_denied},
    {"28P01", "wrong password", std::errc::permission_denied},
    {"3D000", "no such database", std::errc::no_such_file_or_directory},
    {"3F000", "no such schema", std::errc::no_such_file_or_directory},
    {"40001", "could not serialize", std::errc::resource_unavailable_try_again},
    {"40P01", "deadlock", std::errc::resource_deadlock_would_occur},
    {"42501", "insufficient privilege", std::errc::permission_denied},
    {"42703", "no such column", std::errc::invalid_argument},
    {"42P01", "no such table", std::errc::no_such_file_or_directory},
    {"53100", "the disk is full", std::errc::no_space_on_device},
    {"53200", "out of memory", std::errc::not_enough_memory},
    {"53300", "too many connections", std::errc::resource_unavailable_try_again},
    {"55P03", "the row stayed locked", std::errc::timed_out},
    {"57014", "canceled", std::errc::operation_canceled},
    {"57P01", "the server is being shut down", std::errc::connection_reset},
    {"57P02", "the server crashed", std::errc::connection_reset},
    {"57P03", "the server is not ready", std::errc::resource_unavailable_try_again},
    {"ZB001", "the table is not the one that this process began with",
     std::errc::operation_not_permitted},
    {"ZB002", "several schemas have a table of this name", std::errc::invalid_argument},
    {"ZB003", "the server does not speak PostgreSQL's protocol", std::errc::protocol_error},
    {"ZB004", "no such host", std::errc::no_such_file_or_directory},
    {"ZB005", "the table lacks the columns key, version and value", std::errc::invalid_argument},
};

class postgres_category_type final : public std::error_category {
public:
    const char* name() const noexcept override { return "postgresql"; }
    std::string message(int code) const override {
        const std::string state = sqlstate({code, *this});
        for (const sqlstate_name& each : sqlstate_names) {
            if (each.state == state) {
                return std::string(each.name) + " (SQLSTATE " + state + ")";
            }
        }
        return "SQLSTATE " + state;
    }
    std::error_condition default_error_condition(int code) const noexcept override {
        for (const sqlstate_name& each : sqlstate_names) {
            if (packed(each.state) == code) {
                return std::make_error_condition(each.like);
            }
        }
        return {code, *this};
    }

    // Returns the number, or 0 if the text is not a SQLSTATE.
    static constexpr int packed(std::string_view state) noexcept {
        int code = 0;
        for (const char c : state) {
            if (c >= '0' && c <= '9') {
                code = code * 36 + (c - '0');
            } else if (c >= 'A' && c <= 'Z') {
                code = code * 36 + (c - 'A' + 10);
            } else {
                return 0;
            }
        }
        return state.size() == 5 ? code : 0;
    }
};

} // namespace detail

/// Returns the category of PostgreSQL's errors. Conditions such as std::errc::permission_denied,
/// timed_out or no_space_on_device compare equal to the codes that mean the same.
BIDE_SHARED inline const std::error_category& postgres_category() noexcept {
    static constinit bide::detail::never_destroyed<detail::postgres_category_type> category;
    return category.object;
}

/// Returns the error code of a SQLSTATE such as "42P01".
/// Requires: five digits and capital letters.
inline std::error_code postgres_error(std::string_view state) noexcept {
    return {detail::postgres_category_type::packed(state), postgres_category()};
}

}} // namespace bide::BIDE_ABI

#endif
