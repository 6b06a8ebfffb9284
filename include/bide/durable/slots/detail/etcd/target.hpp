// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_ETCD_TARGET_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_ETCD_TARGET_HPP

// What identifies a connection to an etcd cluster: its endpoints, the login, TLS and the path.

#include <bide/core/config.hpp>
#include <bide/durable/slots/detail/server/text.hpp>
#include <bide/durable/slots/detail/server/url.hpp>

#include <compare>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <curl/curl.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

struct etcd_target {
    std::vector<std::string> endpoints{}; // URLs without a login and without a '/' at the end
    std::string user{};
    std::string password{};
    tls_files tls{};
    std::string path{};

    // Returns a text for messages, without the password.
    std::string name() const {
        std::string text = "etcd at ";
        for (const std::string& each : endpoints) {
            text += (&each == &endpoints.front() ? "" : ",") + each;
        }
        return text + (user.empty() ? "" : ", user " + user);
    }

    friend auto operator<=>(const etcd_target&, const etcd_target&) = default;
};

// The URL of an endpoint. libcurl reads it, because libcurl connects to it. Error texts quote no
// part of the URL.
class etcd_endpoint {
public:
    // Reads the URL. Returns what is wrong with it, or nullptr.
    const char* read(const std::string& text) {
        url_.reset(::curl_url());
        if (url_ == nullptr) {
            return "out of memory for the URL";
        }
        if (text.find("://") == text.npos) {
            return "the URL of an endpoint begins with neither http:// nor https://";
        }
        if (text.find('\\') != text.npos || text.find('\0') != text.npos ||
            ::curl_url_set(url_.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) {
            return "the URL of an endpoint is not scheme://[user:password@]host[:port], "
                   "percent-encoded";
        }
        const std::string scheme = part(CURLUPART_SCHEME);
        if (scheme != "http" && scheme != "https") {
            return "the URL of an endpoint begins with neither http:// nor https://";
        }
        if (!part(CURLUPART_QUERY).empty() || !part(CURLUPART_FRAGMENT).empty()) {
            return "the URL of an endpoint has a '?' or a '#', which have no meaning here";
        }
        if (part(CURLUPART_PORT) == "0") {
            return "the URL's port is not a number from 1 to 65535";
        }
        if (!decode_url_part(part(CURLUPART_USER), user_) ||
            !decode_url_part(part(CURLUPART_PASSWORD), password_)) {
            return "the URL's user or password is not percent-encoded";
        }
        return nullptr;
    }

    // Parts of the URL that was read.
    const std::string& user() const noexcept { return user_; }
    const std::string& password() const noexcept { return password_; }
    bool uses_tls() const { return part(CURLUPART_SCHEME) == "https"; }
    std::string host() const { // an IPv6 address has no brackets
        const std::string text = part(CURLUPART_HOST);
        return text.substr(0, 1) == "[" ? text.substr(1, text.size() - 2) : text;
    }

    int port() const {
        const std::string digits = part(CURLUPART_PORT);
        return digits.empty() ? (uses_tls() ? 443 : 80)
                              : static_cast<int>(read_number(digits, 65'535));
    }
    std::string without_login() {
        ::curl_url_set(url_.get(), CURLUPART_USER, nullptr, 0);
        ::curl_url_set(url_.get(), CURLUPART_PASSWORD, nullptr, 0);
        std::string text = part(CURLUPART_URL);
        while (!text.empty() && text.back() == '/') {
            text.pop_back();
        }
        return text;
    }

private:
    struct freer {
        void operator()(CURLU* url) const noexcept { ::curl_url_cleanup(url); }
    };

    std::string part(CURLUPart which) const {
        char* text = nullptr;
        if (::curl_url_get(url_.get(), which, &text, 0) != CURLUE_OK) {
            return {};
        }
        const std::unique_ptr<char, decltype(&::curl_free)> held(text, &::curl_free);
        return text;
    }

    std::unique_ptr<CURLU, freer> url_;
    std::string user_;
    std::string password_;
};

// Removes users and passwords from the endpoints' URLs, and stores them in the target, where they
// override the present ones. Returns a text about what is wrong with the endpoints, or nullptr.
inline const char* read_etcd_endpoints(etcd_target& target) {
    if (target.endpoints.empty()) {
        return "there is no endpoint";
    }
    bool has_login = false;
    for (std::string& each : target.endpoints) {
        etcd_endpoint read;
        if (const char* const error_text = read.read(each)) {
            return error_text;
        }
        if (!read.user().empty() || !read.password().empty()) {
            if (has_login && (read.user() != target.user || read.password() != target.password)) {
                return "the URLs of two endpoints have different users or passwords";
            }
            has_login = true;
            target.user = read.user();
            if (!read.password().empty()) {
                target.password = read.password();
            }
        }
        each = read.without_login();
    }
    return target.user.empty() && !target.password.empty() ? "there is a password and no user"
                                                           : nullptr;
}

}}} // namespace bide::BIDE_ABI::detail

#endif
