// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_WIRE_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_WIRE_HPP

// Parameters for PostgreSQL, and its replies.

#include <bide/core/config.hpp>
#include <bide/durable/slots/detail/postgres/errors.hpp>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include <libpq-fe.h>
#include <poll.h>

namespace bide::inline BIDE_ABI {
namespace detail {

using postgres_deadline = std::chrono::steady_clock::time_point;

// Waits for the events. Returns false if the deadline passes first.
inline bool postgres_wait_for(int fd, short events, postgres_deadline until) noexcept {
    for (;;) {
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
        if (left.count() < 0) {
            return false;
        }
        pollfd one{fd, events, 0};
        const auto most = std::chrono::milliseconds(1'000'000);
        const int ready = ::poll(&one, 1, static_cast<int>((left < most ? left : most).count()));
        if (ready > 0 || (ready < 0 && errno != EINTR)) {
            return true; // libpq reports the error
        }
        if (ready == 0 && left < most) {
            return false;
        }
    }
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
    explicit postgres_int8(std::int64_t value) noexcept {
        auto rest = static_cast<std::uint64_t>(value);
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

    // A column of the first row, in binary.
    std::string_view bytes(int column) const noexcept {
        return {::PQgetvalue(rows.get(), 0, column),
                static_cast<std::size_t>(::PQgetlength(rows.get(), 0, column))};
    }
    std::int64_t int8(int column) const noexcept { // 0 if it has another type
        const std::string_view found = bytes(column);
        return found.size() == 8 ? postgres_int8::read(found.data()) : 0;
    }
};

// Returns the result's SQLSTATE. If it has none, the connection was lost: 08006.
inline std::error_code postgres_error_of(const PGresult* result) {
    const char* const state = ::PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const int code = state == nullptr ? 0 : postgres_category_type::packed(state);
    return code == 0 ? postgres_error("08006") : std::error_code(code, postgres_category());
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
