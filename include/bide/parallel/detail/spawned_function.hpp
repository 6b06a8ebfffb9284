// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_SPAWNED_FUNCTION_HPP
#define BIDE_PARALLEL_DETAIL_SPAWNED_FUNCTION_HPP

#include <bide/core/config.hpp>
#include <bide/parallel/detail/spawn_cells.hpp>
#include <bide/parallel/detail/spawn_frame.hpp>

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// A function that was spawned into a scope, and what calls it.
template <class Platform, class F> class spawned_function final : public basic_spawned<Platform> {
    using base = basic_spawned<Platform>;
    using scope_type = basic_spawn_scope<Platform>;

public:
    template <class From>
    spawned_function(basic_spawn_state<Platform>& in, std::size_t own_alignment, From&& from)
        : base(in, &call_and_destroy, own_alignment), call_(std::forward<From>(from)) {}
    ~spawned_function() {} // the function is destroyed before

    static constexpr bool fits_into_cell() noexcept {
        return sizeof(spawned_function) <= spawn_cells::cell_size &&
               alignof(spawned_function) <= spawn_cells::cell_alignment;
    }
    void drop() noexcept { std::destroy_at(std::addressof(call_)); }

private:
    static void call_and_destroy(base& b) noexcept {
        auto& mine = static_cast<spawned_function&>(b);
        if (mine.scope.begins()) {
#if BIDE_EXCEPTIONS
            try {
                mine.invoke();
            } catch (...) {
                mine.scope.fail(mine.order, std::current_exception());
            }
#else
            mine.invoke();
#endif
            mine.scope.has_ended();
        }
        mine.drop();
    }
    void invoke() {
        if constexpr (std::is_invocable_v<F>) {
            static_cast<void>(std::invoke(std::move(call_)));
        } else {
            static_cast<void>(std::invoke(std::move(call_), static_cast<scope_type&>(this->scope)));
        }
    }

    union {
        F call_;
    };
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
