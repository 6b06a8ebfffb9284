#ifndef BIDE_DURABLE_SLOTS_DETAIL_ETCD_CLIENT_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_ETCD_CLIENT_HPP

// Calls of a cluster's gateway: logs in where it has to, and goes on to the next endpoint where that
// cannot store anything twice.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slots/detail/connection_pool.hpp>
#include <bide/durable/slots/detail/etcd_http.hpp>
#include <bide/durable/slots/detail/etcd_json.hpp>
#include <bide/durable/slots/detail/etcd_place.hpp>
#include <bide/durable/slots/detail/other_language.hpp>
#include <bide/durable/slots/detail/store_words.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

namespace bide::inline BIDE_ABI {
namespace detail {

// The body of an answer, or why there is none, and whether something may have been stored.
struct etcd_result {
    std::string body{};
    std::error_code error{};
    bool may_have_stored = false;
    std::string words{}; // the server's, where there is an error
};

// What an answer that is none means.
struct etcd_failure {
    std::error_code error;
    bool is_certain; // nothing was done
    bool is_login;   // the token is of no use any more
    std::string words{};
};
etcd_failure etcd_failure_of(long status, std::string_view body);

// Used by one thread at a time.
class etcd_client {
public:
    // The connection for renewals is another one than that for calls.
    struct key {
        etcd_place place;
        bool is_for_renewals = false;

        std::size_t most_connections() const noexcept {
            return is_for_renewals ? 1 : most_call_connections;
        }
        friend bool operator<(const key& a, const key& b) noexcept {
            return std::tie(a.is_for_renewals, a.place) < std::tie(b.is_for_renewals, b.place);
        }
    };

    explicit etcd_client(const key& of)
        : place_(of.place), has_answered_(of.place.endpoints.size()) {}

    // In a child of fork(): the connection is the parent's.
    void disown() noexcept { http_.disown(); }

    // A call connects where it has to.
    std::error_code make_ready(deadline) const noexcept { return {}; }
    bool is_open() const noexcept { return http_.is_open(); }
    bool is_usable() const noexcept { return http_.is_open(); }
    void drop() noexcept { http_.drop(); }

    struct request {
        const char* what;
        std::string_view body;
        bool may_repeat; // it changes nothing
        std::size_t longest_answer;
    };
    etcd_result call(const request& r, deadline end);

private:
    http_answer post(const request& r, std::size_t left, deadline end);
    etcd_failure log_in(std::size_t left, deadline end);
    etcd_failure failure_of(const http_answer& got, deadline end);
    const char* other_language(deadline end) const;
    std::string told(std::string words) const;

    const etcd_place place_;
    std::size_t at_ = 0; // the endpoint that is asked first
    std::vector<bool> has_answered_; // each endpoint, with HTTP
    std::string token_;
    etcd_http http_;
};

// ---- implementation

// What lasts is permission_denied or protocol_error.
inline etcd_failure etcd_failure_of(long status, std::string_view body) {
    const std::string message = etcd_answer(body).message();
    const auto says = [&](const char* part) { return message.find(part) != message.npos; };
    const auto is = [&](std::errc error, bool is_certain, bool is_login = false) {
        return etcd_failure{std::make_error_code(error), is_certain, is_login, {}};
    };
    if (says("too large") || says("larger than max")) {
        return {make_error_code(durable_errc::too_large), true, false, {}};
    }
    const bool is_login = status == 401 || says("revision of auth store is old");
    if (is_login || status == 403 || status == 407 || says("user name is empty") ||
        says("authentication failed") || says("authentication is not enabled") ||
        says("permission denied")) {
        return is(std::errc::permission_denied, true, is_login);
    }
    // What etcd says is JSON.
    const bool is_other = status < 200 || (status >= 300 && status < 400) ||
                          (message.empty() && status >= 400 && status < 500 && status != 408 &&
                           status != 429);
    if (is_other || status == 404 || status == 405 || status == 501) {
        return is(std::errc::protocol_error, true);
    }
    switch (status) {
    case 400:
    case 413:
    case 429: return {make_error_code(durable_errc::storage_error), true, false, {}};
    case 503: return is(std::errc::resource_unavailable_try_again, false);
    case 408:
    case 504: return is(std::errc::timed_out, false);
    default: return {make_error_code(durable_errc::storage_error), false, false, {}};
    }
}

inline std::string etcd_client::told(std::string words) const {
    words = without_secret(one_line(words), place_.password);
    return place_.endpoints.size() < 2 ? words : place_.endpoints[at_] + ": " + words;
}

// What the endpoint speaks, where it is not what its URL says; or nullptr.
inline const char* etcd_client::other_language(deadline end) const {
    etcd_endpoint read;
    if (read.read(place_.endpoints[at_]) != nullptr) {
        return nullptr;
    }
    const std::string host = read.host();
    const int port = read.port();
    if (!read.is_secret() && answers_tls(host, port, end)) {
        return "the server speaks TLS at this port, and https:// is for that";
    }
    if (read.is_secret() &&
        answers_with(host, port, "GET /version HTTP/1.0\r\n\r\n", "H", end)) {
        return "the server does not speak TLS at this port, and http:// is for that";
    }
    return answers_postgres(host, port, end) ? "a PostgreSQL server is at this port"
           : answers_redis(host, port, end)  ? "a Redis server is at this port"
                                             : nullptr;
}

inline etcd_failure etcd_client::failure_of(const http_answer& got, deadline end) {
    has_answered_[at_] = has_answered_[at_] || got.status != 0;
    if (got.error == std::errc::connection_reset && !has_answered_[at_]) {
        if (const char* const words = other_language(end)) {
            return {std::make_error_code(std::errc::protocol_error), true, false, told(words)};
        }
    }
    if (got.error) {
        return {got.error, !got.was_sent, false,
                told(got.words.empty() ? got.error.message() : got.words)};
    }
    etcd_failure why = etcd_failure_of(got.status, got.body);
    std::string words = etcd_answer(got.body).message();
    if (words.empty()) {
        const std::string_view line =
            std::string_view(got.body).substr(0, got.body.find_first_of("\r\n"));
        words = "no answer of etcd's gateway, but HTTP status " + std::to_string(got.status) +
                (line.empty() ? "" : ": ") + one_line(line, 100);
    }
    why.words = told(std::move(words));
    return why;
}

inline http_answer etcd_client::post(const request& r, std::size_t left, deadline end) {
    const std::int64_t now = native_platform::now();
    const std::int64_t share = (end.steady_ns() - now) / static_cast<std::int64_t>(left);
    const deadline shared_end = deadline::at_ns(now + share);
    const http_request sent{place_.endpoints[at_] + place_.path + r.what,
                            r.body,
                            token_,
                            r.may_repeat,
                            r.longest_answer,
                            shared_end,
                            r.may_repeat ? shared_end : end};
    return http_.post(sent, place_.tls);
}

inline etcd_failure etcd_client::log_in(std::size_t left, deadline end) {
    token_.clear();
    constexpr std::size_t longest = 64 * 1024;
    const std::string body = etcd_login(place_.user, place_.password);
    const http_answer got = post({"/auth/authenticate", body, true, longest}, left, end);
    if (got.error || got.status != 200) {
        etcd_failure why = failure_of(got, end);
        why.is_certain = true;
        return why;
    }
    token_ = etcd_answer(got.body).token();
    for (const char each : token_) {
        if (each <= ' ' || each > '~') {
            token_.clear(); // it would be more than a header
            break;
        }
    }
    return {token_.empty() ? std::make_error_code(std::errc::protocol_error) : std::error_code(),
            true, false, token_.empty() ? told("the login gave no token") : std::string()};
}

inline etcd_result etcd_client::call(const request& r, deadline end) {
    etcd_result last;
    bool has_logged_in = false;
    for (std::size_t left = place_.endpoints.size(); left > 0;) {
        etcd_failure why{{}, true, false, {}};
        bool has_answered = false;
        if (!place_.user.empty() && token_.empty()) {
            has_logged_in = true;
            why = log_in(left, end);
        }
        if (!why.error) {
            http_answer got = post(r, left, end);
            if (!got.error && got.status == 200) {
                has_answered_[at_] = true;
                return {std::move(got.body), {}, true, {}};
            }
            why = failure_of(got, end);
            has_answered = !got.error;
            if (why.is_login && !place_.user.empty() && !has_logged_in) {
                token_.clear();
                continue;
            }
        }
        last = {{}, why.error, !why.is_certain, std::move(why.words)};
        if (has_answered && why.is_certain) {
            return last;
        }
        at_ = (at_ + 1) % place_.endpoints.size();
        --left;
        if (last.may_have_stored && !r.may_repeat) {
            return last;
        }
    }
    return last;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
