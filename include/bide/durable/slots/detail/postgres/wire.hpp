// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_WIRE_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_WIRE_HPP

// Parameters for PostgreSQL and its replies; its error texts, and the reason why a connection
// failed.
//
// libpq reports the code and the text of such a reason only in one text. The parts of this text
// that libpq writes may be in any language. libpq does not translate codes and the server's part.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slots/detail/server/store_socket.hpp>
#include <bide/durable/slots/detail/server/text.hpp>
#include <bide/durable/slots/postgres_errors.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include <libpq-fe.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

inline constexpr std::size_t longest_text = 10'000; // of PostgreSQL's error texts

// Waits for the events. Returns false if the deadline passes first. libpq reports other errors.
inline bool postgres_wait_for(int fd, short events, deadline end) noexcept {
    return wait_for(fd, events, end) != std::errc::timed_out;
}

struct postgres_free {
    void operator()(PGresult* result) const noexcept { ::PQclear(result); }
    void operator()(unsigned char* bytes) const noexcept { ::PQfreemem(bytes); }
    void operator()(char* text) const noexcept { ::PQfreemem(text); }
    void operator()(PQconninfoOption* options) const noexcept { ::PQconninfoFree(options); }
};
using postgres_result = std::unique_ptr<PGresult, postgres_free>;

// A 64-bit integer in network byte order.
class postgres_int8 {
public:
    explicit postgres_int8(std::int64_t number) noexcept {
        auto rest = static_cast<std::uint64_t>(number);
        for (std::size_t i = 8; i-- > 0; rest >>= 8) {
            bytes_[i] = static_cast<char>(static_cast<unsigned char>(rest & 0xff));
        }
    }
    std::string_view bytes() const noexcept { return {bytes_.data(), bytes_.size()}; }

    static std::int64_t read(const char* from) noexcept {
        std::uint64_t value = 0;
        for (std::size_t i = 0; i < 8; ++i) {
            value = value << 8 | static_cast<unsigned char>(from[i]);
        }
        return static_cast<std::int64_t>(value);
    }

private:
    std::array<char, 8> bytes_;
};

// A parameter of a statement, in binary.
struct postgres_parameter {
    enum kind : Oid { bytes = 17, int8 = 20, text = 25 };
    kind type;
    std::string_view value;
};

// The parameters in the form that libpq takes.
struct postgres_arguments {
    static constexpr std::size_t most = 4;

    explicit postgres_arguments(std::initializer_list<postgres_parameter> parameters) noexcept {
        for (const postgres_parameter& each : parameters) {
            const auto i = static_cast<std::size_t>(count++);
            types[i] = each.type;
            values[i] = each.value.data() == nullptr ? "" : each.value.data();
            lengths[i] = static_cast<int>(each.value.size());
            formats[i] = 1;
        }
    }

    int count = 0;
    std::array<Oid, most> types{};
    std::array<const char*, most> values{};
    std::array<int, most> lengths{};
    std::array<int, most> formats{};
};

struct postgres_reply {
    postgres_result rows{};  // without an error: the rows of the last statement that returned any
    std::string command{};   // the command tag of the last statement, such as "COMMIT"
    std::error_code error{}; // without an error, the statement took effect
    bool is_certain = true;  // with an error: the statement took no effect
    bool is_lost = false;    // with an error: the connection is lost

    bool is(std::string_view state) const noexcept { return error == postgres_error(state); }
    int count() const noexcept { return ::PQntuples(rows.get()); }

    // A column of a row, in binary.
    std::string_view bytes(int column, int row = 0) const noexcept {
        return {::PQgetvalue(rows.get(), row, column),
                static_cast<std::size_t>(::PQgetlength(rows.get(), row, column))};
    }
    std::int64_t int8(int column, int row = 0) const noexcept { // 0 if it has another type
        const std::string_view found = bytes(column, row);
        return found.size() == 8 ? postgres_int8::read(found.data()) : 0;
    }
};

// Returns the result's SQLSTATE. If it has none, the connection was lost: 08006.
inline std::error_code postgres_error_of(const PGresult* result) {
    const char* const state = ::PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const int code = state == nullptr ? 0 : postgres_category_type::packed(state);
    return code == 0 ? postgres_error("08006") : std::error_code(code, postgres_category());
}

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
        one = one_line(one, longest_text);
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
    return "not a PostgreSQL server: it says \"" + one_line(said.substr(0, said.find('\n'))) + "\"";
}

// Tests a server that answers only after a whole line, such as Redis, with the same result. Sends a
// line on another connection. A PostgreSQL server closes that connection without an answer.
// Blocks: until the deadline.
inline std::string postgres_probe(int like, deadline end) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    auto* const address = reinterpret_cast<sockaddr*>(&peer);
    if (::getpeername(like, address, &size) != 0 || peer.ss_family == AF_UNIX) {
        return {};
    }
    store_socket other;
    const bool is_answered = !other.connect(address, size, end) &&
                             !other.send("PING\r\n\r\n", end) && !wait_for(other.fd(), POLLIN, end);
    return is_answered ? postgres_foreign_text(other.fd()) : std::string();
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

}}} // namespace bide::BIDE_ABI::detail

#endif
