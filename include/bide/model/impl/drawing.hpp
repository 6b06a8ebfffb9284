// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_DRAWING_HPP
#define BIDE_MODEL_IMPL_DRAWING_HPP

// Draws the graph of an execution in the language of dot.

#include <bide/core/config.hpp>
#include <bide/model/impl/report.hpp>

#include <array>
#include <string>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

class graph_text {
public:
    graph_text(execution& x, const step_order& steps, const object_names& names)
        : x_(x), memory_(x.mem()), order_(steps), names_(names) {}

    std::string print() {
        out_ = "digraph execution {\n"
               "  // plain: program order; rf: reads from; sw: synchronises with; mo: modification "
               "order;\n"
               "  // fr: a read, to the first write that it does not see; hb: start and join\n"
               "  node [shape=box, fontname=monospace, fontsize=10];\n"
               "  edge [fontsize=9];\n";
        last_.fill(-1);
        starter_.fill(-1);
        for (int t = 0; t < x_.threads(); ++t) {
            cluster(t);
        }
        for (std::size_t i = 0; i < memory_.events.size(); ++i) {
            edges_of(memory_.events[i], static_cast<int>(i));
        }
        for (int o = 0; o < memory_.objects(); ++o) {
            int before = -1;
            for (const int m : memory_.at(o).messages) {
                const int write = memory_.msg(m).event;
                if (before >= 0 && write >= 0 &&
                    memory_.events[index(before)].id.thread !=
                        memory_.events[index(write)].id.thread) {
                    edge(before, write, "color=orange, label=mo, constraint=false");
                }
                before = write;
            }
        }
        return out_ + "}\n";
    }

private:
    static std::string quoted(const std::string& s) {
        std::string out;
        for (const char c : s) {
            if (c == '"' || c == '\\') {
                out += '\\';
            }
            out += c;
        }
        return out;
    }

    std::string label(const event& e, int number) const {
        std::string what = "#" + std::to_string(order_.place(number)) + " ";
        switch (e.what) {
        case event::kind::read:
            what +=
                (e.exclusive ? "rmw reads " : "load ") + names_[e.object] + " = " + text(e.value);
            break;
        case event::kind::write:
            what += (e.exclusive ? "rmw writes " : "store ") + names_[e.object] +
                    " := " + text(e.value);
            break;
        case event::kind::fence: what += "fence"; break;
        default: what += plain_text(e);
        }
        std::string out = quoted(what);
        out += is_access(e) || e.what == event::kind::fence
                   ? std::string("\\n") + detail::text(e.with)
                   : std::string();
        out += e.where.file != nullptr ? "  " + quoted(text(e.where)) : std::string();
        return out;
    }

    void cluster(int thread) {
        const std::string t = std::to_string(thread);
        out_ += "  subgraph cluster_" + t + " {\n    label=\"T" + t + "\";\n";
        int before = -1;
        for (std::size_t i = 0; i < memory_.events.size(); ++i) {
            const event& e = memory_.events[i];
            if (e.id.thread != thread) {
                continue;
            }
            const int n = static_cast<int>(i);
            const bool is_old = e.what == event::kind::read && order_.newer_than(n) >= 0;
            out_ += "    e" + std::to_string(n) + " [label=\"" + label(e, n) + "\"" +
                    (is_old ? ", color=red" : "") + "];\n";
            if (before >= 0) {
                out_ += "    e" + std::to_string(before) + " -> e" + std::to_string(n) +
                        " [weight=9];\n";
            }
            before = n;
        }
        if (thread == x_.failed_by()) {
            out_ +=
                "    failed [shape=octagon, color=red, label=\"" + quoted(x_.message()) + "\"];\n";
            if (before >= 0) {
                out_ += "    e" + std::to_string(before) + " -> failed [weight=9];\n";
            }
        }
        out_ += "  }\n";
    }

    void edge(int from, int to, const char* style) {
        out_ += "  e" + std::to_string(from) + " -> e" + std::to_string(to) + " [" + style + "];\n";
    }

    void edges_of(const event& e, int number) {
        if (e.what == event::kind::read) {
            const int writer = memory_.msg(e.message).event;
            if (writer >= 0 && memory_.events[index(writer)].id.thread != e.id.thread) {
                const event& w = memory_.events[index(writer)];
                edge(writer, number,
                     e.hb.covers(w.id)
                         ? "color=forestgreen, penwidth=2, label=\"rf, sw\", constraint=false"
                         : "color=forestgreen, label=rf, constraint=false");
            }
            const auto newer = memory_.behind(e.object, e.message);
            const int missed = newer.empty() ? -1 : memory_.msg(newer.front()).event;
            if (missed >= 0 && memory_.events[index(missed)].id.thread != e.id.thread) {
                const bool is_old = order_.newer_than(number) >= 0;
                edge(number, missed,
                     is_old ? "color=red, style=dashed, label=fr, constraint=false"
                            : "color=gray, style=dashed, label=fr, constraint=false");
            }
        } else if (is_start(e)) {
            starter_[e.value] = number;
        } else if (is_join(e)) {
            edge(last_[e.value], number, "color=blue, label=hb");
        }
        if (e.id.index == 1 && starter_[e.id.thread] >= 0) {
            edge(starter_[e.id.thread], number, "color=blue, label=hb");
        }
        last_[e.id.thread] = number;
    }

    execution& x_;
    const memory& memory_;
    const step_order& order_;
    const object_names& names_;
    std::string out_;
    std::array<int, max_threads> last_{};
    std::array<int, max_threads> starter_{};
};

}}} // namespace bide::BIDE_ABI::model::detail

#endif
