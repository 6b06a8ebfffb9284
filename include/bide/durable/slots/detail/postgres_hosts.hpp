#ifndef BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_HOSTS_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_HOSTS_HPP

// The hosts of a connection string, to be tried one by one.

#include <bide/core/config.hpp>
#include <bide/durable/slots/detail/postgres_wire.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <libpq-fe.h>

namespace bide::inline BIDE_ABI {
namespace detail {

struct postgres_host {
    std::string name{};
    std::string address{};
    std::string port{};
};

// The parts between the commas. Nothing where one of them is empty.
inline std::vector<std::string> postgres_parts(const char* list) {
    std::vector<std::string> parts;
    if (list != nullptr && *list != '\0') {
        parts.emplace_back();
        for (; *list != '\0'; ++list) {
            if (*list == ',') {
                parts.emplace_back();
            } else {
                parts.back() += *list;
            }
        }
    }
    for (const std::string& part : parts) {
        if (part.empty()) {
            return {};
        }
    }
    return parts;
}

// One with nothing in it stands for whatever the connection string says. None: it is no connection
// string, for this reason.
inline std::vector<postgres_host> postgres_hosts(const std::string& conninfo, std::string& why) {
    char* complaint = nullptr;
    const std::unique_ptr<PQconninfoOption, postgres_free> options(
        ::PQconninfoParse(conninfo.c_str(), &complaint));
    if (!options) {
        why = complaint == nullptr ? "out of memory" : complaint;
        ::PQfreemem(complaint);
        return {};
    }
    std::vector<std::string> names;
    std::vector<std::string> addresses;
    std::vector<std::string> ports;
    for (const PQconninfoOption* o = options.get(); o->keyword != nullptr; ++o) {
        const std::string_view keyword = o->keyword;
        if (keyword == "host") {
            names = postgres_parts(o->val);
        } else if (keyword == "hostaddr") {
            addresses = postgres_parts(o->val);
        } else if (keyword == "port") {
            ports = postgres_parts(o->val);
        }
    }
    const std::size_t count = names.size() > addresses.size() ? names.size() : addresses.size();
    const auto fits = [count](const std::vector<std::string>& list, bool one_for_all) {
        return list.empty() || list.size() == count || (one_for_all && list.size() == 1);
    };
    if (count < 2 || !fits(names, false) || !fits(addresses, false) || !fits(ports, true)) {
        return {postgres_host{}};
    }
    const auto at = [](const std::vector<std::string>& list, std::size_t i) {
        return list.empty() ? std::string() : list[list.size() == 1 ? 0 : i];
    };
    std::vector<postgres_host> hosts;
    for (std::size_t i = 0; i < count; ++i) {
        hosts.push_back({at(names, i), at(addresses, i), at(ports, i)});
    }
    return hosts;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
