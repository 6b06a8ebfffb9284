// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_REFUSAL_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_REFUSAL_HPP

// The reason why a connection to PostgreSQL failed, as a code and as a text. libpq reports both
// only in one text. The parts of this text that libpq writes may be in any language. libpq does not
// translate codes and the server's part.

#include <bide/core/config.hpp>
#include <bide/durable/slots/detail/postgres/error_text.hpp>
#include <bide/durable/slots/detail/postgres/errors.hpp>
#include <bide/durable/slots/detail/postgres/wire.hpp>

#include <cerrno>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <libpq-fe.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

namespace bide::inline BIDE_ABI {
namespace detail {

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

// Returns the code of a failed connection. A pooler reports every refusal with one code, 08P01.
inline std::error_code postgres_error_in(std::string_view text) {
    const std::size_t at = postgres_state_in(text);
    if (at == text.npos) {
        if (text.find("no password supplied") != text.npos) { // libpq's text, without a code
            return postgres_error("28P01");
        }
        return postgres_error("08001");
    }
    const std::string_view state = text.substr(at, 5);
    if (state == "08P01") {
        const auto says = [text](std::string_view part) { return text.find(part) != text.npos; };
        if (says("no such database")) {
            return postgres_error("3D000");
        }
        if (says("no such user") || says("authentication failed")) {
            return postgres_error("28P01");
        }
    }
    return postgres_error(state);
}

// Returns libpq's text about a failed connection as one line, in which each reason stands once.
// libpq writes one or more lines for each try. The result has no hosts, codes or positions in the
// server's source.
inline std::string postgres_error_text_in(std::string_view text) {
    std::string error_text;
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        std::string_view line = text.substr(0, end);
        text.remove_prefix(end == text.npos ? text.size() : end + 1);
        constexpr std::string_view failed = " failed: ";
        if (const std::size_t at = line.find(failed);
            line.starts_with("connection to server ") && at != line.npos) {
            line.remove_prefix(at + failed.size());
        }
        if (line.starts_with("LOCATION:")) {
            continue;
        }
        std::string one(line);
        if (const std::size_t at = postgres_state_in(line); at != line.npos) {
            one.erase(at, 6);
        }
        one = postgres_one_line(one);
        if (!one.empty() && error_text.find(one) == error_text.npos) {
            error_text += (error_text.empty() ? "" : "; ") + one;
        }
    }
    return error_text;
}

// If the server speaks another protocol, returns a text that quotes its first line; otherwise
// nothing. If the client asks for encryption, a PostgreSQL server begins with S, N or G; otherwise
// with R (login), E (error) or v (version). A TLS record may also come first. Leaves the bytes
// unread.
inline std::string postgres_foreign_text(int socket) {
    char first[80];
    const ssize_t n = ::recv(socket, first, sizeof first, MSG_PEEK | MSG_DONTWAIT);
    constexpr std::string_view known = "SNGREv\x15\x16";
    if (n <= 0 || known.find(first[0]) != known.npos) {
        return {};
    }
    const std::string_view said(first, static_cast<std::size_t>(n));
    return "not a PostgreSQL server: it says \"" +
           postgres_one_line(said.substr(0, said.find('\n'))) + "\"";
}

// Tests a server that answers only after a whole line, such as Redis, with the same result. Sends a
// line on another connection. A PostgreSQL server closes that connection without an answer.
// Blocks: until the deadline.
inline std::string postgres_probe(int like, postgres_deadline until) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    auto* const address = reinterpret_cast<sockaddr*>(&peer);
    if (::getpeername(like, address, &size) != 0 || peer.ss_family == AF_UNIX) {
        return {};
    }
    const int fd = ::socket(peer.ss_family, SOCK_STREAM, 0);
    if (fd < 0) {
        return {};
    }
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
    constexpr std::string_view line = "PING\r\n\r\n";
    std::string error_text;
    if ((::connect(fd, address, size) == 0 || errno == EINPROGRESS) &&
        postgres_wait_for(fd, POLLOUT, until) &&
        ::send(fd, line.data(), line.size(), MSG_NOSIGNAL) > 0 &&
        postgres_wait_for(fd, POLLIN, until)) {
        error_text = postgres_foreign_text(fd);
    }
    ::close(fd);
    return error_text;
}

// Whether a look-up failed because there is no such host, and not because no answer came.
inline bool postgres_is_unknown(int answer) noexcept {
#if defined(EAI_NODATA)
    if (answer == EAI_NODATA) {
        return true;
    }
#endif
    return answer == EAI_NONAME;
}

// Returns the code of a failed connection.
// Blocks: while it looks up the host's name once more, to learn whether the error is permanent.
inline std::error_code postgres_refusal(const PGconn& failed) {
    const std::string_view host = ::PQhost(&failed) == nullptr ? "" : ::PQhost(&failed);
    const char* const address = ::PQhostaddr(&failed);
    const bool is_name = !host.empty() && host[0] != '/' && host[0] != '@';
    if (is_name && (address == nullptr || *address == '\0')) {
        addrinfo hints{};
        hints.ai_socktype = SOCK_STREAM;
        addrinfo* found = nullptr;
        const int answer = ::getaddrinfo(std::string(host).c_str(), nullptr, &hints, &found);
        if (answer == 0) {
            ::freeaddrinfo(found);
        } else if (postgres_is_unknown(answer)) {
            return postgres_error("ZB004");
        }
    }
    return postgres_error_in(::PQerrorMessage(&failed));
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
