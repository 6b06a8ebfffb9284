// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_BIDE_HPP
#define BIDE_BIDE_HPP

/// \file
/// Includes the whole library except durable/.

#include <bide/channel/broadcast.hpp>
#include <bide/channel/channel.hpp>
#include <bide/channel/handles.hpp>
#include <bide/channel/oneshot.hpp>
#include <bide/channel/select.hpp>
#include <bide/channel/selector.hpp>
#include <bide/channel/unbounded_channel.hpp>
#include <bide/channel/watch.hpp>
#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/event_count.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/futex.hpp>
#include <bide/core/parker.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waiter_queue.hpp>
#include <bide/core/waker.hpp>
#include <bide/fwd.hpp>
#include <bide/parallel/fork_join.hpp>
#include <bide/parallel/fork_progress.hpp>
#include <bide/parallel/parallel_for.hpp>
#include <bide/parallel/parallel_reduce.hpp>
#include <bide/parallel/parallel_sort.hpp>
#include <bide/sched/chrome_trace.hpp>
#include <bide/sched/driver.hpp>
#include <bide/sched/epoll_driver.hpp>
#include <bide/sched/join_set.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sched/scheduler_options.hpp>
#include <bide/sched/task_group.hpp>
#include <bide/sched/trace.hpp>
#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/latch.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/permit.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/sync/shared_mutex.hpp>
#include <bide/sync/synchronized_value.hpp>
#include <bide/task/compose.hpp>
#include <bide/task/interval.hpp>
#include <bide/task/join_handle.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>
#include <bide/version.hpp>

#endif
