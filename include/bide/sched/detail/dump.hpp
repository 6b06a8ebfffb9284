// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_DUMP_HPP
#define BIDE_SCHED_DETAIL_DUMP_HPP

// The common parts of the dumps of a scheduler and of a run_loop: the next timer, and the tasks
// that wait.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/sched/detail/quoted.hpp>
#include <bide/task/detail/task_control.hpp>
#include <bide/task/task_tag.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// Writes how many tasks wait, in all and for each name and tag. Workers is a range of workers. Each
// worker has a registry `tasks`. Throws: std::bad_alloc.
template <class Workers> void dump_waiting(Workers& workers, std::FILE* to) {
    struct references {
        ~references() {
            for (basic_task_header<native_platform>* const t : all) {
                t->drop_reference();
            }
        }
        std::vector<basic_task_header<native_platform>*> all; // they keep the tasks alive
    } tasks;
    for (auto& w : workers) {
        w.tasks.snapshot(tasks.all);
    }
    const auto view = [](const char* text) noexcept {
        return text != nullptr ? std::string_view(text) : std::string_view();
    };
    std::size_t waiting = 0;
    std::map<std::pair<std::string_view, std::string_view>, std::size_t> found; // names and tags
    for (const auto* const t : tasks.all) {
        if (t->is_waiting()) {
            ++found[{view(t->name()), view(tag_access::of(t->tag()).text())}];
            ++waiting;
        }
    }
    std::fprintf(to, "waiting tasks: %zu\n", waiting);
    for (const auto& [labels, count] : found) {
        std::fprintf(to, "  %8zu  ", count);
        if (labels.first.empty()) {
            std::fputs("unnamed", to);
        } else {
            write_quoted(to, labels.first);
        }
        if (!labels.second.empty()) {
            std::fputs(", tag ", to);
            write_quoted(to, labels.second);
        }
        std::fputc('\n', to);
    }
}

// `next` is the time of the earliest timer.
inline void dump_timer(std::int64_t next, std::FILE* to) noexcept {
    if (next != (std::numeric_limits<std::int64_t>::max)()) {
        const std::int64_t rest = next - native_platform::now();
        std::fprintf(to, "next timer: in %.3f ms or later\n",
                     static_cast<double>(rest > 0 ? rest : 0) / 1e6);
    }
}

}}} // namespace bide::BIDE_ABI::detail

#endif
