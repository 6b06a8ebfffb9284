// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_IMPL_POSTGRES_HPP
#define BIDE_DURABLE_SLOTS_IMPL_POSTGRES_HPP

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/postgres/access.hpp>
#include <bide/durable/slots/detail/postgres/connection.hpp>
#include <bide/durable/slots/detail/postgres/hosts.hpp>
#include <bide/durable/slots/detail/postgres/row_transaction.hpp>
#include <bide/durable/slots/detail/postgres/sql.hpp>
#include <bide/durable/slots/detail/postgres/wire.hpp>
#include <bide/durable/slots/detail/server/subscription.hpp>
#include <bide/durable/slots/postgres.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <libpq-fe.h>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

struct postgres_core {
    using link = postgres_connection;
    using sql = std::optional<postgres_sql>;
    using parameter = postgres_parameter;
    using parameters = std::initializer_list<parameter>;
    using reply = postgres_reply;

    postgres_slot_options options;
    std::string key;
    postgres_access access;
    std::error_code invalid{};

    postgres_core(std::string conninfo, std::string of, postgres_slot_options chosen,
                  link::key::purpose what_for)
        : options(std::move(chosen)), key(std::move(of)),
          access({std::move(conninfo), what_for, postgres_name_of(options.table, options.schema),
                  options.create_table,
                  std::clamp(options.retry_time, std::chrono::milliseconds(1),
                             std::chrono::milliseconds(std::chrono::hours(24))),
                  options.notify ? key : std::string()}) {
        options.max_value = std::min(options.max_value, std::size_t(256) << 20);
        const bool has_table = !access.of().name.table.empty();
        if (!has_table || key.empty() || key.size() > 1'024 || key.find('\0') != key.npos) {
            invalid = durable_errc::invalid_argument;
            access.note(has_table ? "a key has 1 to 1,024 bytes, none of them zero"
                                  : "a table is name or schema.name, of letters, digits and _");
        }
    }

    std::error_code check(std::string_view value) const noexcept {
        return invalid                            ? invalid
               : value.size() > options.max_value ? make_error_code(durable_errc::too_large)
                                                  : std::error_code();
    }

    // Asks once more if the connection was lost: the server may have closed it while it was idle.
    template <class Once> reply ask_twice(bool on_table, Once once) {
        const deadline end = access.until();
        const auto run = [&] {
            const auto with_end = [&](link& to, const sql& with) { return once(to, with, end); };
            return on_table ? access.run(end, with_end) : access.ask(end, with_end);
        };
        reply answer = run();
        if (answer.is_lost && !answer.is_certain && answer.error != std::errc::timed_out) {
            answer = run();
        }
        return answer;
    }

    static result<slot_snapshot, std::error_code> snapshot_of(const reply& row) {
        if (row.error) {
            return unexpected{row.error};
        }
        slot_snapshot found;
        found.server_ms = row.int8(2) / 1'000;
        if (::PQgetisnull(row.rows.get(), 0, 0) == 0) {
            const std::int64_t version = row.int8(0);
            if (version <= 0) {
                return unexpected{make_error_code(durable_errc::corrupt_record)};
            }
            found.version = static_cast<slot_version>(version);
            found.value = row.bytes(1);
        }
        return found;
    }

    // Runs one of the two statements: run(insert, update, parameters).
    template <class Run>
    cas_result exchange(slot_version version, std::string_view value, Run run) {
        if (const std::error_code error = check(value)) {
            return {.status = cas_status::failed, .error = error};
        }
        if (version > std::numeric_limits<std::int64_t>::max()) {
            return {.status = cas_status::conflict};
        }
        const postgres_int8 number(static_cast<std::int64_t>(version));
        const parameter name{parameter::text, key};
        const parameter bytes{parameter::bytes, value};
        const reply answer = version == 0
                                 ? run(true, {name, bytes})
                                 : run(false, {name, {parameter::int8, number.bytes()}, bytes});
        if (answer.error) {
            return {.status = answer.is_certain ? cas_status::failed : cas_status::indeterminate,
                    .error = answer.error};
        }
        if (answer.count() == 0) {
            return {.status = cas_status::conflict};
        }
        return {.status = cas_status::stored, .version = static_cast<slot_version>(answer.int8(0))};
    }
};

} // namespace detail

BIDE_DURABLE_INLINE
postgres_slot::postgres_slot(std::shared_ptr<detail::postgres_core> core) noexcept
    : core_(std::move(core)) {}

BIDE_DURABLE_INLINE postgres_slot::postgres_slot(std::string conninfo, std::string key,
                                                 postgres_slot_options options)
    : core_(std::make_shared<detail::postgres_core>(std::move(conninfo), std::move(key),
                                                    std::move(options),
                                                    detail::postgres_connection::key::calls)) {}

BIDE_DURABLE_INLINE std::unique_ptr<slot> postgres_slot::for_renewals() const {
    return std::make_unique<postgres_slot>(postgres_slot(std::make_shared<detail::postgres_core>(
        core_->access.of().conninfo, core_->key, core_->options,
        detail::postgres_connection::key::renewals)));
}

BIDE_DURABLE_INLINE std::string postgres_slot::store() const { return core_->access.store_name(); }
BIDE_DURABLE_INLINE std::string postgres_slot::explain() const { return core_->access.explain(); }
BIDE_DURABLE_INLINE const std::string& postgres_slot::last_message() const noexcept {
    return core_->access.error_text();
}

BIDE_DURABLE_INLINE std::error_code postgres_slot::create_table() {
    return core_->invalid ? core_->invalid : core_->access.make(core_->access.until()).error;
}

BIDE_DURABLE_INLINE result<slot_snapshot, std::error_code> postgres_slot::load() {
    using core = detail::postgres_core;
    if (core_->invalid) {
        return unexpected{core_->invalid};
    }
    return core::snapshot_of(core_->ask_twice(true, [&](core::link& to, const core::sql& with,
                                                        deadline end) {
        return core_->access.fresh(to.run(with->load, {{core::parameter::text, core_->key}}, end));
    }));
}

BIDE_DURABLE_INLINE cas_result postgres_slot::compare_exchange(slot_version version,
                                                               std::string_view value) {
    using core = detail::postgres_core;
    const deadline end = core_->access.until();
    return core_->exchange(version, value, [&](bool is_first, core::parameters with) {
        return core_->access.run(end, [&](core::link& to, const core::sql& of) {
            return to.run(is_first ? of->insert : of->update, with, end);
        });
    });
}

BIDE_DURABLE_INLINE cas_result postgres_slot::update_locked(const slot_update& update) {
    using core = detail::postgres_core;
    const auto failed = [](std::error_code error) {
        return cas_result{.status = cas_status::failed, .error = error};
    };
    if (core_->invalid) {
        return failed(core_->invalid);
    }
    const deadline end = core_->access.until();
    cas_result outcome;
    const core::reply last = core_->access.run(end, [&](core::link& to, const core::sql& of) {
        detail::postgres_row_transaction row(to, *of, core_->key, end);
        core::reply answer = row.lock();
        if (answer.error || row.error()) {
            answer.error = answer.error ? answer.error : row.error();
            return answer;
        }
        const std::optional<std::string> value = update(row.before());
        if (!value || value->size() > core_->options.max_value) {
            outcome =
                value ? failed(durable_errc::too_large)
                      : cas_result{.status = cas_status::stored, .version = row.before().version};
            row.roll_back();
            return answer;
        }
        outcome = row.commit(*value);
        answer.error = outcome.error;
        answer.is_certain = outcome.status != cas_status::indeterminate;
        return answer;
    });
    return last.error && last.is_certain ? failed(last.error) : outcome;
}

BIDE_DURABLE_INLINE result<std::int64_t, std::error_code> postgres_slot::server_now() {
    using core = detail::postgres_core;
    if (core_->invalid) {
        return unexpected{core_->invalid};
    }
    const core::reply row =
        core_->ask_twice(false, [](core::link& to, const core::sql&, deadline end) {
            return to.run(detail::postgres_sql::now, {}, end);
        });
    if (row.error) {
        return unexpected{row.error};
    }
    return row.int8(0) / 1'000;
}

BIDE_DURABLE_INLINE result<std::unique_ptr<slot_watch>, std::error_code> postgres_slot::watch() {
    using core = detail::postgres_core;
    if (core_->invalid || !core_->options.notify) {
        return unexpected{core_->invalid
                              ? core_->invalid
                              : std::make_error_code(std::errc::operation_not_supported)};
    }
    detail::postgres_access& access = core_->access;
    const deadline end = access.until();
    const core::reply found =
        access.run(end, [](core::link&, const core::sql&) { return core::reply(); });
    if (found.error) {
        return unexpected{found.error};
    }
    const std::string& at = core_->options.listen_conninfo.empty() ? access.of().conninfo
                                                                   : core_->options.listen_conninfo;
    std::string error_text;
    auto made = detail::channel_watch<core::link>::make(
        {at, detail::postgres_target_of(at).environment, core::link::key::notices},
        access.channel(), end, error_text);
    if (!made) {
        access.note(std::move(error_text));
    }
    return made;
}

BIDE_DURABLE_INLINE result<slot_snapshot, std::error_code> postgres_slot::load_in(transaction& in) {
    using core = detail::postgres_core;
    if (core_->invalid) {
        return unexpected{core_->invalid};
    }
    return core::snapshot_of(core_->access.fresh(core_->access.run_in(
        in, &detail::postgres_sql::load, {{core::parameter::text, core_->key}})));
}

BIDE_DURABLE_INLINE cas_result postgres_slot::compare_exchange_in(transaction& in,
                                                                  slot_version version,
                                                                  std::string_view value) {
    using detail::postgres_sql;
    return core_->exchange(
        version, value, [&](bool is_first, detail::postgres_core::parameters with) {
            return core_->access.run_in(
                in, is_first ? &postgres_sql::insert_in : &postgres_sql::update_in, with);
        });
}

}} // namespace bide::BIDE_ABI

#endif
