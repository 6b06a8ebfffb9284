// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_ACCESS_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_ACCESS_HPP

// Runs a PostgreSQL slot's statements. All slots of this process with the same connection string
// share the connections. The slot's table is found before the first statement.
//
// If another transaction has locked the row, the server waits for at most 100 ms at a time. Between
// two such waits the slot returns the connection, so that locked rows do not stall other slots of
// the process. A renewal waits only once, because the next renewal comes soon.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/durable/slots/detail/postgres/connection.hpp>
#include <bide/durable/slots/detail/postgres/hosts.hpp>
#include <bide/durable/slots/detail/postgres/sql.hpp>
#include <bide/durable/slots/detail/postgres/table.hpp>
#include <bide/durable/slots/detail/postgres/wire.hpp>
#include <bide/durable/slots/detail/server/connection_pool.hpp>
#include <bide/durable/slots/detail/server/shared_connections.hpp>
#include <bide/durable/slots/postgres_errors.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <libpq-fe.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

class postgres_access {
public:
    using purpose = postgres_connection::key::purpose;
    using parameters = std::initializer_list<postgres_parameter>;

    struct settings {
        std::string conninfo;
        purpose what_for;
        postgres_name name; // without a table: the name is invalid
        bool creates;
        std::chrono::milliseconds retry_time;
        std::string told_key; // the key whose changes are notified; empty: none is
    };

    explicit postgres_access(settings chosen)
        : postgres_access(postgres_target_of(chosen.conninfo), std::move(chosen)) {}

    const settings& of() const noexcept { return of_; }
    std::string environment() const { return link_.of().environment; }
    deadline until() const noexcept { return deadline::after(of_.retry_time); }

    // Connects, finds the table and calls once(connection, sql). Calls it again if the server
    // rolled the transaction back because of a conflict with another transaction, or if the row
    // stayed locked. Keeps an error's text for explain().
    // Blocks: until the deadline.
    template <class Once> postgres_reply run(deadline until, Once once) {
        return repeat(until, true, once);
    }
    // Finds the table, and creates it if it is missing.
    postgres_reply make(deadline until) {
        return ask(until, [&](postgres_connection& link, const auto&) {
            return search_on(link, until, true);
        });
    }
    // Like run(), but does not look for the table.
    template <class Once> postgres_reply ask(deadline until, Once once) {
        return repeat(until, false, once);
    }

    // Runs a statement once, inside the caller's transaction.
    postgres_reply run_in(PGconn& in, std::string postgres_sql::* which, parameters with) {
        const PGTransactionStatusType status = ::PQtransactionStatus(&in);
        if (status == PQTRANS_IDLE || status == PQTRANS_ACTIVE) {
            return wrong("25001", "not inside a transaction");
        }
        const auto ask = [&](const std::string& sql, parameters given) {
            const postgres_arguments a(given);
            postgres_reply answer;
            answer.rows.reset(::PQexecParams(&in, sql.c_str(), a.count, a.types.data(),
                                             a.values.data(), a.lengths.data(), a.formats.data(),
                                             1));
            if (::PQresultStatus(answer.rows.get()) != PGRES_TUPLES_OK) {
                answer.error = postgres_error_of(answer.rows.get());
                error_text_ = postgres_error_text(answer.rows.get());
            }
            return answer; // certain: a transaction that failed or was lost stores nothing
        };
        if (table_.get().found().oid == 0) {
            if (postgres_reply answer = search(ask, false); answer.error) {
                return answer;
            }
        }
        use(table_.get().found());
        return ask((*sql_).*which, with);
    }

    // Returns the answer to a load. Returns an error instead if the answer comes from a standby,
    // whose values may be old, or from another table.
    postgres_reply fresh(postgres_reply row) {
        if (!row.error && row.bytes(3) != std::string_view("\0", 1)) {
            row.error = postgres_error("25006");
            error_text_ = "it is a standby";
        } else if (!row.error && row.int8(4) != found_.oid) {
            row.error = postgres_error("ZB001");
            error_text_ = postgres_another(found_.name);
        }
        return row;
    }

    // Requires: run() has succeeded before.
    std::string channel() const { return postgres_channel(found_.name.plain(), of_.told_key); }

    // Why the last operation failed; empty if it succeeded.
    const std::string& error_text() const noexcept { return error_text_; }
    void note(std::string error_text) { error_text_ = std::move(error_text); }
    std::string explain() const {
        return error_text_.empty() ? target_.where : target_.where + ": " + error_text_;
    }
    // Equal for all slots that reach the same server and database as the same user.
    std::string store_name() const {
        return target_.where + (target_.user.empty() ? "" : ", user " + target_.user);
    }

private:
    static constexpr int max_tries = 10; // of a transaction that the server rolls back
    static constexpr std::chrono::milliseconds row_wait{100};

    postgres_access(postgres_target target, settings&& chosen)
        : of_(std::move(chosen)), target_(std::move(target)),
          link_({of_.conninfo, target_.environment, of_.what_for}),
          table_({of_.conninfo, target_.environment, of_.name.schema, of_.name.table}) {}

    template <class Once> postgres_reply repeat(deadline until, bool on_table, Once& once) {
        const deadline row_until = deadline::after(of_.retry_time / 2);
        for (int tries = 1;;) {
            const auto got = link_.get().take(until);
            if (!got.of) {
                error_text_ =
                    "no free connection in time: other calls of this process had them all";
                return {nullptr, {}, got.error, true, true};
            }
            postgres_reply answer = try_once(*got.of, got.error, until, on_table, once);
            if (answer.is("25006")) { // a standby: the next connection may reach the primary
                got.of->drop();
            }
            const bool is_locked = answer.is("55P03") && !row_until.has_passed() &&
                                   of_.what_for == postgres_connection::key::calls;
            const bool is_undone = (answer.is("40001") || answer.is("40P01")) &&
                                   ++tries <= max_tries && !until.has_passed();
            if (!answer.is_certain || !(is_locked || is_undone)) {
                return answer;
            }
        }
    }

    template <class Once>
    postgres_reply try_once(postgres_connection& link, std::error_code unconnected, deadline until,
                            bool on_table, Once& once) {
        error_text_.clear();
        postgres_reply answer;
        answer.error = unconnected;
        if (answer.error) {
            answer.is_lost = true;
        } else if (on_table) {
            answer = settle(link, until);
        }
        if (!answer.error) {
            answer = once(link, sql_);
            if (answer.is("42P01") && error_text_.empty()) {
                error_text_ = postgres_dropped(found_.name);
            } else if (answer.error && error_text_.empty() && on_table) {
                error_text_ = link.message().empty() ? answer.error.message() : link.message();
                error_text_ += postgres_advice(answer.error, found_.name);
            }
        }
        if (answer.error && error_text_.empty()) {
            error_text_ = link.message().empty() ? answer.error.message() : link.message();
        }
        return answer;
    }

    // Makes sure that the table is known, and was looked for on this connection.
    postgres_reply settle(postgres_connection& link, deadline until) {
        const std::string table = of_.name.quoted();
        if (table_.get().found().oid == 0 ||
            std::find(link.searched.begin(), link.searched.end(), table) == link.searched.end()) {
            postgres_reply answer = search_on(link, until, of_.creates);
            if (answer.error) {
                return answer;
            }
            link.searched.push_back(table);
        }
        use(table_.get().found());
        return {};
    }

    postgres_reply search_on(postgres_connection& link, deadline until, bool creates) {
        const auto ask = [&](const std::string& sql, parameters with) {
            return link.run(sql, with, until);
        };
        postgres_reply answer = search(ask, creates);
        if (answer.error) {
            answer.is_certain = true; // the caller's statement was not sent
            error_text_ += error_text_.empty() ? link.message() : "";
            error_text_ += postgres_advice(answer.error, postgres_wanted(of_.name));
        }
        return answer;
    }

    // Several roles may create the table at the same time. The server reports this to all but one
    // of them, with one of three codes; a second try then finds the table.
    template <class Ask> postgres_reply search(Ask ask, bool creates) {
        postgres_table& table = table_.get();
        postgres_found known = table.found();
        if (known.oid == 0) {
            known = found_; // after fork(): the parent's
        }
        for (bool is_made = false;; is_made = true) {
            postgres_reply answer =
                ask(postgres_tables_by_name, {{postgres_parameter::text, of_.name.table},
                                              {postgres_parameter::text, of_.name.schema}});
            if (answer.error) {
                return answer;
            }
            postgres_search one = postgres_judge(answer, of_.name, known);
            if (!one.error) {
                table.keep(one.found);
                return table.found().oid == one.found.oid
                           ? std::move(answer)
                           : wrong("ZB001", postgres_another(one.found.name));
            }
            if (!one.is_missing || !creates || is_made) {
                error_text_ = std::move(one.error_text);
                answer.error = one.error;
                return answer;
            }
            error_text_.clear();
            const std::string create = postgres_sql::create(postgres_wanted(of_.name));
            answer = ask(create, {});
            if (answer.is("23505") || answer.is("42P07") || answer.is("XX000")) {
                answer = ask(create, {});
            }
            if (answer.error) {
                return answer;
            }
        }
    }

    void use(const postgres_found& found) {
        if (sql_ && found_.oid == found.oid) {
            return;
        }
        found_ = found;
        const std::chrono::milliseconds half = of_.retry_time / 2 + std::chrono::milliseconds(1);
        sql_.emplace(found.name, found.oid, of_.told_key.empty() ? std::string() : channel(),
                     std::min(half, row_wait), of_.retry_time / 4 + std::chrono::milliseconds(1));
    }
    postgres_reply wrong(const char* state, std::string error_text) {
        error_text_ = std::move(error_text);
        return {nullptr, {}, postgres_error(state), true, false};
    }

    settings of_;
    postgres_target target_;
    shared_connection<postgres_connection> link_;
    shared_in_process<postgres_table> table_;
    postgres_found found_{}; // the table of sql_
    std::optional<postgres_sql> sql_{};
    std::string error_text_{};
};

}}} // namespace bide::BIDE_ABI::detail

#endif
