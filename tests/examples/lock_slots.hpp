#ifndef BIDE_TESTS_EXAMPLES_LOCK_SLOTS_HPP
#define BIDE_TESTS_EXAMPLES_LOCK_SLOTS_HPP

// Where bide-lock keeps its locks: what --slot means, and what status its errors are. Databases are
// there where the program was built with their clients.

#include "lock_options.hpp"

#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/file.hpp>
#if defined(BIDE_LOCK_HAS_SQLITE)
#include <bide/durable/slots/sqlite.hpp>
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
    switch (error.default_error_condition().value()) { // mostly an errno
    case ENOMEM:
    case EMFILE:
    case ENFILE: return EX_OSERR;
    case EROFS:
    case ENOSPC: return EX_CANTCREAT;
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case EACCES:
    case EPERM: return EX_NOINPUT;
    case EIO: return EX_IOERR;
    default: return EX_UNAVAILABLE;
    }
}

#if defined(BIDE_LOCK_HAS_REDIS)
inline bide::slot_ref open_redis(const options& o, std::string_view place) { // HOST:PORT
    const auto colon = place.rfind(':');
    const auto port = colon == std::string_view::npos
                          ? std::nullopt
                          : parse_number(place.substr(colon + 1), 1, 65'535);
    if (!port)
        throw failure{EX_USAGE, "--slot: redis:HOST:PORT, not " + o.slot};
    if (!o.relaxed)
        throw failure{EX_USAGE, "--slot: Redis may forget who holds a lock, when a replica takes "
                                "over say; where that is good enough, say --relaxed"};
    std::string_view host = place.substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']'))
        host = host.substr(1, host.size() - 2);
    bide::redis_slot_options how;
    if (const char* const password = std::getenv("REDISCLI_AUTH"))
        how.password = password;
    return {bide::allow_relaxed, bide::redis_slot(std::string(host), static_cast<int>(*port),
                                                  "bide-lock/" + o.name, std::move(how))};
}
#endif

// Throws: failure; what the slots throw.
inline bide::slot_ref open_slot(const options& o) {
    const auto colon = std::min(o.slot.find(':'), o.slot.size());
    const std::string kind = o.slot.substr(0, colon);
    const std::string place = colon < o.slot.size() ? o.slot.substr(colon + 1) : "";
    if (place.empty())
        throw failure{EX_USAGE, "--slot: KIND:PLACE, not " + o.slot};
    // Always a directory's files: were a path one thing as long as there is no such directory, and
    // another then, two could hold the same lock. Nothing here makes the directory, for the same
    // reason: it may be one that is not mounted yet.
    if (kind == "file")
        return bide::file_slot(place + "/" + o.name + ".bide");
#if defined(BIDE_LOCK_HAS_SQLITE)
    if (kind == "sqlite")
        return bide::sqlite_slot(place, o.name);
#endif
#if defined(BIDE_LOCK_HAS_POSTGRES)
    if (kind == "postgres")
        return bide::postgres_slot(place, o.name);
#endif
#if defined(BIDE_LOCK_HAS_REDIS)
    if (kind == "redis")
        return open_redis(o, place);
#endif
#if defined(BIDE_LOCK_HAS_ETCD)
    if (kind == "etcd")
        return bide::etcd_slot(place, "bide-lock/" + o.name);
#endif
    for (const std::string_view known : {"sqlite", "postgres", "redis", "etcd"})
        if (kind == known)
            throw failure{EX_USAGE, "--slot: this bide-lock was built without " + kind};
    throw failure{EX_USAGE, "--slot: " + kind + ": not one of file, sqlite, postgres, etcd, redis"};
}

} // namespace lock_parts

#endif
