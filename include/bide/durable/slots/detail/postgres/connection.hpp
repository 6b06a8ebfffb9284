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
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slots/detail/postgres/hosts.hpp>
#include <bide/durable/slots/detail/postgres/wire.hpp>
#include <bide/durable/slots/detail/server/shared_connections.hpp>
#include <bide/durable/slots/postgres_errors.hpp>

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <libpq-fe.h>
#include <poll.h>
#include <sys/types.h>
#include <unistd.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

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

    // In a child of fork(): only closes the socket, and leaks the memory.
    void disown() noexcept {
        if (PGconn* const theirs = std::exchange(pq_, nullptr);
            theirs != nullptr && ::PQsocket(theirs) >= 0) {
            ::close(::PQsocket(theirs));
        }
    }

    PGconn* native() const noexcept { return pq_; }
    bool is_mine() const noexcept { return pid_ == ::getpid(); }
    bool is_open() const noexcept { return pq_ != nullptr; }

    // Whether the connection can be used, as far as the client knows without a round trip.
    bool is_usable() const noexcept { return pq_ != nullptr && is_mine() && is_alive(); }

    // The last error of the server or of libpq, in one line.
    const std::string& message() const noexcept { return message_; }

    // The tables that were looked for since the connection was made.
    std::vector<std::string> searched{};

    // Connects if the connection cannot be used.
    std::error_code make_ready(deadline until) {
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
            const std::int64_t now = native_platform::now();
            const std::int64_t share =
                (until.steady_ns() - now) / static_cast<std::int64_t>(hosts.size() - tried);
            const std::error_code one =
                connect(hosts[i], tried + 1 == hosts.size() ? until : deadline::at_ns(now + share));
            if (!one) {
                host_ = i;
                message_.clear();
                searched.clear();
                return {};
            }
            error_text +=
                (error_text.empty() ? "" : "; ") + (hosts.size() > 1 ? hosts[i].where + ": " : "");
            error_text += message_;
            if (!error || !may_pass(error)) { // permanent only if it is for each host
                error = one;
            }
        }
        message_ = error_text;
        return error;
    }

    // Runs one statement with parameters, in a transaction of its own. Rows are binary.
    // Requires: make_ready().
    postgres_reply run(const std::string& sql, std::initializer_list<postgres_parameter> parameters,
                       deadline until) {
        const postgres_arguments a(parameters);
        const int sent =
            ::PQsendQueryParams(pq_, sql.c_str(), a.count, a.types.data(), a.values.data(),
                                a.lengths.data(), a.formats.data(), 1);
        return finish(sent == 1, until);
    }

    // Runs any number of statements without parameters. Rows are text.
    // Requires: make_ready().
    postgres_reply run_script(const std::string& sql, deadline until) {
        return finish(::PQsendQuery(pq_, sql.c_str()) == 1, until);
    }

    // Listens to channels, as channel_listener describes. UNLISTEN goes with the next LISTEN.
    static std::error_code lost_error() { return postgres_error("08006"); }
    template <class Heard>
    std::error_code subscribe(const std::string& channel, deadline until, Heard) {
        if (!is_open()) {
            forgotten_.clear();
            if (const std::error_code error = make_ready(until)) {
                return error;
            }
        }
        const postgres_reply reply =
            run_script(std::exchange(forgotten_, {}) + "LISTEN " + channel, until);
        if (reply.error) { // it is unknown what the server listens to
            drop();
        }
        return reply.error;
    }

    void unsubscribe(const std::string& channel) { forgotten_ += "UNLISTEN " + channel + "; "; }
    template <class Heard> std::error_code hear(Heard heard) {
        if (::PQconsumeInput(pq_) == 0 || ::PQstatus(pq_) != CONNECTION_OK) {
            return dropped(lost_error());
        }
        while (PGnotify* const each = ::PQnotifies(pq_)) {
            heard(each->relname);
            ::PQfreemem(each);
        }
        return {};
    }

    int fd() const noexcept { return ::PQsocket(pq_); }

    // Closes the connection. The server rolls an open transaction back when it notices.
    void drop() noexcept {
        if (!is_mine()) {
            disown(); // PQfinish() would end the parent's session
        } else if (pq_ != nullptr) {
            ::PQfinish(std::exchange(pq_, nullptr));
        }
    }

    bool is_in_transaction() const noexcept {
        return pq_ != nullptr && ::PQtransactionStatus(pq_) != PQTRANS_IDLE;
    }

private:
    // If the server sends nothing for this long, the slot tests whether it speaks another protocol.
    // After a test without a result there is no further one.
    static constexpr std::int64_t probe_after = 1'000'000'000; // ns

    static void on_notice(void* to, const PGresult* notice) {
        const char* const source = ::PQresultErrorField(notice, PG_DIAG_SOURCE_FUNCTION);
        if (source != nullptr && std::string_view(source) == "SyncRepWaitForLSN") {
            static_cast<postgres_connection*>(to)->is_unconfirmed_ = true;
        }
    }

    std::error_code connect(const postgres_host& to, deadline until) {
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
        ::PQsetNoticeReceiver(pq_, &on_notice, this);

        const std::int64_t last = until.steady_ns();
        const std::int64_t probe_at = native_platform::now() + probe_after;
        bool is_heard = false;
        PostgresPollingStatusType step =
            ::PQstatus(pq_) == CONNECTION_BAD ? PGRES_POLLING_FAILED : PGRES_POLLING_WRITING;
        while (step != PGRES_POLLING_OK && step != PGRES_POLLING_FAILED) {
            const short events = step == PGRES_POLLING_READING ? POLLIN : POLLOUT;
            if (events == POLLIN && !is_heard && !is_probed_ && probe_at < last &&
                !postgres_wait_for(::PQsocket(pq_), POLLIN, deadline::at_ns(probe_at))) {
                message_ = postgres_probe(::PQsocket(pq_),
                                          deadline::at_ns(std::min(last, probe_at + probe_after)));
                is_probed_ = message_.empty();
                if (!message_.empty()) {
                    return dropped(postgres_error("ZB003"));
                }
            }
            if (!postgres_wait_for(::PQsocket(pq_), events, until)) {
                message_ = "could not connect in time";
                return dropped(std::make_error_code(std::errc::timed_out));
            }
            if (events == POLLIN && !std::exchange(is_heard, true)) {
                message_ = postgres_foreign_text(::PQsocket(pq_));
                if (!message_.empty()) {
                    return dropped(postgres_error("ZB003"));
                }
            }
            step = ::PQconnectPoll(pq_);
        }
        if (step == PGRES_POLLING_FAILED || ::PQsetnonblocking(pq_, 1) != 0) {
            message_ = postgres_error_text_in(::PQerrorMessage(pq_));
            return dropped(postgres_refusal(*pq_));
        }
        return {};
    }

    // Returns true if the connection still works. Reads what the server has sent since the last
    // statement: if the server has ended the connection, it has sent a message or closed the
    // socket.
    bool is_alive() const noexcept {
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

    postgres_reply finish(bool is_sent, deadline until) {
        is_unconfirmed_ = false;
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
                // If a pooler loses its server, it reports an ERROR of class 08; the statement may
                // have taken effect.
                reply.is_certain = severity != nullptr && std::string_view(severity) == "ERROR" &&
                                   !sqlstate(reply.error).starts_with("08");
            }
        }
        if (!reply.error && is_unconfirmed_) {
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

    std::error_code dropped(std::error_code why) {
        drop();
        return why;
    }
    postgres_reply give_up(std::error_code why) { return {nullptr, {}, dropped(why), false, true}; }
    bool flush(deadline until, bool& is_late) const noexcept {
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
    bool await_result(deadline until) const noexcept {
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

    const std::string conninfo_;
    const postgres_target target_;
    std::string message_{};
    std::size_t host_ = 0; // the host to try first
    bool is_probed_ = false;
    std::string forgotten_{};     // UNLISTEN statements
    pid_t pid_ = 0;               // the process that connected
    bool is_unconfirmed_ = false; // committed on the primary, but no standby confirmed it
    PGconn* pq_ = nullptr;
};

// ---- Connecting

// ---- Statements

}}} // namespace bide::BIDE_ABI::detail

#endif
