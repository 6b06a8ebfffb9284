// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_SEQ_CST_HPP
#define BIDE_MODEL_IMPL_SEQ_CST_HPP

// What the order S says: which reads and places of stores it leaves.

#include <bide/core/config.hpp>
#include <bide/model/detail/memory.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace bide::inline BIDE_ABI::model::detail {

// ---- The order S

void memory::fences_before(const clock& hb, std::vector<int>& nodes) const {
    if (!seq_cst_.has_fences()) {
        return;
    }
    const auto& all = seq_cst_.nodes();
    for (std::size_t n = 0; n < all.size(); ++n) {
        if (all[n].fence && hb.covers(all[n].id)) {
            nodes.push_back(static_cast<int>(n));
        }
    }
}

// What an operation that is coherence-ordered before something puts before that in S: itself, and
// the fences that happen before it.
void memory::before(const event& e, std::vector<int>& nodes) const {
    if (e.node >= 0) {
        nodes.push_back(e.node);
    }
    fences_before(e.hb, nodes);
}

// The other end: itself, and the fences that it happens before.
void memory::after(const event& e, std::vector<int>& nodes) const {
    if (e.node >= 0) {
        nodes.push_back(e.node);
    }
    if (!seq_cst_.has_fences()) {
        return;
    }
    const auto& all = seq_cst_.nodes();
    for (std::size_t n = 0; n < all.size(); ++n) {
        if (all[n].fence && !(all[n].id == e.id) && of(all[n].id).hb.covers(e.id)) {
            nodes.push_back(static_cast<int>(n));
        }
    }
}

// `hb` is the thread's clock before the operation's own synchronisation: what happens before
// something that is sequenced before it. The first step of the way must be program order, too,
// hence the strict comparison for other threads.
void memory::strongly_before(int thread, const clock& hb, int node, edges& out) const {
    const auto& all = seq_cst_.nodes();
    for (std::size_t n = 0; n < all.size(); ++n) {
        const event_id id = all[n].id;
        if (static_cast<int>(n) != node && (id.thread == thread || hb.seen[id.thread] > id.index)) {
            out.emplace_back(static_cast<int>(n), node);
        }
    }
}

// A read of the message at `position`: the stores up to there and the reads of older ones are
// coherence-ordered before it, it is before the stores after it and the reads of those. A write
// behind that message: the same, and the reads of the message are before it.
void memory::access_edges(access kind, int o, std::size_t position, int node, const clock& hb,
                          edges& out) const {
    const auto& mo = at(o).messages;
    left_.clear();
    right_.clear();
    for (std::size_t i = 0; i < mo.size(); ++i) {
        const message& m = msg(mo[i]);
        const bool first = i <= position;
        auto& side = first ? left_ : right_;
        if (m.event >= 0) {
            const event& e = events[index(m.event)];
            first ? before(e, side) : after(e, side);
        }
        if (i != position || kind == access::write) {
            for (const int r : m.readers) {
                const event& e = events[index(r)];
                first ? before(e, side) : after(e, side);
            }
        }
    }
    if (node >= 0) {
        for (const int a : left_) {
            if (a != node) { // the first half of a read-modify-write
                out.emplace_back(a, node);
            }
        }
    }
    left_.clear();
    fences_before(hb, left_);
    if (node >= 0) {
        left_.push_back(node);
    }
    for (const int a : left_) {
        for (const int b : right_) {
            out.emplace_back(a, b);
        }
    }
}

// A new fence: what is coherence-ordered before something that happens before the fence.
void memory::fence_edges(int node, const clock& hb, edges& out) const {
    for (std::size_t o = 0; o < object_count_; ++o) {
        const auto& mo = objects_[o].messages;
        std::size_t writes = 0; // stores before this position are before one that is known
        std::size_t reads = 0;  // and reads of messages before this one
        for (std::size_t i = 0; i < mo.size(); ++i) {
            const message& m = msg(mo[i]);
            if (m.event >= 0 && hb.covers(m.writer)) {
                writes = std::max(writes, i);
                reads = std::max(reads, i);
            }
            for (std::size_t t = 0; t < max_threads; ++t) {
                if (m.first_read[t] != 0 && hb.seen[t] >= m.first_read[t]) {
                    writes = std::max(writes, i + 1);
                    reads = std::max(reads, i);
                }
            }
        }
        left_.clear();
        for (std::size_t i = 0; i < mo.size(); ++i) {
            const message& m = msg(mo[i]);
            if (i < writes && m.event >= 0) {
                before(events[index(m.event)], left_);
            }
            if (i < reads) {
                for (const int r : m.readers) {
                    before(events[index(r)], left_);
                }
            }
        }
        for (const int a : left_) {
            if (a != node) {
                out.emplace_back(a, node);
            }
        }
    }
}

bool memory::may(access kind, int o, int m, order with, const view& v, const clock& hb, int node) {
    if (seq_cst_.empty() || at(o).queue) {
        return true;
    }
    scratch_.clear();
    const bool temporary = with == order::seq_cst && node < 0;
    if (temporary) {
        node = seq_cst_.add(v.next(), false);
        strongly_before(v.thread, v.hb, node, scratch_);
    }
    access_edges(kind, o, position(o, m), node, hb, scratch_);
    const bool allowed = seq_cst_.allows(scratch_);
    if (temporary) {
        seq_cst_.drop_last();
    }
    return allowed;
}

} // namespace bide::inline BIDE_ABI::model::detail

#endif
