// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_TICKET_HPP
#define BIDE_DURABLE_TICKET_HPP

/// \file
/// The identity of a contender.
///
/// A process that was restarted can continue with a grant if the ticket was stored. A ticket
/// belongs to one contender. A second contender that uses it at the same time shares the grant, and
/// loses it with the first.

#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>

#include <string_view>

namespace bide { inline namespace BIDE_ABI {

/// The identity of a contender.
struct durable_ticket {
    std::string holder_id{}; ///< its name, for people; need not be unique
    std::string nonce{};     ///< identifies the contender: 128 random bits, in hexadecimal
    std::int64_t weight = 1; ///< the permits that it asks for

    /// If true, the ticket's grant and its place in the queue end with the process that uses the
    /// ticket. Leave it false if another process is to take over the ticket, or if the work
    /// continues in other processes.
    bool process_bound = false;

    /// The token of the grant; 0 before the grant. Renewals and releases apply to this grant only.
    std::int64_t fence = 0;

    /// Returns the ticket as one line of JSON.
    std::string to_string() const;

    /// Reads a ticket from the text of to_string().
    /// Returns: the ticket, or durable_errc::invalid_argument or unsupported_record_version.
    static result<durable_ticket, std::error_code> parse(std::string_view text);

    friend bool operator==(const durable_ticket&, const durable_ticket&) = default;
};

namespace detail {

// Returns 128 random bits of the system, in hexadecimal.
// Throws: what std::random_device throws.
std::string fresh_nonce();

// Tells whether the text is valid UTF-8, which every reader of the record accepts unchanged.
bool is_utf8(std::string_view text) noexcept;

// Returns the text as one line of printable UTF-8: every other byte is a question mark.
std::string printable_line(std::string_view text);

} // namespace detail
}} // namespace bide::BIDE_ABI

#if defined(BIDE_DURABLE_HEADER_ONLY)
#include <bide/durable/locks.hpp> // has the definitions
#endif

#endif
