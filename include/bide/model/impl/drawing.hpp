// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_DRAWING_HPP
#define BIDE_MODEL_IMPL_DRAWING_HPP

// Draws the graph of an execution in the language of dot.

#include <bide/model/impl/report.hpp>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

class drawing : account {
public:
    using account::account;

    std::string print() {
        out_ = "digraph execution {\n"
               "  // plain: program order; rf: reads from; sw: synchronises with; mo: modification "
               "order;\n"
               "  // fr: a read, to the first write that it does not see; hb: start and join\n"
               "  node [shape=box, fontname=monospace, fontsize=10];\n"
               "  edge [fontsize=9];\n";
        for (int t = 0; t < x_.threads(); ++t) {
            cluster(t);
        }
        for (std::size_t i = 0; i < memory_.events.size(); ++i) {
            edges_of(memory_.events[i], static_cast<int>(i));
        }
        for (int o = 0; o < memory_.objects(); ++o) {
            int before = -1;
            if (memory_.at(o).free_list) {
                continue;
            }
            for (const int m : memory_.at(o).messages) {
                const int write = memory_.msg(m).event;
                edge(before, write, "color=orange, label=mo, constraint=false");
                before = write;
            }
        }
        return out_ + "}\n";
    }

private:
    static std::string quoted(const std::string& s) {
        std::string out;
        for (const char c : s) {
            out += c == '"' || c == '\\' ? "\\" : "";
            out += c;
        }
        return out;
    }

    void cluster(int thread) {
        const std::string t = std::to_string(thread);
        out_ += "  subgraph cluster_" + t + " {\n    label=\"T" + t + "\";\n";
        std::string last;
        const auto node = [&](const std::string& name, const std::string& style) {
            out_ += "    " + name + " [" + style + "];\n";
            out_ += last.empty() ? "" : "    " + last + " -> " + name + " [weight=9];\n";
            last = name;
        };
        for (std::size_t i = 0; i < memory_.events.size(); ++i) {
            const event& e = memory_.events[i];
            const int n = static_cast<int>(i);
            if (e.id.thread == thread) {
                const bool is_old = e.what == event::kind::read && order_.newer_than(n) >= 0;
                node("e" + std::to_string(n),
                     "label=\"#" + std::to_string(order_.place(n)) + " " + quoted(event_text(n)) +
                         "\\n" + quoted(text(e.where)) + (is_old ? "\", color=red" : "\""));
            }
        }
        if (thread == x_.failed_by()) {
            node("failed", "shape=octagon, color=red, label=\"" + quoted(x_.message()) + "\"");
        }
        out_ += "  }\n";
    }

    // Draws an edge between events of two threads. Draws nothing if both events are of the same
    // thread, or if one of the numbers is negative: then there is no such event.
    void edge(int from, int to, const char* style) {
        if (from >= 0 && to >= 0 &&
            memory_.event_at(from).id.thread != memory_.event_at(to).id.thread) {
            out_ +=
                "  e" + std::to_string(from) + " -> e" + std::to_string(to) + " [" + style + "];\n";
        }
    }

    void edges_of(const event& e, int number) {
        if (e.what == event::kind::read) {
            const message& from = memory_.msg(e.message);
            edge(from.event, number,
                 e.hb.covers(from.writer)
                     ? "color=forestgreen, penwidth=2, label=\"rf, sw\", constraint=false"
                     : "color=forestgreen, label=rf, constraint=false");
            const auto newer = memory_.behind(e.object, e.message);
            edge(number, newer.empty() ? -1 : memory_.msg(newer.front()).event,
                 order_.newer_than(number) >= 0
                     ? "color=red, style=dashed, label=fr, constraint=false"
                     : "color=gray, style=dashed, label=fr, constraint=false");
        } else if (e.what == event::kind::join) {
            edge(memory_.of_thread(static_cast<int>(e.value)).back(), number,
                 "color=blue, label=hb");
        }
        if (e.id.index == 1) {
            edge(memory_.predecessor(e.id), number, "color=blue, label=hb");
        }
    }

    std::string out_;
};

}}} // namespace bide::BIDE_ABI::model::detail

#endif
