// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_REPORT_HPP
#define BIDE_MODEL_IMPL_REPORT_HPP

// The report of a failed execution: its steps in columns, and the cause of the failure, if the
// graph of the execution shows it.

#include <bide/model/impl/execution.hpp>
#include <bide/model/impl/history.hpp>

#include <fstream>
#include <numeric>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

inline const char* text(order o) {
    constexpr std::array<const char*, 6> texts = {"relaxed", "consume", "acquire",
                                                  "release", "acq_rel", "seq_cst"};
    return texts[static_cast<std::size_t>(o)];
}

inline std::string text(bits value) {
    char out[32];
    std::snprintf(out, sizeof out, value < 0x10000 ? "%llu" : "0x%llx",
                  static_cast<unsigned long long>(value));
    return out;
}

// Returns the name of the file, and the number of the line.
inline std::string text(site s) {
    s = resolved(s);
    if (s.file == nullptr) {
        return {};
    }
    const char* const name = std::strrchr(s.file, '/');
    return std::string(name == nullptr ? s.file : name + 1) + ":" + std::to_string(s.line);
}

// Returns the site of a number in code_places.
inline site site_at(int place) {
    if (place == code_places::none) {
        return {};
    }
    const heap::leave guard;
    const site found{in_code, places().number_of_brief(place), 0};
    // Without optimisation, the code is that of model::var, which says nothing.
    const site line = resolved(found);
    return line.file != nullptr && std::strstr(line.file, "bide/model/") != nullptr ? site{}
                                                                                    : found;
}

// Returns true if the event is a part of a futex call.
inline bool is_futex(const event& e) { return std::strncmp(e.text, "futex_", 6) == 0; }

// The text of a choice, or of a step that is no access and no fence.
inline std::string plain_text(const event& e) {
    return e.text + (e.what == event::kind::choice ? " " + std::to_string(e.pick)
                     : e.what == event::kind::start || e.what == event::kind::join
                         ? " " + thread_text(static_cast<int>(e.value))
                         : std::string());
}

// Returns the two accesses that were not ordered, if that is the failure; otherwise nullptr.
inline const clash* clash_of(execution& x) {
    const clash& c = x.mem().found();
    const bool is_clash = x.what() == failure::race || x.what() == failure::lifetime;
    return is_clash && c.object >= 0 ? &c : nullptr;
}

// Puts the events of an execution in one order. The wanted order agrees with program order,
// reads-from and the modification orders, and each read reads the newest value. If there is such an
// order, it is used, and the execution is sequentially consistent. Otherwise, the order is the one
// in which the checker made the events. Events that are parts of one step of the machine stay
// together.
class step_order {
public:
    explicit step_order(execution& x) : memory_(x.mem()) {
        const std::size_t all = memory_.events.size();
        part_of_.resize(all);
        std::iota(part_of_.begin(), part_of_.end(), 0);
        // The two halves of a read-modify-write are one step of the machine. So are the events that
        // a futex call makes while it holds the queue.
        for (std::size_t i = 1; i < all; ++i) {
            const event& before = memory_.events[i - 1];
            const event& e = memory_.events[i];
            const bool second_half = e.what == event::kind::write && e.exclusive &&
                                     before.what == event::kind::read && before.object == e.object;
            const bool queue_held =
                is_futex(before) && is_futex(e) && before.what != event::kind::write &&
                before.what != event::kind::local && e.what != event::kind::local;
            if (before.id.thread == e.id.thread && (second_half || queue_held)) {
                part_of_[i] = part_of_[i - 1];
            }
        }
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
    // Returns a write that comes before the event `number` in this order, but should come after it.
    // The write is newer than the value that the event read, or is behind the event's own write in
    // the modification order. Returns -1 if there is no such write.
    int newer_than(int number) const {
        const event& e = memory_.event_at(number);
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
    // Orders the steps so that each read reads the newest value of its object. Returns false if no
    // order of the steps has this property.
    bool sort() {
        const std::size_t all = memory_.events.size();
        std::vector<std::vector<int>> after(all); // a step has the number of its first event
        std::vector<int> missing(all, 0);
        const auto edge = [&](int a, int b) { // -1: there is no such event
            a = a < 0 ? a : part_of_[index(a)];
            b = b < 0 ? b : part_of_[index(b)];
            if (a >= 0 && b >= 0 && a != b) {
                after[index(a)].push_back(b);
                ++missing[index(b)];
            }
        };
        for (std::size_t i = 0; i < all; ++i) {
            const event& e = memory_.events[i];
            const int n = static_cast<int>(i);
            edge(memory_.predecessor(e.id), n);
            if (e.what == event::kind::join) {
                edge(memory_.of_thread(static_cast<int>(e.value)).back(), n);
            } else if (e.what == event::kind::local &&
                       std::strcmp(e.text, "futex_wait: woken") == 0) {
                for (std::size_t t = 0; t < max_threads; ++t) { // finds the wake
                    if (t != e.id.thread && e.causes.seen[t] != 0) {
                        edge(memory_.number_of({static_cast<std::uint8_t>(t), e.causes.seen[t]}),
                             n);
                    }
                }
            }
        }
        for (int o = 0; o < memory_.objects(); ++o) {
            const auto& messages = memory_.at(o).messages;
            for (std::size_t i = 0; i < messages.size(); ++i) {
                const message& m = memory_.msg(messages[i]);
                const bool is_followed = i + 1 < messages.size() && !memory_.at(o).free_list;
                const int next = is_followed ? memory_.msg(messages[i + 1]).event : -1;
                edge(m.event, next);
                for (const int r : m.readers) {
                    edge(m.event, r);
                    edge(r, next);
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
                const auto other = [&](int n) { return memory_.event_at(n).id.thread != thread; };
                return std::pair(other(a), a) < std::pair(other(b), b);
            });
            const int n = *next;
            ready.erase(next);
            thread = memory_.event_at(n).id.thread;
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

// Returns the text of the source line, without leading and trailing blanks. If the file cannot be
// read, returns an empty text.
inline const std::string& source_text(site s) {
    static std::map<std::string, std::vector<std::string>> files;
    static const std::string none;
    s = resolved(s);
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
// `slots` for `slots[i].load()`. Only operations of the kind of `e` count. Returns an empty text
// unless the line contains exactly one of them, on an object with a name.
inline std::string object_in(std::string_view line, const event& e) {
    constexpr std::array<std::string_view, 9> operations = {
        "store(",     "load(",      "compare_exchange_", "exchange(", "fetch_add(",
        "fetch_sub(", "fetch_and(", "fetch_or(",         "fetch_xor("};
    constexpr std::string_view letters =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    // A compare-exchange that fails is a load.
    const bool stores = e.what == event::kind::write;
    const std::size_t first = e.exclusive ? 2 : stores ? 0 : 1;
    const std::size_t last = e.exclusive ? operations.size() : stores ? 1 : 3;
    std::string found;
    for (std::size_t n = first; n < last; ++n) {
        for (auto at = line.find(operations[n]); at != line.npos;
             at = line.find(operations[n], at + 1)) {
            std::string_view before = line.substr(0, at);
            if (!before.ends_with('.') && !before.ends_with("->")) {
                continue;
            }
            before.remove_suffix(before.ends_with('.') ? 1 : 2);
            if (before.ends_with(']')) {
                before = before.substr(0, before.rfind('['));
            }
            before.remove_prefix(before.find_last_not_of(letters) + 1);
            if (!found.empty() || before.empty()) {
                return {};
            }
            found = before;
        }
    }
    return found;
}

// Returns the names of the variables in a source line: `data` for `box->data = f(1)`, and `slots`
// for `slots[i]`. A name of one letter says too little.
inline std::vector<std::string_view> variables_in(std::string_view line) {
    constexpr std::string_view letters =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    std::vector<std::string_view> out;
    while (!line.empty()) {
        const std::size_t end = std::min(line.find_first_not_of(letters), line.size());
        const std::string_view word = line.substr(0, end);
        line.remove_prefix(std::max(end, std::size_t{1}));
        // An object whose member is used, a function, and a type are not what is accessed.
        const bool is_object = line.starts_with('.') || line.starts_with("->");
        const bool is_other =
            line.starts_with('(') || line.starts_with("::") ||
            (line.starts_with(' ') && line.size() > 1 && letters.find(line[1]) != letters.npos);
        if (word.size() > 1 && (word.front() < '0' || word.front() > '9') && !is_object &&
            !is_other) {
            out.push_back(word);
        }
    }
    return out;
}

// Returns the only variable that occurs in both lines. If there is none, or more than one, returns
// an empty text.
inline std::string common_name(const std::string& one, const std::string& other) {
    std::string_view found;
    const std::vector<std::string_view> others = variables_in(other);
    for (const std::string_view name : variables_in(one)) {
        if (std::find(others.begin(), others.end(), name) != others.end()) {
            if (!found.empty() && found != name) {
                return {};
            }
            found = name;
        }
    }
    return std::string(found);
}

// The names of the objects in a report. A name was set by model::name(), or is the name in a source
// line that uses the object.
class object_names {
public:
    explicit object_names(execution& x) : names_(index(x.mem().objects())) {
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
            const object& one = m.at(static_cast<int>(o));
            const bool queue = one.queue && !one.free_list;
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
    const std::string& operator[](int object) const { return names_[index(object)]; }
    std::string of(const clash& c) const {
        if (!c.is_memory && !c.plain) {
            return names_[index(c.object)];
        }
        const std::string name =
            common_name(source_text(site_at(c.first_at)), source_text(site_at(c.second_at)));
        return !name.empty() ? name : c.is_memory ? "memory" : "var " + std::to_string(c.object);
    }

private:
    std::vector<std::string> names_;
};

// Returns true if stronger memory orders could prevent the failure. This is so if the execution is
// not sequentially consistent, or if two accesses are not ordered. Exception: if the first access
// is a destruction, the second one fails with the strongest orders, too.
inline bool orders_matter(execution& x) {
    const clash* const c = clash_of(x);
    return (c != nullptr && c->earlier != clash::access::destroy) ||
           !step_order(x).sequentially_consistent();
}

// The data from which the parts of a report are made.
struct account {
    explicit account(execution& x) : x_(x), memory_(x.mem()), order_(x), names_(x) {}

    // Returns the number of the step of the machine that contains the event, as text.
    std::string step(int event) const { return "#" + std::to_string(order_.number(event)); }
    // Returns true if the event is an access to the wait queue of a futex.
    bool is_queue(const event& e) const { return memory_.at(e.object).queue && !is_heap(e); }
    // Returns true if the event takes a freed block, or adds one.
    bool is_heap(const event& e) const { return memory_.at(e.object).free_list; }
    // Returns the operation of an event. For an access, that includes the object, the order and the
    // value, and whether the value was the newest one.
    std::string event_text(int number) const {
        const event& e = memory_.event_at(number);
        if (!is_access(e)) {
            return e.what == event::kind::fence ? std::string("fence  ") + text(e.with)
                                                : plain_text(e);
        }
        const bool reads = e.what == event::kind::read;
        const std::string& name = names_[e.object];
        std::string what =
            reads ? (e.exclusive ? "rmw    " : "load   ") : (e.exclusive ? "   and  " : "store  ");
        what += (is_queue(e) ? "futex(" + name + ")" : name) + " " + text(e.with) +
                (reads ? " -> " : " := ") + text(e.value);
        if (reads) {
            const int writer = memory_.msg(e.message).event;
            what += writer < 0 ? ", the initial value"
                               : ", of #" + std::to_string(order_.place(writer));
        }
        if (order_.newer_than(number) >= 0) {
            what += reads ? " (old)" : " (before one that is there)";
        }
        return *e.text == '\0' ? what : what + "  [" + e.text + "]";
    }

    execution& x_;
    const memory& memory_;
    const step_order order_;
    const object_names names_;
};

// Splits a text into lines. A line that is longer than `width` is broken, at a blank if there is
// one, and the rest is indented.
inline std::vector<std::string> lines_of(std::string_view text, std::size_t width,
                                         std::size_t indent) {
    std::vector<std::string> out;
    while (!text.empty()) {
        std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        for (std::size_t left = 0;;) { // the indentation of this line
            std::size_t end = line.size();
            if (left + end > width) {
                end = line.rfind(' ', width - left);
                end = end == line.npos || end <= line.find_first_not_of(' ') ? width - left : end;
            }
            out.push_back(std::string(left, ' ').append(line.substr(0, end)));
            line.remove_prefix(end);
            line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
            if (line.empty()) {
                break;
            }
            left = indent;
        }
    }
    return out;
}

// Returns a text with a line for each step: its number, its thread, the operation, and the source
// position.
inline std::string trace_of(execution& x) {
    const auto padded = [](std::string s, std::size_t width) {
        s.resize(std::max(width, s.size()), ' ');
        return s;
    };
    const account all(x);
    std::string out;
    for (const int i : all.order_.events()) {
        const event& e = all.memory_.event_at(i);
        out += padded("#" + std::to_string(all.order_.place(i)), 5) +
               std::string(4 * e.id.thread, ' ') + thread_text(e.id.thread) + " " +
               padded(all.event_text(i), 60) + "  " + text(e.where) + "\n";
    }
    return out;
}

// The steps in columns, one for each thread.
class columns : account {
public:
    using account::account;

    std::string print() {
        collect();
        const bool in_columns = (whole_width + 1) / threads_ >= least_width + 3;
        width_ = in_columns ? (whole_width + 3) / threads_ - 3 : whole_width - 2 * threads_ - 5;
        if (in_columns) {
            std::vector<std::string> titles;
            for (std::size_t t = 0; t < threads_; ++t) {
                titles.push_back(thread_text(static_cast<int>(t)));
            }
            row(titles, " | ", ' ');
            row(std::vector<std::string>(threads_), "-+-", '-');
        }
        std::array<site, max_threads> shown{}; // the source line that each thread has shown last
        const std::vector<cell> all_cells = folded();
        const std::size_t left_out = all_cells.size() - std::min(all_cells.size(), most_cells);
        std::size_t number = 0;
        for (const cell& c : all_cells) {
            const std::size_t i = number++;
            if (i >= first_cells && i - first_cells < left_out) {
                out_ += i > first_cells
                            ? ""
                            : "... " + std::to_string(left_out) + " steps are not shown\n";
                continue;
            }
            site& before = shown[index(c.thread)];
            const bool same = before.file == c.where.file && before.line == c.where.line;
            before = c.where;
            for (const std::string& line : text_of(c, !same)) {
                if (in_columns) {
                    std::vector<std::string> all(threads_);
                    all[index(c.thread)] = line;
                    row(std::move(all), " | ", ' ');
                } else {
                    row({std::string(2 * index(c.thread), ' ') + thread_text(c.thread) + "  " +
                         line},
                        "", ' ');
                }
            }
        }
        return out_;
    }

private:
    static constexpr std::size_t whole_width = 110;
    static constexpr std::size_t least_width = 26;
    static constexpr std::size_t most_cells = 150; // further cells, in the middle, are left out
    static constexpr std::size_t first_cells = 30;

    struct cell {
        int thread = 0;
        std::string number; // "#3", or "**" for what is no step
        std::string what;
        site where;
        std::string note;

        bool is_same(const cell& other) const {
            return thread == other.thread && what == other.what && note == other.note &&
                   where.line == other.where.line && where.file == other.where.file;
        }
    };

    // Returns the cells in their order. If a thread makes the same steps at least three times one
    // after the other, these steps are there once.
    std::vector<cell> folded() const {
        constexpr std::size_t most_steps_of_loop = 4;
        std::vector<cell> all;
        for (const auto& [place, c] : cells_) {
            all.push_back(c);
        }
        std::vector<cell> out;
        for (std::size_t at = 0; at < all.size();) {
            std::size_t length = 1;
            std::size_t rounds = 0;
            for (; length <= most_steps_of_loop && rounds < 3; length += rounds < 3 ? 1 : 0) {
                std::size_t end = at + length;
                while (end < all.size() && all[end].thread == all[at].thread &&
                       all[end].is_same(all[end - length])) {
                    ++end;
                }
                rounds = (end - at) / length;
            }
            if (rounds < 3) {
                out.push_back(all[at++]);
                continue;
            }
            out.insert(out.end(), all.begin() + static_cast<std::ptrdiff_t>(at),
                       all.begin() + static_cast<std::ptrdiff_t>(at + length));
            std::string& note = out.back().note;
            note += (note.empty() ? "" : "; ") +
                    (length == 1 ? std::string("the same ")
                                 : "these " + std::to_string(length) + " steps ") +
                    std::to_string(rounds - 1) + " more times, to " +
                    all[at + rounds * length - 1].number;
            at += rounds * length;
        }
        return out;
    }

    // Adds a line. Each text is filled up to the width of a column.
    void row(std::vector<std::string> all, const char* between, char fill) {
        std::string line;
        for (std::string& one : all) {
            one.resize(std::max(width_, one.size()), fill);
            line += (line.empty() ? "" : between) + one;
        }
        line.resize(line.find_last_not_of(' ') + 1);
        out_ += line + "\n";
    }

    std::string of(const event& read) const {
        const int writer = memory_.msg(read.message).event;
        return writer < 0 ? " (init)" : " (of " + step(writer) + ")";
    }

    void collect() {
        mark_failure();
        for (std::size_t at = 0; at < order_.events().size();) {
            at += add_step(at);
        }
        for (const auto& [place, c] : cells_) {
            threads_ = std::max(threads_, index(c.thread) + 1);
        }
    }

    // Adds the step of the machine that begins at place `at`. Returns how many events it has.
    std::size_t add_step(std::size_t at) {
        const auto& all = order_.events();
        std::vector<int> parts{all[at]};
        const event& e = memory_.event_at(all[at]);
        for (std::size_t i = at + 1;
             i < all.size() && order_.number(all[i]) == order_.number(parts.front()); ++i) {
            parts.push_back(all[i]);
        }
        cell c;
        c.thread = e.id.thread;
        c.where = resolved(e.where);
        if (is_access(e)) {
            c.what = is_futex(e)
                         ? futex(parts)
                         : access(e, parts.size() > 1 ? &memory_.event_at(parts[1]) : nullptr);
        } else {
            c.what = e.what == event::kind::fence ? std::string("fence(") + text(e.with) + ")"
                                                  : plain_text(e);
        }
        for (const int part : parts) {
            note_old(c, part);
        }
        c.number = step(parts.front());
        const bool is_new_block =
            e.what == event::kind::read && is_heap(e) && memory_.msg(e.message).event < 0;
        if (!is_new_block && std::strcmp(e.text, "end") != 0) {
            cells_.emplace(2 * at + 1, std::move(c));
        }
        return parts.size();
    }

    std::string access(const event& e, const event* second) const {
        if (is_heap(e)) {
            return e.what == event::kind::write ? "frees a block"
                                                : "allocates the freed block" + of(e);
        }
        const std::string name = names_[e.object] + ".";
        const std::string with = text(e.with);
        if (second != nullptr) {
            return name + "rmw(" + with + "): " + text(e.value) + " -> " + text(second->value) +
                   of(e);
        }
        if (e.what == event::kind::write) {
            return name + "store(" + text(e.value) + ", " + with + ")";
        }
        if (source_text(e.where).find("compare_exchange") != std::string::npos) {
            return name + "cas fails(" + with + "): " + text(e.value) + of(e);
        }
        return name + "load(" + with + "): " + text(e.value) + of(e);
    }

    // Returns the text of a futex call, or of the part of it that is one step of the machine.
    std::string futex(const std::vector<int>& parts) const {
        const event& first = memory_.event_at(parts.front());
        const event& last = memory_.event_at(parts.back());
        const std::string call(first.text, std::strcspn(first.text, ":"));
        std::string what = call + "(" + names_[first.object] + ")";
        for (const int part : parts) {
            const event& e = memory_.event_at(part);
            if (e.what == event::kind::read && !is_queue(e)) {
                what += " reads " + text(e.value) + of(e);
            }
        }
        const std::string_view said = last.text;
        if (last.what != event::kind::write || !is_queue(last)) {
            return what;
        }
        if (call == "futex_wait") {
            return what + (said.ends_with("sleeps") ? ": sleeps"
                           : said.ends_with("goes on")
                               ? ": does not sleep"
                               : std::string(first.text).substr(call.size()));
        }
        std::string woken;
        for (int t = 0; t < max_threads; ++t) {
            if (contains(first.value, t) && !contains(last.value, t)) {
                woken += (woken.empty() ? " T" : ", T") + std::to_string(t);
            }
        }
        return what + ": wakes" + (woken.empty() ? " no thread" : woken);
    }

    void note_old(cell& c, int number_of_event) const {
        const event& e = memory_.event_at(number_of_event);
        const int newer = order_.newer_than(number_of_event);
        if (newer < 0 || is_queue(e)) {
            return;
        }
        const event& write = memory_.event_at(newer);
        c.note = e.what == event::kind::read
                     ? "OLD: " + step(newer) + " wrote " + text(write.value) +
                           ", and does not happen before this"
                     : "goes before " + step(newer) + " in the modification order";
    }

    // Adds a line before the event `id`. If the event does not exist, adds the line at the end.
    // There, the line of the thread that has failed comes last.
    void mark(event_id id, const std::string& text, site where = {}) {
        const int n = memory_.number_of(id);
        const bool is_last = id.thread == x_.failed_by();
        const std::size_t place =
            n >= 0 ? index(order_.place(n)) : memory_.events.size() + (is_last ? 1 : 0);
        cells_.emplace(2 * place, cell{id.thread, "**", text, where, {}});
    }

    // Marks the accesses that are not steps, and the place of the failure.
    void mark_failure() {
        constexpr std::array<const char*, 5> verbs = {"reads", "writes", "makes", "destroys",
                                                      "uses"};
        if (const clash* const c = clash_of(x_); c != nullptr) {
            const auto verb = [&](clash::access a) {
                return c->is_memory && a == clash::access::destroy
                           ? std::string("frees")
                           : std::string(verbs[static_cast<std::size_t>(a)]);
            };
            const std::string what = " " + names_.of(*c);
            if (!c->first.is_initial() && c->earlier != clash::access::use) {
                mark(c->first, verb(c->earlier) + what, site_at(c->first_at));
            }
            mark(c->second, verb(c->later) + what, site_at(c->second_at));
            return;
        }
        for (int t = 0; t < x_.threads(); ++t) {
            const event_id end{static_cast<std::uint8_t>(t), most_steps};
            const model_thread& one = x_.thread(t);
            const auto wants = one.wants.what;
            if (t == x_.failed_by()) {
                mark(end, "here: " + x_.message());
            } else if (x_.failed_by() < 0 && one.started && !one.finished &&
                       (wants == request::kind::sleep || wants == request::kind::pause)) {
                mark(end, wants == request::kind::sleep ? "sleeps for ever" : "spins for ever");
            }
        }
    }

    // Aligns the text to the left, cut if necessary, and the source position to the right.
    std::string beside(std::string text, const std::string& place) const {
        const std::size_t taken = place.empty() ? 0 : place.size() + 1;
        const std::size_t room = width_ - std::min(width_, taken);
        if (text.size() > room) {
            text.resize(room - std::min(room, std::size_t{3}));
            text += "...";
        }
        if (!place.empty()) {
            text.resize(std::max(text.size(), width_ - std::min(width_, place.size())), ' ');
        }
        return text + place;
    }

    // Returns a source line. If the expression of the step would be cut, leaves the beginning out.
    static std::string cut_around(const std::string& source, const cell& c, std::size_t room) {
        constexpr std::size_t least = 24; // of the expression
        const std::string object = c.what.substr(0, c.what.find_first_of(".("));
        std::size_t at = source.npos;
        for (const char* const use : {".", "->", "[", "("}) {
            at = at == source.npos && !object.empty() ? source.find(object + use) : at;
        }
        if (source.size() <= room || at == source.npos ||
            at + std::min(least, source.size() - at) + 3 <= room) {
            return source;
        }
        const std::size_t most = source.size() - std::min(source.size(), room - 3);
        return "..." + source.substr(std::min(at, most));
    }

    std::vector<std::string> text_of(const cell& c, bool with_source) const {
        constexpr std::size_t least_source = 20;
        const std::string place = text(c.where);
        const std::size_t indent = std::min(c.number.size() + 1, std::size_t{5});
        std::vector<std::string> out = lines_of(c.number + " " + c.what, width_, indent);
        const std::string& source = source_text(c.where);
        const bool has_source = with_source && !source.empty();
        bool fits = out.back().size() + 2 + place.size() <= width_;
        const std::size_t before = indent + 2; // the source line
        if (!fits && has_source && before + least_source + 1 + place.size() > width_) {
            out.emplace_back(); // the place has a line of its own
            fits = true;
        }
        if (!place.empty() && (fits || !has_source)) {
            if (!fits) {
                out.emplace_back();
            }
            out.back() = beside(out.back(), place);
        }
        if (has_source) {
            const std::size_t room =
                width_ - std::min(width_, before + (fits ? 0 : place.size() + 1));
            out.push_back(beside(std::string(indent, ' ') + "| " + cut_around(source, c, room),
                                 fits ? "" : place));
        }
        if (!c.note.empty()) {
            for (std::string& line : lines_of(std::string(indent, ' ') + c.note, width_, indent)) {
                out.push_back(std::move(line));
            }
        }
        return out;
    }

    std::string out_;
    // The lines in their order. The key of a step is 2 * place + 1, with the place of its first
    // event. The key of a mark is 2 * place, with the place of the event that the mark precedes.
    std::multimap<std::size_t, cell> cells_;
    std::size_t width_ = 0;
    std::size_t threads_ = 1;
};

// Explains a failure from the graph of its execution alone.
//
// A data race and a read of an old value have the same cause: the step of the writer does not
// happen before the step of the reader. Even so, the reader may have read, directly or through
// other threads, a value that the writer wrote after its step. The reads that passed this value on
// are a path from the writer to the reader. One of them did not synchronise, because the write that
// it read is not a release, or because the read is not an acquire. The report names the first such
// read on the shortest path.
class causes : account {
public:
    using account::account;

    std::string print() {
        if (const clash* const c = clash_of(x_)) {
            return clash_text(*c) + (orders_matter(x_) ? "" : no_order);
        }
        if (order_.sequentially_consistent()) { // calls may still lack synchronisation
            return x_.what() == failure::not_linearizable ? "" : no_order;
        }
        std::string out;
        int said = 0;
        const auto& all = order_.events();
        for (auto at = all.rbegin(); at != all.rend() && said < 2; ++at) {
            const event& e = memory_.event_at(*at);
            if (e.what == event::kind::read && !is_queue(e) && order_.newer_than(*at) >= 0) {
                out = old_read(*at) + out;
                ++said;
            }
        }
        return out;
    }

private:
    // A reads-from edge of the path from one step to another.
    struct edge {
        int write = -1;
        int read = -1;
        int leaves = -1; // the step of the reader's thread from which the path leaves the thread
    };

    static constexpr const char* no_order =
        "Each read of these steps reads the newest value: no stronger order excludes them.\n";

    // Describes a step: `the store of 2 to tail_ (#11, relaxed, ring.hpp:20)`, and its thread.
    std::string called(int number) const {
        const event& e = memory_.event_at(number);
        std::string what = thread_text(e.id.thread) + "'s ";
        if (is_queue(e)) {
            what += e.what == event::kind::write ? "futex_wake of " : "futex_wait on ";
            what += names_[e.object];
        } else if (e.exclusive) {
            what += "read-modify-write of " + names_[e.object];
        } else if (e.what == event::kind::write) {
            what += "store of " + text(e.value) + " to " + names_[e.object];
        } else {
            what += "load of " + names_[e.object];
        }
        what += " (" + step(number) + ", " + text(e.with);
        return what + (e.where.file == nullptr ? ")" : ", " + text(e.where) + ")");
    }

    std::string clash_text(const clash& c) const {
        constexpr std::array<const char*, 5> nouns = {"read", "write", "construction",
                                                      "destruction", "access"};
        const std::string what = names_.of(c);
        const auto said = [&](clash::access a, event_id e, int place) {
            std::string out =
                thread_text(e.thread) + "'s " +
                (c.is_memory && a == clash::access::destroy ? "release"
                                                            : nouns[static_cast<std::size_t>(a)]) +
                " of " + what;
            if (const std::string at = text(site_at(place)); !at.empty()) {
                out += " at " + at;
            }
            if (const std::string by = text(caller_of(site_at(place))); !by.empty()) {
                out += ", called at " + by;
            }
            // The access is a step, or is between two steps, or is after the last step.
            const int next = memory_.number_of(e);
            const int shown = next >= 0 || e.index <= 1 ? next : memory_.predecessor(e);
            if (shown >= 0) {
                const std::string line = text(memory_.event_at(shown).where);
                out += a == clash::access::use ? " (" : next >= 0 ? " (before " : " (after ";
                out += step(shown) + (line.empty() ? "" : ", " + line) + ")";
            }
            return out;
        };
        if (c.first.is_initial() || c.first.thread == c.second.thread) {
            return said(c.later, c.second, c.second_at) +
                   " follows its destruction by the same thread.\n";
        }
        if (c.earlier == clash::access::destroy &&
            x_.thread(c.second.thread).knows.hb.covers(c.first)) {
            return said(c.later, c.second, c.second_at) + " follows " +
                   said(c.earlier, c.first, c.first_at) + ".\n";
        }
        return said(c.earlier, c.first, c.first_at) + " does not happen before " +
               said(c.later, c.second, c.second_at) + ".\n" + missing(c.first, c.second) + "\n";
    }

    // Explains why `from` does not happen before `to`. `to` is a step of the execution, or the step
    // that its thread would make next.
    std::string missing(event_id from, event_id to) const {
        if (to.is_initial() || from.is_initial()) {
            return {};
        }
        for (const edge& e : way(from, memory_.predecessor(to))) {
            const event& write = memory_.event_at(e.write);
            const bool carried = memory_.msg(write.message).sync.covers(from);
            const event& read = memory_.event_at(e.read);
            if (is_queue(read) || !carried || !memory_.event_at(e.leaves).hb.covers(from)) {
                return "Missing edge: " + unsynchronised(e, carried);
            }
        }
        return "Missing edge: before it, " + thread_text(to.thread) + " read nothing that " +
               thread_text(from.thread) + " wrote later, directly or through other threads.";
    }

    // Returns the reads-from edges of a path to the step `to`. The path begins at the step `from`,
    // or at a later step of the same thread, and has as few of these edges as possible. If there is
    // no such path, returns nothing.
    std::vector<edge> way(event_id from, int to) const {
        constexpr int far = std::numeric_limits<int>::max();
        constexpr int wake = 1'000; // the cost of a wake, which synchronises nothing
        std::vector<int> cost(memory_.events.size(), far);
        std::vector<int> next(memory_.events.size(), -1);
        if (to < 0) {
            return {};
        }
        cost[index(to)] = 0;
        const auto offer = [&](int before, int by, int more) {
            if (before >= 0 && cost[index(by)] + more < cost[index(before)]) {
                cost[index(before)] = cost[index(by)] + more;
                next[index(before)] = by;
            }
        };
        int best = -1;
        for (int n = to; n >= 0; --n) {
            if (cost[index(n)] == far) {
                continue;
            }
            const event& e = memory_.event_at(n);
            offer(memory_.predecessor(e.id), n, 0);
            if (e.what == event::kind::read) {
                offer(memory_.msg(e.message).event, n, is_queue(e) ? wake : 1);
            } else if (e.what == event::kind::join) {
                offer(memory_.of_thread(static_cast<int>(e.value)).back(), n, 0);
            }
            if (e.id.thread == from.thread && e.id.index >= from.index &&
                (best < 0 || cost[index(n)] < cost[index(best)])) {
                best = n;
            }
        }
        std::vector<edge> out;
        for (int n = best; n >= 0 && n != to; n = next[index(n)]) {
            const int by = next[index(n)];
            const event& a = memory_.event_at(n);
            const event& b = memory_.event_at(by);
            const bool same_thread = a.id.thread == b.id.thread;
            if (b.what == event::kind::read && memory_.msg(b.message).event == n && !same_thread) {
                out.push_back({n, by, by});
            } else if (same_thread && !out.empty() && out.back().leaves == n) {
                out.back().leaves = by;
            }
        }
        return out;
    }

    // Explains why an edge does not synchronise. If `carried` is true, the message of the write has
    // the needed clock, so only the read is at fault.
    std::string unsynchronised(const edge& e, bool carried) const {
        const event& read = memory_.event_at(e.read);
        const std::string out = called(e.read) + " reads from " + called(e.write) + ", but ";
        if (is_queue(read)) {
            return out + "a futex orders nothing.";
        }
        if (carried) {
            return out + "the read is no acquire.";
        }
        const event_id last = memory_.event_at(e.leaves).id;
        const auto is_fence = [&](const event& f) { // of the path, after the read
            return f.what == event::kind::fence && is_acquire(f.with) &&
                   f.id.thread == last.thread && f.id.index > read.id.index &&
                   f.id.index <= last.index;
        };
        return out + (is_acquire(read.with) ||
                              std::any_of(memory_.events.begin(), memory_.events.end(), is_fence)
                          ? "the write is no release."
                          : "the write is no release and the read is no acquire.");
    }

    std::string old_read(int number) const {
        const event& e = memory_.event_at(number);
        const int newer = order_.newer_than(number);
        const event& write = memory_.event_at(newer);
        const int from = memory_.msg(e.message).event;
        std::string out = called(number) + " reads the older value " + text(e.value) +
                          (from < 0 ? ", the initial one" : " of " + step(from)) + ": " +
                          called(newer) + " does not happen before it.\n";
        const std::string both = store_buffer(number, newer);
        return out + (both.empty() ? missing(write.id, e.id) : both) + "\n";
    }

    // Finds the store-buffering pattern: each of two threads writes an object, then reads the
    // object that the other thread wrote, and does not see that write. Returns an explanation. If
    // the pattern does not occur, returns an empty text.
    std::string store_buffer(int read, int newer) const {
        const event& r = memory_.event_at(read);
        const event& w = memory_.event_at(newer);
        for (const event& other : memory_.events) {
            if (other.what != event::kind::read || other.id.thread != w.id.thread ||
                other.id.index <= w.id.index || is_queue(other) || other.object == r.object) {
                continue;
            }
            for (const int m : memory_.behind(other.object, other.message)) {
                const int mine = memory_.msg(m).event;
                const event& write = memory_.event_at(mine);
                if (write.id.thread == r.id.thread && write.id.index < r.id.index) {
                    return "Both threads write, then read what the other one wrote, and miss it:\n"
                           "    " +
                           called(mine) + ", " + called(read) + "\n    " + called(newer) + ", " +
                           called(memory_.number_of(other.id)) +
                           "\nOrders below seq_cst allow that. It is forbidden if all four are "
                           "seq_cst, or if each of the threads has a seq_cst fence between its "
                           "write and its read.";
                }
            }
        }
        return {};
    }
};

// Returns the whole report of an execution.
inline std::string report_of(execution& x) {
    std::string out = histories_text(x) + columns(x).print() + "\n";
    for (const std::string& line : lines_of(causes(x).print(), 110, 4)) {
        out += line + "\n";
    }
    return out;
}

}}} // namespace bide::BIDE_ABI::model::detail

#endif
