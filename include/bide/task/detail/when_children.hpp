// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_DETAIL_WHEN_CHILDREN_HPP
#define BIDE_TASK_DETAIL_WHEN_CHILDREN_HPP

// The children of when_all and when_any, with their bodies and outcomes (task_body.hpp), and the
// state that they share (when_state.hpp).

#include <bide/core/config.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/task/detail/awaited_frame.hpp>
#include <bide/task/detail/nonvoid.hpp>
#include <bide/task/detail/task_body.hpp>
#include <bide/task/detail/when_state.hpp>

#include <coroutine>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace bide::inline BIDE_ABI {

namespace detail {

using task_when_state = basic_when_state<native_platform>;

template <task_source S> class task_child final : public basic_when_child<native_platform> {
    using T = task_value_t<S>;

public:
    task_child() noexcept {}

    // Throws: what a callable throws.
    void open(S&& source) { body_.open(std::move(source)); }
    awaited_frame& frame() noexcept { return body_.frame(); }

    // Requires, for both: the child has ended.
    void rethrow_if_failed() { outcome_.rethrow_if_failed(); }
    nonvoid_t<T> value() {
        if constexpr (std::is_void_v<T>) {
            return {};
        } else {
            return outcome_.value();
        }
    }

private:
    std::coroutine_handle<> begin(executor_ref where) noexcept override {
        return body_.begin(*this, where);
    }

    void settle() noexcept override {
        if (has_begun()) {
            body_.end(outcome_);
        } else {
            body_.destroy();
        }
    }

    task_body<S, awaited_frame> body_;
    [[no_unique_address]] kept_outcome<T> outcome_;
};

template <task_source... Ss> class when_children {
public:
    // Throws: what a callable throws.
    explicit when_children(task_when_state::until what, Ss&&... sources) : state_(what) {
        std::apply([&](task_child<Ss>&... c) { (add(c, std::move(sources)), ...); }, children_);
    }

    task_when_state& state() noexcept { return state_; }

    std::tuple<nonvoid_t<task_value_t<Ss>>...> values() {
        return std::apply(
            [](task_child<Ss>&... c) {
                (c.rethrow_if_failed(), ...);
                return std::tuple<nonvoid_t<task_value_t<Ss>>...>(c.value()...);
            },
            children_);
    }

    std::variant<nonvoid_t<task_value_t<Ss>>...> first() { return first_from<0>(); }

private:
    template <class S> void add(task_child<S>& c, S&& source) {
        c.open(std::move(source));
        state_.add(c, &c.frame());
    }

    template <std::size_t I> std::variant<nonvoid_t<task_value_t<Ss>>...> first_from() {
        static_assert((!std::is_reference_v<task_value_t<Ss>> && ...),
                      "when_any of references: use pointers");
        if constexpr (I + 1 < sizeof...(Ss)) {
            if (state_.winner() != I) {
                return first_from<I + 1>();
            }
        }
        auto& c = std::get<I>(children_);
        c.rethrow_if_failed();
        return std::variant<nonvoid_t<task_value_t<Ss>>...>(std::in_place_index<I>, c.value());
    }

    task_when_state state_;
    std::tuple<task_child<Ss>...> children_;
};

template <task_source S> class when_children_vector {
    using T = task_value_t<S>;

    static_assert(!std::is_reference_v<T>, "a vector of tasks of references: use pointers");

public:
    // Throws: std::bad_alloc; what a callable throws.
    when_children_vector(task_when_state::until what, std::vector<S>& sources)
        : state_(what), children_(sources.size()) {
        for (std::size_t i = 0; i < sources.size(); ++i) {
            children_[i].open(std::move(sources[i]));
            state_.add(children_[i], &children_[i].frame());
        }
    }

    task_when_state& state() noexcept { return state_; }

    std::vector<nonvoid_t<T>> values() {
        for (task_child<S>& c : children_) {
            c.rethrow_if_failed();
        }
        std::vector<nonvoid_t<T>> all;
        all.reserve(children_.size());
        for (task_child<S>& c : children_) {
            all.push_back(c.value());
        }
        return all;
    }

    std::pair<std::size_t, nonvoid_t<T>> first() {
        const std::size_t which = state_.winner();
        children_[which].rethrow_if_failed();
        return {which, children_[which].value()};
    }

private:
    task_when_state state_;
    std::vector<task_child<S>> children_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
