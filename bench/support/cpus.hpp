#ifndef BIDE_BENCH_SUPPORT_CPUS_HPP
#define BIDE_BENCH_SUPPORT_CPUS_HPP

// Which processors the benchmark may use, and keeping threads on them.

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <sched.h>

namespace bench {

using cpu_list = std::vector<int>;

inline cpu_list allowed_cpus() {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    ::sched_getaffinity(0, sizeof mask, &mask);
    cpu_list cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(static_cast<unsigned>(cpu), &mask)) {
            cpus.push_back(cpu);
        }
    }
    return cpus;
}

// Restricts the calling thread (and what it starts from now on) to these. False: not allowed.
inline bool run_on(const cpu_list& cpus) {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    for (const int cpu : cpus) {
        CPU_SET(static_cast<unsigned>(cpu), &mask);
    }
    return ::sched_setaffinity(0, sizeof mask, &mask) == 0;
}

// The calling thread runs on `cpus` while this lives.
class scoped_affinity {
public:
    explicit scoped_affinity(const cpu_list& cpus) : before_(allowed_cpus()) { run_on(cpus); }
    scoped_affinity(const scoped_affinity&) = delete;
    scoped_affinity& operator=(const scoped_affinity&) = delete;
    ~scoped_affinity() { run_on(before_); }

private:
    cpu_list before_;
};

inline std::optional<int> parse_cpu(std::string_view text) {
    int cpu = 0;
    const auto end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, cpu);
    const bool good = error == std::errc() && rest == end && cpu >= 0 && cpu < CPU_SETSIZE;
    return good ? std::optional(cpu) : std::nullopt;
}

// "0,2-4": 0, 2, 3, 4. Empty when the text is not such a list.
inline cpu_list parse_cpu_list(std::string_view text) {
    cpu_list cpus;
    for (;;) {
        const auto comma = text.find(',');
        const auto range = text.substr(0, comma);
        const auto dash = range.find('-');
        const auto first = parse_cpu(range.substr(0, dash));
        const auto last = dash == range.npos ? first : parse_cpu(range.substr(dash + 1));
        if (!first || !last || *last < *first) {
            return {};
        }
        for (int cpu = *first; cpu <= *last; ++cpu) {
            cpus.push_back(cpu);
        }
        if (comma == text.npos) {
            return cpus;
        }
        text.remove_prefix(comma + 1);
    }
}

inline std::string to_string(const cpu_list& cpus) {
    std::string text;
    for (const int cpu : cpus) {
        if (!text.empty()) {
            text += ',';
        }
        text += std::to_string(cpu);
    }
    return text;
}

} // namespace bench

#endif
