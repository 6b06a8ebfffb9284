// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_INTEROP_DETAIL_ASIO_EXECUTOR_HPP
#define BIDE_INTEROP_DETAIL_ASIO_EXECUTOR_HPP

#include <bide/core/config.hpp>
#include <bide/core/detail/executor_users.hpp>
#include <bide/core/executor.hpp>
#include <bide/interop/detail/asio_await.hpp>

#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

/// An executor of Asio as an executor of bide.
template <class Asio> class asio_executor : public executor_users {
public:
    /// Posts to an executor of Asio, or to that of an execution context.
    /// Requires: the context outlives this object, and runs what is posted.
    template <class Place>
        requires asio_place<Asio, Place>
    explicit asio_executor(Place& place) : where_(asio_executor_at<Asio>(place)) {}
    asio_executor(const asio_executor&) = default;
    asio_executor& operator=(const asio_executor&) = default;
    /// Requires: the tasks that are to resume on it have ended; otherwise terminates with a message.
    ~asio_executor() { this->require_none("asio executor"); }

    /// Runs `r` on a thread of the executor, after this call. Terminates if Asio finds no memory.
    void post(runnable& r) noexcept {
        Asio::post(where_, [&r] { r.run.wake(); });
    }

private:
    typename Asio::any_io_executor where_;
};

}}} // namespace bide::BIDE_ABI::detail

#endif
