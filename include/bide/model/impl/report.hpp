// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_REPORT_HPP
#define BIDE_MODEL_IMPL_REPORT_HPP

// Parts of the report of a failed execution: the order in which the steps are shown, and the names
// of the objects. The report shows the steps as columns (impl/interleaving.hpp) or as a drawing
// (impl/drawing.hpp), and names the cause if the graph shows one (impl/cause.hpp).

#include <bide/core/config.hpp>
#include <bide/model/detail/execution.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

std::string text(bits value);
std::string text(site s); // file:line

inline std::string thread_text(int number) { return "T" + std::to_string(number); }

inline bool is_access(const event& e) {
    return e.what == event::kind::read || e.what == event::kind::write;
}
// Returns true if the event is a part of a futex call.
inline bool is_futex(const event& e) { return std::strncmp(e.text, "futex_", 6) == 0; }
// Both return true if the event starts, or joins, the thread whose number is `e.value`.
inline bool is_start(const event& e) {
    return e.what == event::kind::local && std::strncmp(e.text, "starts", 6) == 0;
}
inline bool is_join(const event& e) {
    return e.what == event::kind::local && std::strcmp(e.text, "joins") == 0;
}

// The text of a choice, or of a step that is no access and no fence.
inline std::string plain_text(const event& e) {
    return e.text + (e.what == event::kind::choice ? " " + std::to_string(e.pick)
                     : is_start(e) || is_join(e)   ? " " + thread_text(static_cast<int>(e.value))
                                                   : std::string());
}

// Returns the two accesses that were not ordered, if that is the failure; otherwise nullptr.
inline const clash* clash_of(execution& x) {
    const clash& c = x.mem().found();
    const bool is_clash = x.what() == failure::race || x.what() == failure::lifetime;
    return is_clash && c.object >= 0 ? &c : nullptr;
}

// Returns the text of the source line, without leading and trailing blanks. If the file cannot be
// read, returns an empty text.
const std::string& source_text(site s);

// Puts the events of an execution in one order. If an order exists in which each read reads the
// newest value, and which agrees with program order, reads-from and the modification orders, that
// order is used, and the execution is sequentially consistent. Otherwise, the order is the one in
// which the checker made the events. Events that are parts of one step of the machine stay
// together.
class step_order {
public:
    explicit step_order(execution& x) : memory_(x.mem()) {
        const std::size_t all = memory_.events.size();
        part_of_.resize(all);
        std::iota(part_of_.begin(), part_of_.end(), 0);
        join_parts();
        consistent_ = sort();
        if (!consistent_) { // the order in which they were made
            events_.resize(all);
            std::iota(events_.begin(), events_.end(), 0);
        }
        places_.resize(all);
        for (std::size_t i = 0; i < all; ++i) {
            places_[index(events_[i])] = static_cast<int>(i);
        }
    }

    const std::vector<int>& events() const noexcept { return events_; }
    int place(int event) const { return places_[index(event)]; }
    // Returns the place of the first event of the machine step that contains the event.
    int number(int event) const { return place(part_of_[index(event)]); }
    bool sequentially_consistent() const noexcept { return consistent_; }
    // Returns a write that comes before the event `number` in this order, but should come after it:
    // the write is newer than the value that the event read, or is behind the write of the event in
    // the modification order. Returns -1 if there is no such write.
    int newer_than(int number) const {
        const event& e = memory_.events[index(number)];
        int newest = -1;
        if (!is_access(e)) {
            return newest;
        }
        for (const int m : memory_.behind(e.object, e.message)) {
            const int other = memory_.msg(m).event;
            if (place(other) < place(number)) {
                newest = other;
            }
        }
        return newest;
    }

private:
    // Combines events into steps of the machine: the two halves of each read-modify-write, and the
    // events of a futex call while it holds its queue.
    void join_parts() {
        for (std::size_t i = 1; i < memory_.events.size(); ++i) {
            const event& before = memory_.events[i - 1];
            const event& e = memory_.events[i];
            if (before.id.thread != e.id.thread) {
                continue;
            }
            const bool second_half = e.what == event::kind::write && e.exclusive &&
                                     before.what == event::kind::read && before.object == e.object;
            const bool queue_held =
                is_futex(before) && is_futex(e) && before.what != event::kind::write &&
                before.what != event::kind::local && e.what != event::kind::local;
            if (second_half || queue_held) {
                part_of_[i] = part_of_[i - 1];
            }
        }
    }

    // Orders the steps so that each read reads the newest value of its object. Returns false if no
    // order of the steps has this property.
    bool sort() {
        const std::size_t all = memory_.events.size();
        std::vector<std::vector<int>> after(all); // a step has the number of its first event
        std::vector<int> missing(all, 0);
        const auto edge = [&](int a, int b) {
            a = part_of_[index(a)];
            b = part_of_[index(b)];
            if (a != b) {
                after[index(a)].push_back(b);
                ++missing[index(b)];
            }
        };
        std::vector<int> last(max_threads, -1);
        std::vector<int> starter(max_threads, -1);
        for (std::size_t i = 0; i < all; ++i) {
            const event& e = memory_.events[i];
            const int n = static_cast<int>(i);
            int& mine = last[e.id.thread];
            if (const int before = mine >= 0 ? mine : starter[e.id.thread]; before >= 0) {
                edge(before, n);
            }
            mine = n;
            if (is_start(e)) {
                starter[e.value] = n;
            } else if (is_join(e)) {
                edge(last[e.value], n);
            } else if (e.what == event::kind::local &&
                       std::strcmp(e.text, "futex_wait: woken") == 0) {
                for (std::size_t t = 0; t < max_threads; ++t) { // finds the wake
                    if (t != e.id.thread && e.causes.seen[t] != 0) {
                        edge(memory_.index_of({static_cast<std::uint8_t>(t), e.causes.seen[t]}), n);
                    }
                }
            }
        }
        for (int o = 0; o < memory_.objects(); ++o) {
            const auto& messages = memory_.at(o).messages;
            for (std::size_t i = 0; i < messages.size(); ++i) {
                const message& m = memory_.msg(messages[i]);
                const int next = i + 1 < messages.size() ? memory_.msg(messages[i + 1]).event : -1;
                if (m.event >= 0 && next >= 0) {
                    edge(m.event, next);
                }
                for (const int r : m.readers) {
                    if (m.event >= 0) {
                        edge(m.event, r);
                    }
                    if (next >= 0) {
                        edge(r, next);
                    }
                }
            }
        }
        std::vector<int> ready;
        for (std::size_t i = 0; i < all; ++i) {
            if (part_of_[i] == static_cast<int>(i) && missing[i] == 0) {
                ready.push_back(static_cast<int>(i));
            }
        }
        int thread = -1;
        while (!ready.empty()) {
            // The same thread continues while it can.
            auto next = std::min_element(ready.begin(), ready.end(), [&](int a, int b) {
                const auto other = [&](int n) {
                    return memory_.events[index(n)].id.thread != thread;
                };
                return std::pair(other(a), a) < std::pair(other(b), b);
            });
            const int n = *next;
            ready.erase(next);
            thread = memory_.events[index(n)].id.thread;
            for (std::size_t i = index(n); i < all && part_of_[i] == n; ++i) {
                events_.push_back(static_cast<int>(i));
            }
            for (const int b : after[index(n)]) {
                if (--missing[index(b)] == 0) {
                    ready.push_back(b);
                }
            }
        }
        return events_.size() == all;
    }

    const memory& memory_;
    std::vector<int> events_;
    std::vector<int> places_;
    std::vector<int> part_of_; // for each event, the first event of its machine step
    bool consistent_ = false;
};

// The names of the objects in a report. A name was set by model::name(), or is the name in a source
// line that uses the object.
class object_names {
public:
    explicit object_names(execution& x);
    const std::string& operator[](int object) const { return names_[index(object)]; }
    std::string of(const clash& c) const {
        return c.plain ? "var " + std::to_string(c.object) : names_[index(c.object)];
    }

private:
    std::vector<std::string> names_;
};

// Returns true if stronger memory orders could prevent the failure. They could if the execution is
// not sequentially consistent, or if two accesses are not ordered, unless the first of them is a
// destruction.
inline bool orders_matter(execution& x) {
    const clash* const c = clash_of(x);
    return (c != nullptr && c->earlier != clash::access::destroy) ||
           !step_order(x).sequentially_consistent();
}

const char* text(order o) {
    switch (o) {
    case order::relaxed: return "relaxed";
    case order::consume: return "consume";
    case order::acquire: return "acquire";
    case order::release: return "release";
    case order::acq_rel: return "acq_rel";
    case order::seq_cst: return "seq_cst";
    }
    return "?";
}

std::string text(bits value) {
    char out[32];
    std::snprintf(out, sizeof out, value < 0x10000 ? "%llu" : "0x%llx",
                  static_cast<unsigned long long>(value));
    return out;
}

std::string text(site s) {
    if (s.file == nullptr) {
        return {};
    }
    const char* const name = std::strrchr(s.file, '/');
    return std::string(name == nullptr ? s.file : name + 1) + ":" + std::to_string(s.line);
}

// Breaks lines that are longer than `width` at blanks, and indents the new lines.
std::string wrapped(const std::string& all, std::size_t width, std::size_t indent) {
    std::string out;
    for (std::size_t at = 0; at < all.size();) {
        const std::size_t end = std::min(all.find('\n', at), all.size());
        std::size_t room = width;
        while (end - at > room) {
            const std::size_t blank = all.rfind(' ', at + room);
            if (blank == std::string::npos || blank <= all.find_first_not_of(' ', at)) {
                break;
            }
            out.append(all, at, blank - at).append("\n").append(indent, ' ');
            at = blank + 1;
            room = width - indent;
        }
        out.append(all, at, end - at).append("\n");
        at = end + 1;
    }
    return out;
}

// Returns a text with a line for each step: its number, its thread, the operation, and the source
// position. For a read, the line also names the step that wrote the value, and says whether the
// value was the newest one.
std::string execution::trace() {
    const auto name = [&](int o) {
        const object& x = memory_.at(o);
        if (x.name != nullptr) {
            return std::string(x.name);
        }
        return (x.queue ? "futex" : "a") + std::to_string(o);
    };
    const auto padded = [](std::string s, std::size_t width) {
        s.resize(std::max(width, s.size()), ' ');
        return s;
    };
    const step_order steps(*this);
    std::string out;
    for (const int i : steps.events()) {
        const event& e = memory_.events[index(i)];
        const bool old = steps.newer_than(i) >= 0;
        std::string what;
        switch (e.what) {
        case event::kind::read: {
            const auto& from = memory_.msg(e.message);
            what = e.exclusive ? "rmw    " : "load   ";
            what += name(e.object) + " " + text(e.with) + " -> " + text(e.value);
            what += from.event < 0 ? ", the initial value"
                                   : ", of #" + std::to_string(steps.place(from.event));
            what += old ? " (old)" : "";
            break;
        }
        case event::kind::write:
            what = e.exclusive ? "   and  " : "store  ";
            what += name(e.object) + " " + text(e.with) + " := " + text(e.value);
            what += old ? " (before one that is there)" : "";
            break;
        case event::kind::fence: what = std::string("fence  ") + text(e.with); break;
        default: what = plain_text(e);
        }
        if (is_access(e) && e.text[0] != '\0') {
            what += std::string("  [") + e.text + "]";
        }
        out += padded("#" + std::to_string(steps.place(i)), 5) + std::string(4 * e.id.thread, ' ') +
               thread_text(e.id.thread) + " " + padded(std::move(what), 60) + "  " + text(e.where) +
               "\n";
    }
    return out;
}

// ---- The lines of the source, and the names of objects in the source.

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

// Returns the name of the object on which a source line operates: `tail_` for `tail_.store(1)`,
// `slots` for `slots[i].load()`. Returns an empty text if the line contains no operation of the
// kind of `e`, or several.
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
        if (is_access(e) && !m.at(e.object).queue && names_[index(e.object)].empty() &&
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
        } else if (e.what == event::kind::read && is_futex(e)) {
            names_[index(entered[e.id.thread])] = names_[index(e.object)];
        }
    }
}

}}} // namespace bide::BIDE_ABI::model::detail

#endif
