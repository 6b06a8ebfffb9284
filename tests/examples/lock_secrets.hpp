#ifndef BIDE_TESTS_EXAMPLES_LOCK_SECRETS_HPP
#define BIDE_TESTS_EXAMPLES_LOCK_SECRETS_HPP

// Passwords in a --slot: where they are, and how they are kept out of sight.

#include "lock_options.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lock_parts {

// Returns offset and length of each password in a slot. In text that is not a proper URL, it hides
// too much rather than too little.
inline std::vector<std::pair<std::size_t, std::size_t>> secrets_of(std::string_view slot) {
    std::vector<std::pair<std::size_t, std::size_t>> found;
    const auto end = std::string_view::npos;
    // scheme://user:password@host, for each URL of a list. A password that is not encoded may hold
    // any character: it goes on to the last '@' before the next URL.
    for (std::size_t at = slot.find("://"); at != end;) {
        const std::size_t begin = at + 3;
        at = slot.find("://", begin);
        const std::string_view url = slot.substr(begin, at == end ? end : at - begin);
        const std::size_t host = url.rfind('@');
        const std::size_t colon = url.find(':');
        if (host != end && colon < host && colon + 1 < host)
            found.emplace_back(begin + colon + 1, host - colon - 1);
    }
    // password=..., among key words or in a URL's query.
    std::string lower(slot);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    for (std::size_t at = lower.find("password"); at != end; at = lower.find("password", at + 1)) {
        std::size_t begin = lower.find_first_not_of(" \t", at + 8);
        if (begin == end || lower[begin] != '=')
            continue;
        begin = lower.find_first_not_of(" \t", begin + 1);
        if (begin == end)
            continue;
        const bool is_quoted = lower[begin] == '\'';
        std::size_t last = begin + (is_quoted ? 1 : 0);
        for (; last < lower.size(); ++last) {
            if (lower[last] == '\\')
                ++last;
            else if (is_quoted ? lower[last] == '\'' : lower[last] == ' ' || lower[last] == '&')
                break;
        }
        last = std::min(last, lower.size());
        if (last > begin)
            found.emplace_back(begin, last - begin);
    }
    return found;
}

inline bool has_secret(std::string_view slot) { return !secrets_of(slot).empty(); }

// Returns the slot for a message: one line, without passwords.
inline std::string shown(std::string_view slot) {
    std::string text(slot);
    auto all = secrets_of(slot);
    std::sort(all.rbegin(), all.rend()); // from the last one, so that offsets stay valid
    for (const auto& [begin, size] : all)
        if (begin <= text.size())
            text.replace(begin, size, "***");
    return printable(text);
}

// Overwrites passwords in this process's arguments or environment, which other users can read.
inline void blot_out(char* text) {
    for (const auto& [begin, size] : secrets_of(text)) {
        volatile char* const first = text + begin; // other processes read it
        for (std::size_t i = 0; i < size; ++i)
            first[i] = '*';
    }
}

} // namespace lock_parts

#endif
