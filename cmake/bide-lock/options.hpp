#ifndef BIDE_PROGRAMS_BIDE_LOCK_OPTIONS_HPP
#define BIDE_PROGRAMS_BIDE_LOCK_OPTIONS_HPP

#include "standard.hpp"

#include <nlohmann/json.hpp>

namespace lock_parts {

// ---- What bide-lock is asked for, and its messages.

using nlohmann::json;

inline std::string one_line(const json& value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

inline bool speaks_json = false; // --json

// Writes a message to stderr. Drops it if stderr is full: bide-lock must end the command in time.
// status: 0, or the exit status if this is the reason why bide-lock ends.
inline void complain(const std::string& what, int status = 0) {
    pollfd room{STDERR_FILENO, POLLOUT, 0};
    int found = 0;
    while ((found = ::poll(&room, 1, 100)) < 0 && errno == EINTR) {
    }
    if (found == 0)
        return;
    const std::string line = !speaks_json  ? "bide-lock: " + what
                             : status == 0 ? one_line({{"message", what}})
                                           : one_line({{"error", what}, {"code", status}});
    std::fputs((line + "\n").c_str(), stderr);
}

// Why bide-lock ends.
struct failure {
    int status;
    std::string what; // empty: no message
};

// The actions, as bits: an option is for some of them.
namespace does {
inline constexpr unsigned run = 1, elect = 2, keep = 4, inspect = 8, list = 16, watch = 32,
                          release = 64, resize = 128, repair = 256, completion = 512;
inline constexpr unsigned acquire = run | elect | keep;
inline constexpr unsigned administer = release | resize | repair;
inline constexpr unsigned all = acquire | inspect | list | watch | administer;
} // namespace does

struct options {
    using milliseconds = std::chrono::milliseconds;

    unsigned action = 0;
    std::string slot, name, holder, by, reason;
    std::string ca_file, cert_file, key_file, schema;
    std::int64_t permits = 1, weight = 1;
    milliseconds lease{30'000};
    std::optional<milliseconds> kill_after; // none: see grace()
    std::optional<milliseconds> timeout;    // none: no limit
    milliseconds at_least{0};
    std::string note;
    std::vector<std::pair<std::string, std::string>> labels;
    std::int64_t conflict_status = 1;
    std::int64_t fence = 0;       // release: the holder with this fence; 0: all holders
    std::int64_t min_fence = 0;   // repair
    std::optional<unsigned> mode; // of new files
    uid_t user = static_cast<uid_t>(-1);
    gid_t group = static_cast<gid_t>(-1);
    bool relaxed = false, verbose = false, json = false, help = false, version = false;
    bool is_leased = false;       // --lease was given
    bool closes = false;          // --close
    bool forks = true;            // not --no-fork
    bool observes = false;        // elect --observe
    bool unlocks = false;         // --unlock
    int descriptor = -1;          // keep: the caller's descriptor
    bool has_secret_slot = false; // hides $BIDE_LOCK_SLOT from the command
    char** command = nullptr;     // ends with a nullptr, as execvp() wants it

    milliseconds grace() const { // from SIGTERM to SIGKILL after the lock was lost
        return kill_after.value_or(std::min(milliseconds(10'000), lease / 3));
    }
};

inline std::optional<std::int64_t> parse_number(std::string_view text, std::int64_t least,
                                                std::int64_t most, int base = 10) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most)
        return std::nullopt;
    return value;
}

inline std::optional<std::chrono::milliseconds> parse_time(std::string_view text) {
    constexpr std::pair<std::string_view, double> units[] = {
        {"ms", 1}, {"s", 1e3}, {"", 1e3}, {"m", 60e3}, {"h", 3600e3}, {"d", 86400e3}};
    const auto digits = std::min(text.find_first_not_of("0123456789."), text.size());
    const std::string number(text.substr(0, digits));
    const auto* const unit = std::find_if(std::begin(units), std::end(units), [&](const auto& one) {
        return one.first == text.substr(digits);
    });
    if (number.empty() || unit == std::end(units))
        return std::nullopt;
    char* end = nullptr;
    const double ms = unit->second * std::strtod(number.c_str(), &end);
    if (*end != '\0' || ms > 1e12)
        return std::nullopt;
    return std::chrono::milliseconds(static_cast<std::int64_t>(ms + 0.999)); // rounds up
}

// Returns the text as one line: without control characters, also those that UTF-8 writes as two bytes
// (U+0080 to U+009F), because some terminals obey them.
inline std::string printable(std::string_view text) {
    std::string out(text);
    for (std::size_t i = 0; i < out.size(); ++i) {
        const auto byte = static_cast<unsigned char>(out[i]);
        const bool is_second = i > 0 && out[i - 1] == '\xc2' && byte >= 0x80 && byte < 0xa0;
        if (is_second)
            out.replace(--i, 2, "?");
        else if (byte < ' ' || byte == 0x7f)
            out[i] = '?';
    }
    return out;
}

inline bool is_name(std::string_view name) { // a name that every store accepts, also a file system
    return !name.empty() && name.size() <= 200 && name[0] != '.' && name[0] != '-' &&
           name.find('/') == name.npos && printable(name) == name;
}

// ---- Passwords in a --slot: where they are, and how they are kept out of sight.

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
