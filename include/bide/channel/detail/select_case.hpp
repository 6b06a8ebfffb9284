// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_SELECT_CASE_HPP
#define BIDE_CHANNEL_DETAIL_SELECT_CASE_HPP

// The cases of a select, before it begins. A select needs of each case
//
//   result_type, platform
//   fill(select_entry&)       fills in the entry; neither the case nor the entry moves after that
//   needs_timers()            true if a coroutine that waits for it needs prepare_timers() first
//   collect(select_entry&)    the result, if the case has happened
//   give_back(select_entry&)  undoes a case that has happened and is not collected

#include <bide/channel/detail/item_wait.hpp>
#include <bide/channel/detail/select_core.hpp>
#include <bide/channel/detail/signal_wait.hpp>
#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/wait_ops.hpp>

#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

namespace bide::inline BIDE_ABI {

/// One case of a select. The functions of channel/select.hpp make it; it is used once.
template <class Result, class Platform> class basic_select_case {
    using R = as_result_t<Result>;

public:
    /// The result of the case.
    using result_type = Result;
    /// The platform of its primitive.
    using platform = Platform;

    /// Constructs a case that never happens.
    basic_select_case() noexcept = default;

    /// Constructs a case from a wait of a primitive.
    /// Requires: `what` is not a wait for a time, for a task, or of another select; terminates
    /// otherwise.
    basic_select_case(basic_wait<R, Platform>&& what) noexcept
        : how_(what.ops), ops_(what.ops), target_(what.target), payload_(std::move(what.payload)) {
        if (how_->stands_alone) {
            detail::fatal("select: a wait for a time, for a task, or of another select is not "
                          "allowed as a case");
        }
    }

    /// Constructs a case without a value from an operation that has no collect(). If `last` is
    /// true, the case is tried after all other cases.
    template <class Op>
        requires std::is_same_v<Result, std::monostate>
    basic_select_case(const Op& what, wait_payload_t<R> carried, bool last = false) noexcept
        : how_(&detail::steps_of<Op, wait_payload_t<R>, Platform>), target_(what),
          payload_(std::move(carried)), is_last_(last) {}

    /// Constructs a case without a value from another wait without a value, and without a payload.
    basic_select_case(const wait_steps<Platform>& how, const wait_target& what) noexcept
        requires std::is_same_v<Result, std::monostate>
        : how_(&how), target_(what) {}

    /// Moves a case, before its select begins.
    basic_select_case(basic_select_case&&) noexcept = default;
    basic_select_case& operator=(basic_select_case&&) = delete;

    // --- For selects

    // Keeps an object alive as long as the case.
    void keep(detail::keep_alive what) noexcept { alive_ = std::move(what); }

    void fill(detail::select_entry<Platform>& e) noexcept {
        e.how = how_;
        e.target = target_;
        e.target.carry(payload_);
        e.is_last = is_last_;
        if constexpr (std::is_same_v<Result, std::monostate>) {
            e.timeout = payload_.timeout();
        }
    }

    bool needs_timers() const noexcept {
        if constexpr (std::is_same_v<Result, std::monostate>) {
            return payload_.needs_timers();
        } else {
            return false;
        }
    }

    Result collect(const detail::select_entry<Platform>& e) {
        if constexpr (std::is_same_v<Result, std::monostate>) {
            return {};
        } else if constexpr (detail::is_result<Result>) {
            return ops_->collect(e.target, e.node.outcome());
        } else {
            return *ops_->collect(e.target, e.node.outcome());
        }
    }
    void give_back(const detail::select_entry<Platform>& e) noexcept {
        if (how_ != nullptr && how_->give_back != nullptr) {
            how_->give_back(e.target, e.node.outcome());
        }
    }

private:
    const wait_steps<Platform>* how_ = nullptr; // nullptr: never happens
    const wait_ops<R, Platform>* ops_ = nullptr;
    wait_target target_;
    [[no_unique_address]] wait_payload_t<R> payload_{};
    detail::keep_alive alive_;
    bool is_last_ = false;
};

/// A case of a select for users.
template <class Result> using select_case = basic_select_case<Result, native_platform>;

namespace detail {

template <class T, class Platform>
basic_select_case<T, Platform> case_of(basic_async_op<T, Platform>&& op) noexcept {
    return std::move(op).as_case();
}
template <class Op> struct case_type;
template <class T, class Platform> struct case_type<basic_async_op<T, Platform>> {
    using type = basic_select_case<T, Platform>;
};
template <class Op> using case_type_t = typename case_type<Op>::type;

// Argument is the deduced type of a forwarding reference.
template <class Argument>
inline constexpr bool is_temporary = !std::is_reference_v<Argument> && !std::is_pointer_v<Argument>;

// A case that owns its handle. Make makes the case of the handle once the handle stays in place.
template <class Handle, class Make> class owning_case {
    using made = decltype(std::declval<const Make&>()(std::declval<Handle&>()));
    static_assert(std::is_nothrow_move_constructible_v<Handle>,
                  "bide: a case of a temporary that is not a handle: the channel would be gone "
                  "before the select begins");

public:
    using result_type = typename made::result_type;
    using platform = typename made::platform;

    owning_case(Handle&& of, Make make) noexcept : of_(std::move(of)), make_(make) {}

    void fill(select_entry<platform>& e) noexcept { made_.emplace(make_(of_)).fill(e); }
    bool needs_timers() const noexcept { return false; }
    result_type collect(const select_entry<platform>& e) { return made_->collect(e); }
    void give_back(const select_entry<platform>& e) noexcept { made_->give_back(e); }

private:
    Handle of_;
    [[no_unique_address]] Make make_;
    std::optional<made> made_;
};

// The item type of a channel that is given by reference or pointer.
template <class Channel>
using sent_through = typename std::remove_pointer_t<std::remove_reference_t<Channel>>::value_type;

// True if on_send() takes a T from such an argument. 0 and nullptr do not count as pointers.
template <class T, class Argument>
inline constexpr bool is_sent_from =
    std::is_convertible_v<Argument, T&> ||
    (std::is_convertible_v<Argument, T*> && !std::is_null_pointer_v<std::remove_cvref_t<Argument>>);

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
