#ifndef BIDE_TASK_DETAIL_WHEN_CHILDREN_HPP
#define BIDE_TASK_DETAIL_WHEN_CHILDREN_HPP

// The children of when_all and when_any with their outcomes: a state (when_state.hpp) of tasks, or of
// callables that return them.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/task/detail/awaited_frame.hpp>
#include <bide/task/detail/nonvoid.hpp>
#include <bide/task/detail/owned_frame.hpp>
#include <bide/task/detail/task_source.hpp>
#include <bide/task/detail/when_state.hpp>
#include <bide/task/task.hpp>

#include <coroutine>
#include <cstddef>
#include <exception>
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

    struct nothing {};

public:
    task_child() noexcept {}

    // Throws: what a callable throws.
    void take(S&& source) { frame_.take(origin_.open(std::move(source))); }
    awaited_frame& frame() noexcept { return frame_.as_awaited(); }

    // Once it has ended:
    void rethrow_if_failed() {
#if BIDE_EXCEPTIONS
        if (error_) {
            std::rethrow_exception(std::move(error_));
        }
#endif
    }
    nonvoid_t<T> value() {
        if constexpr (std::is_void_v<T>) {
            return {};
        } else {
            return value_.take();
        }
    }

private:
    std::coroutine_handle<> begin(executor_ref where) noexcept override {
        has_begun_ = true;
        return frame_.begin(*this, where);
    }

    void settle() noexcept override {
        if (has_begun_) {
            error_ = std::move((*frame_).error());
            if constexpr (!std::is_void_v<T>) {
                if (!error_) {
                    keep_value();
                }
            }
        }
        frame_.destroy();
        origin_.close();
    }

    void keep_value() noexcept {
#if BIDE_EXCEPTIONS
        try {
            value_.set((*frame_).outcome().take());
        } catch (...) {
            error_ = std::current_exception();
        }
#else
        value_.set((*frame_).outcome().take());
#endif
    }

    [[no_unique_address]] task_origin<S> origin_;
    owned_frame<T> frame_; // until it has ended
    std::exception_ptr error_;
    [[no_unique_address]] std::conditional_t<std::is_void_v<T>, nothing, task_outcome<T>> value_;
    bool has_begun_ = false;
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
        c.take(std::move(source));
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
            children_[i].take(std::move(sources[i]));
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
