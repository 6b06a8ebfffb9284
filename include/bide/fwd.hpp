// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_FWD_HPP
#define BIDE_FWD_HPP

/// \file
/// Declares the types that users name in their own headers, and does not define them. Includes only
/// one standard header, `<cstdint>`. States the default template arguments and the alias templates.
/// The headers that define the types include this header.

#include <bide/core/config.hpp>

#include <cstdint>

namespace bide { inline namespace BIDE_ABI {

// ---- core

/// See core/platform.hpp.
struct native_platform;

/// See core/errc.hpp.
enum class errc;
/// \overload
class closed_error;
/// \overload
class stopped_error;

/// See core/result.hpp.
template <class E> class unexpected;
/// \overload
template <class T, class E = errc> class result;
/// Is the type of bide::unexpect.
struct unexpect_t {
    explicit unexpect_t() = default;
};

namespace detail {

template <class T, class Platform> struct result_on_platform {
    using type = result<T>;
};

} // namespace detail

/// Is result<T>, as a type that depends on `Platform`. The functions of a mutex that take a stop
/// token return it. The compiler needs core/result.hpp only where a program calls such a function.
template <class T, class Platform>
using result_on = typename detail::result_on_platform<T, Platform>::type;

/// See core/deadline.hpp.
class deadline;
/// See core/executor.hpp.
class waker;
/// See core/executor.hpp.
struct runnable;
/// \overload
class executor_ref;

/// See core/parker.hpp.
template <class Platform> class basic_parker;
/// Is the parker of native threads.
using parker = basic_parker<native_platform>;

/// See core/parker.hpp.
template <class Platform> class basic_event_count;
/// Is the event count of native threads.
using event_count = basic_event_count<native_platform>;

/// See core/async_op.hpp, which each header for coroutines includes. `Stops` is the number of stop
/// tokens that the operation takes.
template <class T, class Platform, int Stops = 0>
class basic_async_op; // complete after: #include <bide/core/async_op.hpp>
/// Is an operation of native threads and coroutines.
template <class T, int Stops = 0> using async_op = basic_async_op<T, native_platform, Stops>;

/// See core/callback_wait.hpp.
template <class T, class Platform> class basic_callback_wait;
/// Is the callback wait of native threads.
template <class T> using callback_wait = basic_callback_wait<T, native_platform>;

// ---- sync

/// See sync/semaphore.hpp.
template <class Platform> class basic_permit;
/// Holds permits of a semaphore.
using permit = basic_permit<native_platform>;

/// See sync/semaphore.hpp.
template <class Platform> class basic_semaphore;
/// Is the semaphore of native threads and coroutines.
using semaphore = basic_semaphore<native_platform>;

/// See sync/mutex.hpp.
template <class Platform> class basic_mutex;
/// Is the mutex of native threads and coroutines.
using mutex = basic_mutex<native_platform>;

/// See sync/shared_mutex.hpp.
template <class Platform> class basic_shared_mutex;
/// Is the shared mutex of native threads and coroutines.
using shared_mutex = basic_shared_mutex<native_platform>;

/// See sync/biased_shared_mutex.hpp.
template <class Platform, unsigned Slots = 16> class basic_biased_shared_mutex;
/// Is the reader-biased shared mutex of native threads and coroutines.
using biased_shared_mutex = basic_biased_shared_mutex<native_platform>;

/// See sync/adaptive_mutex.hpp.
template <class Platform> class basic_adaptive_mutex;
/// Is the adaptive mutex of native threads and coroutines.
using adaptive_mutex = basic_adaptive_mutex<native_platform>;

/// See sync/event.hpp.
template <class Platform> class basic_event;
/// Is the event of native threads and coroutines.
using event = basic_event<native_platform>;

/// See sync/latch.hpp.
template <class Platform> class basic_latch;
/// Is the latch of native threads and coroutines.
using latch = basic_latch<native_platform>;

namespace detail {

struct no_completion;

} // namespace detail

/// See sync/barrier.hpp.
template <class Completion = detail::no_completion, class Platform = native_platform> class barrier;

/// See sync/once.hpp.
template <class Platform> class basic_once_flag;
/// Is the once flag of native threads and coroutines.
using once_flag = basic_once_flag<native_platform>;
/// See sync/once.hpp.
template <class T, class Platform = native_platform> class once_cell;
/// See sync/object_pool.hpp.
template <class T, class Platform = native_platform> class object_pool;
/// \overload
template <class T, class Platform = native_platform> class object_lease;
/// See sync/notify.hpp.
template <class Platform> class basic_notify;
/// Is the notify of native threads and coroutines.
using notify = basic_notify<native_platform>;

/// See sync/condition_variable.hpp.
template <class Platform> class basic_condition_variable;
/// Is the condition variable of native threads and coroutines.
using condition_variable = basic_condition_variable<native_platform>;
/// See sync/condition_variable.hpp.
template <class Platform> struct basic_notified;
/// Is the value of a coroutine's wait in a condition_variable.
using notified = basic_notified<native_platform>;

/// See sync/synchronized_value.hpp.
template <class T, class Mutex = mutex> class synchronized_value;

// ---- channel

namespace detail {

template <class T, class Platform, class Stamp> class basic_channel_core;
template <class T, class Platform> class basic_unbounded_core;
template <class T, class Platform> class basic_item_window;
template <class Items, class Platform> class basic_locked_core;
template <class T, class Platform>
using basic_sliding_core = basic_locked_core<basic_item_window<T, Platform>, Platform>;

} // namespace detail

/// See channel/channel.hpp.
template <class T, class Platform = native_platform, class Stamp = std::uint64_t>
class basic_channel;
/// Is the channel of native threads and coroutines.
template <class T> using channel = basic_channel<T>;

/// See channel/unbounded_channel.hpp.
template <class T, class Platform = native_platform> class basic_unbounded_channel;
/// Is the unbounded channel of native threads and coroutines.
template <class T> using unbounded_channel = basic_unbounded_channel<T>;

/// See channel/handles.hpp.
template <class T, class Platform = native_platform,
          class Core = detail::basic_channel_core<T, Platform, std::uint64_t>>
class basic_sender;
/// \overload
template <class T, class Platform = native_platform,
          class Core = detail::basic_channel_core<T, Platform, std::uint64_t>>
class basic_receiver;
/// Sends into a channel.
template <class T> using sender = basic_sender<T>;
/// Receives from a channel.
template <class T> using receiver = basic_receiver<T>;
/// Sends into an unbounded channel.
template <class T, class Platform = native_platform>
using basic_unbounded_sender = basic_sender<T, Platform, detail::basic_unbounded_core<T, Platform>>;
/// Receives from an unbounded channel.
template <class T, class Platform = native_platform>
using basic_unbounded_receiver =
    basic_receiver<T, Platform, detail::basic_unbounded_core<T, Platform>>;
/// \overload
template <class T> using unbounded_sender = basic_unbounded_sender<T>;
/// \overload
template <class T> using unbounded_receiver = basic_unbounded_receiver<T>;

/// See channel/priority_channel.hpp, which has the default arguments.
template <class T, class Compare, class Platform> class basic_priority_channel;

/// See channel/sliding_channel.hpp.
template <class T, class Platform = native_platform> class basic_sliding_channel;
/// Is the sliding channel of native threads and coroutines.
template <class T> using sliding_channel = basic_sliding_channel<T>;
/// Sends into a sliding channel.
template <class T, class Platform = native_platform>
using basic_sliding_sender = basic_sender<T, Platform, detail::basic_sliding_core<T, Platform>>;
/// Receives from a sliding channel.
template <class T, class Platform = native_platform>
using basic_sliding_receiver = basic_receiver<T, Platform, detail::basic_sliding_core<T, Platform>>;
/// \overload
template <class T> using sliding_sender = basic_sliding_sender<T>;
/// \overload
template <class T> using sliding_receiver = basic_sliding_receiver<T>;

/// See channel/oneshot.hpp.
template <class T, class Platform> class basic_oneshot_sender;
/// \overload
template <class T, class Platform> class basic_oneshot_receiver;
/// Sends the one value of a oneshot channel.
template <class T> using oneshot_sender = basic_oneshot_sender<T, native_platform>;
/// Receives the one value of a oneshot channel.
template <class T> using oneshot_receiver = basic_oneshot_receiver<T, native_platform>;

/// See channel/broadcast.hpp.
template <class T, class Platform> class basic_broadcast;
/// \overload
template <class T, class Platform> class basic_broadcast_subscriber;
/// Sends each value to all subscribers.
template <class T> using broadcast = basic_broadcast<T, native_platform>;
/// Receives the values of a broadcast channel.
template <class T> using broadcast_subscriber = basic_broadcast_subscriber<T, native_platform>;

/// See channel/watch.hpp.
template <class T, class Platform> class basic_watch;
/// \overload
template <class T, class Platform> class basic_watch_receiver;
/// Holds a value that receivers watch.
template <class T> using watch = basic_watch<T, native_platform>;
/// Watches the value of a watch.
template <class T> using watch_receiver = basic_watch_receiver<T, native_platform>;

/// See channel/selector.hpp.
template <class Platform = native_platform> class basic_selector;
/// Is the selector of native threads and coroutines.
using selector = basic_selector<>;

// ---- task

/// See task/task.hpp.
template <class T = void> class task;

namespace detail {

template <class T> inline constexpr bool is_task = false;
template <class T> inline constexpr bool is_task<task<T>> = true;

} // namespace detail

/// See task/async_generator.hpp.
template <class T> class async_generator;
/// See task/join_handle.hpp.
template <class T = void> class join_handle;
/// See task/interval.hpp.
class interval;
/// See task/rate_limiter.hpp.
class rate_limiter;
/// See task/retry.hpp.
struct retry_policy;
/// See task/strand.hpp.
class strand;
/// See task/cancel_reason.hpp.
enum class cancel_reason : std::uint8_t;
/// See task/task_tag.hpp.
class task_tag;
/// See task/lazy.hpp.
template <class T, class F = T (*)()> class lazy;

// ---- io

/// See io/driver.hpp.
class driver;
/// See io/epoll_driver.hpp.
template <class Platform = native_platform> class basic_epoll_driver;
/// Is the epoll driver of native threads.
using epoll_driver = basic_epoll_driver<>;
/// See io/uring_driver.hpp.
template <class Platform = native_platform> class basic_uring_driver;
/// Is the io_uring driver of native threads.
using uring_driver = basic_uring_driver<>;

// ---- sched

/// See sched/task_runner.hpp.
class task_runner;
/// See sched/scheduler.hpp.
class scheduler;
/// See sched/run_loop.hpp.
class run_loop;
/// \overload
struct run_loop_options;
/// See sched/scheduler_options.hpp.
struct scheduler_options;
/// See sched/report.hpp.
struct scheduler_stats;
/// See sched/scheduler_options.hpp.
struct spawn_options;
/// See sched/task_group.hpp.
class task_group;
/// See sched/join_set.hpp.
template <class T = void> class join_set;
/// See sched/scheduler_options.hpp.
class trace_sink;
/// See sched/chrome_trace.hpp.
class chrome_trace;

// ---- stream

/// See stream/merge.hpp.
template <class T> class merged;

// ---- parallel

/// See parallel/fork_policy.hpp.
struct fork_options;

}} // namespace bide::BIDE_ABI

#endif
