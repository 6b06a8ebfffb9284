// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TEST_DETAIL_TASK_TABLE_HPP
#define BIDE_TEST_DETAIL_TASK_TABLE_HPP

#include <bide/core/config.hpp>
#include <bide/core/detail/noted.hpp>
#include <bide/core/executor.hpp>
#include <bide/task/detail/task_cell.hpp>
#include <bide/test/simulation_report.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace test::detail {

// The tasks of a simulation that have not ended, in the order of their numbers. The table holds a
// reference to each task. So no new task gets the address of a task in the table.
class task_table {
public:
    using header = bide::detail::task_header;

    struct entry {
        std::uint64_t number;
        header* task;
        std::uint64_t priority; // see step_order.hpp

        // Throws: std::bad_alloc.
        std::string label() const {
            const std::string name = name_of(*task);
            return "task " + std::to_string(number) + (name.empty() ? "" : " '" + name + "'");
        }
    };

    task_table() = default;
    task_table(const task_table&) = delete;
    task_table& operator=(const task_table&) = delete;
    ~task_table() {
        for (const auto& [number, e] : entries_) {
            e.task->drop_reference();
        }
    }

    // Adds a task. Throws: std::bad_alloc.
    void add(header& task, std::uint64_t priority) {
        const std::uint64_t number = ++last_;
        const auto added = entries_.emplace(number, entry{number, &task, priority}).first;
        by_runnable_.emplace(&task.to_run(), &added->second);
        task.add_reference();
    }

    bool empty() const noexcept { return entries_.empty(); }

    std::uint64_t last() const noexcept { return last_; }

    // Returns the task that a runnable runs. If it runs no task of the table, returns nullptr.
    entry* of(const runnable& r) const noexcept {
        const auto found = by_runnable_.find(&r);
        return found != by_runnable_.end() ? found->second : nullptr;
    }

    // If the task `number` has ended, removes it. Otherwise removes the first task that has ended.
    // Returns the number of the removed task, or 0 if no task has ended.
    std::uint64_t remove_ended(std::uint64_t number) noexcept {
        auto at = entries_.find(number);
        if (at == entries_.end() || !at->second.task->is_complete()) {
            for (at = entries_.begin(); at != entries_.end(); ++at) {
                if (at->second.task->is_complete()) {
                    break;
                }
            }
        }
        if (at == entries_.end()) {
            return 0;
        }
        const std::uint64_t removed = at->first;
        header* const task = at->second.task;
        by_runnable_.erase(&task->to_run());
        entries_.erase(at);
        task->drop_reference();
        return removed;
    }

    // Calls visit(number, header&) for each task, the oldest first.
    template <class Visit> void for_each(Visit&& visit) const {
        for (const auto& [number, e] : entries_) {
            visit(number, *e.task);
        }
    }

    static const char* name_of(const header& task) noexcept {
        const char* const name = task.name();
        return name != nullptr ? name : "";
    }

    // Throws: std::bad_alloc.
    std::vector<unfinished_task> unfinished() const {
        std::vector<unfinished_task> found;
        for_each([&](std::uint64_t number, const header& task) {
            found.push_back({number, name_of(task), what_for(task), task.is_waiting()});
        });
        return found;
    }

private:
    static std::string what_for([[maybe_unused]] const header& task) {
        std::string what;
        BIDE_CHECKED(what = bide::detail::wait_notes::all().what_for(bide::detail::actor(&task));)
        return what;
    }

    std::map<std::uint64_t, entry> entries_;
    std::unordered_map<const runnable*, entry*> by_runnable_; // never iterated
    std::uint64_t last_ = 0;
};

}}} // namespace bide::BIDE_ABI::test::detail

#endif
