// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_POSTGRES_HPP
#define BIDE_DURABLE_SLOTS_POSTGRES_HPP

/// \file
/// A slot that is one row of a table of PostgreSQL 9.5 or later, for locks of several machines.
/// Requires libpq, with <libpq-fe.h> in the include path and -lpq at the link. A connection string
/// with several hosts requires libpq 12 or later.
///
/// Table: public.bide_lock (key text primary key, version bigint not null, value bytea not null),
/// or postgres_slot_options::table. If it is dropped and created again, all slots of the process
/// refuse the new one until all of them are destroyed.
///
/// A load is one SELECT, and a compare-and-swap one UPDATE ... WHERE version = .... Each is a
/// transaction of its own. A connection prepares the statements that it uses again, and does
/// without if a pooler gives it a session that does not know them. So the slot works behind a
/// pooler that pools transactions. The first version of a row is the server's time in microseconds,
/// and each change adds one. So a row that is deleted and created again gets other versions, unless
/// the server's clock was set back.
///
/// An acknowledged value is on the server's disk, and on its synchronous standbys if it has any,
/// for every setting of `synchronous_commit`. A lock may have two holders on a server with fsync =
/// off, and after a failover to a standby that was not synchronous. The slot refuses the answers of
/// a standby. If the connection string names several hosts, add target_session_attrs=read-write. A
/// host whose machine does not answer gets an equal share of the time. A host that accepts the
/// connection and sends nothing takes all of it.
///
/// Every operation ends within `retry_time`, except for what libpq does not bound: looking up names
/// of hosts and services, Kerberos, LDAP. If another transaction has locked the row, an operation
/// gives up after half of `retry_time`, and a renewal after 100 ms; the result is `failed`, and
/// nothing was stored. If another transaction has locked the whole table, an operation waits for up
/// to `retry_time`. If a connection fails or does not answer after the statement was sent, the
/// result is `indeterminate`.
///
/// Errors: SQLSTATE in postgres_category(); explain() has the server's text. std::errc::timed_out:
/// no answer in time. 08001: no connection, and no text of the server. 08006: the connection was
/// lost. 01000: committed, but a synchronous standby did not confirm it. Codes of the slot: ZB001
/// another table than before, ZB003 not a PostgreSQL server (which is not noticed if the server
/// sends nothing), ZB004 no such host. If the program's locale translates libpq's texts, ZB003,
/// ZB004 and an invalid option of the connection string are reported as 08001. Errors that last
/// until an operator acts compare equal to std::errc::permission_denied, no_such_file_or_directory,
/// invalid_argument, operation_not_permitted or protocol_error. All other errors may pass.

#include <bide/durable/slot.hpp>

#include <chrono>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

inline constexpr std::string_view sqlstate_digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

// The conditions that SQLSTATEs equal.
struct sqlstate_condition {
    std::errc like;
    std::string_view states;
};
inline constexpr sqlstate_condition sqlstate_conditions[] = {
    {std::errc::permission_denied, "28000 28P01 42501"},
    {std::errc::no_such_file_or_directory, "3D000 3F000 42P01 ZB004"},
    {std::errc::invalid_argument, "42703"},
    {std::errc::operation_not_permitted, "ZB001"},
    {std::errc::protocol_error, "ZB003"},
    {std::errc::not_connected, "08001"},
    {std::errc::connection_reset, "08006 57P01 57P02"},
    // 25006: the server only reads. That passes when a standby takes over.
    {std::errc::resource_unavailable_try_again, "25006 40001 53300 57P03"},
    {std::errc::resource_deadlock_would_occur, "40P01"},
    {std::errc::timed_out, "55P03"},
    {std::errc::operation_canceled, "57014"},
    {std::errc::no_space_on_device, "53100"},
    {std::errc::not_enough_memory, "53200"},
};

} // namespace detail

/// Returns the SQLSTATE of a code of postgres_category().
inline std::string sqlstate(const std::error_code& code) {
    std::string state(5, '0');
    int rest = code.value();
    for (std::size_t i = 5; i-- > 0; rest /= 36) {
        state[i] = detail::sqlstate_digits[static_cast<std::size_t>(rest > 0 ? rest % 36 : 0)];
    }
    return state;
}

namespace detail {

class postgres_category_type final : public std::error_category {
public:
    const char* name() const noexcept override { return "postgresql"; }
    std::string message(int code) const override {
        const std::error_condition like = default_error_condition(code);
        const std::string text = "SQLSTATE " + bide::sqlstate({code, *this});
        return like.category() == *this ? text : like.message() + " (" + text + ")";
    }
    std::error_condition default_error_condition(int code) const noexcept override {
        const std::string state = bide::sqlstate({code, *this});
        for (const sqlstate_condition& each : sqlstate_conditions) {
            if (each.states.find(state) != each.states.npos) {
                return std::make_error_condition(each.like);
            }
        }
        return {code, *this};
    }
};

} // namespace detail

/// Returns the category of PostgreSQL's errors. Conditions such as std::errc::permission_denied,
/// timed_out or no_space_on_device compare equal to the codes that mean the same.
BIDE_SHARED inline const std::error_category& postgres_category() noexcept {
    static constinit bide::detail::never_destroyed<detail::postgres_category_type> category;
    return category.object;
}

/// Returns the error code of a SQLSTATE such as "42P01": five characters, each a digit or a capital
/// letter. Returns 0 for any other text.
inline std::error_code postgres_error(std::string_view state) noexcept {
    const bool is_one =
        state.size() == 5 && state.find_first_not_of(detail::sqlstate_digits) == state.npos;
    int code = 0;
    for (const char c : is_one ? state : std::string_view()) {
        code = code * 36 + static_cast<int>(detail::sqlstate_digits.find(c));
    }
    return {code, postgres_category()};
}

/// Options of a postgres_slot.
struct postgres_slot_options {
    /// The table: `name`, which is in the schema `public`, or `schema.name`. Names have letters,
    /// digits and underscores, and are case-sensitive. search_path is not used. Requires: all users
    /// of a lock name the same table, because each table is another lock. If the table is missing,
    /// the slot creates it. This needs CREATE on the schema: from PostgreSQL 15 on, not every role
    /// has that on `public`. An existing table needs only SELECT, INSERT and UPDATE.
    std::string table = "bide_lock";

    /// The longest time of one operation, including connecting.
    std::chrono::milliseconds retry_time{10'000};

    /// The largest value that is stored, in bytes; at most 256 MiB.
    std::size_t max_value = std::size_t(64) << 20;
};

/// A slot that is one row of a PostgreSQL table.
/// Blocks: each operation for one round trip, for connecting, looking for the table and preparing a
/// statement if needed, and for earlier calls of other slots of this process if all connections are in use.
/// Throws: std::bad_alloc.
class postgres_slot final : public detail::slot_handle {
public:
    /// The server's clock times the leases.
    static constexpr slot_guarantees guarantees{
        .keeps_acknowledged = true, .multi_host = true, .clock = lock_clock::server};

    /// Names the row; connects with the first operation. `conninfo` is libpq's: key words or a URI.
    /// `key` has 1 to 1,024 bytes of UTF-8, none of them zero. If an argument is wrong, every
    /// operation returns durable_errc::invalid_argument.
    postgres_slot(std::string conninfo, std::string key, postgres_slot_options options = {});
};

}} // namespace bide::BIDE_ABI

#if defined(BIDE_DURABLE_HEADER_ONLY)
#include <bide/durable/slots/impl/postgres.hpp>
#endif

#endif
