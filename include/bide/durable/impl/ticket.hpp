// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_IMPL_TICKET_HPP
#define BIDE_DURABLE_IMPL_TICKET_HPP

// Tickets as JSON, and their nonces.

#include <bide/durable/record_json.hpp>
#include <bide/durable/ticket.hpp>

#include <random>

#if defined(__linux__)
#include <sys/random.h>
#endif

namespace bide { inline namespace BIDE_ABI {
namespace durable::detail {

template <class F> void fields(is_a<durable_ticket> auto& t, F& f) {
    std::int64_t version = record_format;
    f("v", version, number(record_format, record_format));
    f("holderId", t.holder_id);
    f("nonce", t.nonce);
    f("weight", t.weight, number(1, largest_permits));
    f("fence", t.fence, maybe(number(0), true));
    f("bound", t.process_bound, maybe({}, true));
}

} // namespace durable::detail

BIDE_DURABLE_INLINE std::string durable_ticket::to_string() const {
    return durable::detail::write_text(*this);
}

BIDE_DURABLE_INLINE result<durable_ticket, std::error_code>
durable_ticket::parse(std::string_view text) {
    return durable::detail::read_text<durable_ticket>(text, durable_errc::invalid_argument);
}

namespace detail {

// Avoids std::random_device where possible. With libstdc++, each use of it asks the processor which
// instructions it has, which takes tens of microseconds on a virtual machine.
BIDE_DURABLE_INLINE std::string fresh_nonce() {
    std::uint32_t words[4];
    bool is_filled = false;
#if defined(__linux__)
    is_filled = ::getrandom(words, sizeof words, 0) == static_cast<ssize_t>(sizeof words);
#endif
    if (!is_filled) {
        std::random_device entropy;
        std::generate(words, words + 4, std::ref(entropy));
    }
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

BIDE_DURABLE_INLINE std::string printable_line(std::string_view text) {
    std::string line;
    while (!text.empty()) {
        const std::size_t length = utf8_length(text);
        const auto first = static_cast<unsigned char>(text[0]);
        // U+0080 to U+009F are control characters, too: some terminals obey them.
        const bool is_control =
            first < ' ' || first == 0x7f ||
            (first == 0xc2 && length == 2 && static_cast<unsigned char>(text[1]) < 0xa0);
        line += length == 0 || is_control ? "?" : text.substr(0, length);
        text.remove_prefix(std::max<std::size_t>(length, 1));
    }
    return line;
}

} // namespace detail
}} // namespace bide::BIDE_ABI

#endif
