// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_ETCD_CLIENT_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_ETCD_CLIENT_HPP

// Calls of an etcd cluster's JSON gateway by libcurl, over a connection that stays open. Logs in if
// needed. If an endpoint fails, tries the next one, unless that could store a value twice.
//
// In the gateway's JSON, keys and values are base64, 64-bit numbers are strings, and members that
// are zero, false or empty are left out.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/errc.hpp>
#include <bide/durable/detail/try_to.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slots/detail/server/server_slot.hpp>

#include <algorithm>
#include <cerrno>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <curl/curl.h>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/types.h>
#include <unistd.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// What identifies a connection: the endpoints, the login, TLS and the path of the gateway.
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

// ---- The gateway's JSON

inline constexpr std::string_view base64_digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// Base64 (RFC 4648, section 4), with padding, on one line.
inline std::string to_base64(std::string_view bytes) {
    std::string text;
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        std::uint32_t bits = 0;
        for (std::size_t j = i; j < i + 3; ++j) {
            bits = bits << 8 | (j < bytes.size() ? static_cast<unsigned char>(bytes[j]) : 0u);
        }
        for (std::size_t j = 0; j < 4; ++j) {
            text += i + j <= bytes.size() ? base64_digits[bits >> (18 - 6 * j) & 63u] : '=';
        }
    }
    return text;
}

// Returns nullopt if to_base64() cannot have written the text.
inline std::optional<std::string> from_base64(std::string_view text) {
    std::string bytes;
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const std::size_t digit = base64_digits.find(text[i]);
        if (digit == base64_digits.npos) {
            break;
        }
        bits = bits << 6 | static_cast<std::uint32_t>(digit);
        if (i % 4 != 0) {
            bytes += static_cast<char>(bits >> (6 - 2 * (i % 4)) & 255u);
        }
    }
    return to_base64(bytes) == text ? std::optional(std::move(bytes)) : std::nullopt;
}

inline std::string etcd_range(std::string_view key) {
    return R"({"key":")" + to_base64(key) + R"("})";
}

// Stores the value if the key was last changed in this revision (0: the key is missing). Otherwise
// reads the key.
inline std::string etcd_exchange(std::string_view key, std::uint64_t revision,
                                 std::string_view value) {
    constexpr std::uint64_t last =
        std::numeric_limits<std::int64_t>::max(); // no key has this revision
    const std::string name = R"("key":")" + to_base64(key) + '"';
    return R"({"compare":[{)" + name + R"(,"target":"MOD","result":"EQUAL","mod_revision":")" +
           std::to_string(revision < last ? revision : last) +
           R"("}],"success":[{"request_put":{)" + name + R"(,"value":")" + to_base64(value) +
           R"("}}],"failure":[{"request_range":{)" + name + "}}]}";
}

struct etcd_value {
    std::uint64_t revision = 0; // 0: the key is missing
    std::string bytes{};
    std::optional<std::uint64_t> counter{}; // the cluster's revision when it answered
};

// An answer. The functions return nothing if it is not an answer of etcd.
class etcd_answer {
public:
    explicit etcd_answer(std::string_view body)
        : all_(nlohmann::json::parse(body.begin(), body.end(), nullptr, false)) {}

    // Returns the value that a range read.
    std::optional<etcd_value> range() const { return range_in(all_); }

    // Returns the value that an exchange read because it did not store.
    std::optional<etcd_value> instead() const {
        const json& all = in(all_, "responses");
        return all.is_array() && all.size() == 1 ? range_in(in(all.front(), "response_range"))
                                                 : std::nullopt;
    }

    // Whether an exchange has stored its value.
    bool is_stored() const { return in(all_, "succeeded") == json(true); }

    // Returns the cluster's revision. After an exchange that stored, this is the value's revision.
    std::optional<std::uint64_t> revision() const { return number(in(all_, "header"), "revision"); }

    // Returns the token of a login, or an empty string.
    std::string token() const { return text(all_, "token"); }
    // Returns the text of an error, or an empty string.
    std::string message() const {
        const std::string found = text(all_, "message");
        return found.empty() ? text(all_, "error") : found;
    }

private:
    using json = nlohmann::json;

    // Returns the member of an object, or null.
    static const json& in(const json& object, const char* name) {
        static const never_destroyed<json> null{};
        const auto found = object.is_object() ? object.find(name) : object.end();
        return found == object.end() ? null.object : *found;
    }
    static std::string text(const json& object, const char* name) {
        const json& found = in(object, name);
        return found.is_string() ? found.get<std::string>() : std::string();
    }
    static std::optional<std::uint64_t> number(const json& object, const char* name) {
        const std::int64_t value =
            read_number(text(object, name), std::numeric_limits<std::int64_t>::max());
        return value <= 0 ? std::nullopt : std::optional(static_cast<std::uint64_t>(value));
    }

    std::optional<etcd_value> range_in(const json& range) const {
        const json& all = in(range, "kvs");
        if (in(range, "header").is_null() || !(all.is_null() || all.is_array()) || all.size() > 1) {
            return std::nullopt;
        }
        if (all.empty()) {
            return etcd_value{0, {}, revision()};
        }
        const auto version = number(all.front(), "mod_revision");
        auto bytes = from_base64(text(all.front(), "value"));
        return version && bytes ? std::optional(etcd_value{*version, *std::move(bytes), revision()})
                                : std::nullopt;
    }

    json all_; // "discarded" if the body is not JSON
};

// ---- HTTP

struct etcd_request {
    const char* what; // the path behind the gateway's
    std::string_view body;
    bool may_repeat; // the request changes nothing
    std::size_t longest_answer;
};

struct http_answer {
    std::error_code error{}; // there is no complete answer
    bool was_sent = false;   // libcurl has read the whole body
    long status = 0;
    std::string body{};
    std::string error_text{}; // with an error: libcurl's text
};

// A handle of libcurl with at most one connection. Its address is passed to libcurl.
//
// If a connection that was used before ends without an answer, libcurl sends the request again. But
// the server may have acted on the first request. To prevent that, this class refuses libcurl two
// things: to rewind the body, and to open a socket after libcurl has read a part of the body. The
// second request then fails.
class http_client {
public:
    explicit http_client(const tls_files& tls) {
        // Initialises libcurl once in a program.
        static const bool is_ready = ::curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
        handle_.reset(is_ready ? ::curl_easy_init() : nullptr);
        const auto name = [this](CURLoption option, const std::string& file) {
            return file.empty() || set(option, file.c_str());
        };
        is_made_ = handle_ != nullptr && set(CURLOPT_NOSIGNAL, 1L) && set(CURLOPT_POST, 1L) &&
                   set(CURLOPT_PROXY, "") && set(CURLOPT_MAXCONNECTS, 1L) &&
                   set(CURLOPT_TCP_KEEPALIVE, 1L) &&
                   set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1)) &&
                   set(CURLOPT_READFUNCTION, &give) && set(CURLOPT_READDATA, this) &&
                   set(CURLOPT_WRITEFUNCTION, &take) && set(CURLOPT_WRITEDATA, this) &&
                   set(CURLOPT_SOCKOPTFUNCTION, &opened) && set(CURLOPT_SOCKOPTDATA, this) &&
                   set(CURLOPT_ERRORBUFFER, static_cast<char*>(text_)) &&
                   name(CURLOPT_CAINFO, tls.ca_file) && name(CURLOPT_SSLCERT, tls.cert_file) &&
                   name(CURLOPT_SSLKEY, tls.key_file);
#if LIBCURL_VERSION_NUM >= 0x075700
        // At the end of its time libcurl does not wait for its thread that looks up a name.
        is_made_ = is_made_ && set(CURLOPT_QUICK_EXIT, 1L);
#endif
    }
    http_client(const http_client&) = delete;
    http_client& operator=(const http_client&) = delete;

    // Sends a POST request. Connects if there is no connection.
    // Blocks: until there is an answer, at most for `most_ms`.
    http_answer post(const etcd_request& what, const std::string& url, const std::string& token,
                     long connect_ms, long most_ms) {
        // Without an empty "Expect:", libcurl waits for the server's permission to send a long
        // body. A header without a value is not sent.
        curl_slist* headers = nullptr;
        for (const std::string& line : {std::string("Content-Type: application/json"),
                                        std::string("Expect:"), "Authorization: " + token}) {
            curl_slist* const longer = ::curl_slist_append(headers, line.c_str());
            headers = longer == nullptr ? headers : longer;
        }
        const std::unique_ptr<curl_slist, freer> held(headers);
        request_ = &what;
        given_ = 0;
        answer_.clear();
        is_too_long_ = false;
        text_[0] = '\0';
        if (!is_made_ || !set(CURLOPT_URL, url.c_str()) || !set(CURLOPT_HTTPHEADER, headers) ||
            !set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(what.body.size())) ||
            !set(CURLOPT_CONNECTTIMEOUT_MS, connect_ms) || !set(CURLOPT_TIMEOUT_MS, most_ms)) {
            return {std::make_error_code(std::errc::not_enough_memory)};
        }
        CURLcode code = CURLE_OK;
        {
            const no_sigpipe guard;
            code = ::curl_easy_perform(handle_.get());
        }
        fd_ = CURL_SOCKET_BAD;
        ::curl_easy_getinfo(handle_.get(), CURLINFO_ACTIVESOCKET, &fd_);
        http_answer answer{error_of(code), given_ == what.body.size(), 0, std::move(answer_), {}};
        if (answer.error) {
            answer.error_text = text_[0] != '\0' ? text_ : ::curl_easy_strerror(code);
            // The server refused the certificate in the handshake, before it read the request.
            answer.was_sent = answer.was_sent && answer.error != std::errc::permission_denied;
        }
        ::curl_easy_getinfo(handle_.get(), CURLINFO_RESPONSE_CODE, &answer.status);
        return answer;
    }

    // Whether there is a connection, as far as the last request knows.
    bool is_open() const noexcept { return fd_ != CURL_SOCKET_BAD; }

    // In a child of fork(), instead of the destructor: closes the socket and leaks the rest.
    // libcurl's clean-up may send the server a message that ends the parent's connection.
    void disown() noexcept {
        if (is_open()) {
            ::close(fd_);
        }
        static_cast<void>(handle_.release());
    }

private:
    struct freer {
        void operator()(CURL* handle) const noexcept { ::curl_easy_cleanup(handle); }
        void operator()(curl_slist* list) const noexcept { ::curl_slist_free_all(list); }
    };

    static std::size_t give(char* to, std::size_t size, std::size_t n, void* of) noexcept {
        http_client& self = *static_cast<http_client*>(of);
        const std::string_view rest = self.request_->body.substr(self.given_);
        const std::size_t given = std::min(rest.size(), size * n);
        std::memcpy(to, rest.data(), given);
        self.given_ += given;
        return given;
    }
    static std::size_t take(char* from, std::size_t size, std::size_t n, void* of) noexcept {
        http_client& self = *static_cast<http_client*>(of);
        self.is_too_long_ = size * n > self.request_->longest_answer - self.answer_.size();
        const bool is_taken =
            !self.is_too_long_ && try_to([&] { self.answer_.append(from, size * n); });
        return is_taken ? size * n : 0;
    }
    static int opened(void* of, curl_socket_t fd, curlsocktype) noexcept {
        ::fcntl(fd, F_SETFD, FD_CLOEXEC);
        return static_cast<http_client*>(of)->given_ == 0 ? CURL_SOCKOPT_OK : CURL_SOCKOPT_ERROR;
    }

    // Calls the function curl_easy_setopt, not the macro of the same name.
    template <class Value> bool set(CURLoption option, Value value) const noexcept {
        return (::curl_easy_setopt)(handle_.get(), option, value) == CURLE_OK;
    }

    std::error_code error_of(CURLcode code) const noexcept {
        // Some errors differ only in libcurl's text, which comes from OpenSSL or GnuTLS.
        const auto says = [text = std::string_view(text_)](auto... parts) {
            return ((text.find(parts) != text.npos) || ...);
        };
        const bool is_cut = code == CURLE_SEND_ERROR || code == CURLE_RECV_ERROR ||
                            code == CURLE_GOT_NOTHING || code == CURLE_PARTIAL_FILE ||
                            code == CURLE_SEND_FAIL_REWIND;
        // With TLS 1.3 the server refuses a certificate after the handshake.
        if ((is_cut || code == CURLE_SSL_CONNECT_ERROR) && refuses_certificate(text_)) {
            return std::make_error_code(std::errc::permission_denied);
        }
        if (is_cut || code == CURLE_ABORTED_BY_CALLBACK || // opened() refused
            (code == CURLE_SSL_CONNECT_ERROR &&            // the connection broke in the handshake
             says("SSL_ERROR_SYSCALL", "unexpected eof", "reset by peer", "non-properly terminated",
                  "Broken pipe"))) {
            return std::make_error_code(std::errc::connection_reset);
        }
        switch (code) {
        case CURLE_OK: return {};
        case CURLE_OPERATION_TIMEDOUT: return std::make_error_code(std::errc::timed_out);
        case CURLE_OUT_OF_MEMORY: return std::make_error_code(std::errc::not_enough_memory);
        case CURLE_COULDNT_RESOLVE_HOST: return std::make_error_code(std::errc::host_unreachable);
        case CURLE_WRITE_ERROR:
            return std::make_error_code(is_too_long_ ? std::errc::message_size
                                                     : std::errc::not_enough_memory);
        case CURLE_COULDNT_CONNECT: {
            long number = 0;
            ::curl_easy_getinfo(handle_.get(), CURLINFO_OS_ERRNO, &number);
            return {number != 0 ? static_cast<int>(number) : ECONNREFUSED, std::generic_category()};
        }
        case CURLE_UNSUPPORTED_PROTOCOL: // the server's: the URL's scheme was checked
        case CURLE_WEIRD_SERVER_REPLY:
        case CURLE_SSL_CONNECT_ERROR: return std::make_error_code(std::errc::protocol_error);
        case CURLE_PEER_FAILED_VERIFICATION:
        case CURLE_SSL_ISSUER_ERROR:
        case CURLE_SSL_INVALIDCERTSTATUS: return std::make_error_code(std::errc::permission_denied);
        case CURLE_URL_MALFORMAT:
        case CURLE_SSL_CERTPROBLEM:
        case CURLE_SSL_CACERT_BADFILE:
        case CURLE_SSL_CIPHER: return std::make_error_code(std::errc::invalid_argument);
        case CURLE_NOT_BUILT_IN: return std::make_error_code(std::errc::function_not_supported);
        default: return durable_errc::storage_error; // with libcurl's text
        }
    }

    char text_[CURL_ERROR_SIZE] = "";
    std::unique_ptr<CURL, freer> handle_;
    bool is_made_ = false;
    curl_socket_t fd_ = CURL_SOCKET_BAD;

    // The request that is being sent.
    const etcd_request* request_ = nullptr;
    std::size_t given_ = 0; // bytes of its body that libcurl has read
    std::string answer_{};
    bool is_too_long_ = false;
};

// ---- The cluster

// The meaning of an answer that is not a success.
struct etcd_failure {
    std::error_code error;
    bool is_certain = true; // nothing was stored
    bool is_login = false;  // the token is invalid
    std::string error_text{};
};

// Errors that last until an operator acts are permission_denied and protocol_error.
inline etcd_failure etcd_failure_of(long status, const std::string& message) {
    const auto says = [&](auto... parts) { return ((message.find(parts) != message.npos) || ...); };
    const auto is = [](std::errc error, bool is_certain, bool is_login = false) {
        return etcd_failure{std::make_error_code(error), is_certain, is_login, {}};
    };
    if (says("too large", "larger than max")) {
        return {make_error_code(durable_errc::too_large)};
    }
    const bool is_login = status == 401 || says("revision of auth store is old");
    if (is_login || status == 403 || status == 407 ||
        says("user name is empty", "authentication failed", "authentication is not enabled",
             "permission denied")) {
        return is(std::errc::permission_denied, true, is_login);
    }
    // etcd's own errors are JSON with a message. Another server sends a status 4xx without one.
    const bool is_other =
        status < 200 || (status >= 300 && status < 400) ||
        (message.empty() && status >= 400 && status < 500 && status != 408 && status != 429);
    if (is_other || status == 404 || status == 405 || status == 501) {
        return is(std::errc::protocol_error, true);
    }
    switch (status) {
    case 503: return is(std::errc::resource_unavailable_try_again, false);
    case 408:
    case 504: return is(std::errc::timed_out, false);
    default:
        return {make_error_code(durable_errc::storage_error),
                status == 400 || status == 413 || status == 429};
    }
}

using etcd_result = server_answer<std::string>; // the body

// Used by one thread at a time.
class etcd_client {
public:
    using key = connection_key<etcd_target>;
    using answer = etcd_result;

    explicit etcd_client(const key& of) : target_(of.target) {}

    // Begins a call, which ends at the deadline. The call connects if needed.
    std::error_code make_ready(deadline end) noexcept {
        end_ = end;
        return {};
    }
    bool is_open() const noexcept { return http_ != nullptr && http_->is_open(); }
    bool is_usable() const noexcept { return is_open(); }
    void drop() noexcept { http_.reset(); }
    void disown() noexcept {
        if (http_ != nullptr) {
            http_->disown();
        }
    }
    etcd_result lost(std::error_code error, bool may_have_stored) {
        drop();
        return {{}, error, may_have_stored, {}};
    }

    // Sends the request to the endpoints in turn, until one answers. A request that may be repeated
    // is sent once more to an endpoint whose connection ended.
    etcd_result call(const etcd_request& r) {
        etcd_failure why;
        bool has_logged_in = false;
        bool may_ask_again = r.may_repeat;
        for (std::size_t left = target_.endpoints.size(); left > 0;) {
            bool has_answered = false;
            why = {};
            if (!target_.user.empty() && token_.empty()) {
                has_logged_in = true;
                why = log_in(left);
            }
            if (!why.error) {
                http_answer got = post(r, left);
                if (!got.error && got.status == 200) {
                    return {std::move(got.body), {}, true, {}};
                }
                why = failure_of(got);
                has_answered = !got.error;
                if (why.is_login && !target_.user.empty() && !has_logged_in) {
                    token_.clear();
                    continue;
                }
                if (got.error == std::errc::connection_reset) {
                    http_.reset(); // libcurl would still try to rewind the body
                    if (std::exchange(may_ask_again, false)) {
                        continue;
                    }
                }
            }
            if (why.is_certain && has_answered) {
                break;
            }
            --left;
            at_ = (at_ + 1) % target_.endpoints.size();
            if (!why.is_certain && !r.may_repeat) {
                break;
            }
        }
        return {{}, why.error, !why.is_certain, std::move(why.error_text)};
    }

private:
    // Limits the request to an equal share of the remaining time, so that an endpoint that does not
    // answer leaves time for the others. A request that may not be repeated may use all of the
    // remaining time once it is connected.
    http_answer post(const etcd_request& r, std::size_t left) {
        const long rest = std::max(ms_until(end_), 1L); // 0 means no limit
        const long share = std::max(rest / static_cast<long>(left), 1L);
        if (http_ == nullptr) {
            http_ = std::make_unique<http_client>(target_.tls);
        }
        return http_->post(r, target_.endpoints[at_] + target_.path + r.what, token_, share,
                           r.may_repeat ? share : rest);
    }

    etcd_failure log_in(std::size_t left) {
        const nlohmann::json login{{"name", target_.user}, {"password", target_.password}};
        const std::string body =
            login.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
        const http_answer got = post({"/auth/authenticate", body, true, 64 * 1024}, left);
        if (got.error || got.status != 200) {
            etcd_failure why = failure_of(got);
            why.is_certain = true;
            return why;
        }
        token_ = etcd_answer(got.body).token();
        if (std::any_of(token_.begin(), token_.end(), [](char c) { return c <= ' ' || c > '~'; })) {
            token_.clear(); // such a byte would end the header
        }
        if (!token_.empty()) {
            return {};
        }
        return {std::make_error_code(std::errc::protocol_error), true, false,
                described("the login returned no valid token")};
    }

    etcd_failure failure_of(const http_answer& got) const {
        if (got.error) {
            return {got.error, !got.was_sent, false, described(got.error_text)};
        }
        std::string error_text = etcd_answer(got.body).message();
        etcd_failure why = etcd_failure_of(got.status, error_text);
        if (error_text.empty()) {
            const std::string line = one_line(got.body.substr(0, got.body.find('\n')), 100);
            error_text = "not an answer of etcd's gateway: HTTP status " +
                         std::to_string(got.status) + (line.empty() ? "" : ": ") + line;
        }
        why.error_text = described(std::move(error_text));
        return why;
    }

    std::string described(const std::string& error_text) const {
        return (target_.endpoints.size() < 2 ? std::string() : target_.endpoints[at_] + ": ") +
               without_secret(one_line(error_text), target_.password);
    }

    const etcd_target target_;
    std::size_t at_ = 0;              // the endpoint to try first
    deadline end_ = deadline::poll(); // of the present call
    std::string token_;
    std::unique_ptr<http_client> http_;
};

}}} // namespace bide::BIDE_ABI::detail

#endif
