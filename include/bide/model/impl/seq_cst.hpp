// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_SEQ_CST_HPP
#define BIDE_MODEL_IMPL_SEQ_CST_HPP

// The order S: which reads, and which places of stores, it allows.

#include <bide/core/config.hpp>
#include <bide/model/detail/memory.hpp>

#include <algorithm>
#include <cstddef>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

// ---- The order S

void memory::fences_before(const clock& hb, clock& out) const {
    if (!seq_cst_.has_fences()) {
        return;
    }
    for (const seq_cst_order::node& n : seq_cst_.nodes()) {
        if (n.fence && hb.covers(n.id)) {
            out.join(n.until);
        }
    }
}

// If the operation `e` is coherence-ordered before another one, these nodes come before the other
// one in S: `e` itself, and the fences that happen before `e`. Adds them to `out`.
void memory::before(const event& e, clock& out) const {
    if (e.node >= 0) {
        out.join(seq_cst_.until(e.node));
    }
    fences_before(e.hb, out);
}

// The other end: if an operation is coherence-ordered before `e`, it comes before `e` and before
// the fences that `e` happens before.
void memory::after(const event& e, seq_cst_order::firsts& out) const {
    if (e.node >= 0) {
        out.add(seq_cst_.nodes()[index(e.node)]);
    }
    if (!seq_cst_.has_fences()) {
        return;
    }
    for (const seq_cst_order::node& n : seq_cst_.nodes()) {
        if (n.fence && !(n.id == e.id) && of(n.id).hb.covers(e.id)) {
            out.add(n);
        }
    }
}

// `hb` is the clock of the thread before the synchronisation of the operation itself. It contains
// the steps that happen before a step which is sequenced before the operation. The path must also
// begin with program order, so the comparison is strict.
void memory::strongly_before(int thread, const clock& hb, edges& out) const {
    for (int t = 0; t < max_threads; ++t) {
        if (t == thread) {
            continue; // add() orders the nodes of one thread
        }
        const auto& theirs = seq_cst_.of_thread(t);
        for (std::size_t n = theirs.size(); n-- > 0;) {
            if (hb.seen[index(t)] > seq_cst_.nodes()[index(theirs[n])].id.index) {
                out.before.join(seq_cst_.until(theirs[n]));
                break;
            }
        }
    }
}

// The edges of an access. A read of the message at `position` is coherence-ordered after the stores
// up to this position and after the reads of older stores. It is coherence-ordered before the later
// stores and before the reads of these. A write behind that message has the same edges, and is also
// ordered after the reads of the message.
void memory::access_edges(access kind, int o, std::size_t position, const clock& hb,
                          edges& out) const {
    const auto& mo = at(o).messages;
    for (std::size_t i = out.node < 0 ? position + 1 : 0; i < mo.size(); ++i) {
        const message& m = msg(mo[i]);
        const auto add = [&](int number) {
            const event& e = events[index(number)];
            if (i > position) {
                after(e, out.after);
            } else if (e.node < 0 ||
                       e.node != out.node) { // it is not the first half of the same operation
                before(e, out.before);
            }
        };
        if (m.event >= 0) {
            add(m.event);
        }
        if (i != position || kind == access::write) {
            for (const int r : m.readers) {
                add(r);
            }
        }
    }
    fences_before(hb, out.fences);
}

// A new fence comes after each operation that is coherence-ordered before an operation which
// happens before the fence.
void memory::fence_edges(const clock& hb, edges& out) const {
    for (std::size_t o = 0; o < object_count_; ++o) {
        const auto& mo = objects_[o].messages;
        std::size_t writes = 0; // stores before this position precede a known operation
        std::size_t reads = 0;  // reads of messages before this position do so, too
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
        for (std::size_t i = 0; i < mo.size(); ++i) {
            const message& m = msg(mo[i]);
            if (i < writes && m.event >= 0) {
                before(events[index(m.event)], out.before);
            }
            if (i < reads) {
                for (const int r : m.readers) {
                    before(events[index(r)], out.before);
                }
            }
        }
    }
}

bool memory::may(access kind, int o, int m, order with, const view& v, const clock& hb, int node) {
    if (seq_cst_.empty() || at(o).queue) {
        return true;
    }
    edges added;
    added.node = node;
    const bool temporary = with == order::seq_cst && node < 0;
    if (temporary) {
        added.node = seq_cst_.add(v.next(), false);
        strongly_before(v.thread, v.hb, added);
    }
    access_edges(kind, o, position(o, m), hb, added);
    const bool allowed = seq_cst_.allows(added);
    if (temporary) {
        seq_cst_.drop_last();
    }
    return allowed;
}

}}} // namespace bide::BIDE_ABI::model::detail

#endif
