// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_IMPL_SQLITE_HPP
#define BIDE_DURABLE_SLOTS_IMPL_SQLITE_HPP

// The definitions of slots/sqlite.hpp and slots/sqlite_types.hpp.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/file/posix_file.hpp>
#include <bide/durable/slots/detail/file/presence_file.hpp>
#include <bide/durable/slots/detail/sqlite/caller_transaction.hpp>
#include <bide/durable/slots/detail/sqlite/connection.hpp>
#include <bide/durable/slots/detail/sqlite/error.hpp>
#include <bide/durable/slots/detail/sqlite/path.hpp>
#include <bide/durable/slots/detail/sqlite/process.hpp>
#include <bide/durable/slots/detail/sqlite/statement.hpp>
#include <bide/durable/slots/detail/sqlite/version_file.hpp>
#include <bide/durable/slots/sqlite.hpp>
#include <bide/durable/slots/sqlite_types.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <sqlite3.h>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

class sqlite_category_type final : public std::error_category {
public:
    const char* name() const noexcept override { return "sqlite"; }

    std::string message(int code) const override {
        switch (static_cast<sqlite_slot_errc>(code)) {
        case sqlite_slot_errc::unsafe_wal: return "WAL mode is not safe with this SQLite";
        case sqlite_slot_errc::other_mode: return "the database does not accept the journal mode";
        case sqlite_slot_errc::forked: return "the process was forked during an operation";
        case sqlite_slot_errc::other_table: return "the table is not a table of locks";
        }
        const int of_sqlite = code & 0xffff;
        std::string text = ::sqlite3_errstr(of_sqlite);
        if (sqlite_primary(of_sqlite) != of_sqlite) {
            text += " (" + std::to_string(of_sqlite) + ")";
        }
        if (const int of_system = sqlite_system_error(code)) {
            text += ": " + std::generic_category().message(of_system);
        }
        return text;
    }

    // A permanent error maps to a permanent errc.
    std::error_condition default_error_condition(int code) const noexcept override {
        if (const int of_system = sqlite_system_error(code)) {
            return {of_system, std::generic_category()};
        }
        switch (code < 0 ? code : sqlite_primary(code)) {
        case sqlite_code(sqlite_slot_errc::unsafe_wal):
        case sqlite_code(sqlite_slot_errc::other_mode): return std::errc::operation_not_supported;
        case sqlite_code(sqlite_slot_errc::forked):
        case SQLITE_CONSTRAINT: return std::errc::operation_not_permitted;
        case sqlite_code(sqlite_slot_errc::other_table): return std::errc::invalid_argument;
        case SQLITE_BUSY:
        case SQLITE_LOCKED: return std::errc::timed_out;
        case SQLITE_FULL: return std::errc::no_space_on_device;
        case SQLITE_NOMEM: return std::errc::not_enough_memory;
        case SQLITE_IOERR: return std::errc::io_error;
        case SQLITE_PERM:
        case SQLITE_AUTH:
        case SQLITE_READONLY: return std::errc::permission_denied;
        case SQLITE_NOTADB:
        case SQLITE_FORMAT:
        case SQLITE_CORRUPT: return std::errc::protocol_error;
        case SQLITE_MISUSE: return std::errc::function_not_supported;
        default: return {code, *this};
        }
    }
};

// The one category of the process. It is always inline: a file of the program that defines
// BIDE_DURABLE_HEADER_ONLY has it in common with a file that does not.
BIDE_SHARED inline const std::error_category& only_sqlite_category() noexcept {
    static constinit bide::detail::never_destroyed<sqlite_category_type> category;
    return category.object;
}

} // namespace detail

BIDE_DURABLE_INLINE const std::error_category& sqlite_category() noexcept {
    return detail::only_sqlite_category();
}

struct sqlite_slot_operations::state {
    state(const std::string& at, std::string key, sqlite_slot_options options, bool is_synced)
        : path(at), link({at, std::move(key), std::move(options), is_synced}) {}

    // Fails if the value is too large.
    std::error_code check(std::string_view value) {
        return value.size() <= link.of().options.max_value
                   ? std::error_code()
                   : link.failed(durable_errc::too_large, "the value is longer than max_value");
    }

    const std::string path; // absolute; any thread may read it
    detail::sqlite_connection link;
};

// One operation on the slot's connection. The destructor rolls back what was not committed.
class sqlite_slot_operations::operation {
public:
    explicit operation(state& on) noexcept : on_(on) {}
    operation(const operation&) = delete;
    operation& operator=(const operation&) = delete;
    ~operation() {
        if (is_in_) {
            if (detail::sqlite_process::here().is_still_here()) {
                on_.link.roll_back();
                on_.link.end();
            }
            detail::sqlite_process::here().leave();
        }
    }

    std::error_code begin() {
        is_in_ = is_in_ || detail::sqlite_process::here().enter();
        if (!is_in_) {
            return forked();
        }
        return on_.link.begin();
    }

    // Begins, locks the database and reads the row. No other connection writes or commits until
    // the end of the operation.
    std::error_code begin_locked(detail::sqlite_row& row) {
        if (const std::error_code error = begin()) {
            return error;
        }
        const int code = on_.link.execute("BEGIN IMMEDIATE");
        return code == SQLITE_OK ? on_.link.read(row) : on_.link.failed(code);
    }

    std::error_code forked() {
        const std::error_code error = sqlite_slot_errc::forked;
        return on_.link.failed(error, error.message());
    }

private:
    state& on_;
    bool is_in_ = false;
};

BIDE_DURABLE_INLINE sqlite_slot_operations::sqlite_slot_operations(std::string path,
                                                                   std::string key,
                                                                   sqlite_slot_options options,
                                                                   bool is_synced) {
    if (path.empty() || path.find('\0') != path.npos || !detail::is_sqlite_name(options.table) ||
        !detail::is_sqlite_text(key)) {
        BIDE_THROW(std::system_error(make_error_code(durable_errc::invalid_argument),
                                     "bide::sqlite_slot"));
    }
    state_ = std::make_unique<state>(detail::absolute_path(std::move(path)), std::move(key),
                                     std::move(options), is_synced);
}
BIDE_DURABLE_INLINE
sqlite_slot_operations::sqlite_slot_operations(sqlite_slot_operations&&) noexcept = default;
BIDE_DURABLE_INLINE sqlite_slot_operations&
sqlite_slot_operations::operator=(sqlite_slot_operations&&) noexcept = default;
BIDE_DURABLE_INLINE sqlite_slot_operations::~sqlite_slot_operations() = default;

BIDE_DURABLE_INLINE std::string sqlite_slot_operations::explain() const {
    return state_->link.explain();
}

BIDE_DURABLE_INLINE result<slot_snapshot, std::error_code> sqlite_slot_operations::load() {
    operation now(*state_);
    detail::sqlite_row row;
    std::error_code error = now.begin();
    if (error || (error = state_->link.read(row))) {
        return unexpected{error};
    }
    return std::move(row.there);
}

BIDE_DURABLE_INLINE cas_result sqlite_slot_operations::compare_exchange(slot_version version,
                                                                        std::string_view value) {
    if (const std::error_code error = state_->check(value)) {
        return detail::sqlite_failed(error);
    }
    operation now(*state_);
    for (bool is_first = true;; is_first = false) {
        if (const std::error_code error = now.begin()) {
            return detail::sqlite_failed(error);
        }
        cas_result r = state_->link.write(version, value);
        // If the file was deleted after begin(), tries once more.
        if (!is_first || state_->link.last_code() != SQLITE_READONLY_DBMOVED) {
            if (r.status == cas_status::stored) {
                state_->link.detector().acknowledge(r.version, value);
            }
            return r;
        }
    }
}

BIDE_DURABLE_INLINE cas_result sqlite_slot_operations::update_locked(const slot_update& update) {
    operation now(*state_);
    detail::sqlite_row row;
    if (const std::error_code error = now.begin_locked(row)) {
        return detail::sqlite_failed(error);
    }
    const std::optional<std::string> value = update(row.there);
    if (!detail::sqlite_process::here().is_still_here()) {
        return detail::sqlite_failed(now.forked());
    }
    if (!value) {
        return {cas_status::stored, row.there.version, {}, {}};
    }
    if (const std::error_code error = state_->check(*value)) {
        return detail::sqlite_failed(error);
    }
    state_->link.renew_retry_time();
    return state_->link.commit(state_->link.write(row.there.version, *value), *value);
}

BIDE_DURABLE_INLINE cas_result sqlite_slot_operations::replace_damaged(std::string_view value) {
    if (const std::error_code error = state_->check(value)) {
        return detail::sqlite_failed(error);
    }
    operation now(*state_);
    detail::sqlite_row row;
    const std::error_code error = now.begin_locked(row);
    if (!error) {
        return {cas_status::conflict, 0, std::move(row.there), {}};
    }
    if (error != durable_errc::corrupt_record) {
        return detail::sqlite_failed(error);
    }
    state_->link.renew_retry_time();
    return state_->link.commit(state_->link.repair(row, value), value);
}

BIDE_DURABLE_INLINE result<slot_snapshot, std::error_code>
sqlite_slot_operations::load_in(transaction& in) {
    return detail::sqlite_caller_transaction(state_->link, in).load_snapshot();
}

BIDE_DURABLE_INLINE cas_result sqlite_slot_operations::compare_exchange_in(transaction& in,
                                                                           slot_version version,
                                                                           std::string_view value) {
    if (const std::error_code error = state_->check(value)) {
        return detail::sqlite_failed(error);
    }
    return detail::sqlite_caller_transaction(state_->link, in).exchange(version, value);
}

// The marks use neither SQLite nor data of an operation. So any thread may call at any time.
#if defined(__linux__)
BIDE_DURABLE_INLINE result<std::shared_ptr<slot_presence>, std::error_code>
sqlite_slot_operations::be_present() {
    const std::string path = detail::sqlite_resolved(state_->path);
    detail::sqlite_version_file("", "").open(path); // makes it with the database's owner and mode
    constexpr unsigned mode = 0644;                 // the mode that SQLite gives to a database
    auto taken =
        detail::presence_file(detail::sqlite_version_file::path_beside(path), mode).be_present();
    if (!taken && (taken.error() == std::errc::permission_denied ||
                   taken.error() == std::errc::read_only_file_system ||
                   taken.error() == std::errc::operation_not_permitted)) {
        return unexpected{std::make_error_code(std::errc::operation_not_supported)};
    }
    return taken;
}

BIDE_DURABLE_INLINE presence sqlite_slot_operations::is_present(std::int64_t mark) const {
    const std::string path = detail::sqlite_resolved(state_->path);
    return detail::presence_file(detail::sqlite_version_file::path_beside(path), 0)
        .is_present(mark);
}
#endif

}} // namespace bide::BIDE_ABI

#endif
