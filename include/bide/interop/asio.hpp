// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_INTEROP_ASIO_HPP
#define BIDE_INTEROP_ASIO_HPP

/// \file
/// Connects bide to standalone Asio, 1.18 or later. For Boost.Asio, interop/boost_asio.hpp has the
/// same functions in namespace bide::with_boost_asio.
///
/// A coroutine of Asio, asio::awaitable, cannot await operations of other libraries, because the
/// await_transform of its promise admits only operations of Asio. async_await() turns an operation
/// of bide into an operation of Asio:
///
/// \code
/// bide::permit one = co_await async_await(connections.async_acquire(), use_awaitable);
/// \endcode

#include <bide/interop/detail/asio_operation.hpp>

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
/// async_await(where, op, token). `op` is the operation that an async_...() function of bide
/// returns, also after with_timeout(), with_stop() and so on. `where` is an executor or an
/// execution context of Asio, on which the operation runs. Without `where`, the operation runs on
/// the associated executor of the handler, or if there is none, on system_executor.
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
/// The handler never runs in this call. It runs on its associated executor, or if there is none, on
/// `where`. Until then the wait counts as outstanding work of that executor and of `where`. The
/// memory comes from the associated allocator of the handler, and is freed before the handler is
/// called. If the operation throws an exception that is no error code, the exception leaves the
/// function that runs the executor. join_handle::async_join() throws such an exception if the
/// joined task threw. To await a task, use co_spawn() instead.
///
/// Cancellation: by the cancellation slot of the handler, for each type of cancellation. The error
/// is operation_aborted, or errc::stopped in a result. A permit or an item that was granted before
/// is delivered. Requires: as for operations of Asio, the signal is not emitted while the handler
/// runs; a strand ensures that.
/// Destroys: the destructor of the execution context ends the wait. The handler is then destroyed
/// and not called, and what was granted is given back.
/// Throws: std::bad_alloc. In this case the handler and the operation are destroyed. Terminates if
/// the executor finds no memory for the completion.
inline constexpr detail::asio_async_await<detail::standalone_asio> async_await{};

/// Runs a task on an executor of Asio: co_spawn(where, work, token). `where` is an executor or an
/// execution context of Asio. `work` is a task, or a callable that returns a task. When the task
/// has ended, the handler gets the value of the task:
///
/// \code
/// value of the task                      signature
/// void                                   void(std::exception_ptr)
/// T                                      void(std::exception_ptr, T)
/// T without a default constructor        void(std::exception_ptr, std::optional<T>)
/// \endcode
///
/// The code of the task, and of the tasks that it awaits, runs on `where`, and only after this
/// call. Terminates if the executor finds no memory for a resumption. For the handler, the memory
/// and the exceptions of this call, the rules of async_await() apply.
/// Cancellation: the types terminal and partial cancel the task, as join_handle::cancel() does.
/// Destroys: the destructor of the execution context cancels the task, and runs it to its end on
/// the thread of that destructor. If the task is in a wait that a cancellation does not end, the
/// destructor blocks.
inline constexpr detail::asio_co_spawn<detail::standalone_asio> co_spawn{};

/// The type of use_bide.
using use_bide_t = detail::asio_use_bide<detail::standalone_asio>;
/// A completion token. With it, an operation of Asio returns a task of bide. The operation begins
/// when the task is awaited.
///
/// \code
/// std::size_t n = co_await socket.async_read_some(buffer, bide::with_asio::use_bide);
/// \endcode
///
/// The value of the task is made from the arguments of the handler. If the first argument is an
/// error_code or a std::exception_ptr, it is the error, and is not part of the value. Without other
/// arguments, the task is a task<>. One other argument is the value itself. If there are several,
/// the value is a std::tuple of them. An error is thrown; an error_code is thrown as
/// std::system_error.
///
/// The operation begins on the thread of the coroutine. That thread must be allowed to use the
/// operation's object. The coroutine continues on its own executor.
/// Cancellation: if the awaiting task is cancelled, the operation gets a request of type terminal,
/// on the executor of its object. The task waits until the operation has ended. If the operation
/// was aborted, the task throws stopped_error. Without cancellation slots, the task waits until the
/// operation ends by itself.
inline constexpr use_bide_t use_bide{};

/// An executor of Asio as an executor of bide, for resume_on(), strand and sync_wait().
using executor = detail::asio_executor<detail::standalone_asio>;

}}} // namespace bide::BIDE_ABI::with_asio

#endif
