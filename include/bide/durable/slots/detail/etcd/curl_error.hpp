// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_ETCD_CURL_ERROR_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_ETCD_CURL_ERROR_HPP

// libcurl's errors as a category, and errors that only its texts distinguish.

#include <bide/core/config.hpp>

#include <string>
#include <string_view>
#include <system_error>

#include <curl/curl.h>

namespace bide::inline BIDE_ABI {
namespace detail {

class curl_category_type final : public std::error_category {
public:
    const char* name() const noexcept override { return "curl"; }
    std::string message(int code) const override {
        return ::curl_easy_strerror(static_cast<CURLcode>(code));
    }

    // Errors that last until an operator acts equal one of these conditions.
    std::error_condition default_error_condition(int code) const noexcept override {
        switch (static_cast<CURLcode>(code)) {
        case CURLE_UNSUPPORTED_PROTOCOL:
        case CURLE_WEIRD_SERVER_REPLY:
        case CURLE_SSL_CONNECT_ERROR: return std::errc::protocol_error;
        case CURLE_PEER_FAILED_VERIFICATION:
        case CURLE_SSL_ISSUER_ERROR:
        case CURLE_SSL_INVALIDCERTSTATUS: return std::errc::permission_denied;
        case CURLE_URL_MALFORMAT:
        case CURLE_SSL_CERTPROBLEM:
        case CURLE_SSL_CACERT_BADFILE:
        case CURLE_SSL_ENGINE_NOTFOUND:
        case CURLE_SSL_ENGINE_SETFAILED:
        case CURLE_SSL_CIPHER: return std::errc::invalid_argument;
        case CURLE_NOT_BUILT_IN: return std::errc::function_not_supported;
        default: return std::error_condition(code, *this);
        }
    }
};
inline const std::error_category& curl_category() noexcept {
    static const curl_category_type category;
    return category;
}

// Returns true if the server refused the client's certificate, or the lack of one. With TLS 1.3 the
// server refuses after the handshake. Only libcurl's text, which comes from OpenSSL or GnuTLS,
// distinguishes this from a broken connection.
inline bool is_refused_by_tls(std::string_view error_text) noexcept {
    const auto says = [error_text](std::string_view part) {
        return error_text.find(part) != error_text.npos;
    };
    return says("alert") && (says("ertificate") || says("unknown ca") || says("access denied"));
}

// Whether the connection broke in the handshake.
inline bool has_hung_up(std::string_view error_text) noexcept {
    const auto says = [error_text](std::string_view part) {
        return error_text.find(part) != error_text.npos;
    };
    return says("SSL_ERROR_SYSCALL") || says("unexpected eof") || says("reset by peer") ||
           says("non-properly terminated") || says("Broken pipe");
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
