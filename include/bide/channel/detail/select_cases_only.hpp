// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_SELECT_CASES_ONLY_HPP
#define BIDE_CHANNEL_DETAIL_SELECT_CASES_ONLY_HPP

// Selects of what is no case, such as an operation: each fails with one message. Overload resolution
// takes these, because they are constrained. What they return lets the rest of the statement compile.

#include <bide/channel/detail/select_case.hpp>
#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>

#include <optional>
#include <variant>

namespace bide::inline BIDE_ABI {

template <class... Cases> class selected;

namespace detail {

template <class C>
concept case_of_select = requires {
    typename C::result_type;
    typename C::platform;
};
template <class... Arguments>
concept not_all_cases = !(case_of_select<Arguments> && ...);

// It depends on the arguments, because `selected` is incomplete here.
template <class...> struct refused {
    using type = selected<basic_select_case<std::monostate, native_platform>>;
};
template <class... Arguments> using refused_select = typename refused<Arguments...>::type;

template <class Out, class... Arguments> [[noreturn]] Out refuse_select() {
    static_assert((case_of_select<Arguments> && ...),
                  "bide: a select takes cases, such as on_recv(channel), on_acquire(semaphore) and "
                  "on_event(event), not operations such as channel.async_recv()");
    fatal("select of what is no case");
}

} // namespace detail

/// Refuses arguments that are no cases.
template <class... Arguments>
    requires detail::not_all_cases<Arguments...>
detail::refused_select<Arguments...> select(Arguments...) {
    return detail::refuse_select<detail::refused_select<Arguments...>, Arguments...>();
}
/// \overload
template <class... Arguments>
    requires detail::not_all_cases<Arguments...>
detail::refused_select<Arguments...> select_biased(Arguments...) {
    return detail::refuse_select<detail::refused_select<Arguments...>, Arguments...>();
}
/// \overload
template <class... Arguments>
    requires detail::not_all_cases<Arguments...>
std::optional<detail::refused_select<Arguments...>> try_select(Arguments...) {
    return detail::refuse_select<detail::refused_select<Arguments...>, Arguments...>();
}
/// \overload
template <class... Arguments>
    requires detail::not_all_cases<Arguments...>
std::optional<detail::refused_select<Arguments...>> try_select_biased(Arguments...) {
    return detail::refuse_select<detail::refused_select<Arguments...>, Arguments...>();
}
/// \overload
template <class... Arguments>
    requires detail::not_all_cases<Arguments...>
async_op<detail::refused_select<Arguments...>> async_select(Arguments...) {
    return detail::refuse_select<async_op<detail::refused_select<Arguments...>>, Arguments...>();
}
/// \overload
template <class... Arguments>
    requires detail::not_all_cases<Arguments...>
async_op<detail::refused_select<Arguments...>> async_select_biased(Arguments...) {
    return detail::refuse_select<async_op<detail::refused_select<Arguments...>>, Arguments...>();
}

} // namespace bide::inline BIDE_ABI

#endif
