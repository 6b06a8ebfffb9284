// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_BIDE_HPP
#define BIDE_BIDE_HPP

/// \file
/// Includes the locks, the channels, the tasks and the scheduler. Does not include the other
/// folders: include io.hpp, parallel.hpp, stream.hpp and durable.hpp for them. Does not include the
/// following headers, which few programs need: core/callback_wait.hpp, core/deadlock_check.hpp,
/// sched/chrome_trace.hpp, sched/executor_runner.hpp, sched/for_each_worker.hpp,
/// sched/join_map.hpp, sched/report.hpp, sched/single_flight.hpp, sync/biased_shared_mutex.hpp, and
/// the headers of core/ with which a program builds its own primitives, such as core/parker.hpp.

#include <bide/channel/broadcast.hpp>
#include <bide/channel/channel.hpp>
#include <bide/channel/handles.hpp>
#include <bide/channel/oneshot.hpp>
#include <bide/channel/priority_channel.hpp>
#include <bide/channel/select.hpp>
#include <bide/channel/selector.hpp>
#include <bide/channel/sliding_channel.hpp>
#include <bide/channel/unbounded_channel.hpp>
#include <bide/channel/watch.hpp>
#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/fwd.hpp>
#include <bide/sched/join_set.hpp>
#include <bide/sched/run_loop.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sched/scheduler_options.hpp>
#include <bide/sched/task_group.hpp>
#include <bide/sched/task_runner.hpp>
#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/barrier.hpp>
#include <bide/sync/condition_variable.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/keyed_mutex.hpp>
#include <bide/sync/latch.hpp>
#include <bide/sync/lock_operations.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/notify.hpp>
#include <bide/sync/object_pool.hpp>
#include <bide/sync/once.hpp>
#include <bide/sync/scoped_lock.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/sync/shared_mutex.hpp>
#include <bide/sync/synchronized_value.hpp>
#include <bide/task/acquire_object.hpp>
#include <bide/task/async_generator.hpp>
#include <bide/task/cancel_handle.hpp>
#include <bide/task/cancel_reason.hpp>
#include <bide/task/compose.hpp>
#include <bide/task/for_each_concurrent.hpp>
#include <bide/task/interval.hpp>
#include <bide/task/join_handle.hpp>
#include <bide/task/lazy.hpp>
#include <bide/task/lock_all.hpp>
#include <bide/task/outcome.hpp>
#include <bide/task/rate_limiter.hpp>
#include <bide/task/retry.hpp>
#include <bide/task/strand.hpp>
#include <bide/task/task.hpp>
#include <bide/task/task_local_value.hpp>
#include <bide/task/task_tag.hpp>
#include <bide/task/this_task.hpp>
#include <bide/task/watch_wait.hpp>
#include <bide/task/with_deadline.hpp>
#include <bide/version.hpp>

#endif
