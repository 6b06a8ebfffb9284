// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_CONNECTION_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_CONNECTION_HPP

// A connection to PostgreSQL. Every operation ends at a deadline. If a statement fails, the
// connection reports whether the statement may have taken effect.
//
// If the connection string names several hosts, each host gets an equal share of the time. libpq
// would give all of the time to the first host that does not answer, such as a dead machine.
//
// The deadline bounds connecting, the handshakes, sending, and waiting for an answer. It does not
// bound what libpq does synchronously: looking up the name of a host or a service, Kerberos and
// LDAP. If a host's name is unknown, the slot looks it up once more, to learn whether the error is
// permanent.
//
// The outcome of a statement is known when the server is ready for the next one. Before that, the
// rows may have come, but the commit may still fail. If the server reports severity ERROR, nothing
// was done. If the connection ends, with any error code, the server may have committed before.

#include <bide/core/config.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slots/detail/postgres/error_text.hpp>
#include <bide/durable/slots/detail/postgres/errors.hpp>
#include <bide/durable/slots/detail/postgres/hosts.hpp>
#include <bide/durable/slots/detail/postgres/refusal.hpp>
#include <bide/durable/slots/detail/postgres/wire.hpp>
#include <bide/durable/slots/detail/server/connection_pool.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <libpq-fe.h>
#include <poll.h>
#include <sys/types.h>
#include <unistd.h>

namespace bide::inline BIDE_ABI {
namespace detail {

class postgres_connection {
public:
    // What a connection is for. Connections with equal keys are interchangeable.
    struct key {
        std::string conninfo;
        std::string environment; // postgres_target's
        enum purpose { calls, renewals, notices } what_for;
        std::size_t most_connections() const noexcept {
            return what_for == calls ? most_call_connections : 1;
        }
        friend auto operator<=>(const key&, const key&) = default;
    };

    explicit postgres_connection(const key& of)
        : conninfo_(of.conninfo), target_(postgres_target_of(of.conninfo)) {}
    postgres_connection(const postgres_connection&) = delete;
    postgres_connection& operator=(const postgres_connection&) = delete;
    ~postgres_connection() { drop(); }

    // Closes the socket in a child of fork(), and leaves the memory as it is.
    void disown() noexcept {
        if (pq_ != nullptr && ::PQsocket(pq_) >= 0) {
            ::close(::PQsocket(pq_));
        }
    }

    PGconn* native() const noexcept { return pq_; }
    bool is_mine() const noexcept { return pid_ == ::getpid(); }
    bool is_open() const noexcept { return pq_ != nullptr; }

    // Whether the connection can be used, as far as the client knows without a round trip.
    bool is_usable() const noexcept { return pq_ != nullptr && is_mine() && is_alive(); }

    // The last error of the server or of libpq, in one line.
    const std::string& message() const noexcept { return message_; }

    // Identifies one connection that was made. It differs for each connection of each object.
    struct identity {
        const postgres_connection* of = nullptr;
        std::int64_t made_at = 0;
        friend bool operator==(const identity&, const identity&) = default;
    };
    identity id() const noexcept { return {this, made_at_}; }

    // Connects if the connection cannot be used.
    std::error_code make_ready(postgres_deadline until);

    // Runs one statement with parameters, in a transaction of its own. Rows are binary.
    // Requires: make_ready().
    postgres_reply run(const std::string& sql, std::initializer_list<postgres_parameter> parameters,
                       postgres_deadline until);

    // Runs any number of statements without parameters. Rows are text.
    // Requires: make_ready().
    postgres_reply run_script(const std::string& sql, postgres_deadline until);

    // Closes the connection. The server rolls an open transaction back when it notices.
    void drop() noexcept;

    bool is_in_transaction() const noexcept {
        return pq_ != nullptr && ::PQtransactionStatus(pq_) != PQTRANS_IDLE;
    }

private:
    // If the server sends nothing for this long, the slot tests whether it speaks another protocol.
    // After a test without a result there is no further one.
    static constexpr std::chrono::milliseconds probe_after{1'000};

    // Set while the server's notices are read.
    struct notices {
        bool is_unconfirmed = false; // committed on the primary, but no standby confirmed it
    };

    static void on_notice(void* to, const PGresult* notice) {
        const char* const source = ::PQresultErrorField(notice, PG_DIAG_SOURCE_FUNCTION);
        if (source != nullptr && std::string_view(source) == "SyncRepWaitForLSN") {
            static_cast<notices*>(to)->is_unconfirmed = true;
        }
    }

    std::error_code connect(const postgres_host& to, postgres_deadline until);
    bool is_alive() const noexcept;
    postgres_reply finish(bool is_sent, postgres_deadline until);
    postgres_reply give_up(std::error_code why);
    bool flush(postgres_deadline until, bool& is_late) const noexcept;
    bool await_result(postgres_deadline until) const noexcept;

    const std::string conninfo_;
    const postgres_target target_;
    std::string message_{};
    std::size_t host_ = 0; // the host to try first
    bool is_probed_ = false;
    std::int64_t made_at_ = 0;
    pid_t pid_ = 0; // the process that connected
    std::unique_ptr<notices> notices_{};
    PGconn* pq_ = nullptr;
};

// ---- Connecting

inline std::error_code postgres_connection::make_ready(postgres_deadline until) {
    message_ = target_.why;
    if (is_usable()) {
        return {};
    }
    drop();
    if (!message_.empty()) {
        return durable_errc::invalid_argument;
    }
    const std::vector<postgres_host>& hosts = target_.hosts;
    std::error_code error;
    std::string error_text;
    for (std::size_t tried = 0; tried < hosts.size(); ++tried) {
        const std::size_t i = (host_ + tried) % hosts.size();
        const auto now = std::chrono::steady_clock::now();
        const auto share = (until - now) / static_cast<std::int64_t>(hosts.size() - tried);
        const std::error_code one =
            connect(hosts[i], tried + 1 == hosts.size() ? until : now + share);
        if (!one) {
            host_ = i;
            message_.clear();
            made_at_ = std::chrono::steady_clock::now().time_since_epoch().count();
            return {};
        }
        error_text +=
            (error_text.empty() ? "" : "; ") + (hosts.size() > 1 ? hosts[i].where + ": " : "");
        error_text += message_;
        if (!error || postgres_is_permanent(error)) { // permanent only if it is for each host
            error = one;
        }
    }
    message_ = error_text;
    return error;
}

inline std::error_code postgres_connection::connect(const postgres_host& to,
                                                    postgres_deadline until) {
    // Later keywords override earlier ones, and empty values are ignored. Keys are UTF-8.
    const std::array<const char*, 7> keywords{
        "dbname", "host", "hostaddr", "port", "client_encoding", "fallback_application_name",
        nullptr};
    const std::array<const char*, 7> values{conninfo_.c_str(),
                                            to.name.c_str(),
                                            to.address.c_str(),
                                            to.port.c_str(),
                                            "UTF8",
                                            "bide",
                                            nullptr};
    pq_ = ::PQconnectStartParams(keywords.data(), values.data(), 1);
    pid_ = ::getpid();
    if (pq_ == nullptr) {
        return std::make_error_code(std::errc::not_enough_memory);
    }
    ::PQsetErrorVerbosity(pq_, PQERRORS_VERBOSE); // puts the SQLSTATE into the text
    notices_ = std::make_unique<notices>();
    ::PQsetNoticeReceiver(pq_, &on_notice, notices_.get());

    const auto probe_at = std::min(until, std::chrono::steady_clock::now() + probe_after);
    bool is_heard = false;
    PostgresPollingStatusType step =
        ::PQstatus(pq_) == CONNECTION_BAD ? PGRES_POLLING_FAILED : PGRES_POLLING_WRITING;
    while (step != PGRES_POLLING_OK && step != PGRES_POLLING_FAILED) {
        const short events = step == PGRES_POLLING_READING ? POLLIN : POLLOUT;
        if (events == POLLIN && !is_heard && !is_probed_ && probe_at < until &&
            !postgres_wait_for(::PQsocket(pq_), POLLIN, probe_at)) {
            message_ = postgres_probe(::PQsocket(pq_), std::min(until, probe_at + probe_after));
            is_probed_ = message_.empty();
            if (!message_.empty()) {
                drop();
                return postgres_error("ZB003");
            }
        }
        if (!postgres_wait_for(::PQsocket(pq_), events, until)) {
            message_ = "could not connect in time";
            drop();
            return std::make_error_code(std::errc::timed_out);
        }
        if (events == POLLIN && !std::exchange(is_heard, true)) {
            message_ = postgres_foreign_text(::PQsocket(pq_));
            if (!message_.empty()) {
                drop();
                return postgres_error("ZB003");
            }
        }
        step = ::PQconnectPoll(pq_);
    }
    if (step == PGRES_POLLING_FAILED || ::PQsetnonblocking(pq_, 1) != 0) {
        message_ = postgres_error_text_in(::PQerrorMessage(pq_));
        const std::error_code error = postgres_refusal(*pq_);
        drop();
        return error;
    }
    return {};
}

// Returns true if the connection still works. Reads what the server has sent since the last
// statement: if the server has ended the connection, it has sent a message or closed the socket.
inline bool postgres_connection::is_alive() const noexcept {
    if (::PQstatus(pq_) != CONNECTION_OK || ::PQtransactionStatus(pq_) != PQTRANS_IDLE) {
        return false;
    }
    for (int reads = 0; reads < 16; ++reads) {
        pollfd one{::PQsocket(pq_), POLLIN, 0};
        if (::poll(&one, 1, 0) <= 0) {
            return true;
        }
        if (::PQconsumeInput(pq_) == 0) {
            return false;
        }
    }
    return false;
}

inline void postgres_connection::drop() noexcept {
    if (pq_ == nullptr) {
        return;
    }
    // In a child of fork(), PQfinish() must not reach the server: it would end the parent's
    // session.
    if (!is_mine()) {
        const int socket = ::PQsocket(pq_);
        const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
        const bool is_apart = socket < 0 || (nowhere >= 0 && ::dup2(nowhere, socket) >= 0 &&
                                             ::fcntl(socket, F_SETFD, FD_CLOEXEC) == 0);
        if (nowhere >= 0) {
            ::close(nowhere);
        }
        if (!is_apart) {
            ::close(socket);
            pq_ = nullptr; // leaks its memory in the child
            return;
        }
    }
    ::PQfinish(std::exchange(pq_, nullptr));
}

// ---- Statements

inline postgres_reply postgres_connection::run(const std::string& sql,
                                               std::initializer_list<postgres_parameter> parameters,
                                               postgres_deadline until) {
    const postgres_arguments a(parameters);
    const int sent = ::PQsendQueryParams(pq_, sql.c_str(), a.count, a.types.data(), a.values.data(),
                                         a.lengths.data(), a.formats.data(), 1);
    return finish(sent == 1, until);
}

inline postgres_reply postgres_connection::run_script(const std::string& sql,
                                                      postgres_deadline until) {
    return finish(::PQsendQuery(pq_, sql.c_str()) == 1, until);
}

inline postgres_reply postgres_connection::finish(bool is_sent, postgres_deadline until) {
    notices_->is_unconfirmed = false;
    bool is_late = false;
    if (!is_sent || !flush(until, is_late)) {
        message_ = is_late ? "not sent in time" : postgres_error_text_in(::PQerrorMessage(pq_));
        return give_up(is_late ? std::make_error_code(std::errc::timed_out)
                               : postgres_error("08006"));
    }
    postgres_reply reply;
    for (;;) {
        if (!await_result(until)) {
            message_ = "no answer in time";
            return give_up(std::make_error_code(std::errc::timed_out));
        }
        postgres_result next(::PQgetResult(pq_));
        if (!next) {
            break;
        }
        const ExecStatusType status = ::PQresultStatus(next.get());
        if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK) {
            reply.command = ::PQcmdStatus(next.get());
            if (status == PGRES_TUPLES_OK) {
                reply.rows = std::move(next);
            }
        } else if (!reply.error) {
            reply.error = postgres_error_of(next.get());
            message_ = postgres_error_text(next.get());
            const char* const severity =
                ::PQresultErrorField(next.get(), PG_DIAG_SEVERITY_NONLOCALIZED);
            // If a pooler loses its server, it reports an ERROR of class 08; the statement may have
            // taken effect.
            reply.is_certain = severity != nullptr && std::string_view(severity) == "ERROR" &&
                               !sqlstate(reply.error).starts_with("08");
        }
    }
    if (!reply.error && notices_->is_unconfirmed) {
        reply.error = postgres_error("01000");
        reply.is_certain = false;
        message_ = "committed, but no standby confirmed it";
    }
    if (::PQstatus(pq_) != CONNECTION_OK) {
        message_ = reply.error ? message_ : "the connection was lost";
        return give_up(reply.error ? reply.error : postgres_error("08006"));
    }
    return reply;
}

inline postgres_reply postgres_connection::give_up(std::error_code why) {
    drop();
    return {nullptr, {}, why, false, true};
}

inline bool postgres_connection::flush(postgres_deadline until, bool& is_late) const noexcept {
    for (int left = ::PQflush(pq_); left != 0; left = ::PQflush(pq_)) {
        if (left < 0) {
            return false;
        }
        is_late = !postgres_wait_for(::PQsocket(pq_), POLLIN | POLLOUT, until);
        if (is_late ||
            ::PQconsumeInput(pq_) == 0) { // the server may block until its output is read
            return false;
        }
    }
    return true;
}

// Waits until PQgetResult() does not block. Returns false at the deadline. If the connection
// breaks, returns true, and PQgetResult() then returns an error or nothing.
inline bool postgres_connection::await_result(postgres_deadline until) const noexcept {
    while (::PQisBusy(pq_) != 0) {
        if (!postgres_wait_for(::PQsocket(pq_), POLLIN, until)) {
            return false;
        }
        if (::PQconsumeInput(pq_) == 0) {
            return ::PQstatus(pq_) == CONNECTION_BAD; // then PQgetResult() does not block
        }
    }
    return true;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
