#ifndef BIDE_DURABLE_TICKET_HPP
#define BIDE_DURABLE_TICKET_HPP

// A contender's identity. The name is for people, two may have the same; the nonce is what counts.
// Who has a ticket is the same contender, wherever it runs: written down before or after the lock
// was acquired, it lets a process that was started again go on with what it holds. It is one
// contender's: whoever else uses it at the same time holds what that holds, and loses it with that.

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

struct durable_ticket {
    std::string holder_id{};
    std::string nonce{};
    std::int64_t weight = 1; // permits

    // When the process that asks with it ends, what it holds, and its place in the queue, is free
    // at once for those who can see that: others in the same boot and namespace of processes. Not
    // for tickets that are to be taken up by another process, nor for work that goes on in others.
    bool process_bound = false;

    // The token of the grant; 0 before. Renewals and releases are about this grant alone.
    std::int64_t fence = 0;

    // One line of JSON.
    std::string to_string() const {
        const durable::detail::json out = {{"v", durable::record_format},
                                           {"holderId", holder_id},
                                           {"nonce", nonce},
                                           {"weight", weight},
                                           {"bound", process_bound},
                                           {"fence", fence}};
        return out.dump(-1, ' ', false, durable::detail::json::error_handler_t::replace);
    }

    // Errors: durable_errc::invalid_argument, unsupported_record_version.
    static result<durable_ticket, std::error_code> parse(std::string_view text);

    friend bool operator==(const durable_ticket&, const durable_ticket&) = default;
};

namespace durable::detail {

// Takes fields out of a small object that was parsed, and says whether all were as they should be.
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
        // Unsigned ones beyond the signed would come out negative.
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

// Of the system. Not std::random_device where that can be helped: libstdc++'s asks the processor each
// time what it can do, which a virtual machine's host answers in tens of microseconds.
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

// 128 bits of the system's randomness, in hexadecimal.
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

// Text that every reader of the record takes as it is.
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
