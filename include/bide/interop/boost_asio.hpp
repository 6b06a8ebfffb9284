// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_INTEROP_BOOST_ASIO_HPP
#define BIDE_INTEROP_BOOST_ASIO_HPP

/// \file
/// Connects bide to Boost.Asio, 1.74 or later. The functions have the names and the documentation
/// of those in interop/asio.hpp, and are in namespace bide::with_boost_asio. Cancellation slots
/// need Boost 1.77.

#include <bide/interop/detail/asio_operation.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_allocator.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/execution.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/is_executor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/query.hpp>
#include <boost/asio/system_executor.hpp>
#include <boost/asio/version.hpp>
#include <boost/system/error_code.hpp>
#include <boost/system/system_error.hpp>
/// \cond
#if BOOST_ASIO_VERSION >= 101900
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#define BIDE_ASIO_SLOTS 1
#else
#define BIDE_ASIO_SLOTS 0
#endif

#define BIDE_ASIO boost::asio
#define BIDE_ASIO_SYSTEM boost::system
#define BIDE_ASIO_NAMES boost_asio
/// \endcond
#include <bide/interop/detail/asio_names.inc>

namespace bide { inline namespace BIDE_ABI { namespace with_boost_asio {

/// Awaits an operation of bide as an asynchronous operation of Boost.Asio.
inline constexpr detail::asio_async_await<detail::boost_asio> async_await{};

/// Runs a task on an executor of Boost.Asio.
inline constexpr detail::asio_co_spawn<detail::boost_asio> co_spawn{};

/// The type of use_bide.
using use_bide_t = detail::asio_use_bide<detail::boost_asio>;
/// A completion token. With it, an operation of Boost.Asio returns a task of bide.
inline constexpr use_bide_t use_bide{};

/// An executor of Boost.Asio as an executor of bide.
using executor = detail::asio_executor<detail::boost_asio>;

}}} // namespace bide::BIDE_ABI::with_boost_asio

#endif
