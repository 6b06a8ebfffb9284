// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_ETCD_CLIENT_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_ETCD_CLIENT_HPP

// Calls of an etcd cluster's gateway. Logs in if needed. If an endpoint fails, tries the next one,
// unless that could store a value twice.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/durable/slots/detail/etcd/gateway.hpp>
#include <bide/durable/slots/detail/etcd/http.hpp>
#include <bide/durable/slots/detail/etcd/target.hpp>
#include <bide/durable/slots/detail/server/server_slot.hpp>
#include <bide/durable/slots/detail/server/shared_connections.hpp>
#include <bide/durable/slots/detail/server/store_socket.hpp>
#include <bide/durable/slots/detail/server/text.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace detail {

using etcd_result = server_answer<std::string>; // the body

// Used by one thread at a time.
class etcd_client {
public:
    using key = connection_key<etcd_target>;
    using answer = etcd_result;

    explicit etcd_client(const key& of)
        : target_(of.target), has_answered_(of.target.endpoints.size()) {}

    // In a child of fork(): closes the descriptors, without a message to the server.
    void disown() noexcept { http_.drop(); }

    // Does nothing: a call connects if needed.
    std::error_code make_ready(deadline) const noexcept { return {}; }
    bool is_open() const noexcept { return http_.is_open(); }
    bool is_usable() const noexcept { return http_.is_open(); }
    void drop() noexcept { http_.drop(); }
    etcd_result lost(std::error_code error, bool may_have_stored) {
        drop();
        return {{}, error, may_have_stored, {}};
    }

    struct request {
        const char* what; // the path behind the gateway's
        std::string_view body;
        bool may_repeat; // the request changes nothing
        std::size_t longest_answer;
    };
    // Sends the request to the endpoints in turn, until one answers.
    // Blocks: until an answer, or until the deadline.
    etcd_result call(const request& r, deadline end) {
        etcd_result last;
        bool has_logged_in = false;
        for (std::size_t left = target_.endpoints.size(); left > 0;) {
            etcd_failure why{{}, true, false, {}};
            bool has_answered = false;
            if (!target_.user.empty() && token_.empty()) {
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
                if (why.is_login && !target_.user.empty() && !has_logged_in) {
                    token_.clear();
                    continue;
                }
            }
            last = {{}, why.error, !why.is_certain, std::move(why.error_text)};
            if (has_answered && why.is_certain) {
                return last;
            }
            at_ = (at_ + 1) % target_.endpoints.size();
            --left;
            if (last.may_have_stored && !r.may_repeat) {
                return last;
            }
        }
        return last;
    }

private:
    http_answer post(const request& r, std::size_t left, deadline end) {
        const std::int64_t now = native_platform::now();
        const std::int64_t share = (end.steady_ns() - now) / static_cast<std::int64_t>(left);
        const deadline shared_end = deadline::at_ns(now + share);
        const http_request sent{target_.endpoints[at_] + target_.path + r.what,
                                r.body,
                                token_,
                                r.may_repeat,
                                r.longest_answer,
                                shared_end,
                                r.may_repeat ? shared_end : end};
        return http_.post(sent, target_.tls);
    }

    etcd_failure log_in(std::size_t left, deadline end) {
        token_.clear();
        constexpr std::size_t longest = 64 * 1024;
        const std::string body = etcd_login(target_.user, target_.password);
        const http_answer got = post({"/auth/authenticate", body, true, longest}, left, end);
        if (got.error || got.status != 200) {
            etcd_failure why = failure_of(got, end);
            why.is_certain = true;
            return why;
        }
        token_ = etcd_answer(got.body).token();
        for (const char each : token_) {
            if (each <= ' ' || each > '~') {
                token_.clear(); // such a byte would end the header
                break;
            }
        }
        return {token_.empty() ? std::make_error_code(std::errc::protocol_error)
                               : std::error_code(),
                true, false,
                token_.empty() ? described("the login returned no valid token") : std::string()};
    }

    etcd_failure failure_of(const http_answer& got, deadline end) {
        has_answered_[at_] = has_answered_[at_] || got.status != 0;
        if (got.error == std::errc::connection_reset && !has_answered_[at_]) {
            if (const char* const error_text = other_protocol(end)) {
                return {std::make_error_code(std::errc::protocol_error), true, false,
                        described(error_text)};
            }
        }
        if (got.error) {
            return {got.error, !got.was_sent, false,
                    described(got.error_text.empty() ? got.error.message() : got.error_text)};
        }
        etcd_failure why = etcd_failure_of(got.status, got.body);
        std::string error_text = etcd_answer(got.body).message();
        if (error_text.empty()) {
            const std::string_view line =
                std::string_view(got.body).substr(0, got.body.find_first_of("\r\n"));
            error_text = "not an answer of etcd's gateway: HTTP status " +
                         std::to_string(got.status) + (line.empty() ? "" : ": ") +
                         one_line(line, 100);
        }
        why.error_text = described(std::move(error_text));
        return why;
    }

    // If the endpoint speaks another protocol than its URL says, returns which one; otherwise
    // nullptr.
    const char* other_protocol(deadline end) const {
        etcd_endpoint read;
        if (read.read(target_.endpoints[at_]) != nullptr) {
            return nullptr;
        }
        const std::string host = read.host();
        const int port = read.port();
        if (!read.uses_tls() && answers_tls(host, port, end)) {
            return "the server speaks TLS at this port: use https://";
        }
        if (read.uses_tls() &&
            answers_with(host, port, "GET /version HTTP/1.0\r\n\r\n", "H", end)) {
            return "the server does not speak TLS at this port: use http://";
        }
        return answers_postgres(host, port, end) ? "a PostgreSQL server is at this port"
               : answers_redis(host, port, end)  ? "a Redis server is at this port"
                                                 : nullptr;
    }

    std::string described(std::string error_text) const {
        error_text = without_secret(one_line(error_text), target_.password);
        return target_.endpoints.size() < 2 ? error_text
                                            : target_.endpoints[at_] + ": " + error_text;
    }

    const etcd_target target_;
    std::size_t at_ = 0;             // the endpoint to try first
    std::vector<bool> has_answered_; // for each endpoint: whether it has answered with HTTP
    std::string token_;
    etcd_http http_;
};

}}} // namespace bide::BIDE_ABI::detail

#endif
