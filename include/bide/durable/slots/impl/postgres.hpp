// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_IMPL_POSTGRES_HPP
#define BIDE_DURABLE_SLOTS_IMPL_POSTGRES_HPP

// The outcome of a statement is known when the server is ready for the next one. Before that, the
// rows may have come, but the commit may still fail. If the server reports severity ERROR, nothing
// was done. If the connection ends, with any error code, the server may have committed before.

#include <bide/durable/slots/detail/server/server_slot.hpp>
#include <bide/durable/slots/postgres.hpp>

#include <cstdlib>

#include <libpq-fe.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

struct postgres_target {
    std::string conninfo{};
    std::string where{"postgres"}; // "postgres at db.example:5432, database app, user me"
    std::string why{};             // if it is not empty: what is wrong with an argument of the slot
    std::size_t hosts = 1;
    bool has_tcp_user_timeout = false; // in the connection string

    const std::string& name() const noexcept { return where; }
    friend auto operator<=>(const postgres_target&, const postgres_target&) = default;
};

// Reads a connection string by libpq. If a password has a character that is not encoded, libpq may
// take a part of it for a host, a port or a database. So `why` quotes no part of the string, and
// `where` is set only if the host, the port and the database look valid.
inline postgres_target postgres_target_of(const std::string& conninfo) {
    postgres_target target{.conninfo = conninfo};
    const bool is_uri =
        conninfo.starts_with("postgres://") || conninfo.starts_with("postgresql://");
    const std::unique_ptr<PQconninfoOption, ended_by<&::PQconninfoFree>> options(
        ::PQconninfoParse(conninfo.c_str(), nullptr));
    if (!options) {
        target.why = is_uri ? "not a URI that libpq reads (in a user or password, each of "
                              ":/?#[]@% has to be written as %XX)"
                            : "not a connection string that libpq reads (write key=value pairs, "
                              "and quote a value that has blanks)";
        return target;
    }
    std::map<std::string_view, std::string> values; // with those of the environment
    for (const PQconninfoOption* o = options.get(); o->keyword != nullptr; ++o) {
        const char* const variable = o->envvar == nullptr ? nullptr : std::getenv(o->envvar);
        const char* const value = o->val != nullptr ? o->val : variable;
        values[o->keyword] = value == nullptr ? "" : value;
    }
    target.has_tcp_user_timeout = !values["tcp_user_timeout"].empty();
    const std::string& user = values["user"];
    const std::string& database = values["dbname"].empty() ? user : values["dbname"];
    const std::string& ports = values["port"];
    const std::string& names = values["host"].empty() ? values["hostaddr"] : values["host"];
    if (ports.find_first_not_of("0123456789,") != ports.npos ||
        (is_uri && says(names + values["dbname"], "@"))) {
        target.why = "not a port, a host or a database: if the password has one of :/?#[]@%, write "
                     "it as %XX";
        return target;
    }
    target.hosts += static_cast<std::size_t>(std::count(names.begin(), names.end(), ','));
    target.where += " at " + (names.empty() ? "the local socket" : host_in_url(names));
    target.where += ":" + (ports.empty() ? "5432" : ports);
    target.where += database.empty() ? "" : ", database " + database;
    target.where += user.empty() ? "" : ", user " + user;
    return target;
}

// ---- Errors

// Returns the error code of a failed connection. Stores the text of libpq in `error_text` as one
// line, without SQLSTATEs and the LOCATION lines, which name the server's source. libpq writes one
// or more lines for each try. The SQLSTATE stands only in this text: "FATAL:  28P01: password ...".
inline std::error_code postgres_refusal(std::string_view text, bool has_several_hosts,
                                        std::string& error_text) {
    constexpr std::string_view failed = " failed: ";
    std::string state;
    bool has_silent_host = false;
    error_text.clear();
    for (std::string_view rest = text; !rest.empty();) {
        std::string line(rest.substr(0, rest.find('\n')));
        rest.remove_prefix(std::min(line.size() + 1, rest.size()));
        const std::size_t try_end = line.find(failed);
        const std::size_t code = line.find(":  ") + 3;
        const std::string digits = line.substr(std::min(code, line.size()), 5);
        if (code >= 3 && postgres_error(digits)) {
            state = digits;
            line.erase(code, 6);
        } else if (try_end != line.npos) {
            has_silent_host = has_several_hosts;
        }
        line.erase(0, try_end == line.npos || has_several_hosts ? 0 : try_end + failed.size());
        line = one_line(line, 1'000);
        if (!line.starts_with("LOCATION:") && !says(error_text, line)) {
            error_text += (error_text.empty() ? "" : "; ") + line;
        }
    }
    if (text.starts_with("invalid ") || text.starts_with("could not match ")) {
        error_text.resize(std::min(error_text.find(" \""), error_text.size())); // quotes no value
        return durable_errc::invalid_argument;
    }
    const bool is_pooler = state == "08P01"; // a pooler reports every refusal with this code
    return postgres_error(has_silent_host                               ? "08001" // it may pass
                          : is_pooler && says(text, "no such database") ? "3D000"
                          : is_pooler && says(text, "no such user", "authentication failed")
                              ? "28P01"
                          : !state.empty()                     ? state
                          : says(text, "no password supplied") ? "28P01"
                          : says(text, "received invalid response to SSL negotiation",
                                 "expected authentication request")
                              ? "ZB003"
                          : says(text, ::gai_strerror(EAI_NONAME)) ? "ZB004"
                                                                   : "08001");
}

// ---- Connections

// The rows of a statement; every column is binary.
struct postgres_rows {
    std::unique_ptr<PGresult, ended_by<&::PQclear>> of{};

    std::string_view bytes(int column) const noexcept {
        return {::PQgetvalue(of.get(), 0, column),
                static_cast<std::size_t>(::PQgetlength(of.get(), 0, column))};
    }
    std::int64_t int8(int column) const noexcept { // 0 if it has another type
        constexpr Oid int8_type = 20;
        std::uint64_t number = 0;
        if (::PQftype(of.get(), column) == int8_type) {
            for (const char byte : bytes(column)) {
                number = number << 8 | static_cast<unsigned char>(byte);
            }
        }
        return static_cast<std::int64_t>(number);
    }
};
using postgres_answer = server_answer<postgres_rows>;

// Returns the quoted name of the table that an option names, or an empty text if it is invalid.
inline std::string postgres_table_of(const std::string& text) {
    constexpr std::string_view known =
        "_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    const auto is_good = [known](std::string_view part) {
        return !part.empty() && part.size() <= 63 && (part[0] < '0' || part[0] > '9') &&
               part.find_first_not_of(known) == part.npos;
    };
    const std::size_t dot = text.find('.');
    const std::string schema = dot == text.npos ? "public" : text.substr(0, dot);
    const std::string table = text.substr(dot + 1);
    return is_good(schema) && is_good(table) ? '"' + schema + "\".\"" + table + '"' : "";
}

// Two tables would be two locks. So each statement compares the table's oid with first_oid().
//
// A pooler may run each transaction in another session. So a statement sets what it needs for its
// own transaction, by functions that it calls:
//
//   lock_timeout         The server reads it when it finds the row locked. Before that, the
//                        condition has evaluated the subquery that sets lock_timeout. The server
//                        gives up before the client does, and reports that.
//   synchronous_commit   The server reads it when the transaction commits, after the statement. It
//                        is on if the row was changed, whatever the server, role or database sets.
//                        It is off if there is nothing to keep.
//   client_min_messages  The server reads it at the commit. If no standby confirms the commit, the
//                        server reports that in a warning.
//
// The server waits for a locked row at most 100 ms at a time. Between two such waits the slot
// returns the connection, so that locked rows do not stall other slots of the process. A renewal
// waits only once, because the next renewal comes soon.
class postgres_connection final : public server_client<postgres_target> {
public:
    // The oids of the tables that the slots of this process use.
    struct known {
        mutex lock;
        std::map<std::string, std::int64_t> tables; // under lock
    };

    using server_client::server_client;
    ~postgres_connection() { drop(); }

    // A child of fork() only closes the socket, because PQfinish() would end the parent's session.
    void drop() noexcept {
        PGconn* const ended = std::exchange(pq_, nullptr);
        plans_.clear();
        if (ended != nullptr && pid_ == ::getpid()) {
            ::PQfinish(ended);
        } else if (ended != nullptr) {
            ::close(::PQsocket(ended));
        }
    }

    bool is_open() const noexcept { return pq_ != nullptr; }
    int fd() const noexcept { return ::PQsocket(pq_); }

    // If the server has ended the connection, the socket is readable: it has a message or the end.
    bool is_usable() const noexcept {
        return pq_ != nullptr && ::PQstatus(pq_) == CONNECTION_OK &&
               ::PQtransactionStatus(pq_) == PQTRANS_IDLE &&
               wait_for(fd(), POLLIN, deadline::poll()) == std::errc::timed_out;
    }

    std::error_code connect() {
        drop();
        message_ = to_.why;
        if (!message_.empty()) {
            return durable_errc::invalid_argument;
        }
        // The system gives up a host whose machine does not answer, and libpq tries the next one.
        const std::string share =
            to_.hosts == 1 ? "" : std::to_string(ms_until(end_) / static_cast<long>(to_.hosts) + 1);
        // Later keywords override earlier ones, and empty values are ignored. Keys are UTF-8.
        const char* const keywords[] = {"tcp_user_timeout", "dbname", "client_encoding",
                                        "fallback_application_name", nullptr};
        const char* const values[] = {share.c_str(), to_.conninfo.c_str(), "UTF8", "bide", nullptr};
        pq_ = ::PQconnectStartParams(keywords, values, 1);
        pid_ = ::getpid();
        if (pq_ == nullptr) {
            return std::make_error_code(std::errc::not_enough_memory);
        }
        ::PQsetErrorVerbosity(pq_, PQERRORS_VERBOSE); // puts the SQLSTATE into the text
        ::PQsetNoticeReceiver(pq_, &on_notice, this);
        PostgresPollingStatusType step =
            ::PQstatus(pq_) == CONNECTION_BAD ? PGRES_POLLING_FAILED : PGRES_POLLING_WRITING;
        while (step != PGRES_POLLING_OK && step != PGRES_POLLING_FAILED) {
            const short events = step == PGRES_POLLING_READING ? POLLIN : POLLOUT;
            if (wait_for(fd(), events, end_) == std::errc::timed_out) {
                message_ = "could not connect in time";
                drop();
                return std::make_error_code(std::errc::timed_out);
            }
            step = ::PQconnectPoll(pq_);
        }
        if (step == PGRES_POLLING_FAILED || ::PQsetnonblocking(pq_, 1) != 0) {
            const std::string text = ::PQerrorMessage(pq_);
            drop();
            return postgres_refusal(text, to_.hosts > 1, message_);
        }
        ::PQsetErrorVerbosity(pq_, PQERRORS_DEFAULT);
        ::PQsetErrorContextVisibility(pq_, PQSHOW_CONTEXT_NEVER);
#if defined(TCP_USER_TIMEOUT)
        if (!share.empty() && !to_.has_tcp_user_timeout) { // it was only for connecting
            const int system_default = 0;
            ::setsockopt(fd(), IPPROTO_TCP, TCP_USER_TIMEOUT, &system_default,
                         sizeof system_default);
        }
#endif
        return {};
    }

    slot_answer load(const server_terms& of, known& all) {
        const auto select = [&] {
            return run("SELECT l.version, l.value, " + std::string(microseconds) +
                           ", pg_is_in_recovery()::int::bigint, '" + of.table +
                           "'::regclass::oid::bigint FROM (SELECT 1) AS one LEFT JOIN " + of.table +
                           " AS l ON l.key = $1::text",
                       {of.key});
        };
        oid_ = first_oid(of, all, 0);
        postgres_answer row = select();
        if (oid_ == 0 && row.error == postgres_error("42P01")) {
            // If several roles create it at the same time, all but one of them get an error.
            postgres_answer made = run(create_statement(of.table));
            if (is_open()) {
                row = select();
            }
            if (row.error && made.error) {
                row = std::move(made);
            }
        }
        if (!row.error) {
            oid_ = first_oid(of, all, row.of.int8(4));
            if (row.of.int8(3) != 0) { // its values may be old
                row = {{}, postgres_error("25006"), false, "it is a standby"};
            } else if (row.of.int8(4) != oid_) {
                row.error = postgres_error("ZB001");
            }
        }
        if (row.error) {
            return refused(of, std::move(row));
        }
        const std::int64_t version = row.of.int8(0);
        if (version < 0 || (version == 0 && ::PQgetisnull(row.of.of.get(), 0, 0) == 0)) {
            return {{}, durable_errc::corrupt_record};
        }
        return {{.current = slot_snapshot{.version = static_cast<slot_version>(version),
                                          .value = std::string(row.of.bytes(1)),
                                          .server_ms = row.of.int8(2) / 1'000}}};
    }

    slot_answer exchange(const server_terms& of, known& all, slot_version version,
                         std::string_view value) {
        if (version > std::numeric_limits<std::int64_t>::max()) {
            return {{.status = cas_status::conflict}};
        }
        oid_ = first_oid(of, all, 0);
        if (oid_ == 0) { // a load finds the table, or creates it
            if (slot_answer seen = load(of, all); seen.error) {
                seen.may_have_stored = false;
                return seen;
            }
        }
        postgres_answer row =
            run(exchange_statement(of, version == 0), {of.key, value, std::to_string(version)});
        if (row.error) {
            return refused(of, std::move(row));
        }
        if (::PQntuples(row.of.of.get()) == 0) {
            return {{.status = cas_status::conflict}};
        }
        return {
            {.status = cas_status::stored, .version = static_cast<slot_version>(row.of.int8(0))}};
    }

private:
    static constexpr const char* microseconds =
        "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

    static std::error_code was_lost() noexcept { return postgres_error("08006"); }

    // Runs a statement. `values`: its parameters. The second run prepares it, so that the server
    // need not parse and plan it again; its name is its hash. Behind a pooler, the session may be one
    // that does not know the name. Then the statement goes as it is.
    postgres_answer run(const std::string& sql,
                        std::initializer_list<std::string_view> values = {}) {
        const char* starts[3] = {};
        int sizes[3] = {};
        constexpr int binary[3] = {1, 1, 0};
        int count = 0;
        for (const std::string_view each : values) {
            starts[count] = each.empty() ? "" : each.data();
            sizes[count++] = static_cast<int>(each.size());
        }
        const std::string name = "bide_" + std::to_string(std::hash<std::string>()(sql));
        plan& its = plans_[name];
        if (its == plan::next) {
            postgres_answer made =
                answer_to(::PQsendPrepare(pq_, name.c_str(), sql.c_str(), count, nullptr));
            if (!is_open()) {
                made.may_have_stored = false;
                return made;
            }
            its = made.error ? plan::never : plan::prepared;
        }
        if (its == plan::prepared) {
            postgres_answer got = answer_to(
                ::PQsendQueryPrepared(pq_, name.c_str(), count, starts, sizes, binary, 1));
            if (!is_open() ||
                (got.error != postgres_error("26000") && got.error != postgres_error("0A000"))) {
                return got;
            }
            its = plan::never; // the session does not have it, and has done nothing
        }
        postgres_answer got = answer_to(
            ::PQsendQueryParams(pq_, sql.c_str(), count, nullptr, starts, sizes, binary, 1));
        if (!got.error && its == plan::none) {
            its = plan::next;
        }
        return got;
    }

    // Returns the answer to what was sent, if `is_sent` is 1.
    postgres_answer answer_to(int is_sent) {
        is_unconfirmed_ = false;
        postgres_answer got;
        std::error_code error = is_sent == 1 ? await() : was_lost();
        while (PGresult* const next = error ? nullptr : ::PQgetResult(pq_)) {
            note(next, got);
            error = await();
        }
        if (error || ::PQstatus(pq_) != CONNECTION_OK) {
            error = error ? error : was_lost();
            message_ = got.error                       ? std::move(got.error_text)
                       : error == std::errc::timed_out ? "no answer in time"
                                                       : one_line(::PQerrorMessage(pq_), 1'000);
            drop();
            return {{}, got.error ? got.error : error, true, message_};
        }
        if (!got.error && is_unconfirmed_) {
            return {{}, postgres_error("01000"), true, "committed, but no standby confirmed it"};
        }
        return got;
    }

    // The statement that stores a value, as a new row or in place of the version $3.
    std::string exchange_statement(const server_terms& of, bool is_new) const {
        constexpr std::chrono::milliseconds most_wait(100);
        const auto wait = std::min(of.retry_time / 2 + std::chrono::milliseconds(1), most_wait);
        const std::string condition =
            "'" + of.table + "'::regclass::oid = " + std::to_string(oid_) +
            " AND (SELECT set_config('synchronous_commit', 'off', true) || "
            "set_config('lock_timeout', '" +
            std::to_string(wait.count()) + "', true)) IS NOT NULL";
        return (is_new ? "INSERT INTO " + of.table + " (key, version, value) SELECT $1::text, " +
                             microseconds + ", $2::bytea WHERE $3::bigint = 0 AND " + condition +
                             " ON CONFLICT (key) DO NOTHING"
                       : "UPDATE " + of.table +
                             " SET version = version + 1, value = $2::bytea WHERE key = "
                             "$1::text AND version = $3::bigint AND " +
                             condition) +
               " RETURNING version, set_config('synchronous_commit', 'on', true), "
               "set_config('client_min_messages', 'warning', true)";
    }

    static std::string create_statement(const std::string& table) {
        return "CREATE TABLE IF NOT EXISTS " + table +
               " (key text PRIMARY KEY, version bigint NOT NULL, value bytea NOT NULL)"
               " WITH (fillfactor = 50)"; // leaves room on the page for the next version of a row
    }

    // Returns the oid of the table that the first slot of this process found. If no slot has found
    // a table before, keeps and returns `found`.
    static std::int64_t first_oid(const server_terms& of, known& all, std::int64_t found) {
        const std::lock_guard held(all.lock);
        std::int64_t& first = all.tables[of.table];
        first = first == 0 ? found : first;
        return first;
    }

    slot_answer refused(const server_terms& of, postgres_answer answer) {
        const std::string& table = of.table;
        const auto is = [&](auto... states) {
            return ((answer.error == postgres_error(states)) || ...);
        };
        if (is("25006")) {
            drop(); // a standby: the next connection may reach the primary
        } else if (is("40001", "40P01") || (is("55P03") && !of.is_for_renewals)) {
            answer.may_pass = !answer.may_have_stored;
        } else if (is("ZB001", "42P01")) {
            answer.error_text = "the table " + table +
                                (is("ZB001") ? " is not the one that this process began with"
                                             : " was dropped while this process used it") +
                                "; end all processes that use it, then start them anew";
        } else if (is("42501", "3F000")) {
            const std::string schema = table.substr(0, table.find('.'));
            answer.error_text +=
                ". As a role that may, run: CREATE SCHEMA IF NOT EXISTS " + schema + "; " +
                create_statement(table) + "; GRANT USAGE ON SCHEMA " + schema +
                " and GRANT SELECT, INSERT, UPDATE ON " + table + " to each role that locks";
        }
        return std::move(answer).refused_as<cas_result>();
    }

    static void on_notice(void* to, const PGresult* notice) {
        const char* const source = ::PQresultErrorField(notice, PG_DIAG_SOURCE_FUNCTION);
        if (source != nullptr && std::string_view(source) == "SyncRepWaitForLSN") {
            static_cast<postgres_connection*>(to)->is_unconfirmed_ = true;
        }
    }

    // Waits until everything is sent and PQgetResult() does not block. If the connection breaks,
    // PQgetResult() then returns an error or nothing.
    std::error_code await() {
        for (int unsent = 0; (unsent = ::PQflush(pq_)) != 0 || ::PQisBusy(pq_) != 0;) {
            // A server that reports an error may stop reading. So its answer is read even while a
            // part of the request is not sent yet.
            const short events = unsent == 0 ? POLLIN : POLLIN | POLLOUT;
            if (unsent < 0) {
                return was_lost();
            }
            if (wait_for(fd(), events, end_) == std::errc::timed_out) {
                return std::make_error_code(std::errc::timed_out);
            }
            if (::PQconsumeInput(pq_) == 0) {
                return ::PQstatus(pq_) == CONNECTION_BAD ? std::error_code() : was_lost();
            }
        }
        return {};
    }

    static void note(PGresult* result, postgres_answer& to) {
        postgres_rows next;
        next.of.reset(result);
        const ExecStatusType status = ::PQresultStatus(result);
        if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK) {
            to.of = std::move(next);
        } else if (!to.error) {
            const char* const state = ::PQresultErrorField(result, PG_DIAG_SQLSTATE);
            const char* const severity =
                ::PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
            to.error = state == nullptr ? was_lost() : postgres_error(state);
            to.error_text = one_line(::PQresultErrorMessage(result), 1'000);
            // A pooler that loses its server reports an ERROR of class 08; the change may be made.
            to.may_have_stored = severity == nullptr || std::string_view(severity) != "ERROR" ||
                                 sqlstate(to.error).starts_with("08");
        }
    }

    enum class plan { none, next, prepared, never }; // next: the next run prepares the statement

    std::map<std::string, plan> plans_{}; // by the names of statements
    pid_t pid_ = 0;                       // the process that connected
    std::int64_t oid_ = 0;                // of the table of the present call
    bool is_unconfirmed_ = false;         // committed on the primary, but no standby confirmed it
    PGconn* pq_ = nullptr;
};

} // namespace detail

BIDE_DURABLE_INLINE postgres_slot::postgres_slot(std::string conninfo, std::string key,
                                                 postgres_slot_options options) {
    detail::postgres_target target = detail::postgres_target_of(conninfo);
    const std::string table = detail::postgres_table_of(options.table);
    if (table.empty()) {
        target.why = "a table is name or schema.name, of letters, digits and _";
    } else if (key.empty() || key.size() > 1'024 || key.find('\0') != key.npos) {
        target.why = "a key has 1 to 1,024 bytes, none of them zero";
    }
    core_ = std::make_unique<detail::server_slot<detail::postgres_connection>>(
        std::move(target),
        detail::server_terms{std::move(key), options.retry_time,
                             std::min(options.max_value, std::size_t(256) << 20), table});
}

}} // namespace bide::BIDE_ABI

#endif
