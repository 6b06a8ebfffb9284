// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_IMPL_ETCD_HPP
#define BIDE_DURABLE_SLOTS_IMPL_ETCD_HPP

// Calls of an etcd cluster's JSON gateway by libcurl, over a connection that stays open. Logs in if
// needed. If an endpoint fails, tries the next one, unless that could store a value twice.
//
// In the gateway's JSON, keys and values are base64, 64-bit numbers are strings, and members that
// are zero, false or empty are left out.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/json_fields.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/server/server_slot.hpp>
#include <bide/durable/slots/etcd.hpp>

#include <algorithm>
#include <cerrno>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
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
#include <sys/types.h>
#include <unistd.h>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// What identifies a connection.
struct etcd_target {
    std::vector<std::string> endpoints{}; // URLs without a login and without a '/' at the end
    std::string user{};
    std::string password{};
    tls_files tls{};

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

// The parts of etcd's answers that the slot reads.
struct etcd_header {
    std::string revision{};
};
struct etcd_pair {
    std::string mod_revision{};
    std::string value{};
};
struct etcd_range_answer {
    std::optional<etcd_header> header{}; // of each answer
    std::vector<etcd_pair> kvs{};
};
struct etcd_response {
    std::optional<etcd_range_answer> response_range{};
};
struct etcd_answer : etcd_range_answer {
    bool succeeded = false; // an exchange has stored its value
    std::vector<etcd_response> responses{};
    std::string token{}; // of a login
    std::string message{};
    std::string error{};
};
struct etcd_login {
    std::string name;
    std::string password;
};

inline constexpr durable::detail::stored_as etcd_field{
    .is_required = false, .longest = std::string::npos, .may_be_empty = true};

template <class F> void fields(etcd_header& h, F& f) { f("revision", h.revision, etcd_field); }
template <class F> void fields(etcd_pair& p, F& f) {
    f("mod_revision", p.mod_revision, etcd_field);
    f("value", p.value, etcd_field);
}
template <class F> void fields(etcd_range_answer& a, F& f) {
    f("header", a.header, etcd_field);
    f("kvs", a.kvs, etcd_field);
}
template <class F> void fields(etcd_response& r, F& f) {
    f("response_range", r.response_range, etcd_field);
}
template <class F> void fields(etcd_answer& a, F& f) {
    f("header", a.header, etcd_field);
    f("succeeded", a.succeeded, etcd_field);
    f("responses", a.responses, etcd_field);
    f("kvs", a.kvs, etcd_field);
    f("token", a.token, etcd_field);
    f("error", a.error, etcd_field);
    f("message", a.message, etcd_field);
}
template <class F> void fields(const etcd_login& l, F& f) {
    f("name", l.name);
    f("password", l.password);
}

// Returns an answer without a header if the body is not an answer of etcd.
inline etcd_answer read_etcd_answer(std::string_view body) {
    etcd_answer read;
    durable::detail::json_reader in(body);
    in.object(read);
    return in.has_ended() ? read : etcd_answer();
}

// Reads a number. Returns 0 if it is none that is greater than 0.
inline std::uint64_t etcd_number(std::string_view text) {
    const std::int64_t value = read_number(text, std::numeric_limits<std::int64_t>::max());
    return value <= 0 ? 0 : static_cast<std::uint64_t>(value);
}

// Returns the value in the answer to a range request, and the revision of the cluster at the time
// of the answer. Returns nothing if the answer is not one of etcd.
inline std::optional<slot_snapshot> etcd_snapshot(const etcd_range_answer& a) {
    slot_snapshot seen;
    if (!a.header || a.kvs.size() > 1) {
        return std::nullopt;
    }
    if (const std::uint64_t revision = etcd_number(a.header->revision); revision != 0) {
        seen.counter = static_cast<std::int64_t>(revision);
    }
    for (const etcd_pair& one : a.kvs) {
        auto bytes = from_base64(one.value);
        seen.version = etcd_number(one.mod_revision);
        if (seen.version == 0 || !bytes) {
            return std::nullopt;
        }
        seen.value = *std::move(bytes);
    }
    return seen;
}

// ---- Calls

using etcd_result = server_answer<std::string>; // the body

struct etcd_request {
    const char* what; // the path behind the gateway's
    std::string_view body;
    bool may_repeat; // the request changes nothing
    std::size_t longest_answer;
};

// A handle of libcurl with at most one connection. libcurl connects when it is needed. Used by one
// thread at a time. Its address is passed to libcurl.
//
// If a connection that was used before ends without an answer, libcurl sends the request again. But
// the server may have acted on the first request. To prevent that, this class refuses libcurl two
// things: to rewind the body, and to open a socket after libcurl has read a part of the body. The
// second request then fails.
class etcd_client {
public:
    using target = etcd_target;
    using answer = etcd_result;
    struct known {};

    explicit etcd_client(const target& to) : to_(to) {}
    etcd_client(const etcd_client&) = delete;
    etcd_client& operator=(const etcd_client&) = delete;
    // In a child of fork(): closes the socket and leaks the rest. libcurl's clean-up may send the
    // server a message that ends the parent's connection.
    ~etcd_client() {
        if (handle_ != nullptr && owner_ != ::getpid()) {
            curl_socket_t fd = CURL_SOCKET_BAD;
            ::curl_easy_getinfo(handle_.get(), CURLINFO_ACTIVESOCKET, &fd);
            ::close(fd);
            static_cast<void>(handle_.release());
        }
    }

    std::error_code make_ready(deadline end) noexcept {
        end_ = end;
        return {};
    }
    void end_at(deadline end) noexcept { end_ = end; }
    bool is_open() const noexcept { return true; } // for the next call, if libcurl can connect
    bool is_usable() const noexcept { return true; }
    etcd_result lost(std::error_code error, bool may_have_stored) {
        handle_.reset();
        return {{}, error, may_have_stored, {}};
    }

    // Sends the request to the endpoints in turn, until one answers. A request that may be repeated
    // is sent once more to an endpoint whose connection ended.
    etcd_result call(const etcd_request& r) {
        etcd_result got;
        bool has_logged_in = to_.user.empty();
        bool may_ask_again = r.may_repeat;
        for (std::size_t left = to_.endpoints.size(); left > 0;) {
            got.error.clear();
            if (!to_.user.empty() && token_.empty()) {
                has_logged_in = true;
                got = log_in(left);
            }
            const bool has_no_login = static_cast<bool>(got.error);
            if (!has_no_login) {
                got = post(r, left);
                if (wants_login_ && !std::exchange(has_logged_in, true)) {
                    token_.clear();
                    continue;
                }
                if (got.error == std::errc::connection_reset) {
                    handle_.reset(); // libcurl would still try to rewind the body
                    if (std::exchange(may_ask_again, false)) {
                        continue;
                    }
                }
            }
            if (!got.error || (!got.may_have_stored && status_ != 0)) {
                return got;
            }
            --left;
            at_ = (at_ + 1) % to_.endpoints.size();
            got.may_have_stored = got.may_have_stored && !has_no_login;
            if (got.may_have_stored && !r.may_repeat) {
                return got;
            }
        }
        return got;
    }

private:
    struct freer {
        void operator()(CURL* handle) const noexcept { ::curl_easy_cleanup(handle); }
        void operator()(curl_slist* list) const noexcept { ::curl_slist_free_all(list); }
    };

    // Makes the handle. Returns false if there is no memory.
    bool make() {
        // Initialises libcurl once in a program.
        static const bool is_ready = ::curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
        handle_.reset(is_ready ? ::curl_easy_init() : nullptr);
        const auto name = [this](CURLoption option, const std::string& file) {
            return file.empty() || set(option, file.c_str());
        };
        return handle_ != nullptr && set(CURLOPT_NOSIGNAL, 1L) && set(CURLOPT_POST, 1L) &&
#if LIBCURL_VERSION_NUM >= 0x075700
               // At the end of its time libcurl does not wait for its thread that looks up a name.
               set(CURLOPT_QUICK_EXIT, 1L) &&
#endif
               set(CURLOPT_PROXY, "") && set(CURLOPT_MAXCONNECTS, 1L) &&
               set(CURLOPT_TCP_KEEPALIVE, 1L) &&
               set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1)) &&
               set(CURLOPT_READFUNCTION, &give) && set(CURLOPT_READDATA, this) &&
               set(CURLOPT_WRITEFUNCTION, &take) && set(CURLOPT_WRITEDATA, this) &&
               set(CURLOPT_SOCKOPTFUNCTION, &opened) && set(CURLOPT_SOCKOPTDATA, this) &&
               set(CURLOPT_ERRORBUFFER, static_cast<char*>(text_)) &&
               name(CURLOPT_CAINFO, to_.tls.ca_file) && name(CURLOPT_SSLCERT, to_.tls.cert_file) &&
               name(CURLOPT_SSLKEY, to_.tls.key_file);
    }

    // Sends a request to the present endpoint. `left` endpoints share the remaining time equally,
    // so that an endpoint that does not answer leaves time for the others. Exception: a request
    // that may not be repeated may use all of the remaining time once the connection is made.
    etcd_result post(const etcd_request& r, std::size_t left) {
        const long rest = std::max(ms_until(end_), 1L); // 0 means no limit
        const long share = std::max(rest / static_cast<long>(left), 1L);
        const std::string url = to_.endpoints[at_] + "/v3" + r.what;
        // Without an empty "Expect:", libcurl waits for the server's permission to send a long
        // body. A header without a value is not sent.
        std::unique_ptr<curl_slist, freer> headers;
        for (const std::string& line : {std::string("Content-Type: application/json"),
                                        std::string("Expect:"), "Authorization: " + token_}) {
            if (curl_slist* const longer = ::curl_slist_append(headers.get(), line.c_str())) {
                static_cast<void>(headers.release());
                headers.reset(longer);
            }
        }
        request_ = &r;
        given_ = 0;
        answer_.clear();
        is_too_long_ = false;
        wants_login_ = false;
        status_ = 0;
        text_[0] = '\0';
        if ((handle_ == nullptr && !make()) || !set(CURLOPT_URL, url.c_str()) ||
            !set(CURLOPT_HTTPHEADER, headers.get()) ||
            !set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(r.body.size())) ||
            !set(CURLOPT_CONNECTTIMEOUT_MS, share) ||
            !set(CURLOPT_TIMEOUT_MS, r.may_repeat ? share : rest)) {
            return lost(std::make_error_code(std::errc::not_enough_memory), false);
        }
        CURLcode code = CURLE_OK;
        {
            const no_sigpipe guard;
            code = ::curl_easy_perform(handle_.get());
        }
        if (const std::error_code error = error_of(code)) {
            // The server refuses a certificate in the handshake, before it reads the request.
            const bool was_sent = given_ == r.body.size() && error != std::errc::permission_denied;
            return {{},
                    error,
                    was_sent,
                    described(text_[0] != '\0' ? text_ : ::curl_easy_strerror(code))};
        }
        ::curl_easy_getinfo(handle_.get(), CURLINFO_RESPONSE_CODE, &status_);
        return status_ == 200 ? etcd_result{std::move(answer_)} : refusal();
    }

    // Returns the error of an answer that is not a success. Errors that last until an operator acts
    // are permission_denied and protocol_error.
    etcd_result refusal() {
        const etcd_answer read = read_etcd_answer(answer_);
        std::string message = read.message.empty() ? read.error : read.message;
        const auto says = [&](auto... parts) {
            return ((message.find(parts) != message.npos) || ...);
        };
        const auto is_in = [this](auto... all) { return ((status_ == all) || ...); };
        wants_login_ = status_ == 401 || says("revision of auth store is old");
        // etcd's own errors are JSON with a message. Another server sends a status 4xx without one.
        const bool is_other =
            status_ < 200 || (status_ >= 300 && status_ < 400) || is_in(404, 405, 501) ||
            (message.empty() && status_ >= 400 && status_ < 500 && !is_in(408, 429));
        std::error_code error = durable_errc::storage_error;
        bool may_have_stored = false;
        if (says("too large", "larger than max")) {
            error = durable_errc::too_large;
        } else if (wants_login_ || is_in(403, 407) ||
                   says("user name is empty", "authentication failed",
                        "authentication is not enabled", "permission denied")) {
            error = std::make_error_code(std::errc::permission_denied);
        } else if (is_other) {
            error = std::make_error_code(std::errc::protocol_error);
        } else if (!is_in(400, 413, 429)) {
            may_have_stored = true;
            error = is_in(503) ? std::make_error_code(std::errc::resource_unavailable_try_again)
                    : is_in(408, 504) ? std::make_error_code(std::errc::timed_out)
                                      : error;
        }
        if (message.empty()) {
            const std::string line = one_line(answer_.substr(0, answer_.find('\n')), 100);
            message = "not an answer of etcd's gateway: HTTP status " + std::to_string(status_) +
                      (line.empty() ? "" : ": ") + line;
        }
        return {{}, error, may_have_stored, described(message)};
    }

    // Sets the token. The result's may_have_stored is that of any request, although a login stores
    // nothing.
    etcd_result log_in(std::size_t left) {
        const std::string body = durable::detail::write_text(etcd_login{to_.user, to_.password});
        etcd_result got = post({"/auth/authenticate", body, true, 64 * 1024}, left);
        token_ = read_etcd_answer(got.of).token;
        // A byte that is not printable would end the header.
        if (!got.error && (token_.empty() || std::any_of(token_.begin(), token_.end(), [](char c) {
                               return c <= ' ' || c > '~';
                           }))) {
            token_.clear();
            got.error = std::make_error_code(std::errc::protocol_error);
            got.error_text = described("the login returned no valid token");
        }
        return got;
    }

    std::string described(const std::string& error_text) const {
        return (to_.endpoints.size() < 2 ? std::string() : to_.endpoints[at_] + ": ") +
               without_secret(one_line(error_text), to_.password);
    }

    static std::size_t give(char* to, std::size_t size, std::size_t n, void* of) noexcept {
        etcd_client& self = *static_cast<etcd_client*>(of);
        const std::string_view rest = self.request_->body.substr(self.given_);
        const std::size_t given = std::min(rest.size(), size * n);
        std::memcpy(to, rest.data(), given);
        self.given_ += given;
        return given;
    }
    static std::size_t take(char* from, std::size_t size, std::size_t n, void* of) noexcept {
        etcd_client& self = *static_cast<etcd_client*>(of);
        self.is_too_long_ = size * n > self.request_->longest_answer - self.answer_.size();
        const bool is_taken =
            !self.is_too_long_ && try_to([&] { self.answer_.append(from, size * n); });
        return is_taken ? size * n : 0;
    }
    static int opened(void* of, curl_socket_t fd, curlsocktype) noexcept {
        ::fcntl(fd, F_SETFD, FD_CLOEXEC);
        return static_cast<etcd_client*>(of)->given_ == 0 ? CURL_SOCKOPT_OK : CURL_SOCKOPT_ERROR;
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

    const target to_;
    char text_[CURL_ERROR_SIZE] = "";
    std::unique_ptr<CURL, freer> handle_;
    const pid_t owner_ = ::getpid();
    std::size_t at_ = 0;              // the endpoint to try first
    deadline end_ = deadline::poll(); // of the present call
    std::string token_;

    // The request that is being sent, and its answer.
    const etcd_request* request_ = nullptr;
    std::size_t given_ = 0; // bytes of its body that libcurl has read
    std::string answer_{};
    long status_ = 0; // 0: there is no complete answer
    bool is_too_long_ = false;
    bool wants_login_ = false; // the token is invalid
};

// ---- Slots

class etcd_core final : public server_slot<etcd_client> {
public:
    using server_slot::server_slot;

    result<slot_snapshot, std::error_code> load() override {
        etcd_result got = call("/kv/range", etcd_range(terms.key), true);
        if (got.error) {
            return unexpected{failed(got.error, std::move(got.error_text))};
        }
        auto seen = etcd_snapshot(read_etcd_answer(got.of));
        if (!seen) {
            return unexpected{failed(std::make_error_code(std::errc::protocol_error), no_etcd)};
        }
        return *std::move(seen);
    }

    cas_result compare_exchange(slot_version version, std::string_view value) override {
        if (value.size() > terms.max_value) {
            return not_stored(false, durable_errc::too_large);
        }
        etcd_result got = call("/kv/txn", etcd_exchange(terms.key, version, value), false);
        if (got.error) {
            return not_stored(got.may_have_stored, got.error, std::move(got.error_text));
        }
        const etcd_answer read = read_etcd_answer(got.of);
        if (read.succeeded) {
            const slot_version stored = etcd_number(read.header ? read.header->revision : "");
            if (stored != 0) { // the revision of the cluster is that of the new value
                return {.status = cas_status::stored, .version = stored};
            }
        } else if (read.responses.size() == 1 && read.responses[0].response_range) {
            if (auto found = etcd_snapshot(*read.responses[0].response_range)) {
                return {.status = cas_status::conflict, .current = std::move(found)};
            }
        }
        return not_stored(true, std::make_error_code(std::errc::protocol_error), no_etcd);
    }

    std::unique_ptr<slot> for_renewals() const override {
        return std::make_unique<etcd_core>(terms_for_renewals());
    }

private:
    static constexpr const char* no_etcd = "not an answer of etcd's gateway";

    etcd_result call(const char* what, const std::string& body, bool may_repeat) {
        const std::size_t longest = 2 * terms.max_value + (std::size_t{4} << 20);
        return ask(until(),
                   [&](etcd_client& to) { return to.call({what, body, may_repeat, longest}); });
    }
};

// Moves the user and the password from the endpoints' URLs to the target. Returns what is wrong
// with the endpoints, or nullptr.
inline const char* read_etcd_endpoints(etcd_target& target) {
    if (target.endpoints.empty()) {
        return "there is no endpoint";
    }
    for (std::string& each : target.endpoints) {
        auto url = read_server_url(each);
        if (!url) {
            return url.error();
        }
        if (url->scheme != "http" && url->scheme != "https") {
            return "the URL of an endpoint begins with neither http:// nor https://";
        }
        const bool has_login = !url->user.empty() || !url->password.empty();
        if (has_login && !target.user.empty() &&
            (url->user != target.user || url->password != target.password)) {
            return "the URLs of two endpoints have different users or passwords";
        }
        if (has_login) {
            target.user = std::move(url->user);
            target.password = std::move(url->password);
        }
        const bool is_address = url->host.find(':') != url->host.npos;
        each = url->scheme + "://" + (is_address ? '[' + url->host + ']' : url->host) +
               (url->port == 0 ? "" : ':' + std::to_string(url->port)) + '/' + url->path;
        each.resize(each.find_last_not_of('/') + 1);
    }
    return target.user.empty() && !target.password.empty() ? "there is a password and no user"
                                                           : nullptr;
}

inline std::unique_ptr<slot> make_etcd(std::vector<std::string> endpoints, std::string key,
                                       etcd_slot_options options) {
    etcd_target target{.endpoints = std::move(endpoints),
                       .tls = {std::move(options.ca_file), std::move(options.cert_file),
                               std::move(options.key_file)}};
    if (const char* const wrong = key.empty() ? "the key is empty" : read_etcd_endpoints(target)) {
        refuse_argument(std::string("bide::etcd_slot: ") + wrong);
    }
    return std::make_unique<etcd_core>(etcd_core::terms_type{
        std::move(target), std::move(key), options.retry_time, options.max_value});
}

} // namespace detail

BIDE_DURABLE_INLINE etcd_slot::etcd_slot(std::vector<std::string> endpoints, std::string key,
                                         etcd_slot_options options)
    : server_slot_handle(
          detail::make_etcd(std::move(endpoints), std::move(key), std::move(options))) {}

}} // namespace bide::BIDE_ABI

#endif
