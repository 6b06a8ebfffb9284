// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_SEQ_CST_HPP
#define BIDE_MODEL_DETAIL_SEQ_CST_HPP

// The single total order S of the seq_cst operations, as what is known of it: an order may still be
// found as long as the edges that C++20 asks for ([atomics.order] p4) make no cycle. S need not
// agree with the order in which the checker happens to run things, nor with happens-before (P0668).

#include <bide/core/config.hpp>
#include <bide/model/detail/graph.hpp>

#include <bitset>
#include <utility>
#include <vector>

namespace bide::inline BIDE_ABI::model::detail {

class seq_cst_order {
public:
    static constexpr std::size_t max_nodes = 320;

    struct node {
        event_id id;
        bool fence;
    };
    using edge = std::pair<int, int>; // the first before the second

    void clear() noexcept {
        nodes_.clear();
        before_.clear();
    }
    bool empty() const noexcept { return nodes_.empty(); }
    bool full() const noexcept { return nodes_.size() == max_nodes; }
    const std::vector<node>& nodes() const noexcept { return nodes_; }

    int add(event_id id, bool fence) {
        nodes_.push_back({id, fence});
        before_.emplace_back();
        return static_cast<int>(nodes_.size()) - 1;
    }
    // A read-modify-write is one operation, whose place in its thread is its second half's.
    void move(int n, event_id to) { nodes_[static_cast<std::size_t>(n)].id = to; }
    // Takes back the last add().
    void drop_last() {
        nodes_.pop_back();
        before_.pop_back();
    }

    bool allows(const std::vector<edge>& edges) {
        trial_ = before_;
        for (const edge& e : edges) {
            if (!insert(trial_, e)) {
                return false;
            }
        }
        return true;
    }

    // Requires: allows(edges).
    void commit(const std::vector<edge>& edges) {
        for (const edge& e : edges) {
            insert(before_, e);
        }
    }

private:
    // before[a][b]: a comes before b. Kept transitively closed.
    using relation = std::vector<std::bitset<max_nodes>>;

    static bool insert(relation& before, edge e) {
        const auto a = static_cast<std::size_t>(e.first);
        const auto b = static_cast<std::size_t>(e.second);
        if (a == b || before[b][a]) {
            return false;
        }
        if (!before[a][b]) {
            const auto after = before[b] | std::bitset<max_nodes>().set(b);
            for (std::size_t i = 0; i < before.size(); ++i) {
                if (i == a || before[i][a]) {
                    before[i] |= after;
                }
            }
        }
        return true;
    }

    std::vector<node> nodes_;
    relation before_;
    relation trial_;
};

} // namespace bide::inline BIDE_ABI::model::detail

#endif
