// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_CAUSE_HPP
#define BIDE_MODEL_IMPL_CAUSE_HPP

// Explains a failure from the graph of its execution alone.
//
// A data race and a read of an old value have the same cause: the step of the writer does not
// happen before the step of the reader. There may still be a path of reads between them: after that
// step, the writer wrote a value that the reader read, directly or through other threads. Then one
// of the reads on the path did not synchronise, because its write is not a release, or because the
// read is not an acquire. The report names the first such read on the shortest path.

#include <bide/core/config.hpp>
#include <bide/model/impl/interleaving.hpp>
#include <bide/model/impl/report.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

class causes {
public:
    causes(execution& x, const step_order& steps, const object_names& names)
        : x_(x), memory_(x.mem()), order_(steps), names_(names) {}

    std::string print() {
        if (const clash* const c = clash_of(x_)) {
            return clash_text(*c) + (orders_matter(x_) ? "" : no_order);
        }
        if (order_.sequentially_consistent()) {
            return no_order;
        }
        std::string out;
        int said = 0;
        const auto& all = order_.events();
        for (auto at = all.rbegin(); at != all.rend() && said < 2; ++at) {
            const event& e = memory_.events[index(*at)];
            if (e.what == event::kind::read && !memory_.at(e.object).queue &&
                order_.newer_than(*at) >= 0) {
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
        int leaves = -1; // the last step of the reader's thread on the path
    };

    static constexpr const char* no_order =
        "Each read of these steps reads the newest value: no stronger order excludes them.\n";

    std::string step(int event) const { return "#" + std::to_string(order_.number(event)); }

    // Describes a step: `the store of 2 to tail_ (#11, relaxed, ring.hpp:20)`, and its thread.
    std::string called(int number) const {
        const event& e = memory_.events[index(number)];
        std::string what = thread_text(e.id.thread) + "'s ";
        if (memory_.at(e.object).queue) {
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
        const auto said = [&](clash::access a, event_id e) {
            std::string out =
                thread_text(e.thread) + "'s " + nouns[static_cast<std::size_t>(a)] + " of " + what;
            // The access is a step, or is between two steps, or is after the last step.
            const int next = event_at(e);
            const int shown = next >= 0 ? next : event_at(before(e));
            if (shown >= 0) {
                out += a == clash::access::use ? " (" : next >= 0 ? " (before " : " (after ";
                out += step(shown) + ", " + text(memory_.events[index(shown)].where) + ")";
            }
            return out;
        };
        if (c.first.is_initial() || c.first.thread == c.second.thread) {
            return said(c.later, c.second) + " follows its destruction by the same thread.\n";
        }
        return said(c.earlier, c.first) + " does not happen before " + said(c.later, c.second) +
               ".\n" + missing(c.first, c.second) + "\n";
    }

    // Explains why `from` does not happen before `to`. `to` is a step of the execution, or the step
    // that its thread would make next.
    std::string missing(event_id from, event_id to) const {
        if (to.is_initial() || from.is_initial()) {
            return {};
        }
        int end = -1; // the last step before `to`
        for (const event& e : memory_.events) {
            if (e.id.thread == to.thread && e.id.index < to.index) {
                end = memory_.index_of(e.id);
            }
        }
        if (end < 0) {
            event first;
            first.id = {to.thread, 1};
            end = predecessor(first);
        }
        for (const edge& e : way(from, end)) {
            const event& write = memory_.events[index(e.write)];
            const bool carried = memory_.msg(write.message).sync.covers(from);
            const event& read = memory_.events[index(e.read)];
            if (memory_.at(read.object).queue || !carried ||
                !memory_.events[index(e.leaves)].hb.covers(from)) {
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
        std::array<int, max_threads> last{};
        last.fill(-1);
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
            const event& e = memory_.events[index(n)];
            offer(predecessor(e), n, 0);
            if (e.what == event::kind::read) {
                offer(memory_.msg(e.message).event, n, memory_.at(e.object).queue ? wake : 1);
            } else if (is_join(e)) {
                const std::size_t other = e.value;
                for (int i = n; i >= 0 && last[other] < 0; --i) {
                    last[other] = memory_.events[index(i)].id.thread == other ? i : -1;
                }
                offer(last[other], n, 0);
            }
            if (e.id.thread == from.thread && e.id.index >= from.index &&
                (best < 0 || cost[index(n)] < cost[index(best)])) {
                best = n;
            }
        }
        std::vector<edge> out;
        for (int n = best; n >= 0 && n != to; n = next[index(n)]) {
            const int by = next[index(n)];
            const event& a = memory_.events[index(n)];
            const event& b = memory_.events[index(by)];
            const bool same_thread = a.id.thread == b.id.thread;
            if (b.what == event::kind::read && memory_.msg(b.message).event == n && !same_thread) {
                out.push_back({n, by, by});
            } else if (same_thread && !out.empty() && out.back().leaves == n) {
                out.back().leaves = by;
            }
        }
        return out;
    }

    // Returns the step before `e` in the thread of `e`. If `e` is the first step, returns the step
    // that started the thread, or -1 if there is none.
    int predecessor(const event& e) const {
        if (e.id.index > 1) {
            return memory_.index_of(before(e.id));
        }
        for (const event& other : memory_.events) {
            if (is_start(other) && other.value == e.id.thread) {
                return memory_.index_of(other.id);
            }
        }
        return -1;
    }

    static event_id before(event_id id) {
        --id.index;
        return id;
    }

    // Returns the number of the event, or -1 if it does not exist.
    int event_at(event_id id) const {
        const auto found = std::find_if(memory_.events.begin(), memory_.events.end(),
                                        [&](const event& e) { return e.id == id; });
        return found == memory_.events.end() ? -1
                                             : static_cast<int>(found - memory_.events.begin());
    }

    // Returns true if the path has an acquire fence after the read.
    bool fenced(const edge& e) const {
        const event_id first = memory_.events[index(e.read)].id;
        const event_id last = memory_.events[index(e.leaves)].id;
        return std::any_of(memory_.events.begin(), memory_.events.end(), [&](const event& f) {
            return f.what == event::kind::fence && is_acquire(f.with) &&
                   f.id.thread == first.thread && f.id.index > first.index &&
                   f.id.index <= last.index;
        });
    }

    // `carried` is true if the message of the write has the needed clock: the read is at fault.
    std::string unsynchronised(const edge& e, bool carried) const {
        const event& read = memory_.events[index(e.read)];
        const std::string out = called(e.read) + " reads from " + called(e.write) + ", but ";
        if (memory_.at(read.object).queue) {
            return out + "a futex orders nothing.";
        }
        if (carried) {
            return out + "the read is no acquire.";
        }
        return out + (is_acquire(read.with) || fenced(e)
                          ? "the write is no release."
                          : "the write is no release and the read is no acquire.");
    }

    std::string old_read(int number) const {
        const event& e = memory_.events[index(number)];
        const int newer = order_.newer_than(number);
        const event& write = memory_.events[index(newer)];
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
        const event& r = memory_.events[index(read)];
        const event& w = memory_.events[index(newer)];
        for (const event& other : memory_.events) {
            if (other.what != event::kind::read || other.id.thread != w.id.thread ||
                other.id.index <= w.id.index || memory_.at(other.object).queue ||
                other.object == r.object) {
                continue;
            }
            for (const int m : memory_.behind(other.object, other.message)) {
                const int mine = memory_.msg(m).event;
                const event& write = memory_.events[index(mine)];
                if (write.id.thread == r.id.thread && write.id.index < r.id.index) {
                    return "Both threads write, then read what the other one wrote, and miss it:\n"
                           "    " +
                           called(mine) + ", " + called(read) + "\n    " + called(newer) + ", " +
                           called(memory_.index_of(other.id)) +
                           "\nOrders below seq_cst allow that. It is forbidden if all four are "
                           "seq_cst, or if each of the threads has a seq_cst fence between its "
                           "write and its read.";
                }
            }
        }
        return {};
    }

    execution& x_;
    const memory& memory_;
    const step_order& order_;
    const object_names& names_;
};

// Returns the whole report of an execution.
std::string report_of(execution& x) {
    const step_order steps(x);
    const object_names names(x);
    return columns(x, steps, names).print() + "\n" +
           wrapped(causes(x, steps, names).print(), 110, 4);
}

}}} // namespace bide::BIDE_ABI::model::detail

#endif
