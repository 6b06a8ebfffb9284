// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_HOSTS_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_HOSTS_HPP

// Reads a connection string: the hosts, which are tried one by one, and a text that names them.
//
// If the string cannot be read, no text here quotes libpq's message or a part of the string. If a
// password has a character that is not encoded, a part of the password is taken for a host, a port
// or a database.

#include <bide/core/config.hpp>
#include <bide/durable/slots/detail/postgres/wire.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <libpq-fe.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

struct postgres_host {
    std::string name{};
    std::string address{};
    std::string port{};
    std::string where{}; // "db.example:5432"
};

struct postgres_target {
    // The hosts. An element without name and address means the default host of the connection
    // string. If the list is empty, the connection string is invalid, and `why` has the reason.
    std::vector<postgres_host> hosts{};
    std::string why{};

    std::string where{};       // "postgres at db.example:5432, database app"
    std::string user{};        // if the string or the environment names one
    std::string environment{}; // the environment variables that the string depends on
};

// Returns the parts between the commas. If one of them is empty, returns none.
inline std::vector<std::string> postgres_parts(std::string_view list) {
    std::vector<std::string> parts;
    for (std::size_t from = 0; !list.empty() && from <= list.size();) {
        const std::size_t end = std::min(list.find(',', from), list.size());
        parts.emplace_back(list.substr(from, end - from));
        from = end + 1;
    }
    const bool is_whole = std::none_of(parts.begin(), parts.end(),
                                       [](const std::string& part) { return part.empty(); });
    return is_whole ? parts : std::vector<std::string>();
}

class postgres_conninfo_reader {
public:
    explicit postgres_conninfo_reader(const std::string& conninfo)
        : is_uri_(conninfo.starts_with("postgres://") || conninfo.starts_with("postgresql://")) {
        char* complaint = nullptr;
        options_.reset(::PQconninfoParse(conninfo.c_str(), &complaint));
        ::PQfreemem(complaint);
    }

    postgres_target read() const {
        postgres_target target;
        target.where = "postgres";
        target.why = what_is_wrong();
        if (!target.why.empty()) {
            return target;
        }
        for (const PQconninfoOption* o = options_.get(); o->keyword != nullptr; ++o) {
            const char* const said = o->envvar == nullptr ? nullptr : std::getenv(o->envvar);
            if (said != nullptr && o->val == nullptr) {
                target.environment.append(o->keyword).append("=").append(said) += '\0';
            }
        }
        target.hosts = hosts();
        std::string all;
        for (const postgres_host& each : target.hosts) {
            all += (all.empty() ? "" : ",") + each.where;
        }
        target.user = value("user");
        const std::string database = value("dbname").empty() ? target.user : value("dbname");
        target.where += " at " + all + (database.empty() ? "" : ", database " + database);
        return target;
    }

private:
    // Returns the value of the connection string. If it has none and names no service, returns the
    // value of the environment.
    std::string value(std::string_view keyword) const {
        const bool alone = keyword != "service" && !value("service").empty();
        for (const PQconninfoOption* o = options_.get(); o->keyword != nullptr; ++o) {
            if (o->keyword == keyword) {
                const char* const found = o->val != nullptr                ? o->val
                                          : o->envvar != nullptr && !alone ? std::getenv(o->envvar)
                                                                           : nullptr;
                return found == nullptr ? "" : found;
            }
        }
        return {};
    }

    std::vector<postgres_host> hosts() const {
        const std::vector<std::string> names = postgres_parts(value("host"));
        const std::vector<std::string> addresses = postgres_parts(value("hostaddr"));
        const std::vector<std::string> ports = postgres_parts(value("port"));
        const std::size_t count = std::max(names.size(), addresses.size());
        const auto at = [](const std::vector<std::string>& list, std::size_t i) {
            return list.empty() ? std::string() : list[list.size() == 1 ? 0 : i];
        };
        const auto where = [&](std::size_t i) {
            const std::string name = names.empty() ? at(addresses, i) : at(names, i);
            const std::string port = at(ports, i).empty() ? "5432" : at(ports, i);
            return name.find(':') != name.npos ? "[" + name + "]:" + port
                   : name.empty()              ? "the local socket:" + port
                                               : name + ":" + port;
        };
        if (count < 2) {
            return {{"", "", "", where(0)}};
        }
        std::vector<postgres_host> found;
        for (std::size_t i = 0; i < count; ++i) {
            found.push_back({at(names, i), at(addresses, i), at(ports, i), where(i)});
        }
        return found;
    }

    // Returns a text about what is wrong with the string, or nothing. libpq would report that, too,
    // but its message may quote a part of the password.
    std::string what_is_wrong() const {
        if (!options_) {
            return is_uri_ ? "not a URI that libpq reads (in a user or password, each of "
                             ":/?#[]@% has to be written as %XX)"
                           : "not a connection string that libpq reads (write key=value pairs, "
                             "and quote a value that has blanks)";
        }
        const std::string uri_host = ": if the password has one of :/?#[]@%, write it as %XX";
        const std::vector<std::string> names = postgres_parts(value("host"));
        const std::vector<std::string> addresses = postgres_parts(value("hostaddr"));
        const std::vector<std::string> ports = postgres_parts(value("port"));
        for (const std::string& name : names) {
            if (name.find_first_of(" \t\n\"") != name.npos ||
                (name[0] != '/' && name[0] != '@' && name.find_first_of("@/") != name.npos)) {
                return "not a host name" + uri_host;
            }
        }
        for (const std::string& port : ports) {
            if (port.find_first_not_of("0123456789") != port.npos || port.size() > 5 ||
                std::stoi(port) < 1 || std::stoi(port) > 65'535) {
                return "a port is a number from 1 to 65535" + uri_host;
            }
        }
        if (is_uri_ && value("dbname").find('@') != std::string::npos) {
            return "an @ in the database's name" + uri_host;
        }
        const std::size_t count = std::max({names.size(), addresses.size(), std::size_t{1}});
        if ((!names.empty() && !addresses.empty() && names.size() != addresses.size()) ||
            (ports.size() > 1 && ports.size() != count)) {
            return "host, hostaddr and port need equally many parts, or port only one";
        }
        if (!is_one_of("sslmode",
                       {"disable", "allow", "prefer", "require", "verify-ca", "verify-full"})) {
            return "no such sslmode";
        }
        return is_one_of("target_session_attrs",
                         {"any", "read-write", "read-only", "primary", "standby", "prefer-standby"})
                   ? ""
                   : "no such target_session_attrs";
    }

    bool is_one_of(std::string_view keyword, std::initializer_list<std::string_view> known) const {
        const std::string said = value(keyword);
        return said.empty() || std::find(known.begin(), known.end(), said) != known.end();
    }

    bool is_uri_;
    std::unique_ptr<PQconninfoOption, postgres_free> options_{};
};

inline postgres_target postgres_target_of(const std::string& conninfo) {
    return postgres_conninfo_reader(conninfo).read();
}

}}} // namespace bide::BIDE_ABI::detail

#endif
