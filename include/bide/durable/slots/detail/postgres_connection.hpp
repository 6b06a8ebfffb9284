#ifndef BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_CONNECTION_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_CONNECTION_HPP

// A connection to PostgreSQL on which nothing takes longer than a deadline, and which says of each
// statement that failed whether it may have been done.
//
// With several hosts in the connection string each gets its share of the time: libpq would give all
// of it to the first that swallows what it is sent, as a machine that died does.
//
// Bounded by the deadline: connecting, the handshakes, sending, and waiting for an answer. Not
// bounded, as libpq does them on the way: looking up the name of a host or a service, Kerberos and
// LDAP. A host whose name is not known is looked up twice, to learn whether that will pass.
//
// The outcome of a statement is known only when the server is ready for the next one: the commit
// comes after the rows, and may fail. An ERROR from the server then says that nothing was done. What
// ends the connection may have come after the commit, whatever code it has.

#include <bide/core/config.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slots/detail/connection_pool.hpp>
#include <bide/durable/slots/detail/postgres_errors.hpp>
#include <bide/durable/slots/detail/postgres_hosts.hpp>
#include <bide/durable/slots/detail/postgres_refusal.hpp>
#include <bide/durable/slots/detail/postgres_wire.hpp>
#include <bide/durable/slots/detail/postgres_words.hpp>

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
    // Two that are equal are to the same place.
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

    // In a child of fork(). The memory stays as it is.
    void disown() noexcept {
        if (pq_ != nullptr && ::PQsocket(pq_) >= 0) {
            ::close(::PQsocket(pq_));
        }
    }

    PGconn* native() const noexcept { return pq_; }
    bool is_mine() const noexcept { return pid_ == ::getpid(); }
    bool is_open() const noexcept { return pq_ != nullptr; }

    // As far as one can see without asking the server.
    bool is_usable() const noexcept { return pq_ != nullptr && is_mine() && is_alive(); }

    // What the server, or libpq, last complained about, in one line.
    const std::string& message() const noexcept { return message_; }

    // Another one for each connection that was made, by any object.
    struct identity {
        const postgres_connection* of = nullptr;
        std::int64_t made_at = 0;
        friend bool operator==(const identity&, const identity&) = default;
    };
    identity id() const noexcept { return {this, made_at_}; }

    // Connects, unless it is usable.
    std::error_code make_ready(postgres_deadline until);

    // One statement with parameters, in a transaction of its own; rows come in binary.
    // Requires: make_ready().
    postgres_reply run(const std::string& sql, std::initializer_list<postgres_parameter> parameters,
                       postgres_deadline until);

    // Any number of statements without parameters; rows come as text.
    // Requires: make_ready().
    postgres_reply run_script(const std::string& sql, postgres_deadline until);

    // Closes it. What is going on in it is rolled back, by and by.
    void drop() noexcept;

    bool is_in_transaction() const noexcept {
        return pq_ != nullptr && ::PQtransactionStatus(pq_) != PQTRANS_IDLE;
    }

private:
    // A server that says nothing for so long is asked whether it speaks something else; once, if it
    // does not say so.
    static constexpr std::chrono::milliseconds probe_after{1'000};

    // Written while the server's notices are read.
    struct notices {
        bool is_unconfirmed = false; // committed here, but no standby said that it has it
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
    std::size_t host_ = 0; // the one to begin with
    bool is_probed_ = false;
    std::int64_t made_at_ = 0;
    pid_t pid_ = 0; // whose connection it is
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
    std::string words;
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
        words += (words.empty() ? "" : "; ") + (hosts.size() > 1 ? hosts[i].where + ": " : "");
        words += message_;
        if (!error || postgres_lasts(error)) { // what may pass on one of them may pass
            error = one;
        }
    }
    message_ = words;
    return error;
}

inline std::error_code postgres_connection::connect(const postgres_host& to,
                                                    postgres_deadline until) {
    // Later ones win, and what is empty does not count. The client's encoding is that of the keys.
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
    ::PQsetErrorVerbosity(pq_, PQERRORS_VERBOSE); // with the SQLSTATE in the text
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
            message_ = "no connection in time";
            drop();
            return std::make_error_code(std::errc::timed_out);
        }
        if (events == POLLIN && !std::exchange(is_heard, true)) {
            message_ = postgres_foreign_words(::PQsocket(pq_));
            if (!message_.empty()) {
                drop();
                return postgres_error("ZB003");
            }
        }
        step = ::PQconnectPoll(pq_);
    }
    if (step == PGRES_POLLING_FAILED || ::PQsetnonblocking(pq_, 1) != 0) {
        message_ = postgres_words_in(::PQerrorMessage(pq_));
        const std::error_code error = postgres_refusal(*pq_);
        drop();
        return error;
    }
    return {};
}

// A server that went away said so, or hung up: what there is to read while nothing was asked.
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
    // A child that was forked must not take leave of the server in the parent's name.
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
            pq_ = nullptr; // its memory is the child's to lose
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
        message_ = is_late ? "not sent in time" : postgres_words_in(::PQerrorMessage(pq_));
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
            message_ = postgres_words_of(next.get());
            const char* const severity =
                ::PQresultErrorField(next.get(), PG_DIAG_SEVERITY_NONLOCALIZED);
            // A connection's own errors, class 08, are also what a pooler says when it lost its
            // server.
            reply.is_certain = severity != nullptr && std::string_view(severity) == "ERROR" &&
                               !sqlstate(reply.error).starts_with("08");
        }
    }
    if (!reply.error && notices_->is_unconfirmed) {
        reply.error = postgres_error("01000");
        reply.is_certain = false;
        message_ = "committed, but not known to be on the standby";
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
        if (is_late || ::PQconsumeInput(pq_) == 0) { // the server may have to say something first
            return false;
        }
    }
    return true;
}

// Of a connection that breaks the result is that it broke.
inline bool postgres_connection::await_result(postgres_deadline until) const noexcept {
    while (::PQisBusy(pq_) != 0) {
        if (!postgres_wait_for(::PQsocket(pq_), POLLIN, until)) {
            return false;
        }
        if (::PQconsumeInput(pq_) == 0) {
            return ::PQstatus(pq_) == CONNECTION_BAD; // then no result is waited for
        }
    }
    return true;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
