#ifndef BIDE_PROGRAMS_BIDE_LOCK_STORE_HPP
#define BIDE_PROGRAMS_BIDE_LOCK_STORE_HPP

#include "options.hpp"
#include "process.hpp"

#include <bide/durable/errors.hpp>
#include <bide/durable/locks.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/file.hpp>
#if defined(BIDE_LOCK_HAS_SQLITE)
#include <bide/durable/slots/sqlite.hpp>
#include <sqlite3.h>
#endif
#if defined(BIDE_LOCK_HAS_POSTGRES)
#include <bide/durable/slots/postgres.hpp>
#include <libpq-fe.h>
#endif
#if defined(BIDE_LOCK_HAS_REDIS)
#include <bide/durable/slots/redis.hpp>
#endif
#if defined(BIDE_LOCK_HAS_ETCD)
#include <bide/durable/slots/etcd.hpp>
#endif

namespace lock_parts {

// ---- Maps --slot to a slot, its names and its files, and an error to an exit status. A database is
// supported if the program was built with its client.

template <class Code> struct status_row {
    int status;
    std::initializer_list<Code> codes;
};
template <class Code> int status_in(std::initializer_list<status_row<Code>> table, Code code) {
    for (const auto& [status, codes] : table)
        if (std::find(codes.begin(), codes.end(), code) != codes.end())
            return status;
    return EX_UNAVAILABLE;
}

inline int status_of(const std::error_code& error) {
    using code = bide::durable_errc;
    if (error.category() == bide::durable_category())
        return status_in<code>(
            {{EX_DATAERR, {code::corrupt_record, code::unsupported_record_version}},
             {EX_CONFIG, {code::permits_mismatch, code::clock_mismatch}},
             {EX_USAGE, {code::too_heavy, code::invalid_argument}},
             {EX_NOINPUT, {code::unsupported_filesystem}},
             {EX_IOERR, {code::too_large}},
             {EX_TEMPFAIL, {code::lock_lost}}},
            static_cast<code>(error.value()));
#if defined(BIDE_LOCK_HAS_SQLITE)
    if (error.category() == bide::sqlite_category())
        return status_in<int>({{EX_NOINPUT, {SQLITE_CANTOPEN, SQLITE_PERM, SQLITE_READONLY}},
                               {EX_DATAERR, {SQLITE_CORRUPT, SQLITE_NOTADB}},
                               {EX_CANTCREAT, {SQLITE_FULL}},
                               {EX_IOERR, {SQLITE_IOERR}}},
                              error.value() & 0xff);
#endif
    return status_in<int>({{EX_OSERR, {ENOMEM, EMFILE, ENFILE}},
                           {EX_CANTCREAT, {EROFS, ENOSPC}},
                           {EX_NOINPUT,
                            {ENOENT, ENOTDIR, EISDIR, ELOOP, EMLINK, EXDEV, ENAMETOOLONG, EINVAL,
                             EOPNOTSUPP, ENOSYS, EACCES, EPERM}},
                           {EX_IOERR, {EIO}},
                           {EX_PROTOCOL, {EPROTO}}},
                          error.default_error_condition().value()); // an errno in most cases
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
    std::string url = place;
    if (!is_url) { // HOST:PORT
        const auto colon = std::min(place.rfind(':'), place.size());
        if (colon == place.size() ||
            !parse_number(std::string_view(place).substr(colon + 1), 1, 65'535))
            throw failure{EX_USAGE, "--slot: redis:HOST:PORT or redis://..., not " + shown(o.slot)};
        const std::string host = place.substr(0, colon);
        const bool is_address = host.find(':') != host.npos && !host.starts_with('[');
        url = "redis://" + (is_address ? '[' + host + ']' : host) + place.substr(colon);
    }
    return {bide::allow_relaxed, bide::redis_slot(url, "bide-lock/" + o.name, std::move(how))};
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

inline bool is_local(const options& o) { // the store is on this machine
    const std::string kind = kind_of(o.slot);
    return kind == "file" || kind == "sqlite";
}

// The path of a file slot.
inline std::string file_of(const options& o) {
    return o.slot.substr(o.slot.find(':') + 1) + "/" + o.name + ".bide";
}

// Throws: failure, and what the slots throw.
inline bide::slot_ref open_slot(const options& o) {
    const auto colon = std::min(o.slot.find(':'), o.slot.size());
    const std::string kind = kind_of(o.slot);
    const std::string scheme = o.slot.substr(0, colon);
    const std::string rest = colon < o.slot.size() ? o.slot.substr(colon + 1) : "";
    if (!o.schema.empty() && kind != "postgres")
        throw failure{EX_USAGE, "--schema: of a postgres slot"};
    // A URL is the location, with its scheme; a kind may stand before it: etcd:https://...
    const bool is_url = rest.starts_with("//");
    [[maybe_unused]] const std::string place = is_url ? o.slot : rest;
    if (rest.empty())
        throw failure{EX_USAGE, "--slot: KIND:PLACE or a URL, not " + shown(o.slot)};
    // The location is always a directory. If a path could mean a file or a directory, depending on
    // what exists, two processes could hold the same lock. bide-lock does not make the directory,
    // because it may be a mount point that is not mounted yet.
    if (kind == "file") {
        bide::file_slot_options how;
        how.mode = o.mode.value_or(how.mode);
        how.descriptor = o.descriptor;
        return bide::file_slot(file_of(o), how);
    }
    if (scheme != kind && !is_url) // rediss:host:port, https:place
        throw failure{EX_USAGE, "--slot: " + scheme + ": begins a URL, " + scheme + "://..."};
#if defined(BIDE_LOCK_HAS_SQLITE)
    if (kind == "sqlite")
        return bide::sqlite_slot(rest, o.name);
#endif
#if defined(BIDE_LOCK_HAS_POSTGRES)
    if (kind == "postgres") {
        char* why = nullptr;
        PQconninfoOption* const known = PQconninfoParse(place.c_str(), &why);
        PQconninfoFree(known);
        const std::string said = why != nullptr ? why : "";
        PQfreemem(why);
        if (known == nullptr) // what libpq says may have a piece of a password, except this
            throw failure{EX_USAGE, "--slot: " + (said.starts_with("invalid connection option")
                                                      ? shown(said.substr(0, said.find('\n')))
                                                      : "no connection string of PostgreSQL: " +
                                                            shown(o.slot))};
        bide::postgres_slot_options how;
        how.table = o.schema.empty() ? how.table : o.schema + "." + how.table;
        return bide::postgres_slot(place, o.name, std::move(how));
    }
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

// The files that bide-lock makes, with the --mode and the --owner that they are to have. Construct it
// before the first call to the slot.
class new_files {
public:
    explicit new_files(const options& o) : o_(o) {
        if (!o.mode && o.user == static_cast<uid_t>(-1) && o.group == static_cast<gid_t>(-1))
            return;
        const std::string kind = kind_of(o.slot);
        const std::string path = kind == "file" ? file_of(o) : o.slot.substr(o.slot.find(':') + 1);
        if (kind == "file")
            all_ = {path, path + ".lock"};
        else if (kind == "sqlite")
            all_ = {path, path + "-bide", path + "-wal", path + "-shm", path + "-journal"};
        else
            throw failure{EX_USAGE, "--mode, --owner: of a file or sqlite slot"};
        std::erase_if(all_, [](const std::string& file) {
            struct stat facts{};
            return ::lstat(file.c_str(), &facts) == 0;
        });
    }

    // Throws: failure.
    void own() const {
        for (const std::string& file : all_) {
            const int opened = ::open(file.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
            if (opened < 0)
                continue;
            // The owner last: only the owner may change the mode.
            const bool is_done = (!o_.mode || ::fchmod(opened, *o_.mode) == 0) &&
                                 ::fchown(opened, o_.user, o_.group) == 0;
            const int error = errno;
            ::close(opened);
            if (!is_done)
                throw failure{EX_CANTCREAT, file + ": --mode, --owner: " +
                                                std::generic_category().message(error)};
        }
    }

private:
    const options& o_;
    std::vector<std::string> all_;
};

// Returns the names of the locks of a slot. Throws: failure.
inline std::vector<std::string> names_in(const options& o) {
    std::vector<std::string> all;
    const std::string kind = kind_of(o.slot);
    const std::string place = o.slot.substr(std::min(o.slot.find(':') + 1, o.slot.size()));
    const auto fail = [&o](int status, const std::string& why) {
        throw failure{status,
                      "list: " + shown(why.substr(0, why.find('\n'))) + " (" + shown(o.slot) + ")"};
    };
    if (kind == "file") {
        std::error_code error;
        for (std::filesystem::directory_iterator at(place, error), end; !error && at != end;
             at.increment(error))
            if (at->path().extension() == ".bide")
                all.push_back(at->path().stem().string());
        if (error)
            fail(EX_NOINPUT, error.message());
    }
#if defined(BIDE_LOCK_HAS_SQLITE)
    else if (kind == "sqlite") {
        sqlite3* base = nullptr;
        sqlite3_stmt* rows = nullptr;
        int got = sqlite3_open_v2(place.c_str(), &base, SQLITE_OPEN_READONLY, nullptr);
        if (got == SQLITE_OK)
            sqlite3_busy_timeout(base, 10'000);
        if (got == SQLITE_OK)
            got = sqlite3_prepare_v2(base, "select key from bide_lock", -1, &rows, nullptr);
        const bool is_there = got == SQLITE_OK;
        while (rows != nullptr && (got = sqlite3_step(rows)) == SQLITE_ROW)
            if (const auto* const name =
                    sqlite3_column_text(rows, 0)) // a nameless row is no lock's
                all.emplace_back(reinterpret_cast<const char*>(name));
        const std::string why = sqlite3_errmsg(base);
        const std::error_code error(sqlite3_extended_errcode(base), bide::sqlite_category());
        sqlite3_finalize(rows);
        sqlite3_close(base);
        if (is_there ? got != SQLITE_DONE : why.find("no such table") == why.npos)
            fail(is_there ? status_of(error) : EX_NOINPUT, why);
    }
#endif
#if defined(BIDE_LOCK_HAS_POSTGRES)
    else if (kind == "postgres") {
        const std::string& address = place.starts_with("//") ? o.slot : place;
        PGconn* const base = PQconnectdb(address.c_str());
        if (PQstatus(base) != CONNECTION_OK)
            fail(EX_UNAVAILABLE, PQerrorMessage(base));
        const auto column = [&](const std::string& query) {
            std::vector<std::string> values;
            PGresult* const got = PQexec(base, query.c_str());
            const bool is_good = PQresultStatus(got) == PGRES_TUPLES_OK;
            for (int i = 0; is_good && i < PQntuples(got); ++i)
                values.emplace_back(PQgetvalue(got, i, 0));
            PQclear(got);
            if (!is_good)
                fail(EX_UNAVAILABLE, PQerrorMessage(base));
            return values;
        };
        for (const std::string& query :
             column("select format('select key from %I.bide_lock', n.nspname) from pg_class c join "
                    "pg_namespace n on n.oid = c.relnamespace where c.relname = 'bide_lock' and "
                    "c.relkind in ('r', 'p') and n.nspname = '" +
                    (o.schema.empty() ? "public" : o.schema) + "'"))
            for (std::string& name : column(query))
                all.push_back(std::move(name));
        PQfinish(base);
    }
#endif
    else
        fail(EX_USAGE, "this kind of slot has no list");
    std::erase_if(all, [&o](const std::string& name) {
        return !is_name(name) || ::fnmatch(o.name.c_str(), name.c_str(), 0) != 0;
    });
    std::sort(all.begin(), all.end());
    return all;
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

// ---- Calls to the store that end in time. Each call runs on a thread of its own; a call that hangs
// stays there. So objects that a call uses live until the process ends, and main() does not wait
// for threads.

// The time limit of a call without one of its own, and the time by which a call may exceed its own
// limit. The library's own limits are shorter.
inline constexpr std::chrono::milliseconds call_limit{15'000};
inline constexpr std::chrono::milliseconds give_up_after{80};

// The store's text of an error, or the system's.
inline std::string reason_of(const bide::durable_semaphore& lock, const std::error_code& error) {
    using code = bide::durable_errc;
    const bool is_of_store = error.category() != bide::durable_category() ||
                             error == code::storage_error || error == code::no_answer;
    const std::string said = is_of_store ? lock.explain() : std::string();
    return said.empty() ? error.message() : shown(said);
}

// The same with the lock, and with the slot if the store said nothing.
inline std::string words_of(const options& o, const bide::durable_semaphore& lock,
                            const std::error_code& error) {
    const std::string reason = reason_of(lock, error);
    return o.name + ": " + reason +
           (reason == error.message() ? " (" + shown(o.slot) + ")" : std::string()) +
           (error != bide::durable_errc::corrupt_record ? ""
            : o.action == does::repair                  ? "; remove it from the store first"
                                       : "; to make a new one: bide-lock repair " + o.name);
}

// Runs `call` on a thread of its own. Meanwhile calls on_signal(signal) for each signal. Calls
// until() again after each event. Returns none if the time until() passed first. Throws what the
// call throws.
template <class Call, class Until, class OnSignal>
auto in_time(inbox& events, Call call, Until until, OnSignal on_signal)
    -> std::optional<std::invoke_result_t<Call>> {
    std::packaged_task<std::invoke_result_t<Call>()> work(std::move(call));
    auto answer = work.get_future();
    std::thread([work = std::move(work), &events]() mutable {
        work();
        events.wake();
    }).detach();
    for (;;) {
        if (answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
            return answer.get();
        const std::optional<steady::time_point> end = until();
        const auto e = events.next(end);
        if (e && e->signal != 0 && e->signal != SIGCHLD)
            on_signal(e->signal);
        if (!e && answer.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
            return std::nullopt;
    }
}

// For an administrator's action: a signal ends bide-lock.
template <class Call> auto answer_of(const options& o, inbox& events, Call call) {
    const auto end = steady::now() + call_limit;
    auto answer = in_time(
        events, std::move(call), [end] { return std::optional(end); },
        [](int signal) { die_of(signal); });
    if (!answer)
        throw failure{EX_UNAVAILABLE, o.name + ": no answer in time (" + shown(o.slot) + ")"};
    return std::move(*answer);
}

// ---- A bide-lock inside the command of another bide-lock that holds the same lock: they may wait for
// each other.
//
// $BIDE_LOCK_HELD of a command lists the locks around it, the outermost first: "FENCE NAME", with
// slashes between them. The name may belong to another lock in another slot. So the record decides:
// it is the same lock if the record has a holder with that fence.

inline constexpr const char* held_variable = "BIDE_LOCK_HELD";

inline std::string_view held_around() {
    const char* const value = std::getenv(held_variable);
    return value != nullptr ? value : "";
}

// The variable's value for the command of this lock.
inline std::string held_with(const options& o, std::int64_t fence) {
    std::string all(held_around());
    if (!all.empty())
        all += '/';
    return all + std::to_string(fence) + ' ' + o.name;
}

// Returns the fences of the locks of this name around this process.
inline std::vector<std::int64_t> fences_around(std::string_view name) {
    std::vector<std::int64_t> all;
    for (std::string_view rest = held_around(); !rest.empty();) {
        const std::string_view one = rest.substr(0, rest.find('/'));
        rest.remove_prefix(std::min(one.size() + 1, rest.size()));
        const auto space = std::min(one.find(' '), one.size());
        const auto fence =
            parse_number(one.substr(0, space), 1, std::numeric_limits<std::int64_t>::max());
        if (fence && space < one.size() && one.substr(space + 1) == name)
            all.push_back(*fence);
    }
    return all;
}

// Reports in one line if a bide-lock around this one holds the lock and this one must wait.
// Blocks: for the store, if a lock of this name is around this process.
inline void tell_of_nesting(const options& o, bide::durable_semaphore& lock) {
    const std::vector<std::int64_t> around = fences_around(o.name);
    const auto seen = around.empty() ? decltype(lock.inspect())(std::nullopt) : lock.inspect();
    if (!seen || !*seen || ((*seen)->free >= o.weight && (*seen)->live.waiters.empty()))
        return;
    for (const auto& holder : (*seen)->live.holders)
        if (std::find(around.begin(), around.end(), holder.fence) != around.end())
            return complain(o.name + ": held by the bide-lock that runs this command (fence " +
                            std::to_string(holder.fence) + "); waiting until that releases it");
}

} // namespace lock_parts

#endif
