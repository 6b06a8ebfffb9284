// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_ETCD_JSON_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_ETCD_JSON_HPP

// Requests to etcd's JSON gateway, and its answers. Keys and values are base64, 64-bit numbers are
// strings, and members that are zero, false or empty are left out.

#include <bide/core/config.hpp>
#include <bide/durable/slots/detail/etcd/base64.hpp>

#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

namespace bide::inline BIDE_ABI {
namespace detail {

inline std::string etcd_range(std::string_view key) {
    return R"({"key":")" + detail::to_base64(key) + R"("})";
}

// Stores the value if the key was last changed in this revision (0: the key is missing). Otherwise
// reads the key.
inline std::string etcd_exchange(std::string_view key, std::uint64_t revision,
                                 std::string_view value) {
    constexpr std::uint64_t last =
        std::numeric_limits<std::int64_t>::max(); // no key has this revision
    const std::string name = R"("key":")" + detail::to_base64(key) + '"';
    return R"({"compare":[{)" + name + R"(,"target":"MOD","result":"EQUAL","mod_revision":")" +
           std::to_string(revision < last ? revision : last) +
           R"("}],"success":[{"request_put":{)" + name + R"(,"value":")" +
           detail::to_base64(value) + R"("}}],"failure":[{"request_range":{)" + name + "}}]}";
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
        const std::string digits = text(in, name);
        std::int64_t value = 0;
        const char* const last = digits.data() + digits.size();
        const auto [end, error] = std::from_chars(digits.data(), last, value);
        if (error != std::errc() || end != last || value <= 0) {
            return std::nullopt;
        }
        return static_cast<std::uint64_t>(value);
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
        auto bytes = detail::from_base64(text(all->front(), "value"));
        if (!revision || !bytes) {
            return std::nullopt;
        }
        return etcd_value{*revision, *std::move(bytes), counter};
    }

    json all_; // "discarded" if the body is not JSON
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
