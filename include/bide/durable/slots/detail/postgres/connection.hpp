// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_CONNECTION_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_CONNECTION_HPP

// A connection to PostgreSQL, and a slot's table and statements.
//
// libpq reads the connection string and connects. Every call ends at a deadline. The deadline does
// not bound what libpq does synchronously: looking up the name of a host or a service, Kerberos and
// LDAP.
//
// If the connection string names several hosts, libpq tries them in turn. But libpq would spend all
// of the time on a host that does not answer, such as a dead machine. Therefore the time is divided
// into equal shares, and in each share another host is the first one in the list.
//
// The outcome of a statement is known when the server is ready for the next one. Before that, the
// rows may have come, but the commit may still fail. If the server reports severity ERROR, nothing
// was done. If the connection ends, with any error code, the server may have committed before.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slots/detail/server/server_slot.hpp>
#include <bide/durable/slots/postgres_errors.hpp>
#include <bide/sync/mutex.hpp>

#include <algorithm>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <libpq-fe.h>
#include <netdb.h>
#include <poll.h>
#include <sys/types.h>
#include <unistd.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

struct postgres_free {
    void operator()(PGresult* result) const noexcept { ::PQclear(result); }
    void operator()(unsigned char* bytes) const noexcept { ::PQfreemem(bytes); }
    void operator()(char* text) const noexcept { ::PQfreemem(text); }
    void operator()(PQconninfoOption* options) const noexcept { ::PQconninfoFree(options); }
};

// What identifies a connection: the connection string, and the environment that it depends on.
struct postgres_target {
    std::string conninfo{};
    std::string environment{}; // "keyword=value" of the variables that it depends on
    std::string host{};        // one or more, separated by commas, like the next two
    std::string hostaddr{};
    std::string port{};
    std::string where{}; // "postgres at db.example:5432, database app"
    std::string user{};
    std::string why{}; // if it is not empty: what is wrong with the connection string

    std::size_t count() const noexcept {
        return 1 + static_cast<std::size_t>(
                       std::max(std::count(host.begin(), host.end(), ','),
                                std::count(hostaddr.begin(), hostaddr.end(), ',')));
    }
    friend auto operator<=>(const postgres_target&, const postgres_target&) = default;
};

// Returns the list so that it begins with its element number `first`. A list of one element stays as
// it is.
inline std::string postgres_rotated(const std::string& list, std::size_t first) {
    std::size_t at = 0;
    for (; first > 0 && list.find(',', at) != list.npos; --first) {
        at = list.find(',', at) + 1;
    }
    return at == 0 ? list : list.substr(at) + "," + list.substr(0, at - 1);
}

// Reads a connection string by libpq. No text here quotes a part that may be a password: if a
// password has a character that is not encoded, a part of it is taken for a host, a port or a
// database.
inline postgres_target postgres_target_of(const std::string& conninfo) {
    postgres_target target{conninfo};
    target.where = "postgres";
    const bool is_uri =
        conninfo.starts_with("postgres://") || conninfo.starts_with("postgresql://");
    const std::unique_ptr<PQconninfoOption, postgres_free> options(
        ::PQconninfoParse(conninfo.c_str(), nullptr));
    if (!options) {
        target.why = is_uri ? "not a URI that libpq reads (in a user or password, each of "
                              ":/?#[]@% has to be written as %XX)"
                            : "not a connection string that libpq reads (write key=value pairs, "
                              "and quote a value that has blanks)";
        return target;
    }
    std::string service;
    std::string database;
    const std::pair<std::string_view, std::string*> wanted[] = {
        {"service", &service},  {"host", &target.host}, {"hostaddr", &target.hostaddr},
        {"port", &target.port}, {"user", &target.user}, {"dbname", &database}};
    for (const PQconninfoOption* o = options.get(); o->keyword != nullptr; ++o) { // service first
        const char* value = o->val;
        if (value == nullptr && o->envvar != nullptr && std::getenv(o->envvar) != nullptr) {
            target.environment.append(o->keyword).append("=").append(std::getenv(o->envvar)) +=
                '\0';
            value = service.empty() ? std::getenv(o->envvar) : nullptr; // the service's go first
        }
        for (const auto& [keyword, to] : wanted) {
            if (keyword == o->keyword && value != nullptr) {
                *to = value;
            }
        }
    }
    if (target.port.find_first_not_of("0123456789,") != target.port.npos ||
        (is_uri && (target.host + database).find('@') != target.host.npos)) {
        target.why = "not a port, a host or a database: if the password has one of :/?#[]@%, write "
                     "it as %XX";
        return target;
    }
    const auto first = [](const std::string& list) { return list.substr(0, list.find(',')); };
    for (std::size_t i = 0; i < target.count(); ++i) {
        const std::string name =
            first(postgres_rotated(target.host.empty() ? target.hostaddr : target.host, i));
        const std::string port = first(postgres_rotated(target.port, i));
        target.where += i == 0 ? " at " : ",";
        target.where += name.empty()                  ? "the local socket"
                        : name.find(':') != name.npos ? "[" + name + "]"
                                                      : name;
        target.where += ":" + (port.empty() ? "5432" : port);
    }
    database = database.empty() ? target.user : database;
    target.where += database.empty() ? "" : ", database " + database;
    return target;
}

// ---- Errors

inline constexpr std::size_t longest_text = 10'000; // of PostgreSQL's error texts

// Returns the text of a failed statement: "ERROR: permission denied for table locks".
inline std::string postgres_error_text(const PGresult* result) {
    const auto field = [result](int code) {
        const char* const text = ::PQresultErrorField(result, code);
        return std::string(text == nullptr ? "" : text);
    };
    std::string error_text = field(PG_DIAG_MESSAGE_PRIMARY);
    if (error_text.empty()) { // an error of libpq, not of the server
        return one_line(::PQresultErrorMessage(result), longest_text);
    }
    error_text = field(PG_DIAG_SEVERITY) + ": " + error_text;
    for (const int more : {PG_DIAG_MESSAGE_DETAIL, PG_DIAG_MESSAGE_HINT}) {
        error_text += field(more).empty() ? "" : ". " + field(more);
    }
    return one_line(error_text, longest_text);
}

// Returns the position of the SQLSTATE in libpq's text, as in "FATAL:  28P01: password ...", or
// npos. libpq offers it nowhere else.
inline std::size_t postgres_state_in(std::string_view text) noexcept {
    constexpr std::string_view mark = ":  ";
    for (std::size_t at = text.find(mark); at != text.npos; at = text.find(mark, at + 1)) {
        const std::string_view rest = text.substr(at + mark.size());
        if (rest.size() > 5 && rest[5] == ':' &&
            postgres_category_type::packed(rest.substr(0, 5)) != 0) {
            return at + mark.size();
        }
    }
    return text.npos;
}

// Returns the code of a failed connection, and stores its text in one line, without codes and
// positions in the server's source. libpq writes one or more lines for each try. It may translate
// its own part of the text; then some permanent errors are reported as 08001.
inline std::error_code postgres_refusal(std::string_view text, bool has_several_hosts,
                                        std::string& error_text) {
    const auto says = [text](auto... parts) { return ((text.find(parts) != text.npos) || ...); };
    std::string state;
    std::ptrdiff_t answers = 0; // tries that did not fail for another reason than the server's
    error_text.clear();
    for (std::string_view rest = text; !rest.empty();) {
        std::string line(rest.substr(0, rest.find('\n')));
        rest.remove_prefix(std::min(line.size() + 1, rest.size()));
        constexpr std::string_view failed = " failed: ";
        const std::size_t try_end = line.find(failed);
        answers -= try_end != line.npos ? 1 : 0;
        if (const std::size_t at = postgres_state_in(line); at != line.npos) {
            state = line.substr(at, 5);
            line.erase(at, 6);
            ++answers;
        }
        if (try_end != line.npos && !has_several_hosts) {
            line.erase(0, try_end + failed.size());
        }
        line = one_line(line, longest_text);
        if (!line.starts_with("LOCATION:") && !line.empty() &&
            error_text.find(line) == error_text.npos) {
            error_text += (error_text.empty() ? "" : "; ") + line;
        }
    }
    if (text.starts_with("invalid ") || text.starts_with("could not match ")) {
        error_text.resize(std::min(error_text.find(" \""), error_text.size())); // quotes no value
        return durable_errc::invalid_argument;
    }
    if (has_several_hosts && answers < 0) {
        return postgres_error("08001"); // a host that did not answer may do so later
    }
    if (state == "08P01") { // a pooler reports every refusal with this code
        return postgres_error(says("no such database")                        ? "3D000"
                              : says("no such user", "authentication failed") ? "28P01"
                                                                              : state);
    }
    return postgres_error(
        !state.empty()                 ? state
        : says("no password supplied") ? "28P01"
        : says("received invalid response to SSL negotiation", "expected authentication request")
            ? "ZB003"
        : says(::gai_strerror(EAI_NONAME)) ? "ZB004"
                                           : "08001");
}

struct postgres_reply {
    std::unique_ptr<PGresult, postgres_free>
        rows{};              // without an error: the rows of the last statement that returned any
    std::string command{};   // the command tag of the last statement, such as "COMMIT"
    std::error_code error{}; // without an error, the statement took effect
    bool is_certain = true;  // with an error: the statement took no effect
    bool is_lost = false;    // with an error: the connection is lost

    bool is(std::string_view state) const noexcept { return error == postgres_error(state); }
    int count() const noexcept { return ::PQntuples(rows.get()); }

    // A column of a row.
    bool is_null(int column) const noexcept { return ::PQgetisnull(rows.get(), 0, column) != 0; }
    std::string_view text(int column, int row = 0) const noexcept {
        return ::PQgetvalue(rows.get(), row, column);
    }
    std::int64_t int8(int column, int row = 0) const noexcept { // 0 if it has another type
        constexpr Oid int8_type = 20;
        return ::PQftype(rows.get(), column) == int8_type
                   ? std::strtoll(::PQgetvalue(rows.get(), row, column), nullptr, 10)
                   : 0;
    }
    // Throws: std::bad_alloc.
    std::string bytes(int column) const {
        std::size_t size = 0;
        const auto* const from =
            reinterpret_cast<const unsigned char*>(::PQgetvalue(rows.get(), 0, column));
        const std::unique_ptr<unsigned char, postgres_free> found(::PQunescapeBytea(from, &size));
        if (!found) {
            BIDE_THROW(std::bad_alloc());
        }
        return {reinterpret_cast<const char*>(found.get()), size};
    }
};

// ---- Connections

// Used by one thread at a time.
class postgres_connection {
public:
    using key = connection_key<postgres_target>;

    explicit postgres_connection(const key& of) : target_(of.target) {}
    postgres_connection(const postgres_connection&) = delete;
    postgres_connection& operator=(const postgres_connection&) = delete;
    ~postgres_connection() { drop(); }

    // In a child of fork(): only closes the socket, and leaks the memory.
    void disown() noexcept {
        if (PGconn* const theirs = std::exchange(pq_, nullptr);
            theirs != nullptr && ::PQsocket(theirs) >= 0) {
            ::close(::PQsocket(theirs));
        }
    }

    // Closes the connection. The server rolls an open transaction back when it notices.
    void drop() noexcept {
        if (pid_ != ::getpid()) {
            disown(); // PQfinish() would end the parent's session
        } else if (pq_ != nullptr) {
            ::PQfinish(std::exchange(pq_, nullptr));
        }
    }

    bool is_open() const noexcept { return pq_ != nullptr; }
    int fd() const noexcept { return ::PQsocket(pq_); }

    // Whether the connection can be used, as far as the client knows without a round trip. If the
    // server has ended the connection, it has sent a message or closed the socket.
    bool is_usable() const noexcept {
        if (pq_ == nullptr || pid_ != ::getpid() || ::PQstatus(pq_) != CONNECTION_OK ||
            ::PQtransactionStatus(pq_) != PQTRANS_IDLE) {
            return false;
        }
        for (int reads = 0; reads < 16; ++reads) {
            if (wait_for(::PQsocket(pq_), POLLIN, deadline::poll()) == std::errc::timed_out) {
                return true;
            }
            if (::PQconsumeInput(pq_) == 0) {
                return false;
            }
        }
        return false;
    }

    // The last error of the server or of libpq, in one line.
    const std::string& message() const noexcept { return message_; }

    // The tables that were looked for since the connection was made.
    std::vector<std::string> searched{};

    // Begins a call, which ends at the deadline. Connects if the connection cannot be used.
    std::error_code make_ready(deadline end) {
        end_ = end;
        message_ = target_.why;
        if (is_usable()) {
            return {};
        }
        drop();
        if (!message_.empty()) {
            return durable_errc::invalid_argument;
        }
        const std::size_t count = target_.count();
        std::error_code error;
        for (std::size_t tried = 0; tried < count; ++tried, first_ = (first_ + 1) % count) {
            const std::int64_t now = native_platform::now();
            const std::int64_t share =
                (end.steady_ns() - now) / static_cast<std::int64_t>(count - tried);
            error = connect(tried + 1 == count ? end : deadline::at_ns(now + share));
            if (error) {
                drop();
            }
            if (error != std::errc::timed_out) { // libpq has tried the other hosts, too
                break;
            }
        }
        return error;
    }

    // Runs any number of statements.
    // Requires: make_ready().
    postgres_reply run(const std::string& sql) {
        is_unconfirmed_ = false;
        postgres_reply reply;
        std::error_code error = ::PQsendQuery(pq_, sql.c_str()) == 1 ? std::error_code() : lost();
        for (;;) {
            error = error ? error : await();
            if (error) {
                if (!reply.error) {
                    reply.error = error;
                    message_ = error == std::errc::timed_out
                                   ? "no answer in time"
                                   : one_line(::PQerrorMessage(pq_), longest_text);
                }
                drop();
                return {nullptr, {}, reply.error, false, true};
            }
            std::unique_ptr<PGresult, postgres_free> next(::PQgetResult(pq_));
            if (!next) {
                break;
            }
            note(std::move(next), reply);
        }
        if (!reply.error && is_unconfirmed_) {
            reply.error = postgres_error("01000");
            reply.is_certain = false;
            message_ = "committed, but no standby confirmed it";
        }
        if (::PQstatus(pq_) != CONNECTION_OK) {
            message_ = reply.error ? message_ : "the connection was lost";
            drop();
            return {nullptr, {}, reply.error ? reply.error : lost(), false, true};
        }
        return reply;
    }

    bool is_in_transaction() const noexcept {
        return pq_ != nullptr && ::PQtransactionStatus(pq_) != PQTRANS_IDLE;
    }

    // Return the text or the bytes as an SQL literal. If memory runs out or the bytes are not text,
    // the literal is empty, which the server rejects as a syntax error.
    std::string quoted(const std::string& text) const {
        const std::unique_ptr<char, postgres_free> literal(
            ::PQescapeLiteral(pq_, text.data(), text.size()));
        return literal ? literal.get() : "";
    }
    std::string quoted_bytes(std::string_view bytes) const {
        const auto* const data =
            reinterpret_cast<const unsigned char*>(bytes.empty() ? "" : bytes.data());
        std::size_t size = 0;
        const std::unique_ptr<unsigned char, postgres_free> literal(
            ::PQescapeByteaConn(pq_, data, bytes.size(), &size));
        return literal ? "'" + std::string(reinterpret_cast<const char*>(literal.get()), size - 1) +
                             "'::bytea"
                       : std::string();
    }

    // Connects and listens to the channel, for a channel_watch.
    std::error_code subscribe(const std::string& channel, deadline end) {
        const std::error_code error = make_ready(end);
        return error ? error : run("LISTEN " + channel).error;
    }
    // Reads and discards the notifications that have come.
    std::error_code drain() {
        if (!is_open() || ::PQconsumeInput(pq_) == 0 || ::PQstatus(pq_) != CONNECTION_OK) {
            return lost();
        }
        while (PGnotify* const each = ::PQnotifies(pq_)) {
            ::PQfreemem(each);
        }
        return {};
    }

private:
    static std::error_code lost() noexcept { return postgres_error("08006"); }

    static void on_notice(void* to, const PGresult* notice) {
        const char* const source = ::PQresultErrorField(notice, PG_DIAG_SOURCE_FUNCTION);
        if (source != nullptr && std::string_view(source) == "SyncRepWaitForLSN") {
            static_cast<postgres_connection*>(to)->is_unconfirmed_ = true;
        }
    }

    std::error_code connect(deadline until) {
        // Later keywords override earlier ones, and empty values are ignored. Keys are UTF-8.
        const std::string host = postgres_rotated(target_.host, first_);
        const std::string hostaddr = postgres_rotated(target_.hostaddr, first_);
        const std::string port = postgres_rotated(target_.port, first_);
        const bool is_first = first_ == 0; // libpq takes the lists as they are
        const char* const keywords[] = {"dbname", "client_encoding", "fallback_application_name",
                                        "host",   "hostaddr",        "port",
                                        nullptr};
        const char* const values[] = {target_.conninfo.c_str(),
                                      "UTF8",
                                      "bide",
                                      is_first ? "" : host.c_str(),
                                      is_first ? "" : hostaddr.c_str(),
                                      is_first ? "" : port.c_str(),
                                      nullptr};
        pq_ = ::PQconnectStartParams(keywords, values, 1);
        pid_ = ::getpid();
        searched.clear();
        if (pq_ == nullptr) {
            return std::make_error_code(std::errc::not_enough_memory);
        }
        ::PQsetErrorVerbosity(pq_, PQERRORS_VERBOSE); // puts the SQLSTATE into the text
        ::PQsetNoticeReceiver(pq_, &on_notice, this);
        PostgresPollingStatusType step =
            ::PQstatus(pq_) == CONNECTION_BAD ? PGRES_POLLING_FAILED : PGRES_POLLING_WRITING;
        while (step != PGRES_POLLING_OK && step != PGRES_POLLING_FAILED) {
            const short events = step == PGRES_POLLING_READING ? POLLIN : POLLOUT;
            if (wait_for(::PQsocket(pq_), events, until) == std::errc::timed_out) {
                message_ = "could not connect in time";
                return std::make_error_code(std::errc::timed_out);
            }
            step = ::PQconnectPoll(pq_);
        }
        if (step == PGRES_POLLING_FAILED || ::PQsetnonblocking(pq_, 1) != 0) {
            return postgres_refusal(::PQerrorMessage(pq_), target_.count() > 1, message_);
        }
        return {};
    }

    // Waits until everything is sent and PQgetResult() does not block. If the connection breaks,
    // PQgetResult() then returns an error or nothing.
    std::error_code await() {
        for (;;) {
            const int unsent = ::PQflush(pq_);
            if (unsent < 0) {
                return lost();
            }
            if (unsent == 0 && ::PQisBusy(pq_) == 0) {
                return {};
            }
            // The server may stop to read until its output is read.
            const short events = unsent == 0 ? POLLIN : POLLIN | POLLOUT;
            if (wait_for(::PQsocket(pq_), events, end_) == std::errc::timed_out) {
                return std::make_error_code(std::errc::timed_out);
            }
            if (::PQconsumeInput(pq_) == 0) {
                return ::PQstatus(pq_) == CONNECTION_BAD ? std::error_code() : lost();
            }
        }
    }

    // Adds the result of one statement to the reply.
    void note(std::unique_ptr<PGresult, postgres_free> next, postgres_reply& reply) {
        const ExecStatusType status = ::PQresultStatus(next.get());
        if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK) {
            reply.command = ::PQcmdStatus(next.get());
            if (status == PGRES_TUPLES_OK) {
                reply.rows = std::move(next);
            }
        } else if (!reply.error) {
            const char* const state = ::PQresultErrorField(next.get(), PG_DIAG_SQLSTATE);
            const char* const severity =
                ::PQresultErrorField(next.get(), PG_DIAG_SEVERITY_NONLOCALIZED);
            reply.error = state == nullptr ? lost() : postgres_error(state);
            message_ = postgres_error_text(next.get());
            // If a pooler loses its server, it reports an ERROR of class 08; the statement may have
            // taken effect.
            reply.is_certain = severity != nullptr && std::string_view(severity) == "ERROR" &&
                               !sqlstate(reply.error).starts_with("08");
        }
    }

    const postgres_target target_;
    std::string message_{};
    std::size_t first_ = 0;           // the host to try first
    deadline end_ = deadline::poll(); // of the present call
    pid_t pid_ = 0;                   // the process that connected
    bool is_unconfirmed_ = false;     // committed on the primary, but no standby confirmed it
    PGconn* pq_ = nullptr;
};

// ---- The table

// Two tables would be two locks. Therefore the table depends on the database alone, and never on the
// role, its rights or its search_path:
//
//   a schema is named    the table of that schema
//   none is named        the only table of that name with a slot's columns, in any schema;
//                        if there is none, `public`; if there are several, an error
//
// The search reads the system catalog. Every role may read it, and it also lists the tables that
// the role may not use. All slots of a process use the table that the first slot found, by its oid.
// Each new connection looks for the table again, and each statement compares the oid: it refuses a
// table that was dropped and created again.
//
// A pooler may run each transaction in another session. Therefore no statement sets anything for a
// session. A statement sets what it needs for its own transaction, by functions that it calls:
//
//   synchronous_commit   The server reads it when the transaction commits, after the statement. For
//                        every setting of the server, role or database, this commit is waited for.
//   client_min_messages  The server reads it at the commit. If no standby confirms the commit, the
//                        server reports that in a warning.
//   lock_timeout         The server reads it when it finds the row locked. Before that, the
//                        condition has evaluated the subquery that sets lock_timeout. The server
//                        gives up before the client does, and reports that.
//   idle_in_transaction_session_timeout
//                        The server reads it after each message. A client that stops with the row
//                        locked loses the lock before the waiting clients give up.

// A schema and a table, each of letters, digits and underscores.
struct postgres_name {
    std::string schema{}; // empty: not named
    std::string table{};  // empty: the name is invalid

    std::string quoted() const { return '"' + schema + "\".\"" + table + '"'; }
    std::string plain() const { return schema + "." + table; }
    // The name under which the table is created.
    postgres_name wanted() const { return {schema.empty() ? "public" : schema, table}; }
};

// Reads `name` or `schema.name`. If `schema` is not empty, `name` must not name one.
inline postgres_name postgres_name_of(std::string_view name, std::string_view schema) {
    constexpr std::string_view known =
        "_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    const auto is_good = [known](std::string_view text) {
        return !text.empty() && text.size() <= 63 && (text[0] < '0' || text[0] > '9') &&
               text.find_first_not_of(known) == text.npos;
    };
    const std::size_t dot = name.find('.');
    const bool has_dot = dot != name.npos && schema.empty();
    if (has_dot) {
        schema = name.substr(0, dot);
        name.remove_prefix(dot + 1);
    }
    return is_good(name) && (is_good(schema) || (schema.empty() && !has_dot))
               ? postgres_name{std::string(schema), std::string(name)}
               : postgres_name();
}

// Returns the channel on which changes of a key are notified. If several keys share a channel, a
// watch also signals changes of the other keys.
inline std::string postgres_channel(const std::string& table, const std::string& key) {
    std::uint64_t hash = 14695981039346656037U; // FNV-1a
    for (const char c : table + '\0' + key) {
        hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
    }
    std::string name = "bide_";
    for (int shift = 60; shift >= 0; shift -= 4) {
        name += "0123456789abcdef"[hash >> shift & 15];
    }
    return name;
}

struct postgres_found {
    std::int64_t oid = 0; // 0: none
    postgres_name name{};
};

// The statements of a table. A `key` and a `value` are SQL literals.
class postgres_sql {
public:
    static constexpr const char* microseconds =
        "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

    // A statement waits at most `waits` for a locked row. If a client that has locked the row is
    // silent for `keeps`, the server unlocks the row. `channel` is the channel to notify, or empty.
    postgres_sql(const postgres_found& of, const std::string& channel,
                 std::chrono::milliseconds waits, std::chrono::milliseconds keeps)
        : table_(of.name.quoted()),
          is_same_("'" + table_ + "'::regclass::oid = " + std::to_string(of.oid)),
          notify_(channel.empty() ? "" : ", pg_notify('" + channel + "', '')"),
          waits_("set_config('lock_timeout', '" + std::to_string(waits.count()) + "', true)"),
          keeps_("set_config('idle_in_transaction_session_timeout', '" +
                 std::to_string(keeps.count()) + "', true)") {}

    static std::string create(const postgres_name& table) {
        return "CREATE TABLE IF NOT EXISTS " + table.quoted() +
               " (key text PRIMARY KEY, version bigint NOT NULL, value bytea NOT NULL)"
               " WITH (fillfactor = 50)"; // leaves room on the page for the next version of a row
    }

    // The statement returns one row: version and value (or nulls), the time, whether the server is
    // a standby, the table's oid.
    std::string load(const std::string& key) const {
        return "SELECT l.version, l.value, " + std::string(microseconds) +
               ", pg_is_in_recovery(), '" + table_ +
               "'::regclass::oid::bigint FROM (SELECT 1) AS one LEFT JOIN " + table_ +
               " AS l ON l.key = " + key;
    }

    // One row, the new version; or none: the version is another one. Version 0: inserts the row.
    std::string exchange(const std::string& key, std::uint64_t version,
                         const std::string& value) const {
        const std::string condition = is_same_ + " AND (SELECT " + waits_ + ") IS NOT NULL";
        return (version == 0 ? "INSERT INTO " + table_ + " (key, version, value) SELECT " + key +
                                   ", " + microseconds + ", " + value + " WHERE " + condition +
                                   " ON CONFLICT (key) DO NOTHING"
                             : "UPDATE " + table_ + " SET version = version + 1, value = " + value +
                                   " WHERE key = " + key + " AND version = " +
                                   std::to_string(version) + " AND " + condition) +
               " RETURNING version, " + durable + notify_ + ", " + heard;
    }

    // Begins a transaction and locks the row. One row or none: version, value, the time.
    std::string lock(const std::string& key) const {
        return std::string("BEGIN ISOLATION LEVEL READ COMMITTED; SELECT ") + durable + ", " +
               heard + ", " + waits_ + ", " + keeps_ + "; " + locked(key);
    }
    // Inserts a row of version 0 and locks it: other transactions that insert it wait for this one.
    std::string insert_and_lock(const std::string& key) const {
        return "INSERT INTO " + table_ + " (key, version, value) SELECT " + key +
               ", 0, ''::bytea WHERE " + is_same_ + " ON CONFLICT (key) DO NOTHING; " + locked(key);
    }
    std::string commit(const std::string& key, std::int64_t version,
                       const std::string& value) const {
        return "UPDATE " + table_ + " SET version = " + std::to_string(version) +
               ", value = " + value + " WHERE key = " + key + " RETURNING version" + notify_ +
               "; COMMIT";
    }

private:
    static constexpr const char* durable = // keeps a stronger setting
        "set_config('synchronous_commit', CASE current_setting('synchronous_commit') "
        "WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)";
    static constexpr const char* heard = "set_config('client_min_messages', 'warning', true)";

    std::string locked(const std::string& key) const {
        return "SELECT version, value, " + std::string(microseconds) + " FROM " + table_ +
               " WHERE key = " + key + " AND " + is_same_ + " FOR UPDATE";
    }

    std::string table_;
    std::string is_same_;
    std::string notify_;
    std::string waits_;
    std::string keeps_;
};

// The table that all slots of a process with the same connection string and table name share.
class postgres_table {
public:
    struct key {
        postgres_target target;
        std::string schema; // empty: none is named
        std::string table;
        friend auto operator<=>(const key&, const key&) = default;
    };

    explicit postgres_table(const key&) {}
    void leave() noexcept {}

    // Sets the table, if none is set. Returns the table that is set.
    postgres_found keep(const postgres_found& one = {}) {
        const std::lock_guard held(lock_);
        if (found_.oid == 0) {
            found_ = one;
        }
        return found_;
    }

private:
    mutex lock_;
    postgres_found found_{}; // under lock_
};

// ---- The search

inline std::string postgres_another(const postgres_name& name) {
    return "the table " + name.plain() +
           " is not the one that this process began with: it was dropped and made again, or "
           "moved; end all processes that use it, then start them anew";
}
inline std::string postgres_dropped(const postgres_name& name) {
    return "the table " + name.plain() +
           " was dropped while this process used it; end all processes that use it, then "
           "start them anew";
}

// The statement returns one row for each table of that name: its oid, its schema, how many of a
// slot's columns it has. The tables with the most of these columns come first.
inline std::string postgres_tables(const postgres_name& name) {
    return "SELECT c.oid::bigint, n.nspname::text, (SELECT count(*) FROM pg_catalog.pg_attribute "
           "AS a WHERE a.attrelid = c.oid AND NOT a.attisdropped AND a.attname IN ('key', "
           "'version', 'value')) AS columns FROM pg_catalog.pg_class AS c JOIN "
           "pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE c.relname = '" +
           name.table + "' AND ('" + name.schema +
           "' IN ('', n.nspname)) AND c.relkind IN "
           "('r', 'p') AND c.relpersistence <> 't' ORDER BY columns DESC, n.nspname";
}

// The result of a search: the table, or what is wrong.
struct postgres_search {
    postgres_found found{};
    const char* state = nullptr; // the SQLSTATE of the error
    std::string error_text{};
    bool is_missing = false; // there is none, and this process has not seen one: it may be created
};

// Judges the rows of a search for the table `name`, of which the process knows `known`.
inline postgres_search postgres_judge(const postgres_reply& rows, const postgres_name& name,
                                      const postgres_found& known) {
    postgres_found found;
    int count = 0;
    std::string schemas;
    bool is_in_the_way = false; // a table without a slot's columns has the wanted name
    for (int row = 0; row < rows.count(); ++row) {
        const std::string schema(rows.text(1, row));
        if (rows.int8(2, row) < 3) {
            is_in_the_way = is_in_the_way || schema == name.wanted().schema;
            continue;
        }
        found = {rows.int8(0, row), {schema, name.table}};
        schemas += (count++ == 0 ? "" : ", ") + schema;
    }
    if (count > 1) {
        return {{},
                "ZB002",
                "the schemas " + schemas + " have a table " + name.table +
                    " each, and each would be another lock: name the schema in the slot's options, "
                    "the same one for all"};
    }
    if (count == 0 && known.oid != 0) {
        return {{}, "42P01", postgres_dropped(known.name)};
    }
    if (known.oid != 0 && (found.oid != known.oid || found.name.schema != known.name.schema)) {
        return {{}, "ZB001", postgres_another(known.name)};
    }
    if (count == 0 && is_in_the_way) {
        return {
            {}, "ZB005", "the table " + name.wanted().plain() + " lacks columns of a lock's table"};
    }
    return count != 0
               ? postgres_search{found}
               : postgres_search{{}, "42P01", "there is no table " + name.wanted().plain(), true};
}

// Returns what to do about an error: nothing, or a sentence that begins with a full stop.
inline std::string postgres_advice(const std::error_code& error, const postgres_name& table) {
    if (error == postgres_error("3F000")) {
        return ". Make the schema, or name another one in the slot's options, the same for all";
    }
    if (error != postgres_error("42501")) {
        return {};
    }
    return ". As a role that may, run: " + postgres_sql::create(table) +
           "; GRANT USAGE ON SCHEMA " + table.schema + " and GRANT SELECT, INSERT, UPDATE ON " +
           table.quoted() +
           " to each role that locks. Or name another schema in the slot's options, the same for "
           "all";
}

}}} // namespace bide::BIDE_ABI::detail

#endif
