// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_IMPL_TICKET_HPP
#define BIDE_DURABLE_IMPL_TICKET_HPP

// Tickets as JSON, and their nonces.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/record_fields.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/impl/record_json.hpp>
#include <bide/durable/record_types.hpp>
#include <bide/durable/ticket.hpp>
#include <bide/sched/detail/quoted.hpp>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <system_error>

#if defined(__linux__)
#include <sys/random.h>
#endif

namespace bide { inline namespace BIDE_ABI {
namespace durable::detail {

template <class F> void fields(is_a<durable_ticket> auto& t, F& f) {
    f.text("holderId", t.holder_id);
    f.text("nonce", t.nonce);
    f.number("weight", t.weight, 1, largest_permits);
    f.maybe_number("fence", t.fence, 0, largest_number, true);
    f.flag("bound", t.process_bound);
}

} // namespace durable::detail

BIDE_DURABLE_INLINE std::string durable_ticket::to_string() const {
    return durable::detail::write_text(*this);
}

BIDE_DURABLE_INLINE result<durable_ticket, std::error_code>
durable_ticket::parse(std::string_view text) {
    durable_ticket t;
    if (const auto error = durable::detail::read_text(text, t, durable_errc::invalid_argument)) {
        return unexpected{error};
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

BIDE_DURABLE_INLINE std::string fresh_nonce() {
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

BIDE_DURABLE_INLINE bool is_utf8(std::string_view text) noexcept {
    std::size_t length = 0;
    while ((length = utf8_length(text)) != 0) {
        text.remove_prefix(length);
    }
    return text.empty();
}

} // namespace detail
}} // namespace bide::BIDE_ABI

#endif
