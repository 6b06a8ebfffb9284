// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_LINE_HPP
#define BIDE_MODEL_DETAIL_LINE_HPP

// The threads that sleep on a futex, as the value of its queue. Each takes four bits: its number
// plus 1.

#include <bide/core/config.hpp>
#include <bide/model/detail/graph.hpp>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

inline bits joined(bits line, int thread) {
    int at = 0;
    while ((line >> at) != 0) {
        at += 4;
    }
    return line | (static_cast<bits>(thread + 1) << at);
}

inline int sleepers(bits line) {
    int n = 0;
    for (; line != 0; line >>= 4) {
        ++n;
    }
    return n;
}

inline bits without(bits line, int thread) {
    bits out = 0;
    int at = 0;
    for (; line != 0; line >>= 4) {
        if (static_cast<int>(line & 15) != thread + 1) {
            out |= (line & 15) << at;
            at += 4;
        }
    }
    return out;
}

inline bool contains(bits line, int thread) { return without(line, thread) != line; }

}}} // namespace bide::BIDE_ABI::model::detail

#endif
