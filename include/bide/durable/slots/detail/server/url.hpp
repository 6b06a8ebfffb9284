// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SERVER_URL_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SERVER_URL_HPP

// Reads the URL of a server, RFC 3986 without its query and fragment:
//
//   scheme://[user][:password@]host[:port][/path]
//
// User, password and path are percent-encoded. The reader is strict, because two readers of an
// ambiguous URL may find different hosts in it. It refuses a second '@', an empty port, and a byte
// that must be encoded. Error texts quote no part of the URL, which may hold a password.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/slots/detail/server/text.hpp>

#include <algorithm>
#include <charconv>
#include <compare>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

struct server_url {
    std::string scheme{}; // in lower case
    std::string user{};
    std::string password{};
    std::string host{}; // an IPv6 address has no brackets
    int port = 0;       // 0: the URL names none
    std::string path{}; // without the '/' before it
};

// The PEM files of TLS.
struct tls_files {
    std::string ca_file{};   // empty: the system's authorities
    std::string cert_file{}; // empty: the client has no certificate
    std::string key_file{};  // empty: the key is in cert_file
    friend auto operator<=>(const tls_files&, const tls_files&) = default;
};

// What is wrong with a URL.
struct url_fault {
    const char* error_text;
};

// Decodes a percent-encoded part: "%41" is "A". Returns false and an empty string for a '%' without
// two hexadecimal digits, for a NUL byte, and for a byte that must be encoded.
inline bool decode_url_part(std::string_view text, std::string& to) {
    to.clear();
    for (std::size_t i = 0; i < text.size(); ++i) {
        unsigned byte = static_cast<unsigned char>(text[i]);
        bool fits = byte > ' ' && byte <= '~';
        if (text[i] == '%') {
            const std::string_view digits = text.substr(i + 1, 2);
            const char* const last = digits.data() + digits.size();
            fits = digits.size() == 2 &&
                   std::from_chars(digits.data(), last, byte, 16).ptr == last && byte != 0;
            i += 2;
        }
        if (!fits) {
            to.clear();
            return false;
        }
        to += static_cast<char>(byte);
    }
    return true;
}

// Whether the text is an IPv6 address that getaddrinfo() accepts, with or without a zone ("%eth0").
inline bool is_ipv6_address(const std::string& text) {
    in6_addr read{};
    const std::size_t zone = text.find('%');
    return zone + 1 != text.size() &&
           ::inet_pton(AF_INET6, text.substr(0, zone).c_str(), &read) == 1;
}

inline bool is_host_name(std::string_view text) noexcept {
    constexpr std::string_view known =
        "0123456789-._abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return !text.empty() && text.find_first_not_of(known) == text.npos && text.front() != '-' &&
           text.front() != '.';
}

// Reads host:port or [address]:port. Returns what is wrong with it, or nullptr.
inline const char* read_url_host(std::string_view address, server_url& to) {
    std::size_t end = address.find(':');
    if (address.substr(0, 1) == "[") {
        end = address.find(']');
        if (end == address.npos || !decode_url_part(address.substr(1, end - 1), to.host) ||
            !is_ipv6_address(to.host)) {
            return "the URL's host is not an IPv6 address in brackets";
        }
        ++end;
    } else if (address.empty() || end == 0) {
        return "the URL names no host";
    } else if (!decode_url_part(address.substr(0, end), to.host) || !is_host_name(to.host)) {
        return "the URL's host is not the name of a host";
    }
    if (end >= address.size()) {
        return nullptr;
    }
    to.port =
        address[end] == ':' ? static_cast<int>(read_number(address.substr(end + 1), 65'535)) : 0;
    return to.port < 1 ? "the URL's port is not a number from 1 to 65535" : nullptr;
}

// Reads a URL. Fails with what is wrong with it.
inline result<server_url, url_fault> read_server_url(std::string_view url) {
    const auto wrong = [](const char* error_text) { return unexpected{url_fault{error_text}}; };
    server_url read;
    const std::size_t colon = url.find("://");
    if (colon == url.npos || colon == 0) {
        return wrong("the URL does not begin with a scheme and ://");
    }
    for (const char c : url.substr(0, colon)) {
        const bool is_capital = c >= 'A' && c <= 'Z';
        read.scheme += is_capital ? static_cast<char>(c - 'A' + 'a') : c;
    }
    std::string_view rest = url.substr(colon + 3);
    if (rest.find_first_of("?#") != rest.npos) {
        return wrong("the URL has a '?' or a '#', which have no meaning here; in a password they "
                     "are written %3F and %23");
    }
    const std::size_t slash = rest.find('/');
    if (slash != rest.npos) {
        if (rest.find('@', slash) != rest.npos) {
            return wrong("the URL has a '/' before an '@'; in a password it is written %2F");
        }
        if (!decode_url_part(rest.substr(slash + 1), read.path)) {
            return wrong("the URL's path is not percent-encoded");
        }
        rest = rest.substr(0, slash);
    }
    const std::size_t at = rest.find('@');
    if (at != rest.npos) {
        if (rest.find('@', at + 1) != rest.npos) {
            return wrong("the URL has more than one '@'; in a password it is written %40");
        }
        const std::size_t middle = std::min(rest.find(':'), at);
        if (!decode_url_part(rest.substr(0, middle), read.user) ||
            (middle < at &&
             !decode_url_part(rest.substr(middle + 1, at - middle - 1), read.password))) {
            return wrong("the URL's user or password is not percent-encoded");
        }
        rest = rest.substr(at + 1);
    }
    if (const char* const error_text = read_url_host(rest, read)) {
        return wrong(error_text);
    }
    return read;
}

}}} // namespace bide::BIDE_ABI::detail

#endif
