// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_SEQ_CST_HPP
#define BIDE_MODEL_DETAIL_SEQ_CST_HPP

// The single total order S of the seq_cst operations, as what is known of it: an order may still be
// found as long as the edges that C++20 asks for ([atomics.order] p4) make no cycle. S need not
// agree with the order in which the checker happens to run things, nor with happens-before (P0668).

#include <bide/core/config.hpp>
#include <bide/model/detail/graph.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
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
        has_fences_ = false;
    }
    bool empty() const noexcept { return nodes_.empty(); }
    bool full() const noexcept { return nodes_.size() == max_nodes; }
    bool has_fences() const noexcept { return has_fences_; }
    const std::vector<node>& nodes() const noexcept { return nodes_; }

    int add(event_id id, bool fence) {
        nodes_.push_back({id, fence});
        before_.push_back({});
        has_fences_ = has_fences_ || fence;
        return static_cast<int>(nodes_.size()) - 1;
    }
    // A read-modify-write is one operation, whose place in its thread is its second half's.
    void move(int n, event_id to) { nodes_[index(n)].id = to; }
    // Takes back the last add().
    void drop_last() {
        nodes_.pop_back();
        before_.pop_back();
    }

    bool allows(const std::vector<edge>& edges) {
        bool is_new = false;
        for (const edge& e : edges) {
            is_new = is_new || !has(before_, e.first, e.second);
        }
        if (!is_new) {
            return true;
        }
        trial_.assign(before_.begin(), before_.end());
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
    static constexpr std::size_t word_bits = 64;
    // Those that come after one, a bit each.
    using row = std::array<std::uint64_t, max_nodes / word_bits>;
    // Row a, bit b: a comes before b. Kept transitively closed.
    using relation = std::vector<row>;

    static bool has(const relation& before, int a, int b) noexcept {
        return (before[index(a)][index(b) / word_bits] >> (index(b) % word_bits) & 1) != 0;
    }
    static bool insert(relation& before, edge e) noexcept {
        const auto [a, b] = e;
        if (a == b || has(before, b, a)) {
            return false;
        }
        if (!has(before, a, b)) {
            const std::size_t words = (before.size() + word_bits - 1) / word_bits;
            row after = before[index(b)];
            after[index(b) / word_bits] |= std::uint64_t{1} << (index(b) % word_bits);
            for (std::size_t i = 0; i < before.size(); ++i) {
                const int n = static_cast<int>(i);
                if (n == a || has(before, n, a)) {
                    for (std::size_t w = 0; w < words; ++w) {
                        before[i][w] |= after[w];
                    }
                }
            }
        }
        return true;
    }

    std::vector<node> nodes_;
    relation before_;
    relation trial_;
    bool has_fences_ = false;
};

} // namespace bide::inline BIDE_ABI::model::detail

#endif
