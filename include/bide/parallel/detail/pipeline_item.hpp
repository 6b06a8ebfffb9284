// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_PIPELINE_ITEM_HPP
#define BIDE_PARALLEL_DETAIL_PIPELINE_ITEM_HPP

#include <bide/core/config.hpp>

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// What a function of type F gives to the next stage: an lvalue reference as it is, else a value.
template <class Result>
using pipeline_value_t =
    std::conditional_t<std::is_lvalue_reference_v<Result>, Result, std::remove_cvref_t<Result>>;

// Storage for one item between two stages, which is a value or a reference. An item without a value
// is dead: no further stage is called with it.
template <class T> class pipeline_item {
    using kept = std::conditional_t<std::is_reference_v<T>, std::remove_reference_t<T>*, T>;

public:
    pipeline_item() noexcept {}
    pipeline_item(const pipeline_item&) = delete;
    pipeline_item& operator=(const pipeline_item&) = delete;
    ~pipeline_item() { reset(); }

    bool has_value() const noexcept { return has_value_; }

    // Keeps what make() returns. A value is constructed in place, without a move.
    // Requires: there is no value.
    template <class Make> void emplace(Make&& make) {
        if constexpr (std::is_reference_v<T>) {
            ::new (static_cast<void*>(storage_)) kept(std::addressof(make()));
        } else {
            ::new (static_cast<void*>(storage_)) kept(make());
        }
        has_value_ = true;
    }

    // Returns the value, to be moved from, or the reference. Requires: there is a value.
    T&& get() noexcept {
        if constexpr (std::is_reference_v<T>) {
            return *value();
        } else {
            return static_cast<T&&>(value());
        }
    }

    // Destroys the value, if there is one.
    void reset() noexcept {
        if (has_value_) {
            has_value_ = false;
            value().~kept();
        }
    }

    // Moves the value of `from` here, if there is one, and destroys it there.
    // Throws: what the move throws; then the value is still in `from`.
    void take(pipeline_item& from) {
        if (from.has_value_) {
            emplace([&]() -> T&& { return from.get(); });
            from.reset();
        }
    }

private:
    // g++ 12 would report a union of the value as maybe uninitialized.
    kept& value() noexcept { return *std::launder(reinterpret_cast<kept*>(storage_)); }

    alignas(kept) std::byte storage_[sizeof(kept)];
    bool has_value_ = false;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
