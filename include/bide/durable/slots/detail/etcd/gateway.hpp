// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_ETCD_GATEWAY_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_ETCD_GATEWAY_HPP

// Requests to etcd's JSON gateway, and its answers. Keys and values are base64, 64-bit numbers are
// strings, and members that are zero, false or empty are left out.

#include <bide/core/config.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slots/detail/server/text.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

namespace bide { inline namespace BIDE_ABI { namespace detail {

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

inline std::string etcd_login(const std::string& user, const std::string& password) {
    const nlohmann::json all{{"name", user}, {"password", password}};
    return all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

struct etcd_value {
    std::uint64_t revision = 0; // 0: the key is missing
    std::string bytes{};
    std::optional<std::uint64_t> counter{}; // the cluster's revision when it answered
};

class etcd_answer {
public:
    explicit etcd_answer(std::string_view body)
        : all_(nlohmann::json::parse(body.begin(), body.end(), nullptr, false)) {}

    // Returns the value that a range read. This and the functions below return nothing if it is not
    // an answer of etcd.
    std::optional<etcd_value> range() const { return range_in(all_, revision()); }

    // Returns the value that an exchange read because it did not store.
    std::optional<etcd_value> instead() const {
        const nlohmann::json* const all = member(all_, "responses");
        if (all == nullptr || !all->is_array() || all->size() != 1) {
            return std::nullopt;
        }
        const nlohmann::json* const range = member(all->front(), "response_range");
        return range == nullptr ? std::nullopt : range_in(*range, revision());
    }

    // Whether an exchange has stored its value.
    bool is_stored() const {
        const nlohmann::json* const found = member(all_, "succeeded");
        return found != nullptr && found->is_boolean() && found->get<bool>();
    }

    // Returns the cluster's revision. After an exchange that stored, this is the value's revision.
    std::optional<std::uint64_t> revision() const {
        const nlohmann::json* const header = member(all_, "header");
        return header == nullptr ? std::nullopt : number(*header, "revision");
    }

    // Returns the token of a login, or an empty string.
    std::string token() const { return text(all_, "token"); }
    // Returns the text of an error, or an empty string.
    std::string message() const {
        const std::string found = text(all_, "message");
        return found.empty() ? text(all_, "error") : found;
    }

private:
    using json = nlohmann::json;

    static const json* member(const json& in, const char* name) {
        if (!in.is_object()) {
            return nullptr;
        }
        const auto found = in.find(name);
        return found == in.end() ? nullptr : &*found;
    }

    static std::string text(const json& in, const char* name) {
        const json* const found = member(in, name);
        return found != nullptr && found->is_string() ? found->get<std::string>() : std::string();
    }

    static std::optional<std::uint64_t> number(const json& in, const char* name) {
        const std::int64_t value =
            read_number(text(in, name), std::numeric_limits<std::int64_t>::max());
        return value <= 0 ? std::nullopt : std::optional(static_cast<std::uint64_t>(value));
    }

    static std::optional<etcd_value> range_in(const json& range,
                                              std::optional<std::uint64_t> counter) {
        if (member(range, "header") == nullptr) {
            return std::nullopt;
        }
        const json* const all = member(range, "kvs");
        if (all == nullptr || (all->is_array() && all->empty())) {
            return etcd_value{0, {}, counter};
        }
        if (!all->is_array() || all->size() != 1) {
            return std::nullopt;
        }
        const auto revision = number(all->front(), "mod_revision");
        auto bytes = from_base64(text(all->front(), "value"));
        if (!revision || !bytes) {
            return std::nullopt;
        }
        return etcd_value{*revision, *std::move(bytes), counter};
    }

    json all_; // "discarded" if the body is not JSON
};

// The meaning of an answer that is not a success.
struct etcd_failure {
    std::error_code error;
    bool is_certain; // nothing was stored
    bool is_login;   // the token is invalid
    std::string error_text{};
};

// Errors that last until an operator acts are permission_denied and protocol_error.
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
    // etcd's own errors are JSON with a message. Another server sends a status 4xx without one.
    const bool is_other =
        status < 200 || (status >= 300 && status < 400) ||
        (message.empty() && status >= 400 && status < 500 && status != 408 && status != 429);
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

}}} // namespace bide::BIDE_ABI::detail

#endif
