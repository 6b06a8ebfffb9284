// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_INTERLEAVING_HPP
#define BIDE_MODEL_IMPL_INTERLEAVING_HPP

// Shows the steps of an execution in columns, one for each thread.

#include <bide/core/config.hpp>
#include <bide/model/detail/execution.hpp>
#include <bide/model/impl/report.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

class columns {
public:
    columns(execution& x, const step_order& steps, const object_names& names)
        : x_(x), memory_(x.mem()), order_(steps), names_(names) {}

    std::string print() {
        collect();
        const bool in_columns = (whole_width + 1) / threads_ >= least_width + 3;

        width_ = in_columns ? (whole_width + 3) / threads_ - 3 : whole_width - 2 * threads_ - 5;
        std::string out;
        const auto row = [&](std::size_t thread, const std::string& line) {
            std::string all;
            if (in_columns) {
                for (std::size_t t = 0; t < threads_; ++t) {
                    std::string mine = t == thread ? line : std::string();
                    mine.resize(std::max(width_, mine.size()), ' ');
                    all += (t == 0 ? "" : " | ") + mine;
                }
            } else {
                all = std::string(2 * thread, ' ') + "T" + std::to_string(thread) + "  " + line;
            }
            all.resize(all.find_last_not_of(' ') + 1);
            out += all + "\n";
        };
        if (in_columns) {
            for (std::size_t t = 0; t < threads_; ++t) {
                std::string title = "T" + std::to_string(t);
                title.resize(t + 1 < threads_ ? width_ : title.size(), ' ');
                out += (t == 0 ? "" : " | ") + title;
            }
            out += "\n";
            for (std::size_t t = 0; t < threads_; ++t) {
                out += (t == 0 ? "" : "-+-") + std::string(width_, '-');
            }
            out += "\n";
        }
        std::array<site, max_threads> shown{}; // the source line that each thread has shown last
        for (std::size_t i = 0; i < cells_.size(); ++i) {
            if (cells_.size() > most_cells && i == first_cells) {
                const std::size_t left_out = cells_.size() - most_cells;
                out += "... " + std::to_string(left_out) + " steps are not shown\n";
                i += left_out;
            }
            const cell& c = cells_[i];
            site& before = shown[index(c.thread)];
            const bool same = before.file == c.where.file && before.line == c.where.line;
            before = c.where;
            for (const std::string& line : text_of(c, !same)) {
                row(index(c.thread), line);
            }
        }
        return out;
    }

private:
    static constexpr std::size_t whole_width = 110;
    static constexpr std::size_t least_width = 26;
    static constexpr std::size_t most_cells = 150; // further cells, in the middle, are left out
    static constexpr std::size_t first_cells = 30;

    struct cell {
        int thread = 0;
        std::string what;
        site where;
        std::string note;
    };

    std::string number(int event) const { return "#" + std::to_string(order_.number(event)); }
    std::string of(const event& read) const {
        const int writer = memory_.msg(read.message).event;
        return writer < 0 ? " (init)" : " (of " + number(writer) + ")";
    }

    void collect() {
        for (const event& e : memory_.events) {
            threads_ = std::max(threads_, std::size_t{e.id.thread} + 1);
        }
        mark_failure();
        for (std::size_t t = 0; t < max_threads; ++t) {
            threads_ = marks_[t].empty() ? threads_ : std::max(threads_, t + 1);
        }
        const auto take_marks = [&](std::size_t thread, std::uint32_t before) {
            auto& all = marks_[thread];
            for (const auto& [place, what] : all) {
                if (place <= before) {
                    cells_.push_back({static_cast<int>(thread), what, {}, {}});
                }
            }
            std::erase_if(all, [&](const auto& m) { return m.first <= before; });
        };
        for (std::size_t at = 0; at < order_.events().size();) {
            const event& e = memory_.events[index(order_.events()[at])];
            take_marks(e.id.thread, e.id.index);
            step(at);
        }
        const int last = x_.failed_by(); // its marks come last
        for (int t = 0; t < max_threads; ++t) {
            if (t != last) {
                take_marks(index(t), ~0u);
            }
        }
        take_marks(index(std::max(last, 0)), ~0u);
    }

    // Shows the step of the machine that begins at place `at`.
    void step(std::size_t& at) {
        const auto& all = order_.events();
        std::vector<int> parts{all[at]};
        const event& e = memory_.events[index(all[at])];
        for (std::size_t i = at + 1;
             i < all.size() && order_.number(all[i]) == order_.number(parts.front()); ++i) {
            parts.push_back(all[i]);
        }
        cell c;
        c.thread = e.id.thread;
        c.where = e.where;
        if (is_access(e)) {
            c.what = is_futex(e)
                         ? futex(parts)
                         : access(e, parts.size() > 1 ? &memory_.events[index(parts[1])] : nullptr);
        } else {
            c.what = e.what == event::kind::fence ? std::string("fence(") + text(e.with) + ")"
                                                  : plain_text(e);
        }
        for (const int part : parts) {
            note_old(c, part);
        }
        c.what = number(parts.front()) + " " + c.what;
        at += parts.size();
        if (std::strcmp(e.text, "end") != 0) {
            cells_.push_back(std::move(c));
        }
    }

    std::string access(const event& e, const event* second) const {
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

    // Returns the text of a futex call, or of those parts of it that no other step separates.
    std::string futex(const std::vector<int>& parts) const {
        const event& first = memory_.events[index(parts.front())];
        const event& last = memory_.events[index(parts.back())];
        const std::string call(first.text, std::strcspn(first.text, ":"));
        std::string what = call + "(" + names_[first.object] + ")";
        for (const int part : parts) {
            const event& e = memory_.events[index(part)];
            if (e.what == event::kind::read && !memory_.at(e.object).queue) {
                what += " reads " + text(e.value) + of(e);
            }
        }
        const std::string_view said = last.text;
        if (last.what != event::kind::write || !memory_.at(last.object).queue) {
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
        const event& e = memory_.events[index(number_of_event)];
        const int newer = order_.newer_than(number_of_event);
        if (newer < 0 || memory_.at(e.object).queue) {
            return;
        }
        const event& write = memory_.events[index(newer)];
        c.note = e.what == event::kind::read
                     ? "OLD: " + number(newer) + " wrote " + text(write.value) +
                           ", and does not happen before this"
                     : "goes before " + number(newer) + " in the modification order";
    }

    // Marks the accesses that are not steps, and the place of the failure.
    void mark_failure() {
        constexpr std::array<const char*, 5> verbs = {"reads", "writes", "makes", "destroys",
                                                      "uses"};
        const clash* const found = clash_of(x_);
        if (found == nullptr) {
            if (const int t = x_.failed_by(); t >= 0) {
                marks_[index(t)].emplace_back(~0u, "** here: " + x_.message());
            }
            for (int t = 0; t < x_.threads() && x_.failed_by() < 0; ++t) {
                const model_thread& one = x_.thread(t);
                const auto wants = one.wants.what;
                if (!one.started || one.finished) {
                    continue;
                }
                if (wants == request::kind::sleep || wants == request::kind::pause) {
                    const char* const does = wants == request::kind::sleep ? "sleeps" : "spins";
                    marks_[index(t)].emplace_back(~0u, std::string("** ") + does + " for ever");
                }
            }
            return;
        }
        const clash& c = *found;
        const std::string what = names_.of(c);
        const auto mark = [&](clash::access a, event_id e) {
            if (!e.is_initial() && a != clash::access::use) {
                marks_[e.thread].emplace_back(
                    e.index, std::string("** ") + verbs[static_cast<std::size_t>(a)] + " " + what);
            }
        };
        mark(c.earlier, c.first);
        mark(c.later, c.second);
        if (c.later == clash::access::use) {
            marks_[c.second.thread].emplace_back(c.second.index, "** uses " + what);
        }
    }

    void wrap(std::vector<std::string>& out, std::string_view line, std::size_t indent) const {
        bool first = true;
        while (!line.empty()) {
            const std::size_t room = width_ - (first ? 0 : indent);
            std::size_t cut = line.size();
            if (cut > room) {
                cut = line.rfind(' ', room);
                cut = cut == std::string_view::npos || cut == 0 ? room : cut;
            }
            out.push_back(std::string(first ? 0 : indent, ' ') + std::string(line.substr(0, cut)));
            line.remove_prefix(cut);
            line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
            first = false;
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

    std::vector<std::string> text_of(const cell& c, bool with_source) const {
        std::vector<std::string> out;
        const std::string place = text(c.where);
        const std::size_t indent = std::min(c.what.find(' ') + 1, std::size_t{5});
        wrap(out, c.what, indent);
        const std::string& source = source_text(c.where);
        const bool has_source = with_source && !source.empty();
        const bool fits = out.back().size() + 2 + place.size() <= width_;
        if (!place.empty() && (fits || !has_source)) {
            if (!fits) {
                out.emplace_back();
            }
            out.back() = beside(out.back(), place);
        }
        if (has_source) {
            out.push_back(beside(std::string(indent, ' ') + "| " + source, fits ? "" : place));
        }
        if (!c.note.empty()) {
            wrap(out, std::string(indent, ' ') + c.note, indent);
        }
        return out;
    }

    execution& x_;
    const memory& memory_;
    const step_order& order_;
    const object_names& names_;
    std::vector<cell> cells_;
    std::array<std::vector<std::pair<std::uint32_t, std::string>>, max_threads> marks_;
    std::size_t width_ = 0;
    std::size_t threads_ = 1;
};

}}} // namespace bide::BIDE_ABI::model::detail

#endif
