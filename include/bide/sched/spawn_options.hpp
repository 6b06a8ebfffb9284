// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_SPAWN_OPTIONS_HPP
#define BIDE_SCHED_SPAWN_OPTIONS_HPP

#include <bide/core/config.hpp>
#include <bide/task/task_tag.hpp>

#include <optional>

namespace bide::inline BIDE_ABI {

/// The class of a task. While all three classes have tasks that can run, each worker takes 12 high, 3
/// normal and 1 low ones of any 16 in a row. The turn of a class without such tasks goes to the
/// highest class that has some. So no class starves, and no worker is idle for the sake of a class.
///
/// In a turn of the normal class, a worker takes no task from another worker's queue. So if few of
/// many workers have normal tasks in their queues, the class has less than its share.
///
/// A share counts the runs of tasks, not their time: a task runs until it waits, yields or ends, and
/// is not interrupted for another one. The classes share workers, not locks: a high task that waits
/// for a low one waits for its turn.
enum class task_priority : unsigned char { high, normal, low };

/// How scheduler::spawn() runs a task. The defaults are those of spawn() without options.
struct spawn_options {
    /// The class of the task. The task keeps it over its waits. Coroutines that it awaits, and
    /// children of when_all() and when_any(), run in its class. Tasks that it spawns do not.
    ///
    /// High and low tasks pass through one queue for each class, which all workers share, whatever
    /// scheduler_options::enable_stealing says.
    task_priority priority = task_priority::normal;

    /// If set, the task runs on one thread only, also after its waits: on the thread that the
    /// scheduler has started for that worker, which calls on_worker_start with that number. So do
    /// coroutines that it awaits, and children of when_all() and when_any(). Tasks of one thread never
    /// overlap. The task leaves that thread only where it asks for another executor, as by
    /// scheduler::schedule(), resume_on() or a strand.
    ///
    /// While that thread blocks or computes, the task waits, also if another thread runs the worker
    /// meanwhile. If the thread has lost its worker to another thread, it runs such tasks without one.
    /// The priority must be normal: every other turn of that class is for these tasks, while the worker
    /// has others.
    std::optional<unsigned> worker{};

    /// The tag of the task in dumps and traces. If it is no tag, the task keeps that of
    /// task::tagged(). A function that is spawned may have a tag, too.
    task_tag tag{};
};

} // namespace bide::inline BIDE_ABI

#endif
