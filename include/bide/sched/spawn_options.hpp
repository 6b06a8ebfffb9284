// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_SPAWN_OPTIONS_HPP
#define BIDE_SCHED_SPAWN_OPTIONS_HPP

#include <bide/core/config.hpp>
#include <bide/task/task_tag.hpp>

#include <optional>

namespace bide { inline namespace BIDE_ABI {

/// The priority class of a task. While all three classes have runnable tasks, each worker takes 12
/// high, 3 normal and 1 low task of any 16 in a row. If a class has no runnable task, its share
/// goes to the highest class that has one. So no class starves, and no worker is idle while a class
/// has runnable tasks.
///
/// For the share of the normal class, a worker takes no task from another worker's queue. So if
/// only a few of many workers have normal tasks in their queues, the class gets less than its
/// share.
///
/// A share counts the runs of tasks and not their time: a task runs until it waits, yields or ends,
/// and is not interrupted for another one. There is no priority inheritance: a low task does not
/// run earlier if a high task waits for it.
enum class task_priority : unsigned char { high, normal, low };

/// How scheduler::spawn() runs a task. The defaults are those of spawn() without options.
struct spawn_options {
    /// The priority class of the task, also after its waits. Coroutines that the task awaits, and
    /// children of when_all() and when_any(), run in its class. Tasks that it spawns do not.
    ///
    /// All workers share one queue of high tasks and one of low tasks, even if
    /// scheduler_options::enable_stealing is false.
    task_priority priority = task_priority::normal;

    /// If it is set, the task is pinned: it runs on one thread only, also after its waits. It is
    /// the thread that the scheduler has started for the worker with this number, and that calls
    /// on_worker_start with this number. Coroutines that the task awaits, and children of
    /// when_all() and when_any(), run on that thread, too. Two tasks that are pinned to one thread
    /// never overlap. The task leaves that thread only if it names another executor, by
    /// scheduler::schedule(), resume_on() or a strand. `{.worker = s.this_worker()}` pins a task to
    /// the calling thread, if that is the thread of a worker.
    ///
    /// While that thread blocks or computes, the task waits, even if another thread runs the worker
    /// meanwhile. If the thread has lost its worker to another thread, it runs its pinned tasks
    /// without a worker. The priority must be normal. If the worker also has other normal tasks,
    /// every second task of the class is a pinned one.
    std::optional<unsigned> worker{};

    /// The tag of the task in dumps and traces. If it is empty, the task keeps the tag of
    /// task::tagged(). A function that is spawned may have a tag, too.
    task_tag tag{};
};

}} // namespace bide::BIDE_ABI

#endif
