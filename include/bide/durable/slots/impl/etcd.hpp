// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_IMPL_ETCD_HPP
#define BIDE_DURABLE_SLOTS_IMPL_ETCD_HPP

// Calls of an etcd cluster's JSON gateway by libcurl, over a connection that stays open. Logs in if
// needed. If an endpoint fails, tries the next one, unless that could store a value twice.
//
// In the gateway's JSON, keys and values are base64, 64-bit numbers are strings, and members that
// are zero, false or empty are left out.

#include <bide/durable/record_json.hpp>
#include <bide/durable/slots/detail/server/curl.hpp>
#include <bide/durable/slots/etcd.hpp>

#include <cstring>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

struct etcd_target {
    std::vector<std::string> endpoints{}; // URLs without a login and without a '/' at the end
    std::string user{};
    std::string password{};
    tls_files tls{};

    std::string name() const { // for messages, without the password
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

// Returns a transaction: if the key was last changed in this revision (0: the key is missing), it
// stores the value; otherwise it reads the key.
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

// What the slot reads of etcd's answers and of the objects in them.
struct etcd_answer {
    std::string_view header{};         // JSON; each answer has one
    std::string_view response_range{}; // JSON
    std::vector<etcd_answer> kvs{};
    std::vector<etcd_answer> responses{};
    bool succeeded = false; // an exchange has stored its value
    std::string revision{}; // of a header
    std::string mod_revision{};
    std::string value{};
    std::string token{}; // of a login
    std::string message{};
    std::string error{};
};
struct etcd_login {
    std::string name;
    std::string password;
};

inline constexpr durable::detail::stored_as etcd_field =
    durable::detail::maybe(durable::detail::text());

template <class F> void fields(etcd_answer& a, F& f) {
    f("header", a.header, etcd_field);
    f("response_range", a.response_range, etcd_field);
    f("kvs", a.kvs, etcd_field);
    f("responses", a.responses, etcd_field);
    f("succeeded", a.succeeded, etcd_field);
    f("revision", a.revision, etcd_field);
    f("mod_revision", a.mod_revision, etcd_field);
    f("value", a.value, etcd_field);
    f("token", a.token, etcd_field);
    f("message", a.message, etcd_field);
    f("error", a.error, etcd_field);
}
template <class F> void fields(const etcd_login& l, F& f) {
    f("name", l.name);
    f("password", l.password);
}

// Returns an answer without a header if the text is not an answer of etcd.
inline etcd_answer read_etcd_answer(std::string_view text) {
    etcd_answer read;
    durable::detail::json_reader in(text);
    in.object(read);
    return in.has_ended() ? read : etcd_answer();
}

// Reads a revision. Returns 0 if the text is no revision.
inline std::uint64_t etcd_revision(std::string_view text) {
    const std::int64_t value = read_number(text, std::numeric_limits<std::int64_t>::max());
    return static_cast<std::uint64_t>(std::max<std::int64_t>(value, 0));
}

// Returns the revision of the cluster at the time of the answer, or 0.
inline std::uint64_t etcd_revision_of(const etcd_answer& a) {
    return etcd_revision(read_etcd_answer(a.header).revision);
}

// Returns the value in the answer to a range request; nothing if the answer is not one of etcd.
inline std::optional<slot_snapshot> etcd_snapshot(const etcd_answer& a) {
    slot_snapshot seen;
    seen.counter = static_cast<std::int64_t>(etcd_revision_of(a));
    if (seen.counter == 0 || a.kvs.size() > 1) {
        return std::nullopt;
    }
    for (const etcd_answer& one : a.kvs) {
        auto bytes = from_base64(one.value);
        seen.version = etcd_revision(one.mod_revision);
        if (seen.version == 0 || !bytes) {
            return std::nullopt;
        }
        seen.value = *std::move(bytes);
    }
    return seen;
}

// ---- Calls

using etcd_result = server_answer<std::string>; // the body

// If a connection that was used before ends without an answer, libcurl sends the request again. But
// the server may have acted on the first request. To prevent that, this class refuses libcurl two
// things: to rewind the body, and to open a socket after libcurl has read a part of the body. The
// second request then fails.
class etcd_client final : public server_client<etcd_target>, public curl_handle {
public:
    using server_client::server_client;

    // libcurl connects during a call, so these functions have nothing to do.
    bool is_open() const noexcept { return true; }
    bool is_usable() const noexcept { return true; }
    std::error_code connect() const noexcept { return {}; }

    slot_answer load(const server_terms& of, known&) {
        etcd_result got = call(of, "/kv/range", etcd_range(of.key), true);
        if (got.error) {
            return std::move(got).refused_as<cas_result>();
        }
        auto seen = etcd_snapshot(read_etcd_answer(got.of));
        return seen ? slot_answer{{.current = std::move(seen)}} : not_etcd();
    }

    slot_answer exchange(const server_terms& of, known&, slot_version version,
                         std::string_view value) {
        etcd_result got = call(of, "/kv/txn", etcd_exchange(of.key, version, value), false);
        if (got.error) {
            return std::move(got).refused_as<cas_result>();
        }
        const etcd_answer read = read_etcd_answer(got.of);
        const slot_version revision = etcd_revision_of(read);
        if (read.succeeded && revision != 0) { // it is that of the new value
            return {{.status = cas_status::stored, .version = revision}};
        }
        if (!read.succeeded && read.responses.size() == 1) {
            if (auto found = etcd_snapshot(read_etcd_answer(read.responses[0].response_range))) {
                return {{.status = cas_status::conflict, .current = std::move(found)}};
            }
        }
        return not_etcd();
    }

private:
    static slot_answer not_etcd() {
        return {{},
                std::make_error_code(std::errc::protocol_error),
                true,
                "not an answer of etcd's gateway"};
    }

    // Sends the request to one endpoint after the other, until one answers.
    etcd_result call(const server_terms& of, const char* what, const std::string& body,
                     bool may_repeat) {
        longest_answer_ = 2 * of.max_value + (std::size_t{4} << 20);
        bool has_logged_in = to_.user.empty();
        for (std::size_t left = to_.endpoints.size();;) {
            etcd_result got;
            if (!to_.user.empty() && token_.empty()) {
                has_logged_in = true;
                got = log_in(left);
            }
            const bool has_login = !got.error;
            if (has_login) {
                got = post(what, body, may_repeat, left);
            }
            if (has_login && wants_login_ && !std::exchange(has_logged_in, true)) {
                token_.clear();
                continue;
            }
            if (got.error == std::errc::connection_reset) {
                drop(); // libcurl would still try to rewind the body
            }
            if (!got.error || (!got.may_have_stored && status_ != 0)) {
                return got;
            }
            got.may_have_stored = got.may_have_stored && has_login;
            at_ = (at_ + 1) % to_.endpoints.size();
            if (--left == 0 || (got.may_have_stored && !may_repeat)) {
                return got;
            }
        }
    }

    bool make_for_posts() {
        return make(to_.tls) && set(CURLOPT_POST, 1L) && set(CURLOPT_MAXCONNECTS, 1L) &&
               set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1)) &&
               set(CURLOPT_READFUNCTION, &give) && set(CURLOPT_READDATA, this) &&
               set(CURLOPT_WRITEFUNCTION, &take) && set(CURLOPT_WRITEDATA, this);
    }

    // Sends a request to the present endpoint, at /v3 and `path`. `left` endpoints share the
    // remaining time equally, so that an endpoint that does not answer leaves time for the others.
    // Once connected, a request that may not be repeated may use all of the time.
    etcd_result post(const char* path, std::string_view body, bool may_repeat, std::size_t left) {
        const long rest = std::max(ms_until(end_), 1L); // 0 means no limit
        const long share = std::max(rest / static_cast<long>(left), 1L);
        const std::string url = to_.endpoints[at_] + "/v3" + path;
        // Without an empty "Expect:", libcurl waits for the server's permission to send a long
        // body. A header without a value is not sent.
        std::unique_ptr<curl_slist, ended_by<&::curl_slist_free_all>> headers;
        for (const std::string& line : {std::string("Content-Type: application/json"),
                                        std::string("Expect:"), "Authorization: " + token_}) {
            if (curl_slist* const longer = ::curl_slist_append(headers.get(), line.c_str())) {
                static_cast<void>(headers.release());
                headers.reset(longer);
            }
        }
        body_ = body;
        may_open_ = true;
        answer_.clear();
        wants_login_ = false;
        status_ = 0;
        if ((handle_ == nullptr && !make_for_posts()) || !set(CURLOPT_URL, url.c_str()) ||
            !set(CURLOPT_HTTPHEADER, headers.get()) ||
            !set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size())) ||
            !set(CURLOPT_CONNECTTIMEOUT_MS, share) ||
            !set(CURLOPT_TIMEOUT_MS, may_repeat ? share : rest)) {
            drop();
            return {{}, std::make_error_code(std::errc::not_enough_memory)};
        }
        const CURLcode code = perform();
        if (const std::error_code error = error_of(code)) {
            // The server refuses a certificate in the handshake, before it reads the request.
            const bool was_sent = body_.empty() && error != std::errc::permission_denied;
            return {{},
                    error,
                    was_sent,
                    described(text_[0] != '\0' ? text_ : ::curl_easy_strerror(code))};
        }
        ::curl_easy_getinfo(handle_.get(), CURLINFO_RESPONSE_CODE, &status_);
        return status_ == 200 ? etcd_result{std::move(answer_)} : refusal();
    }

    // Returns the error for an answer whose status is not 200. permission_denied and protocol_error
    // mean that an operator has to act.
    etcd_result refusal() {
        const etcd_answer read = read_etcd_answer(answer_);
        std::string message = read.message.empty() ? read.error : read.message;
        const auto is_in = [this](auto... all) { return ((status_ == all) || ...); };
        wants_login_ = status_ == 401 || says(message, "revision of auth store is old");
        // etcd's own errors are JSON with a message. Another server sends a status 4xx without one.
        const bool is_other =
            status_ < 200 || (status_ >= 300 && status_ < 400) || is_in(404, 405, 501) ||
            (message.empty() && status_ >= 400 && status_ < 500 && !is_in(408, 429));
        std::error_code error = durable_errc::storage_error;
        bool may_have_stored = false;
        if (says(message, "too large", "larger than max")) {
            error = durable_errc::too_large;
        } else if (wants_login_ || is_in(403, 407) ||
                   says(message, "user name is empty", "authentication failed",
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

    // Logs in, and sets the token. Ignore the result's may_have_stored: a login stores nothing.
    etcd_result log_in(std::size_t left) {
        const std::string body = durable::detail::write_text(etcd_login{to_.user, to_.password});
        etcd_result got = post("/auth/authenticate", body, true, left);
        token_ = read_etcd_answer(got.of).token;
        // A byte that is not printable would end the header.
        if (!got.error && (token_.empty() || one_line(token_, token_.npos) != token_)) {
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
        const std::size_t given = std::min(self.body_.size(), size * n);
        std::memcpy(to, self.body_.data(), given);
        self.body_.remove_prefix(given);
        self.may_open_ = self.may_open_ && given == 0;
        return given;
    }
    static std::size_t take(char* from, std::size_t size, std::size_t n, void* of) noexcept {
        etcd_client& self = *static_cast<etcd_client*>(of);
        const bool is_taken = size * n <= self.longest_answer_ - self.answer_.size() &&
                              try_to([&] { self.answer_.append(from, size * n); });
        return is_taken ? size * n : 0;
    }

    std::size_t at_ = 0; // the endpoint to try first
    std::string token_;

    // The request that is being sent, and its answer.
    std::string_view body_{}; // what libcurl has not read yet
    std::string answer_{};
    std::size_t longest_answer_ = 0;
    long status_ = 0;          // 0: there is no complete answer
    bool wants_login_ = false; // the token is invalid
};

// ---- Slots

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
        each = url->scheme + "://" + host_in_url(url->host) +
               (url->port == 0 ? "" : ':' + std::to_string(url->port)) + '/' + url->path;
        each.resize(each.find_last_not_of('/') + 1);
    }
    return target.user.empty() && !target.password.empty() ? "there is a password and no user"
                                                           : nullptr;
}

} // namespace detail

BIDE_DURABLE_INLINE etcd_slot::etcd_slot(std::vector<std::string> endpoints, std::string key,
                                         etcd_slot_options options) {
    detail::etcd_target target{.endpoints = std::move(endpoints),
                               .tls = {std::move(options.ca_file), std::move(options.cert_file),
                                       std::move(options.key_file)}};
    detail::check_argument("bide::etcd_slot",
                           key.empty() ? "the key is empty" : detail::read_etcd_endpoints(target));
    core_ = std::make_unique<detail::server_slot<detail::etcd_client>>(
        std::move(target),
        detail::server_terms{std::move(key), options.retry_time, options.max_value});
}

}} // namespace bide::BIDE_ABI

#endif
