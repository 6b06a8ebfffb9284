// Every public header compiles beside the macros of other libraries. This file defines the macros that
// Qt, X11 and windows.h define, so that a use of their names breaks the build. It includes the standard
// and system headers first, because the macros would break these too.

#include "support/test.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <climits>
#include <concepts>
#include <condition_variable>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <exception>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <ratio>
#include <shared_mutex>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

#if !defined(_WIN32)
#include <pthread.h>
#endif
#if defined(__linux__)
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if __has_include(<cxxabi.h>)
#include <cxxabi.h>
#endif

// Qt
#define slots @
#define signals @
#define emit @
#define forever @
#define foreach(variable, container) @
// X11
#define None @
#define Bool @
#define Status @
// windows.h
#define min(a, b) @
#define max(a, b) @
#define small @
#define near @
#define far @
#define interface @

#include <bide/bide.hpp>
#include <bide/channel/broadcast.hpp>
#include <bide/channel/channel.hpp>
#include <bide/channel/handles.hpp>
#include <bide/channel/oneshot.hpp>
#include <bide/channel/priority_channel.hpp>
#include <bide/channel/ring.hpp>
#include <bide/channel/select.hpp>
#include <bide/channel/selector.hpp>
#include <bide/channel/sliding_channel.hpp>
#include <bide/channel/unbounded_channel.hpp>
#include <bide/channel/watch.hpp>
#include <bide/core/async_op.hpp>
#include <bide/core/backoff.hpp>
#include <bide/core/choice.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/event_count.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/futex.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/parker.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/ready_queue.hpp>
#include <bide/core/result.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/spin.hpp>
#include <bide/core/thread_wait.hpp>
#include <bide/core/timer.hpp>
#include <bide/core/timer_queue.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/wait_status.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waiter_queue.hpp>
#include <bide/core/waker.hpp>
#include <bide/fwd.hpp>
#include <bide/parallel.hpp>
#include <bide/parallel/fork_join.hpp>
#include <bide/parallel/fork_progress.hpp>
#include <bide/parallel/parallel_for.hpp>
#include <bide/parallel/parallel_reduce.hpp>
#include <bide/parallel/parallel_sort.hpp>
#include <bide/sched/blocking_pool.hpp>
#include <bide/sched/chrome_trace.hpp>
#include <bide/sched/driver.hpp>
#include <bide/sched/epoll_driver.hpp>
#include <bide/sched/fork_deque.hpp>
#include <bide/sched/idle.hpp>
#include <bide/sched/injector.hpp>
#include <bide/sched/join_set.hpp>
#include <bide/sched/run_queue.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sched/scheduler_options.hpp>
#include <bide/sched/task_group.hpp>
#include <bide/sched/trace.hpp>
#include <bide/stream.hpp>
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

#undef slots
#undef signals
#undef emit
#undef forever
#undef foreach
#undef None
#undef Bool
#undef Status
#undef min
#undef max
#undef small
#undef near
#undef far
#undef interface

TEST_CASE("hostile_macros: every public header compiles beside the macros of other libraries") {
    const bide::semaphore s(1);
    CHECK(s.max() > 1);
}
