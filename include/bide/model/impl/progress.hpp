// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_PROGRESS_HPP
#define BIDE_MODEL_IMPL_PROGRESS_HPP

// Reports the progress of a long exploration on stderr. BIDE_MODEL_PROGRESS is the number of
// seconds between two lines. If it is not set, nothing is written.

#include <bide/core/config.hpp>
#include <bide/model/detail/execution.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace bide { inline namespace BIDE_ABI { namespace model::detail { namespace {

class progress {
    using clock = std::chrono::steady_clock;
    using seconds = std::chrono::duration<double>;

public:
    // Called after each execution.
    void count(const search& s) {
        if (every_ > 0 && ++executions_ % 256 == 0) {
            say(executions_, s);
        }
    }

    // Writes a line. `executions` is the number of executions so far.
    void say(std::uint64_t executions, const search& s) {
        if (every_ <= 0) {
            return;
        }
        const auto now = clock::now();
        if (seconds(now - last_).count() < every_) {
            return;
        }
        last_ = now;
        const double took = seconds(now - begin_).count();
        const double part = s.explored();
        std::fprintf(stderr, "%llu executions, %.0f a second, %.1f MB of branches",
                     static_cast<unsigned long long>(executions),
                     static_cast<double>(executions) / took,
                     static_cast<double>(s.branch_bytes()) / 1e6);
        if (part > 0 && s.branch_bytes() > 0) {
            std::fprintf(stderr, ", about %.3g %% done, %.0f s left", 100 * part,
                         took * (1 - part) / part);
        }
        std::fputs("\n", stderr);
    }

private:
    static double wanted() {
        const char* const text = std::getenv("BIDE_MODEL_PROGRESS");
        return text == nullptr ? 0 : std::atof(text);
    }

    const double every_ = wanted();
    const clock::time_point begin_ = clock::now();
    clock::time_point last_ = begin_;
    std::uint64_t executions_ = 0;
};

}}}} // namespace bide::BIDE_ABI::model::detail

#endif
