// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_TICKET_HPP
#define BIDE_DURABLE_TICKET_HPP

/// \file
/// The identity of a contender.
///
/// The name is for people; two contenders may have the same name. The nonce identifies the
/// contender, wherever it runs. Store a ticket before or after the lock is acquired: then a process
/// that was restarted can go on with the grant. A ticket belongs to one contender. A second
/// contender that uses it at the same time shares the grant, and loses it with the first.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/record_json.hpp>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#if defined(__linux__)
#include <sys/random.h>
#endif

namespace bide::inline BIDE_ABI {

/// The identity of a contender.
struct durable_ticket {
    std::string holder_id{}; ///< its name, for people
    std::string nonce{};     ///< 128 random bits, in hexadecimal
    std::int64_t weight = 1; ///< the permits that it asks for

    /// If true, its grant and its place in the queue end with the process that uses the ticket.
    ///
    /// Contenders of the same boot and pid namespace see that at once. Do not set it for a ticket
    /// that another process is to take over, nor for work that goes on in other processes.
    bool process_bound = false;

    /// The token of the grant; 0 before the grant. Renewals and releases apply to this grant only.
    std::int64_t fence = 0;

    /// Returns the ticket as one line of JSON.
    std::string to_string() const {
        const durable::detail::json out = {{"v", durable::record_format},
                                           {"holderId", holder_id},
                                           {"nonce", nonce},
                                           {"weight", weight},
                                           {"bound", process_bound},
                                           {"fence", fence}};
        return out.dump(-1, ' ', false, durable::detail::json::error_handler_t::replace);
    }

    /// Reads a ticket from the text of to_string().
    ///
    /// Returns: the ticket, or durable_errc::invalid_argument or unsupported_record_version.
    static result<durable_ticket, std::error_code> parse(std::string_view text);

    friend bool operator==(const durable_ticket&, const durable_ticket&) = default;
};

namespace durable::detail {

// Takes fields out of a small parsed object, and tells whether all were valid.
class field_reader {
public:
    explicit field_reader(json& object) : object_(object), good_(object.is_object()) {}

    std::int64_t number(const char* name, std::int64_t least, std::int64_t most) {
        return read_number(name, least, most, true, 0);
    }
    std::int64_t number_or(const char* name, std::int64_t least, std::int64_t most,
                           std::int64_t otherwise) {
        return read_number(name, least, most, false, otherwise);
    }

    std::string text(const char* name, bool required, std::size_t most = longest_name) {
        json value;
        if (!take(name, required, value)) {
            return {};
        }
        if (!value.is_string() || value.get_ref<const std::string&>().size() > most ||
            (required && value.get_ref<const std::string&>().empty())) {
            good_ = false;
            return {};
        }
        return std::move(value.get_ref<std::string&>());
    }

    bool take(const char* name, bool required, json& into) {
        if (!good_) {
            return false;
        }
        const auto found = object_.find(name);
        if (found == object_.end()) {
            good_ = !required;
            return false;
        }
        into = std::move(*found);
        object_.erase(found);
        return true;
    }

    bool good() const noexcept { return good_; }

private:
    std::int64_t read_number(const char* name, std::int64_t least, std::int64_t most, bool required,
                             std::int64_t otherwise) {
        json value;
        if (!take(name, required, value)) {
            return otherwise;
        }
        // Unsigned numbers above the signed range would become negative.
        const bool fits = value.is_number_integer() &&
                          (!value.is_number_unsigned() ||
                           value.get<std::uint64_t>() <= std::uint64_t{largest_number});
        const std::int64_t number = fits ? value.get<std::int64_t>() : 0;
        if (!fits || number < least || number > most) {
            good_ = false;
        }
        return number;
    }

    json& object_;
    bool good_;
};

} // namespace durable::detail

inline result<durable_ticket, std::error_code> durable_ticket::parse(std::string_view text) {
    using durable::detail::json;
    const auto invalid = unexpected{make_error_code(durable_errc::invalid_argument)};
    json object = json::parse(text.begin(), text.end(), nullptr, false);
    durable::detail::field_reader in(object);
    json version;
    if (!in.take("v", true, version) || !version.is_number_integer()) {
        return invalid;
    }
    if (version != durable::record_format) {
        return unexpected{make_error_code(durable_errc::unsupported_record_version)};
    }
    durable_ticket t;
    t.holder_id = in.text("holderId", true);
    t.nonce = in.text("nonce", true);
    t.weight = in.number("weight", 1, durable::largest_permits);
    t.fence = in.number_or("fence", 0, durable::largest_number, 0);
    json bound;
    if (in.take("bound", false, bound)) {
        if (!bound.is_boolean()) {
            return invalid;
        }
        t.process_bound = bound.get<bool>();
    }
    if (!in.good()) {
        return invalid;
    }
    return t;
}

namespace detail {

// Fills the words with random bits of the system. It avoids std::random_device where possible: that
// of libstdc++ asks the processor at each call which instructions it has, which takes tens of
// microseconds on a virtual machine.
// Throws: what std::random_device throws.
inline void fill_randomly(std::uint32_t (&words)[4]) {
#if defined(__linux__)
    if (::getrandom(words, sizeof words, 0) == static_cast<ssize_t>(sizeof words)) {
        return;
    }
#endif
    std::random_device entropy;
    for (std::uint32_t& word : words) {
        word = entropy();
    }
}

// Returns 128 random bits of the system, in hexadecimal.
// Throws: what std::random_device throws.
inline std::string fresh_nonce() {
    std::uint32_t words[4];
    fill_randomly(words);
    std::string nonce;
    nonce.reserve(32);
    for (std::uint32_t bits : words) {
        for (int digit = 0; digit < 8; ++digit, bits >>= 4) {
            nonce.push_back("0123456789abcdef"[bits & 15]);
        }
    }
    return nonce;
}

// Tells whether the text is valid UTF-8, which every reader of the record accepts unchanged.
inline bool is_utf8(std::string_view text) noexcept {
    for (std::size_t i = 0; i < text.size();) {
        const auto byte = [&](std::size_t at) {
            return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U;
        };
        const unsigned lead = byte(i);
        const std::size_t more = lead < 0x80   ? 0
                                 : lead < 0xc2 ? 9
                                 : lead < 0xe0 ? 1
                                 : lead < 0xf0 ? 2
                                               : 3;
        if (lead > 0xf4 || more == 9) {
            return false;
        }
        for (std::size_t k = 1; k <= more; ++k) {
            if ((byte(i + k) & 0xc0) != 0x80) {
                return false;
            }
        }
        const unsigned second = byte(i + 1);
        if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
            (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f)) {
            return false; // overlong, a surrogate, or beyond the last
        }
        i += more + 1;
    }
    return true;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
