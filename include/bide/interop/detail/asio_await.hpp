// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_INTEROP_DETAIL_ASIO_AWAIT_HPP
#define BIDE_INTEROP_DETAIL_ASIO_AWAIT_HPP

// The functions of interop/asio.hpp and interop/boost_asio.hpp, as function objects over the names
// of one Asio (asio_names.inc).

#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/fwd.hpp>
#include <bide/interop/detail/asio_operation.hpp>
#include <bide/task/detail/task_cell.hpp>

#include <concepts>
#include <type_traits>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// An executor of Asio, or an execution context, which stands for its executor.
template <class Asio, class T>
concept asio_place =
    Asio::template is_executor<T> || (std::derived_from<T, typename Asio::execution_context> &&
                                      requires(T& context) { context.get_executor(); });

template <class Asio, class T> auto asio_executor_at(T& place) noexcept {
    if constexpr (Asio::template is_executor<T>) {
        return place;
    } else {
        return place.get_executor();
    }
}

template <class Asio> struct asio_async_await {
    template <class T, int Stops, class Token>
    decltype(auto) operator()(async_op<T, Stops> op, Token&& token) const {
        return begin<false>(typename Asio::system_executor(), std::move(op), token);
    }
    template <class Place, class T, int Stops, class Token>
        requires asio_place<Asio, std::remove_cvref_t<Place>>
    decltype(auto) operator()(Place&& place, async_op<T, Stops> op, Token&& token) const {
        return begin<true>(asio_executor_at<Asio>(place), std::move(op), token);
    }

private:
    template <bool Placed, class Ex, class T, int Stops, class Token>
    static decltype(auto) begin(Ex where, async_op<T, Stops>&& op, Token& token) {
        using outcome = as_result_t<T>;
        using signature = asio_operation_signature<Asio, T, outcome>;
        return Asio::template initiate<typename signature::type>(
            asio_initiation<Asio, signature, outcome, Ex, Placed>(std::move(where)), token,
            std::move(op));
    }
};

template <class Asio> struct asio_co_spawn {
    template <class Place, task_source S, class Token>
        requires asio_place<Asio, std::remove_cvref_t<Place>>
    decltype(auto) operator()(Place&& place, S source, Token&& token) const {
        using value = task_value_t<S>;
        using signature = asio_task_signature<value>;
        auto where = asio_executor_at<Asio>(place);
        return Asio::template initiate<typename signature::type>(
            asio_initiation<Asio, signature, value, decltype(where), true>(where), token,
            std::move(source));
    }
};

}}} // namespace bide::BIDE_ABI::detail

#endif
