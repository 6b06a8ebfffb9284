// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_SOURCE_TEXT_HPP
#define BIDE_MODEL_IMPL_SOURCE_TEXT_HPP

// The lines of the source, and the names of objects in the source.

#include <bide/core/config.hpp>
#include <bide/model/detail/report.hpp>

#include <array>
#include <cctype>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

const std::string& source_text(site s) {
    static std::map<std::string, std::vector<std::string>> files;
    static const std::string none;
    if (s.file == nullptr || s.line <= 0) {
        return none;
    }
    const auto [at, fresh] = files.try_emplace(s.file);
    if (fresh) {
        std::ifstream in(s.file);
        for (std::string line; std::getline(in, line);) {
            const auto begin = line.find_first_not_of(" \t");
            const auto end = line.find_last_not_of(" \t\r");
            at->second.push_back(begin == std::string::npos ? std::string()
                                                            : line.substr(begin, end + 1 - begin));
        }
    }
    const auto line = index(s.line - 1);
    return line < at->second.size() ? at->second[line] : none;
}

// Returns the name of the object on which a line of the source operates: `tail_` for
// `tail_.store(1)`, `slots` for `slots[i].load()`. Returns an empty text if the line has no
// operation of the kind of `e`, or more than one.
inline std::string object_in(std::string_view line, const event& e) {
    constexpr std::array<std::string_view, 9> operations = {
        "store(",     "load(",      "compare_exchange_", "exchange(", "fetch_add(",
        "fetch_sub(", "fetch_and(", "fetch_or(",         "fetch_xor("};
    // A compare-exchange that fails is a load.
    const bool stores = e.what == event::kind::write;
    const std::size_t first = e.exclusive ? 2 : stores ? 0 : 1;
    const std::size_t last = e.exclusive ? operations.size() : stores ? 1 : 3;
    std::string found;
    for (std::size_t at = 1; at < line.size(); ++at) {
        const bool dot = line[at - 1] == '.';
        const bool arrow = at >= 2 && line[at - 2] == '-' && line[at - 1] == '>';
        bool is_call = false;
        for (std::size_t n = first; n < last; ++n) {
            is_call = is_call || line.substr(at).starts_with(operations[n]);
        }
        if (!is_call || (!dot && !arrow)) {
            continue;
        }
        if (!found.empty()) {
            return {};
        }
        std::size_t end = at - (dot ? 1 : 2);
        if (end > 0 && line[end - 1] == ']') {
            const auto open = line.rfind('[', end);
            end = open == std::string_view::npos ? 0 : open;
        }
        std::size_t begin = end;
        while (begin > 0 && (std::isalnum(static_cast<unsigned char>(line[begin - 1])) != 0 ||
                             line[begin - 1] == '_')) {
            --begin;
        }
        found = line.substr(begin, end - begin);
        if (found.empty()) {
            return {};
        }
    }
    return found;
}

object_names::object_names(execution& x) : names_(index(x.mem().objects())) {
    const memory& m = x.mem();
    for (std::size_t o = 0; o < names_.size(); ++o) {
        if (const char* const given = m.at(static_cast<int>(o)).name; given != nullptr) {
            names_[o] = given;
        }
    }
    for (const event& e : m.events) {
        const bool is_access = e.what == event::kind::read || e.what == event::kind::write;
        if (is_access && !m.at(e.object).queue && names_[index(e.object)].empty() &&
            *e.text == '\0') {
            names_[index(e.object)] = object_in(source_text(e.where), e);
        }
    }
    std::map<std::string, int> uses;
    for (const std::string& name : names_) {
        ++uses[name];
    }
    for (std::size_t o = 0; o < names_.size(); ++o) {
        const bool queue = m.at(static_cast<int>(o)).queue;
        const std::string number = (queue ? "futex" : "a") + std::to_string(o);
        if (names_[o].empty()) {
            names_[o] = number;
        } else if (uses[names_[o]] > 1) {
            names_[o] += "(" + number + ")";
        }
    }
    // A queue has the name of the word on which its threads sleep.
    std::array<int, max_threads> entered{};
    for (const event& e : m.events) {
        if (e.what == event::kind::read && m.at(e.object).queue) {
            entered[e.id.thread] = e.object;
        } else if (e.what == event::kind::read && std::strncmp(e.text, "futex_", 6) == 0) {
            names_[index(entered[e.id.thread])] = names_[index(e.object)];
        }
    }
}

}}} // namespace bide::BIDE_ABI::model::detail

#endif
