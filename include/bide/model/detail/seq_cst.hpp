// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_SEQ_CST_HPP
#define BIDE_MODEL_DETAIL_SEQ_CST_HPP

// The single total order S of the seq_cst operations. Only the edges that C++20 requires
// ([atomics.order] p4) are stored. An order S exists as long as these edges have no cycle. S need
// not agree with the order in which the checker runs the steps, nor with happens-before (P0668).
//
// Operations of one thread have the same order in S as in the thread. So the operations before a
// given one are, for each thread, its first k operations. The operations after it are, for each
// thread, those from some operation on. So both are stored as clocks, as for happens-before.

#include <bide/core/config.hpp>
#include <bide/model/detail/graph.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

class seq_cst_order {
public:
    struct node {
        event_id id;
        bool fence = false;
        bool leads = false; // a node that was added earlier comes after it
        clock until;        // for each thread, how many nodes come before it; includes itself

        // Returns the number of the node within its thread, counted from 1.
        step_count number() const noexcept { return until.seen[id.thread]; }
    };

    // The first node of each thread.
    class firsts {
    public:
        void add(const node& n) noexcept {
            step_count& first = numbers_[n.id.thread];
            first = std::min(first, n.number());
            any_ = true;
        }
        bool any() const noexcept { return any_; }
        bool meets(const clock& until) const noexcept {
            bool met = false;
            for (std::size_t t = 0; t < max_threads; ++t) {
                met = met || numbers_[t] <= until.seen[t];
            }
            return met;
        }

    private:
        static constexpr step_count none = std::numeric_limits<step_count>::max();
        std::array<step_count, max_threads> numbers_{none, none, none, none,
                                                     none, none, none, none};
        bool any_ = false;
    };

    // The edges that an operation adds to S. All nodes up to `before` come before `node`. `node`,
    // and all nodes up to `fences`, come before all nodes from `after` on.
    struct edges {
        int node = -1; // of the operation; -1: it has none, and `before` is unused
        clock before;
        clock fences;
        firsts after;
    };

    void clear() noexcept {
        nodes_.clear();
        for (auto& mine : of_thread_) {
            mine.clear();
        }
        has_fences_ = false;
    }
    bool empty() const noexcept { return nodes_.empty(); }
    bool has_fences() const noexcept { return has_fences_; }
    const std::vector<node>& nodes() const noexcept { return nodes_; }
    const clock& until(int n) const noexcept { return nodes_[index(n)].until; }
    // Returns the nodes of a thread, in the order of the thread.
    const std::vector<int>& of_thread(int t) const noexcept { return of_thread_[index(t)]; }

    int add(event_id id, bool fence) {
        auto& mine = of_thread_[id.thread];
        node& n = nodes_.emplace_back();
        n.id = id;
        n.fence = fence;
        if (!mine.empty()) {
            n.until = nodes_[index(mine.back())].until;
        }
        mine.push_back(static_cast<int>(nodes_.size()) - 1);
        n.until.seen[id.thread] = static_cast<step_count>(mine.size());
        has_fences_ = has_fences_ || fence;
        return mine.back();
    }
    // A read-modify-write is one operation. Its place in its thread is that of its second half.
    void move(int n, event_id to) { nodes_[index(n)].id = to; }
    // Takes back the last add().
    void drop_last() {
        of_thread_[nodes_.back().id.thread].pop_back();
        nodes_.pop_back();
    }

    // Returns true if the new edges make no cycle. Each new edge leads to `node` or to a node of
    // `after`. So a cycle would need an old path from `node` to a node of `before`, or from a node
    // of `after` to the beginning of a new edge.
    bool allows(const edges& e) const {
        clock begins = e.fences;
        if (e.node >= 0) {
            const node& x = nodes_[index(e.node)];
            if (e.before.seen[x.id.thread] >= x.number()) {
                return false;
            }
            begins.join(e.before);
            begins.join(x.until);
        }
        return !e.after.meets(begins);
    }

    // Requires: allows(e).
    void commit(const edges& e) {
        clock earlier = e.fences;
        if (e.node >= 0) {
            node& x = nodes_[index(e.node)];
            if (x.leads || e.node + 1 != static_cast<int>(nodes_.size())) {
                for (node& n : nodes_) {
                    if (n.until.seen[x.id.thread] >= x.number()) {
                        n.until.join(e.before);
                    }
                }
            }
            x.until.join(e.before);
            x.leads = x.leads || e.after.any();
            earlier.join(x.until);
        }
        if (e.after.any()) {
            for (node& n : nodes_) {
                if (e.after.meets(n.until)) {
                    n.until.join(earlier);
                }
            }
        }
    }

private:
    std::vector<node> nodes_;
    std::array<std::vector<int>, max_threads> of_thread_;
    bool has_fences_ = false;
};

}}} // namespace bide::BIDE_ABI::model::detail

#endif
