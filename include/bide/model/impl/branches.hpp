// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_BRANCHES_HPP
#define BIDE_MODEL_IMPL_BRANCHES_HPP

// The unexplored branches as bytes, for another process or for a later one on this machine.

#include <bide/core/config.hpp>
#include <bide/model/detail/exhaustive.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

namespace {

template <class T> void append(std::string& out, const T& value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    out.append(bytes, sizeof value);
}

// Takes a T from the front of `from`. If there is none, returns false.
template <class T> bool extract(std::string_view& from, T& to) {
    if (from.size() < sizeof to) {
        return false;
    }
    std::memcpy(&to, from.data(), sizeof to);
    from.remove_prefix(sizeof to);
    return true;
}

} // namespace

std::string exhaustive::branch_text(std::size_t most) const {
    std::string out;
    for (std::size_t i = 0; i < most && i < work_.size(); ++i) { // the oldest branched off first
        const script& s = work_[i];
        append(out, s.weight);
        append(out, static_cast<std::uint32_t>(s.known));
        append(out, static_cast<std::uint32_t>(s.steps.size()));
        for (const step& one : s.steps) {
            append(out, one);
        }
    }
    return out;
}

std::string exhaustive::take_branches(std::size_t most) {
    std::string out = branch_text(most);
    most = std::min(most, work_.size());
    for (std::size_t i = 0; i < most; ++i) {
        bytes_ -= bytes_of(work_[i]);
    }
    work_.erase(work_.begin(), work_.begin() + static_cast<std::ptrdiff_t>(most));
    return out;
}

bool exhaustive::add_branches(std::string_view text) {
    while (!text.empty()) {
        script s;
        std::uint32_t known = 0;
        std::uint32_t steps = 0;
        if (!extract(text, s.weight) || !extract(text, known) || !extract(text, steps) ||
            known > steps || steps > text.size() / sizeof(step)) {
            return false;
        }
        s.known = known;
        s.steps.resize(steps);
        for (step& one : s.steps) {
            extract(text, one);
        }
        bytes_ += bytes_of(s);
        explored_ -= s.weight;
        work_.push_back(std::move(s));
    }
    return true;
}

}}} // namespace bide::BIDE_ABI::model::detail

#endif
