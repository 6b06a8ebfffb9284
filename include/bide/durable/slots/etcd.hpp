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
// version; those of a fresh record begin with the revision.
//
// A restored backup forgets what was acknowledged after it was made. Then two may hold a lock, and
// versions and tokens that were given out come again. So: end all holders before a restore, restore
// with a raised revision (etcdutl 3.6: snapshot restore --bump-revision --mark-compacted), and delete
// the keys of locks.
// A key that is deleted under its holder admits another one.
//
// Both operations go through the majority: what load() answers is committed. etcd has no clock that
// it would tell, so locks observe leases instead. There is no watch: a lock asks again now and
// then.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/connection_pool.hpp>
#include <bide/durable/slots/detail/etcd_client.hpp>
#include <bide/durable/slots/detail/etcd_json.hpp>
#include <bide/durable/slots/detail/etcd_place.hpp>
#include <bide/durable/slots/detail/store_words.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
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

    // An endpoint is "http://10.0.0.1:2379", with https if it is that; all are of one cluster. In
    // "https://user:password@host:2379" user and password are percent-encoded, go before the
    // options, and are not sent as a part of the URL. The first operation connects to one, and
    // another one is tried where that does not answer. Nothing but slots may write to the key.
    // After fork() the child connects anew; a handle of libcurl is leaked there.
    // libcurl is initialised with the first operation: a program that uses it elsewhere too, and a
    // version before 7.84, calls curl_global_init() itself before it starts threads. The sockets to
    // etcd are close-on-exec; a pair that libcurl makes to wake itself may not be, and a program
    // that is started should close what it does not know.
    // Throws: std::system_error (invalid_argument) where the key is empty, or an endpoint is no such
    // URL, in words that quote nothing of it; std::bad_alloc.
    etcd_slot(std::vector<std::string> endpoints, std::string key, etcd_slot_options options = {});
    etcd_slot(std::string endpoint, std::string key, etcd_slot_options options = {})
        : etcd_slot(std::vector<std::string>{std::move(endpoint)}, std::move(key),
                    std::move(options)) {}

    etcd_slot(etcd_slot&&) noexcept = default;
    etcd_slot& operator=(etcd_slot&&) noexcept = default;

    // Blocks, both: for a round trip to the majority, at most `patience`. Errors are the system's,
    // or timed_out, where nobody can be reached, and libcurl's. These last until somebody changes
    // something; libcurl's codes compare equal to them:
    //   permission_denied  the cluster does not let us in, or one side refuses the other's
    //                      certificate
    //   protocol_error     it is not etcd's gateway, or only one side uses TLS
    //   invalid_argument   a file of certificates or keys is missing or cannot be read
    // Throws, both: std::bad_alloc.
    result<slot_snapshot, std::error_code> load();

    // A conflict brings the current value along. Indeterminate is what was sent and not answered,
    // or answered with what may have come after the fact: no leader, timed out.
    cas_result compare_exchange(slot_version version, std::string_view value);

    // The cluster, for people. Its slots share 8 connections for calls at most, opened when they
    // are needed, and one for renewals.
    std::string store() const { return client_.of().place.name(); }
    etcd_slot for_renewals() const { return etcd_slot(*this, for_renewals_t()); }

    // Where this is, and what was said of the last operation that failed.
    std::string explain() const;

private:
    struct for_renewals_t {};
    static constexpr const char* no_etcd = "not an answer of etcd's gateway";

    etcd_slot(const etcd_slot& of, for_renewals_t)
        : key_(of.key_), patience_(of.patience_), max_value_(of.max_value_),
          client_({of.client_.of().place, true}) {}

    static void refuse(const char* words);
    static detail::etcd_place place_of(std::vector<std::string> endpoints, etcd_slot_options o);
    static slot_snapshot seen(detail::etcd_value found);
    detail::etcd_result call(const char* what, const std::string& body, bool may_repeat);

    // What explain() is to say, from here on.
    std::error_code failed(std::error_code error, std::string words = {});

    std::string key_;
    std::chrono::milliseconds patience_;
    std::size_t max_value_;
    detail::shared_connection<detail::etcd_client> client_;
    std::string said_; // of the last operation that failed
};

// ---- implementation

inline etcd_slot::etcd_slot(std::vector<std::string> endpoints, std::string key,
                            etcd_slot_options options)
    : key_(std::move(key)), patience_(options.patience), max_value_(options.max_value),
      client_({place_of(std::move(endpoints), std::move(options)), false}) {
    if (key_.empty()) {
        refuse("the key is empty");
    }
}

inline void etcd_slot::refuse([[maybe_unused]] const char* words) {
    BIDE_THROW(std::system_error(std::make_error_code(std::errc::invalid_argument),
                                 std::string("bide::etcd_slot: ") + words));
}

inline detail::etcd_place etcd_slot::place_of(std::vector<std::string> endpoints,
                                              etcd_slot_options o) {
    detail::etcd_place place{
        std::move(endpoints),
        std::move(o.user),
        std::move(o.password),
        {std::move(o.ca_file), std::move(o.cert_file), std::move(o.key_file)},
        std::move(o.path)};
    if (const char* const words = detail::read_etcd_endpoints(place)) {
        refuse(words);
    }
    return place;
}

inline std::string etcd_slot::explain() const {
    return detail::one_line(store() + ", key " + key_ + (said_.empty() ? "" : ": " + said_), 1'000);
}

inline std::error_code etcd_slot::failed(std::error_code error, std::string words) {
    said_ = !words.empty() ? std::move(words) : error.message();
    return error;
}

inline detail::etcd_result etcd_slot::call(const char* what, const std::string& body,
                                           bool may_repeat) {
    const deadline end = deadline::after(patience_);
    const auto got = client_.get().take(end);
    if (!got.of) {
        return {{}, got.error, false, "the connections are in use"};
    }
    const std::size_t longest = 2 * max_value_ + (std::size_t{4} << 20);
    return got.of->call({what, body, may_repeat, longest}, end);
}

inline slot_snapshot etcd_slot::seen(detail::etcd_value found) {
    slot_snapshot there{.version = found.revision, .value = std::move(found.bytes)};
    if (found.counter) {
        there.counter = static_cast<std::int64_t>(*found.counter);
    }
    return there;
}

inline result<slot_snapshot, std::error_code> etcd_slot::load() {
    detail::etcd_result got = call("/kv/range", detail::etcd_range(key_), true);
    if (got.error) {
        return unexpected{failed(got.error, std::move(got.words))};
    }
    auto value = detail::etcd_answer(got.body).range();
    if (!value) {
        return unexpected{failed(std::make_error_code(std::errc::protocol_error), no_etcd)};
    }
    return seen(*std::move(value));
}

inline cas_result etcd_slot::compare_exchange(slot_version version, std::string_view value) {
    if (value.size() > max_value_) {
        return {cas_status::failed, 0, {}, failed(durable_errc::too_large)};
    }
    detail::etcd_result got =
        call("/kv/txn", detail::etcd_exchange(key_, version, value), false);
    if (got.error) {
        return {got.may_have_stored ? cas_status::indeterminate : cas_status::failed,
                0,
                {},
                failed(got.error, std::move(got.words))};
    }
    const detail::etcd_answer read(got.body);
    if (read.is_stored()) {
        if (const auto revision = read.revision()) {
            return {cas_status::stored, *revision, {}, {}};
        }
    } else if (auto found = read.instead()) {
        return {cas_status::conflict, 0, seen(*std::move(found)), {}};
    }
    return {cas_status::indeterminate,
            0,
            {},
            failed(std::make_error_code(std::errc::protocol_error), no_etcd)};
}

} // namespace bide::inline BIDE_ABI

#endif
