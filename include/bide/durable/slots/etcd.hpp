#ifndef BIDE_DURABLE_SLOTS_ETCD_HPP
#define BIDE_DURABLE_SLOTS_ETCD_HPP

// A slot in etcd 3.4 or later: one key, compared and set by a transaction through the JSON gateway
// that etcd serves at its client port. Takes libcurl (link -lcurl) and the header
// nlohmann/json.hpp.
//
// A version is the revision of the cluster in which the key was last changed (mod_revision). It
// counts every change of every key and goes on through deletion. It goes back only with the
// cluster's history: when a backup is restored, or a member of a version before 3.4.32 or 3.5.13 is
// killed at the wrong moment of a compaction whose last revision is a deletion. So nothing here
// deletes, nobody should, and a lock draws its fencing tokens from its record and not from the
// version.
//
// Both operations go through the majority: what load() answers is committed. etcd has no clock that
// it would tell, so locks observe leases instead. There is no watch: a lock asks again now and
// then.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/etcd_http.hpp>
#include <bide/durable/slots/detail/etcd_json.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace bide::inline BIDE_ABI {

struct etcd_slot_options {
    // Where the cluster asks who we are. No user: nobody logs in. (The gateway knows nobody by a
    // certificate.)
    std::string user{};
    std::string password{};

    // For https: PEM files. Empty: the system's authorities, and no certificate of our own.
    std::string ca_file{};
    std::string cert_file{};
    std::string key_file{};

    // One operation takes no longer, whatever the number of endpoints; but libcurl before 7.87 ends
    // no look-up of a name before its time.
    std::chrono::milliseconds patience{10'000};

    // Larger values are refused, in bytes. etcd itself takes 1.5 MiB, unless it is told otherwise.
    std::size_t max_value = std::size_t{1} << 20;

    // Of the gateway; /v3beta in etcd 3.3.
    std::string path = "/v3";
};

class etcd_slot {
public:
    static constexpr slot_guarantees guarantees{
        .keeps_acknowledged = true, .multi_host = true, .clock = lock_clock::observed};

    // An endpoint is "http://10.0.0.1:2379", with https if it is that; all are of one cluster. The
    // first operation connects to one, and another one is tried where that does not answer. Nothing
    // but slots may write to the key. After fork() the child connects anew; a handle of libcurl is
    // leaked there.
    // libcurl is initialised with the first operation: a program that uses it elsewhere too, and a
    // version before 7.84, calls curl_global_init() itself before it starts threads. The sockets to
    // etcd are close-on-exec; a pair that libcurl makes to wake itself may not be, and a program
    // that is started should close what it does not know.
    // Throws: std::system_error (invalid_argument) where the key or an endpoint is empty, or there
    // is none; std::bad_alloc.
    etcd_slot(std::vector<std::string> endpoints, std::string key, etcd_slot_options options = {});
    etcd_slot(std::string endpoint, std::string key, etcd_slot_options options = {})
        : etcd_slot(std::vector<std::string>{std::move(endpoint)}, std::move(key),
                    std::move(options)) {}

    // Blocks, both: for a round trip to the majority, at most `patience`. Errors are the system's,
    // or timed_out, where nobody can be reached; libcurl's (TLS, mostly); permission_denied; what
    // is not etcd's gateway is protocol_error. Throws, both: std::bad_alloc.
    result<slot_snapshot, std::error_code> load();

    // A conflict brings the current value along. Indeterminate is what was sent and not answered,
    // or answered with what may have come after the fact: no leader, timed out.
    cas_result compare_exchange(slot_version version, std::string_view value);

private:
    // The body of an answer, or why there is none, and whether something may have been stored.
    struct answer {
        std::string body{};
        std::error_code error{};
        bool may_have_stored = false;
    };

    struct failure {
        std::error_code error;
        bool is_certain; // nothing was done
        bool is_login;   // the token is of no use any more
    };
    static failure failure_of(long status, std::string_view body);

    answer call(const char* what, std::string_view body, bool may_repeat);
    detail::http_answer post(const char* what, std::string_view body, bool may_repeat,
                             std::size_t left, deadline end);
    std::error_code log_in(std::size_t left, deadline end);

    std::vector<std::string> endpoints_;
    std::size_t at_ = 0; // the one that is asked first
    std::string key_;
    etcd_slot_options options_;
    std::string token_;
    detail::etcd_http http_;
};

// ---- implementation

inline etcd_slot::etcd_slot(std::vector<std::string> endpoints, std::string key,
                            etcd_slot_options options)
    : endpoints_(std::move(endpoints)), key_(std::move(key)), options_(std::move(options)) {
    bool is_meant = !key_.empty() && !endpoints_.empty();
    for (std::string& endpoint : endpoints_) {
        while (!endpoint.empty() && endpoint.back() == '/') {
            endpoint.pop_back();
        }
        is_meant = is_meant && !endpoint.empty();
    }
    if (!is_meant) {
        BIDE_THROW(
            std::system_error(make_error_code(durable_errc::invalid_argument), "bide::etcd_slot"));
    }
}

inline etcd_slot::failure etcd_slot::failure_of(long status, std::string_view body) {
    const std::string message = detail::etcd_answer(body).message();
    const auto says = [&](const char* part) { return message.find(part) != message.npos; };
    if (says("too large") || says("larger than max")) {
        return {make_error_code(durable_errc::too_large), true, false};
    }
    const bool is_login = status == 401 || says("revision of auth store is old");
    if (is_login || status == 403 || says("user name is empty") || says("authentication failed") ||
        says("permission denied")) {
        return {std::make_error_code(std::errc::permission_denied), true, is_login};
    }
    switch (status) {
    case 404:
    case 405: return {std::make_error_code(std::errc::protocol_error), true, false};
    case 400:
    case 413:
    case 429: return {make_error_code(durable_errc::storage_error), true, false};
    case 503: {
        const auto later = std::errc::resource_unavailable_try_again;
        return {std::make_error_code(later), false, false};
    }
    case 408:
    case 504: return {std::make_error_code(std::errc::timed_out), false, false};
    default: return {make_error_code(durable_errc::storage_error), false, false};
    }
}

inline detail::http_answer etcd_slot::post(const char* what, std::string_view body, bool may_repeat,
                                           std::size_t left, deadline end) {
    const std::int64_t now = native_platform::now();
    const std::int64_t share = (end.steady_ns() - now) / static_cast<std::int64_t>(left);
    const deadline shared_end = deadline::at_ns(now + share);
    detail::http_request request{endpoints_[at_] + options_.path + what,
                                 body,
                                 token_,
                                 may_repeat,
                                 2 * options_.max_value + (std::size_t{4} << 20),
                                 shared_end,
                                 may_repeat ? shared_end : end};
    return http_.post(request, {options_.ca_file, options_.cert_file, options_.key_file});
}

inline std::error_code etcd_slot::log_in(std::size_t left, deadline end) {
    token_.clear();
    const detail::http_answer got =
        post("/auth/authenticate", detail::etcd_login(options_.user, options_.password), true, left,
             end);
    if (got.error) {
        return got.error;
    }
    if (got.status != 200) {
        return failure_of(got.status, got.body).error;
    }
    token_ = detail::etcd_answer(got.body).token();
    for (const char each : token_) {
        if (each <= ' ' || each > '~') {
            token_.clear(); // it would be more than a header
            break;
        }
    }
    return token_.empty() ? std::make_error_code(std::errc::protocol_error) : std::error_code();
}

// Goes on to the next endpoint where that cannot store anything twice.
inline etcd_slot::answer etcd_slot::call(const char* what, std::string_view body, bool may_repeat) {
    const deadline end = deadline::after(options_.patience);
    answer last;
    bool has_logged_in = false;
    for (std::size_t left = endpoints_.size(); left > 0;) {
        std::error_code error;
        if (!options_.user.empty() && token_.empty()) {
            has_logged_in = true;
            error = log_in(left, end);
            last = {{}, error, false};
        }
        if (!error) {
            detail::http_answer got = post(what, body, may_repeat, left, end);
            if (!got.error && got.status == 200) {
                return {std::move(got.body), {}, true};
            }
            const failure why = got.error ? failure{got.error, !got.was_sent, false}
                                          : failure_of(got.status, got.body);
            if (why.is_login && !options_.user.empty() && !has_logged_in) {
                token_.clear();
                continue;
            }
            last = {{}, why.error, !why.is_certain};
            if (!got.error && why.is_certain) {
                return last;
            }
        }
        at_ = (at_ + 1) % endpoints_.size();
        --left;
        if (last.may_have_stored && !may_repeat) {
            return last;
        }
    }
    return last;
}

inline result<slot_snapshot, std::error_code> etcd_slot::load() {
    const answer got = call("/kv/range", detail::etcd_range(key_), true);
    if (got.error) {
        return unexpected{got.error};
    }
    auto value = detail::etcd_answer(got.body).range();
    if (!value) {
        return unexpected{std::make_error_code(std::errc::protocol_error)};
    }
    return slot_snapshot{.version = value->revision, .value = std::move(value->bytes)};
}

inline cas_result etcd_slot::compare_exchange(slot_version version, std::string_view value) {
    if (value.size() > options_.max_value) {
        return {cas_status::failed, 0, {}, make_error_code(durable_errc::too_large)};
    }
    const answer got = call("/kv/txn", detail::etcd_exchange(key_, version, value), false);
    if (got.error) {
        return {
            got.may_have_stored ? cas_status::indeterminate : cas_status::failed, 0, {}, got.error};
    }
    const detail::etcd_answer read(got.body);
    if (read.is_stored()) {
        if (const auto revision = read.revision()) {
            return {cas_status::stored, *revision, {}, {}};
        }
    } else if (auto found = read.instead()) {
        return {cas_status::conflict,
                0,
                slot_snapshot{.version = found->revision, .value = std::move(found->bytes)},
                {}};
    }
    return {cas_status::indeterminate, 0, {}, std::make_error_code(std::errc::protocol_error)};
}

} // namespace bide::inline BIDE_ABI

#endif
