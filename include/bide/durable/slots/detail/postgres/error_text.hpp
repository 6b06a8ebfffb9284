// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_ERROR_TEXT_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_ERROR_TEXT_HPP

// The error texts of PostgreSQL and libpq, as one line.

#include <bide/core/config.hpp>

#include <string>
#include <string_view>

#include <libpq-fe.h>

namespace bide::inline BIDE_ABI {
namespace detail {

// Replaces each run of blanks and control characters by one blank.
inline std::string postgres_one_line(std::string_view text) {
    std::string line;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte > ' ' && byte != 0x7f) {
            line += c;
        } else if (!line.empty() && line.back() != ' ') {
            line += ' ';
        }
    }
    if (line.ends_with(' ')) {
        line.pop_back();
    }
    return line;
}

// Returns the text of a failed statement: "ERROR: permission denied for table locks".
inline std::string postgres_error_text(const PGresult* result) {
    const auto field = [result](int code) {
        const char* const text = ::PQresultErrorField(result, code);
        return std::string(text == nullptr ? "" : text);
    };
    std::string error_text = field(PG_DIAG_MESSAGE_PRIMARY);
    if (error_text.empty()) { // an error of libpq, not of the server
        return postgres_one_line(::PQresultErrorMessage(result));
    }
    error_text = field(PG_DIAG_SEVERITY) + ": " + error_text;
    for (const int more : {PG_DIAG_MESSAGE_DETAIL, PG_DIAG_MESSAGE_HINT}) {
        error_text += field(more).empty() ? "" : ". " + field(more);
    }
    return postgres_one_line(error_text);
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
