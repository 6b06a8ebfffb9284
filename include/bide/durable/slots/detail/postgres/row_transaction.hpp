// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_ROW_TRANSACTION_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_ROW_TRANSACTION_HPP

// Locks a row, reads it and changes it in one transaction, in two round trips:
//
//   BEGIN; (settings); SELECT ... FOR UPDATE
//   UPDATE ...; COMMIT
//
// If there is no row, one more round trip inserts one of version 0. Other transactions that insert
// or lock the same row wait for this transaction.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/postgres/connection.hpp>
#include <bide/durable/slots/detail/postgres/sql.hpp>
#include <bide/durable/slots/detail/postgres/wire.hpp>
#include <bide/durable/slots/postgres_errors.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include <libpq-fe.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

class postgres_row_transaction {
public:
    postgres_row_transaction(postgres_connection& link, const postgres_sql& sql,
                             const std::string& key, deadline until)
        : link_(link), sql_(sql), key_(quoted(key)), until_(until) {}
    postgres_row_transaction(const postgres_row_transaction&) = delete;
    postgres_row_transaction& operator=(const postgres_row_transaction&) = delete;
    // Drops the connection if the transaction is still open, so that the row does not stay locked.
    ~postgres_row_transaction() {
        if (link_.is_in_transaction()) {
            link_.drop();
        }
    }

    // Begins the transaction, locks the row and reads it. If it fails, nothing was stored.
    postgres_reply lock() {
        postgres_reply row = link_.run_script(sql_.begin + sql_.locked(key_), until_);
        if (!row.error && row.count() == 0) {
            row = link_.run_script(sql_.insert_and_lock(key_), until_);
            is_new_ = true;
        }
        if (row.error) {
            row.is_certain = true;
            roll_back();
        } else if (row.count() == 1) {
            read(row);
        } else { // the condition on the oid was false: it is another table
            error_ = postgres_error("ZB001");
        }
        return row;
    }

    // The value before the change; version 0 if there was none.
    const slot_snapshot& before() const noexcept { return before_; }
    // What is wrong with that value, if anything is.
    std::error_code error() const noexcept { return error_; }

    // Stores the value and commits.
    cas_result commit(std::string_view value) {
        const postgres_reply done =
            link_.run_script(sql_.commit(key_, next_, quoted_bytes(value)), until_);
        if (done.error) {
            roll_back();
            return {done.is_certain ? cas_status::failed : cas_status::indeterminate,
                    0,
                    {},
                    done.error};
        }
        if (done.count() != 1 || done.command != "COMMIT") {
            return {cas_status::failed, 0, {}, make_error_code(durable_errc::storage_error)};
        }
        return {cas_status::stored, static_cast<slot_version>(next_), {}, {}};
    }

    void roll_back() {
        if (link_.is_in_transaction()) {
            static_cast<void>(link_.run_script("ROLLBACK", until_));
        }
    }

private:
    void read(const postgres_reply& row) {
        const auto text = [&row](int column) { return ::PQgetvalue(row.rows.get(), 0, column); };
        const std::int64_t version = std::strtoll(text(0), nullptr, 10);
        const std::int64_t now_us = std::strtoll(text(2), nullptr, 10);
        before_.server_ms = now_us / 1'000;
        if (version < 0 || (version == 0 && !is_new_)) {
            error_ = durable_errc::corrupt_record;
            return;
        }
        next_ = version == 0 ? now_us : version + 1;
        before_.version = static_cast<slot_version>(version);
        if (version != 0) {
            std::size_t size = 0;
            const std::unique_ptr<unsigned char, postgres_free> bytes(
                ::PQunescapeBytea(reinterpret_cast<const unsigned char*>(text(1)), &size));
            if (!bytes) {
                error_ = std::make_error_code(std::errc::not_enough_memory);
                return;
            }
            before_.value.assign(reinterpret_cast<const char*>(bytes.get()), size);
        }
    }

    // Returns the text as an SQL literal. If memory runs out or the bytes are not text, returns an
    // empty string, which the server rejects as a syntax error.
    std::string quoted(std::string_view text) const {
        const std::unique_ptr<char, postgres_free> literal(
            ::PQescapeLiteral(link_.native(), text.data(), text.size()));
        return literal ? literal.get() : "";
    }
    std::string quoted_bytes(std::string_view bytes) const {
        const auto* const data =
            reinterpret_cast<const unsigned char*>(bytes.empty() ? "" : bytes.data());
        std::size_t size = 0;
        const std::unique_ptr<unsigned char, postgres_free> literal(
            ::PQescapeByteaConn(link_.native(), data, bytes.size(), &size));
        if (!literal) {
            return {};
        }
        return "'" + std::string(reinterpret_cast<const char*>(literal.get()), size - 1) +
               "'::bytea";
    }

    postgres_connection& link_;
    const postgres_sql& sql_;
    const std::string key_;
    const deadline until_;
    bool is_new_ = false;
    std::int64_t next_ = 0;
    slot_snapshot before_{};
    std::error_code error_{};
};

}}} // namespace bide::BIDE_ABI::detail

#endif
