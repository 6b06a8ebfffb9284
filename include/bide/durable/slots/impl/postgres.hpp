// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_IMPL_POSTGRES_HPP
#define BIDE_DURABLE_SLOTS_IMPL_POSTGRES_HPP

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/try_to.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/postgres/connection.hpp>
#include <bide/durable/slots/detail/server/server_slot.hpp>
#include <bide/durable/slots/postgres.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
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

// Runs the statements of a slot. If another transaction has locked the row, the server waits for at
// most 100 ms at a time. Between two such waits the slot returns the connection, so that locked rows
// do not stall other slots of the process. A renewal waits only once, because the next renewal comes
// soon.
struct postgres_core {
    using link = postgres_connection;
    using reply = postgres_reply;

    postgres_core(const std::string& conninfo, std::string of, postgres_slot_options chosen,
                  bool is_for_renewals)
        : options(std::move(chosen)), key(std::move(of)),
          name(postgres_name_of(options.table, options.schema)),
          client({postgres_target_of(conninfo), is_for_renewals}),
          table({client.of().target, name.schema, name.table}) {
        using namespace std::chrono_literals;
        options.retry_time = std::clamp<std::chrono::milliseconds>(options.retry_time, 1ms, 24h);
        options.max_value = std::min(options.max_value, std::size_t(256) << 20);
        if (name.table.empty() || key.empty() || key.size() > 1'024 || key.find('\0') != key.npos) {
            invalid = durable_errc::invalid_argument;
            error_text = name.table.empty()
                             ? "a table is name or schema.name, of letters, digits and _"
                             : "a key has 1 to 1,024 bytes, none of them zero";
        }
    }

    const postgres_target& target() const noexcept { return client.of().target; }
    std::string channel() const { return postgres_channel(found.name.plain(), key); }

    static cas_result failed(std::error_code error) {
        return {.status = cas_status::failed, .error = error};
    }

    // Connects, finds the table if `on_table`, and calls once(connection). Calls it again if the
    // server rolled the transaction back because of a conflict with another transaction, or if the
    // row stayed locked. Keeps an error's text for explain().
    template <class Once> reply run(bool on_table, Once once) {
        constexpr int max_tries = 10; // of a transaction that the server rolls back
        const deadline until = deadline::after(options.retry_time);
        const deadline row_until = deadline::after(options.retry_time / 2);
        for (int tries = 1;;) {
            const auto got = client.get().take(until);
            if (!got.of) {
                error_text = "no free connection in time: other calls of this process had them all";
                return {nullptr, {}, got.error, true, true};
            }
            reply answer = try_once(*got.of, got.error, on_table, once);
            if (answer.is("25006")) { // a standby: the next connection may reach the primary
                got.of->drop();
            }
            const bool is_locked =
                answer.is("55P03") && !row_until.has_passed() && !client.of().is_for_renewals;
            const bool is_undone = (answer.is("40001") || answer.is("40P01")) &&
                                   ++tries <= max_tries && !until.has_passed();
            if (!answer.is_certain || !(is_locked || is_undone)) {
                return answer;
            }
        }
    }

    // Like run(), for a statement that changes nothing. Asks once more if the connection was lost:
    // the server may have closed it while it was idle.
    template <class Once> reply ask(bool on_table, Once once) {
        reply answer = run(on_table, once);
        if (answer.is_lost && !answer.is_certain && answer.error != std::errc::timed_out) {
            answer = run(on_table, once);
        }
        return answer;
    }

    // Finds the table, and creates it if it is missing and `creates`. Several roles may create the
    // table at the same time. The server reports this to all but one of them, with one of three
    // codes; a second try then finds the table.
    reply search(link& to, bool creates) {
        const postgres_found known = table.get().keep();
        const std::string create = postgres_sql::create(name.wanted());
        reply answer = to.run(postgres_tables(name));
        for (bool may_create = creates; !answer.error; may_create = false) {
            // After fork(), `found` is the parent's.
            postgres_search one = postgres_judge(answer, name, known.oid != 0 ? known : found);
            if (one.state == nullptr) {
                use(table.get().keep(one.found));
                if (found.oid == one.found.oid) {
                    return answer;
                }
                one = {{}, "ZB001", postgres_another(one.found.name)};
            }
            if (!one.is_missing || !may_create) {
                error_text = std::move(one.error_text);
                answer.error = postgres_error(one.state);
                return answer;
            }
            answer = to.run(create);
            if (answer.is("23505") || answer.is("42P07") || answer.is("XX000")) {
                answer = to.run(create);
            }
            answer = answer.error ? std::move(answer) : to.run(postgres_tables(name));
        }
        answer.is_certain = true; // the caller's statement was not sent
        error_text = to.message() + postgres_advice(answer.error, name.wanted());
        return answer;
    }

    result<slot_snapshot, std::error_code> snapshot_of(const reply& row, bool may_be_new) const {
        slot_snapshot seen;
        seen.server_ms = row.int8(2) / 1'000;
        const std::int64_t version = row.int8(0);
        if (row.is_null(0) || (may_be_new && version == 0)) {
            return seen;
        }
        if (version <= 0) {
            return unexpected{make_error_code(durable_errc::corrupt_record)};
        }
        seen.version = static_cast<slot_version>(version);
        seen.value = row.bytes(1);
        return seen;
    }

    postgres_slot_options options;
    std::string key;
    postgres_name name; // without a table: it is invalid
    shared_connection<link> client;
    shared_in_process<postgres_table> table;
    postgres_found found{};            // the table of sql
    std::optional<postgres_sql> sql{}; // the statements of this slot's table
    std::error_code invalid{};
    std::string error_text{}; // why the last operation failed; empty if it succeeded

private:
    template <class Once>
    reply try_once(link& to, std::error_code unconnected, bool on_table, Once& once) {
        error_text.clear();
        reply answer;
        answer.error = unconnected;
        answer.is_lost = bool(unconnected);
        const std::string quoted = name.quoted();
        if (!answer.error && on_table) {
            use(table.get().keep());
            if (found.oid == 0 ||
                std::find(to.searched.begin(), to.searched.end(), quoted) == to.searched.end()) {
                answer = search(to, options.create_table);
                if (!answer.error) {
                    to.searched.push_back(quoted);
                }
            }
        }
        if (!answer.error) {
            answer = once(to);
            if (answer.is("42P01") && error_text.empty()) {
                error_text = postgres_dropped(found.name);
            }
        }
        if (answer.error && error_text.empty()) {
            error_text = to.message().empty() ? answer.error.message() : to.message();
            error_text += on_table ? postgres_advice(answer.error, found.name) : std::string();
        }
        return answer;
    }

    void use(const postgres_found& one) {
        constexpr std::chrono::milliseconds one_ms(1);
        constexpr std::chrono::milliseconds row_wait(100);
        if (one.oid == 0 || (sql && found.oid == one.oid)) {
            return;
        }
        found = one;
        sql.emplace(found, options.notify ? channel() : std::string(),
                    std::min(options.retry_time / 2 + one_ms, row_wait),
                    options.retry_time / 4 + one_ms);
    }
};

// Rolls an open transaction back at the end of the scope, so that the row does not stay locked.
struct postgres_rollback {
    explicit postgres_rollback(postgres_connection& to) noexcept : of(to) {}
    postgres_rollback(const postgres_rollback&) = delete;
    postgres_rollback& operator=(const postgres_rollback&) = delete;
    ~postgres_rollback() {
        if (of.is_in_transaction() && !try_to([this] { of.run("ROLLBACK"); })) {
            of.drop();
        }
    }
    postgres_connection& of;
};

} // namespace detail

BIDE_DURABLE_INLINE
postgres_slot::postgres_slot(std::shared_ptr<detail::postgres_core> core) noexcept
    : core_(std::move(core)) {}

BIDE_DURABLE_INLINE postgres_slot::postgres_slot(std::string conninfo, std::string key,
                                                 postgres_slot_options options)
    : core_(std::make_shared<detail::postgres_core>(conninfo, std::move(key), std::move(options),
                                                    false)) {}

BIDE_DURABLE_INLINE std::unique_ptr<slot> postgres_slot::for_renewals() const {
    return std::make_unique<postgres_slot>(postgres_slot(std::make_shared<detail::postgres_core>(
        core_->target().conninfo, core_->key, core_->options, true)));
}

BIDE_DURABLE_INLINE std::string postgres_slot::store() const {
    const detail::postgres_target& at = core_->target();
    return at.where + (at.user.empty() ? "" : ", user " + at.user);
}
BIDE_DURABLE_INLINE std::string postgres_slot::explain() const {
    const std::string& text = core_->error_text;
    return detail::one_line(core_->target().where + (text.empty() ? "" : ": " + text),
                            detail::longest_text);
}
BIDE_DURABLE_INLINE const std::string& postgres_slot::last_message() const noexcept {
    return core_->error_text;
}

BIDE_DURABLE_INLINE std::error_code postgres_slot::create_table() {
    return core_->invalid
               ? core_->invalid
               : core_
                     ->run(false,
                           [&](detail::postgres_connection& to) { return core_->search(to, true); })
                     .error;
}

BIDE_DURABLE_INLINE result<slot_snapshot, std::error_code> postgres_slot::load() {
    if (core_->invalid) {
        return unexpected{core_->invalid};
    }
    const auto row = core_->ask(true, [this](detail::postgres_connection& to) {
        auto answer = to.run(core_->sql->load(to.quoted(core_->key)));
        if (!answer.error && answer.text(3) != "f") {
            answer.error = postgres_error("25006"); // its values may be old
            core_->error_text = "it is a standby";
        } else if (!answer.error && answer.int8(4) != core_->found.oid) {
            answer.error = postgres_error("ZB001");
            core_->error_text = detail::postgres_another(core_->found.name);
        }
        return answer;
    });
    if (row.error) {
        return unexpected{row.error};
    }
    return core_->snapshot_of(row, false);
}

BIDE_DURABLE_INLINE cas_result postgres_slot::compare_exchange(slot_version version,
                                                               std::string_view value) {
    if (core_->invalid || value.size() > core_->options.max_value) {
        return core_->failed(core_->invalid ? core_->invalid
                                            : make_error_code(durable_errc::too_large));
    }
    if (version > std::numeric_limits<std::int64_t>::max()) {
        return {.status = cas_status::conflict};
    }
    const auto answer = core_->run(true, [&](detail::postgres_connection& to) {
        return to.run(core_->sql->exchange(to.quoted(core_->key), version, to.quoted_bytes(value)));
    });
    if (answer.error) {
        return {.status = answer.is_certain ? cas_status::failed : cas_status::indeterminate,
                .error = answer.error};
    }
    if (answer.count() == 0) {
        return {.status = cas_status::conflict};
    }
    return {.status = cas_status::stored, .version = static_cast<slot_version>(answer.int8(0))};
}

// Two round trips: one locks the row and reads it, one changes it and commits. If there is no row,
// one more round trip inserts one of version 0.
BIDE_DURABLE_INLINE cas_result postgres_slot::update_locked(const slot_update& update) {
    if (core_->invalid) {
        return core_->failed(core_->invalid);
    }
    cas_result outcome;
    const auto last = core_->run(true, [&](detail::postgres_connection& to) {
        const detail::postgres_sql& sql = *core_->sql;
        const std::string key = to.quoted(core_->key);
        const detail::postgres_rollback guard(to);
        auto row = to.run(sql.lock(key));
        const bool is_new = !row.error && row.count() == 0;
        if (is_new) {
            row = to.run(sql.insert_and_lock(key));
        }
        row.is_certain = true;                // until the commit
        if (!row.error && row.count() == 0) { // the condition on the oid was false
            row.error = postgres_error("ZB001");
        }
        if (row.error) {
            return row;
        }
        const auto before = core_->snapshot_of(row, is_new);
        if (!before) {
            row.error = before.error();
            return row;
        }
        const std::optional<std::string> value = update(*before);
        outcome = {.status = cas_status::stored, .version = before->version};
        if (value && value->size() > core_->options.max_value) {
            outcome = core_->failed(durable_errc::too_large);
        } else if (value) {
            const std::int64_t next = is_new ? row.int8(2) : row.int8(0) + 1;
            row = to.run(sql.commit(key, next, to.quoted_bytes(*value)));
            outcome.version = static_cast<slot_version>(next);
            if (!row.error && (row.count() != 1 || row.command != "COMMIT")) {
                outcome = core_->failed(durable_errc::storage_error);
            }
        }
        return row;
    });
    if (last.error) {
        return {.status = last.is_certain ? cas_status::failed : cas_status::indeterminate,
                .error = last.error};
    }
    return outcome;
}

BIDE_DURABLE_INLINE result<std::int64_t, std::error_code> postgres_slot::server_now() {
    if (core_->invalid) {
        return unexpected{core_->invalid};
    }
    const auto row = core_->ask(false, [](detail::postgres_connection& to) {
        return to.run(std::string("SELECT ") + detail::postgres_sql::microseconds);
    });
    if (row.error) {
        return unexpected{row.error};
    }
    return row.int8(0) / 1'000;
}

BIDE_DURABLE_INLINE result<std::unique_ptr<slot_watch>, std::error_code> postgres_slot::watch() {
    using detail::postgres_connection;
    if (core_->invalid || !core_->options.notify) {
        return unexpected{core_->invalid
                              ? core_->invalid
                              : std::make_error_code(std::errc::operation_not_supported)};
    }
    const deadline end = deadline::after(core_->options.retry_time);
    const auto found =
        core_->run(true, [](postgres_connection&) { return detail::postgres_reply(); });
    if (found.error) {
        return unexpected{found.error};
    }
    const std::string& at = core_->options.listen_conninfo;
    return detail::channel_watch<postgres_connection>::make(
        {at.empty() ? core_->target() : detail::postgres_target_of(at), false}, core_->channel(),
        end, core_->error_text);
}

}} // namespace bide::BIDE_ABI

#endif
