// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_INTEROP_ASIO_HPP
#define BIDE_INTEROP_ASIO_HPP

/// \file
/// Standalone Asio, 1.18 or later. For Boost.Asio, interop/boost_asio.hpp has the same functions in
/// namespace bide::with_boost_asio.
///
/// A coroutine of Asio's, asio::awaitable, cannot await operations of other libraries: its promise
/// has an await_transform that admits only those of Asio. async_await() makes one of them:
///
/// \code
/// bide::permit one = co_await async_await(connections.async_acquire(), use_awaitable);
/// \endcode

#include <bide/core/config.hpp>
#include <bide/interop/detail/asio_operation.hpp>
#include <bide/interop/detail/asio_wait.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/associated_allocator.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/dispatch.hpp>
#include <asio/error.hpp>
#include <asio/execution.hpp>
#include <asio/execution_context.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/is_executor.hpp>
#include <asio/post.hpp>
#include <asio/query.hpp>
#include <asio/system_error.hpp>
#include <asio/system_executor.hpp>
#include <asio/version.hpp>
/// \cond
#if ASIO_VERSION >= 101900
#include <asio/associated_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#define BIDE_ASIO_SLOTS 1
#else
#define BIDE_ASIO_SLOTS 0
#endif

#define BIDE_ASIO asio
#define BIDE_ASIO_SYSTEM asio
#define BIDE_ASIO_NAMES standalone_asio
/// \endcond
#include <bide/interop/detail/asio_names.inc>

namespace bide { inline namespace BIDE_ABI { namespace with_asio {

/// Awaits an operation of bide as an asynchronous operation of Asio: async_await(op, token) or
/// async_await(where, op, token). `op` is the value of any async_...() function of bide, with its
/// with_timeout(), with_stop() and so on. The operation belongs to `where`, an executor or an
/// execution context of Asio; without it, to the associated executor of the handler, or else to
/// system_executor.
///
/// The operation begins in this call and takes its place in the queue, unless the token defers it.
/// The handler gets what the operation returns:
///
/// \code
/// value of the operation                 signature
/// void                                   void(error_code)
/// T                                      void(error_code, T)
/// T without a default constructor        void(bide::result<T>)
/// a result, as after as_result()         void(that result)
/// \endcode
///
/// The handler runs on its associated executor, or else on `where`, never in this call. Until then
/// the wait counts as work of both. The memory comes from the associated allocator of the handler,
/// and is returned before the handler is called. If an operation throws something else than its
/// error, such as async_join() of a task that threw, that exception leaves the function that runs
/// the executor; use co_spawn() there.
///
/// Cancellation: by the slot of the handler, with each type; the error is operation_aborted, or
/// errc::stopped in a result. A permit or an item that was granted before is delivered. As with
/// operations of Asio, the signal must not be emitted while the handler runs: a strand sees to
/// that.
/// Destroys: the destructor of the execution context ends the wait. The handler is then destroyed
/// and not called, and what was granted is given back.
/// Throws: std::bad_alloc; the handler and the operation are destroyed then. Terminates if the
/// executor finds no memory for the completion.
inline constexpr detail::asio_async_await<detail::standalone_asio> async_await{};

/// Runs a task, or the task that a callable returns, on an executor of Asio:
/// co_spawn(where, task, token).
///
/// \code
/// value of the task                      signature
/// void                                   void(std::exception_ptr)
/// T                                      void(std::exception_ptr, T)
/// T without a default constructor        void(std::exception_ptr, std::optional<T>)
/// \endcode
///
/// Every step of the task and of what it awaits runs on `where`, the first one after this call.
/// Terminates if the executor finds no memory for a step. Otherwise as async_await().
/// Cancellation: the types terminal and partial cancel the task, as join_handle::cancel() does.
/// Destroys: the destructor of the execution context cancels the task, and runs it to its end on
/// the thread of that destructor. A task that waits for what no cancellation ends blocks it.
inline constexpr detail::asio_co_spawn<detail::standalone_asio> co_spawn{};

/// The type of use_bide.
using use_bide_t = detail::asio_use_bide<detail::standalone_asio>;
/// Completes an operation of Asio in a coroutine of bide: the operation returns a task, which
/// begins it when it is awaited.
///
/// \code
/// std::size_t n = co_await socket.async_read_some(buffer, bide::with_asio::use_bide);
/// \endcode
///
/// The value has the arguments of the handler, but for an error_code or std::exception_ptr at the first
/// place: no value, one, or a std::tuple. The error is thrown, an error_code as std::system_error.
///
/// The operation begins on the thread of the coroutine, which must be allowed to use its object.
/// The coroutine continues on its own executor.
/// Cancellation: if the awaiting task is cancelled, the operation gets a request of type terminal,
/// on the executor of its object, and the task waits until it has ended: stopped_error if it was
/// aborted. Without cancellation slots, the task waits until the operation ends by itself.
inline constexpr use_bide_t use_bide{};

/// An executor of Asio as an executor of bide, for resume_on(), strand and sync_wait().
using executor = detail::asio_executor<detail::standalone_asio>;

}}} // namespace bide::BIDE_ABI::with_asio

#endif
