#ifndef BIDE_TESTS_EXAMPLES_LOCK_SLOTS_HPP
#define BIDE_TESTS_EXAMPLES_LOCK_SLOTS_HPP

// Maps --slot to a slot, and an error to an exit status. A database is supported if the program was
// built with its client.

#include "lock_options.hpp"

#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/file.hpp>
#if defined(BIDE_LOCK_HAS_SQLITE)
#include <bide/durable/slots/sqlite.hpp>
#include <sqlite3.h>
#endif
#if defined(BIDE_LOCK_HAS_POSTGRES)
#include <bide/durable/slots/postgres.hpp>
#endif
#if defined(BIDE_LOCK_HAS_REDIS)
#include <bide/durable/slots/redis.hpp>
#endif
#if defined(BIDE_LOCK_HAS_ETCD)
#include <bide/durable/slots/etcd.hpp>
#endif

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace lock_parts {

inline int status_of(const std::error_code& error) {
    if (error.category() == bide::durable_category()) {
        switch (static_cast<bide::durable_errc>(error.value())) {
        case bide::durable_errc::corrupt_record:
        case bide::durable_errc::unsupported_record_version: return EX_DATAERR;
        case bide::durable_errc::permits_mismatch:
        case bide::durable_errc::clock_mismatch: return EX_CONFIG;
        case bide::durable_errc::too_heavy:
        case bide::durable_errc::invalid_argument: return EX_USAGE;
        case bide::durable_errc::unsupported_filesystem: return EX_NOINPUT;
        case bide::durable_errc::too_large: return EX_IOERR;
        case bide::durable_errc::lock_lost: return EX_TEMPFAIL;
        default: return EX_UNAVAILABLE;
        }
    }
#if defined(BIDE_LOCK_HAS_SQLITE)
    if (error.category() == bide::sqlite_category()) {
        switch (error.value() & 0xff) {
        case SQLITE_CANTOPEN:
        case SQLITE_PERM:
        case SQLITE_READONLY: return EX_NOINPUT;
        case SQLITE_CORRUPT:
        case SQLITE_NOTADB: return EX_DATAERR;
        case SQLITE_FULL: return EX_CANTCREAT;
        case SQLITE_IOERR: return EX_IOERR;
        default: return EX_UNAVAILABLE;
        }
    }
#endif
    switch (error.default_error_condition().value()) { // an errno in most cases
    case ENOMEM:
    case EMFILE:
    case ENFILE: return EX_OSERR;
    case EROFS:
    case ENOSPC: return EX_CANTCREAT;
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case EMLINK:
    case EXDEV:
    case ENAMETOOLONG:
    case EINVAL:
    case EOPNOTSUPP:
    case ENOSYS:
    case EACCES:
    case EPERM: return EX_NOINPUT;
    case EIO: return EX_IOERR;
    case EPROTO: return EX_PROTOCOL;
    default: return EX_UNAVAILABLE;
    }
}

#if defined(BIDE_LOCK_HAS_REDIS)
inline bide::slot_ref open_redis(const options& o, const std::string& place, bool is_url) {
    if (!o.relaxed)
        throw failure{EX_USAGE, "--slot: Redis may forget a holder, when a replica takes over for "
                                "instance; if that is acceptable, add --relaxed"};
    bide::redis_slot_options how;
    how.ca_file = o.ca_file;
    how.cert_file = o.cert_file;
    how.key_file = o.key_file;
    if (const char* const password = std::getenv("REDISCLI_AUTH"))
        how.password = password;
    const std::string key = "bide-lock/" + o.name;
    if (is_url)
        return {bide::allow_relaxed, bide::redis_slot(place, key, std::move(how))};
    const auto colon = place.rfind(':'); // HOST:PORT
    const auto port = colon == std::string::npos
                          ? std::nullopt
                          : parse_number(std::string_view(place).substr(colon + 1), 1, 65'535);
    if (!port)
        throw failure{EX_USAGE, "--slot: redis:HOST:PORT or redis://..., not " + shown(o.slot)};
    std::string_view host = std::string_view(place).substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']'))
        host = host.substr(1, host.size() - 2);
    return {bide::allow_relaxed,
            bide::redis_slot(std::string(host), static_cast<int>(*port), key, std::move(how))};
}
#endif

#if defined(BIDE_LOCK_HAS_ETCD)
inline bide::slot_ref open_etcd(const options& o, std::string_view place) { // URL[,URL...]
    bide::etcd_slot_options how;
    how.ca_file = o.ca_file;
    how.cert_file = o.cert_file;
    how.key_file = o.key_file;
    std::vector<std::string> endpoints;
    for (;;) { // a comma in a password does not separate URLs
        auto end = place.find(",http");
        end = std::min(end, place.size());
        endpoints.emplace_back(place.substr(0, end));
        if (end == place.size())
            break;
        place.remove_prefix(end + 1);
    }
    return bide::etcd_slot(std::move(endpoints), "bide-lock/" + o.name, std::move(how));
}
#endif

// Returns the kind of store: the text before the first colon.
inline std::string kind_of(std::string_view slot) {
    const std::string kind(slot.substr(0, std::min(slot.find(':'), slot.size())));
    if (kind == "postgresql")
        return "postgres";
    if (kind == "rediss")
        return "redis";
    return kind == "http" || kind == "https" ? "etcd" : kind;
}

// Throws: failure, and what the slots throw.
inline bide::slot_ref open_slot(const options& o) {
    const auto colon = std::min(o.slot.find(':'), o.slot.size());
    const std::string kind = kind_of(o.slot);
    const std::string scheme = o.slot.substr(0, colon);
    const std::string rest = colon < o.slot.size() ? o.slot.substr(colon + 1) : "";
    // A URL is the location, with its scheme; a kind may stand before it: etcd:https://...
    const bool is_url = rest.starts_with("//");
    [[maybe_unused]] const std::string place = is_url ? o.slot : rest;
    if (rest.empty())
        throw failure{EX_USAGE, "--slot: KIND:PLACE or a URL, not " + shown(o.slot)};
    // The location is always a directory. If a path could mean a file or a directory, depending on
    // what exists, two processes could hold the same lock. bide-lock does not make the directory,
    // because it may be a mount point that is not mounted yet.
    if (kind == "file")
        return bide::file_slot(rest + "/" + o.name + ".bide");
    if (scheme != kind && !is_url) // rediss:host:port, https:place
        throw failure{EX_USAGE, "--slot: " + scheme + ": begins a URL, " + scheme + "://..."};
#if defined(BIDE_LOCK_HAS_SQLITE)
    if (kind == "sqlite")
        return bide::sqlite_slot(rest, o.name);
#endif
#if defined(BIDE_LOCK_HAS_POSTGRES)
    if (kind == "postgres")
        return bide::postgres_slot(place, o.name);
#endif
#if defined(BIDE_LOCK_HAS_REDIS)
    if (kind == "redis") {
        const bool has_kind_too = rest.starts_with("redis://") || rest.starts_with("rediss://");
        return open_redis(o, place, is_url || has_kind_too);
    }
#endif
#if defined(BIDE_LOCK_HAS_ETCD)
    if (kind == "etcd")
        return open_etcd(o, place);
#endif
    for (const std::string_view known : {"sqlite", "postgres", "redis", "etcd"})
        if (kind == known)
            throw failure{EX_USAGE, "--slot: this bide-lock was built without " + kind};
    throw failure{EX_USAGE, "--slot: " + shown(scheme) +
                                ": not one of file, sqlite, postgres, etcd, redis, nor the scheme "
                                "of a URL"};
}

// Returns the variables that the command's environment must not have.
inline std::vector<std::string> secret_variables(const options& o) {
    std::vector<std::string> all;
    if (o.has_secret_slot)
        all.emplace_back("BIDE_LOCK_SLOT");
    const std::string kind = kind_of(o.slot);
    if (kind == "redis")
        all.emplace_back("REDISCLI_AUTH");
    if (kind == "postgres")
        all.emplace_back("PGPASSWORD");
    return all;
}

} // namespace lock_parts

#endif
