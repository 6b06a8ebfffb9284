// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_ACTOR_HPP
#define BIDE_CORE_DETAIL_ACTOR_HPP

// A thread or a task that waits and holds locks, for the notes of BIDE_DEADLOCK_CHECK (wait_notes.hpp).

#include <bide/core/config.hpp>
#include <bide/core/detail/os_thread.hpp>
#include <bide/core/detail/task_context.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/platform.hpp>

#include <atomic>
#include <cstdint>
#include <string>

namespace bide::inline BIDE_ABI {
namespace detail {

// A thread or a task. A thread has an odd number, and no other thread ever has it. A task has its
// address, and its notes are removed when it ends.
class BIDE_SHARED actor {
public:
    actor() noexcept = default; // a coroutine that is part of no task
    explicit actor(const basic_task_context<native_platform>* of) noexcept
        : id_(reinterpret_cast<std::uintptr_t>(of)) {}

    // The running task, or else the calling thread.
    static actor here() noexcept {
        if (auto* const task = worker_local<native_platform>::get().running) {
            return actor(task);
        }
        actor thread;
        thread.id_ = thread_number::of_this();
        return thread;
    }

    explicit operator bool() const noexcept { return id_ != 0; }
    bool is_task() const noexcept { return id_ != 0 && id_ % 2 == 0; }
    friend bool operator==(actor, actor) noexcept = default;

    // Requires: it is the calling thread, or a task that has not ended.
    std::string text() const {
        if (id_ == 0) {
            return "a coroutine";
        }
        if (!is_task()) {
            const unsigned long shown = os_thread::number_of_this();
            return "thread " + std::to_string(shown != 0 ? shown : id_ / 2);
        }
        const auto* const task = reinterpret_cast<const basic_task_context<native_platform>*>(id_);
        const char* const name = task->name();
        return name != nullptr ? "task '" + std::string(name) + "'" : "a task without a name";
    }

private:
    struct thread_number {
        std::uintptr_t number = 0;

        static std::uintptr_t of_this() noexcept {
            static constinit native_platform::atomic<std::uintptr_t> next{1};
            auto& mine = native_platform::local<thread_number>();
            if (mine.number == 0) {
                // Order: relaxed; the numbers only differ.
                mine.number = next.fetch_add(2, std::memory_order_relaxed);
            }
            return mine.number;
        }
    };

    std::uintptr_t id_ = 0;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
