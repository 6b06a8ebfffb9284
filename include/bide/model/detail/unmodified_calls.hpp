// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_UNMODIFIED_CALLS_HPP
#define BIDE_MODEL_DETAIL_UNMODIFIED_CALLS_HPP

// What the functions of model/unmodified.hpp have in common.

#include <bide/model/detail/ops.hpp>

#include <dlfcn.h>
#include <time.h>

// The place of the call of the function that uses this macro.
#define BIDE_MODEL_HERE ::bide::model::detail::ops::place_of(__builtin_return_address(0))

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

// A function of the system, which a function of model/unmodified.hpp replaces. The constructor is
// constexpr, so that no initialisation is needed: such functions are called before main().
template <class Result> class system_function {
public:
    // `version` is the symbol version to prefer; nullptr: the default.
    explicit constexpr system_function(const char* called, const char* version = nullptr) noexcept
        : called_(called), version_(version) {}

    // Requires: the types are those of the parameters.
    template <class... A> Result operator()(A... a) {
        if (found_ == nullptr && version_ != nullptr) {
            found_ = ::dlvsym(RTLD_NEXT, called_, version_);
        }
        if (found_ == nullptr) {
            found_ = ::dlsym(RTLD_NEXT, called_);
        }
        return reinterpret_cast<Result (*)(A...)>(found_)(a...);
    }

private:
    const char* called_;
    const char* version_;
    void* found_ = nullptr;
};

// Clears the stack below the frame of the caller. The checker detects a loop that waits by a hash of
// the stack. So what earlier calls have left in the unused parts of a frame must not differ from
// round to round.
BIDE_NOINLINE inline void clear_stack() noexcept {
    volatile std::uintptr_t below[128];
    for (volatile std::uintptr_t& word : below) {
        word = 0;
    }
}

inline constexpr std::int64_t no_end = std::numeric_limits<std::int64_t>::max();

inline std::int64_t nanoseconds(const ::timespec& t) noexcept {
    constexpr std::int64_t second = 1'000'000'000;
    return t.tv_sec >= no_end / second ? no_end : t.tv_sec * second + t.tv_nsec;
}

// Returns the end of a wait of this length, in the time of ops::now().
inline std::int64_t end_of(std::int64_t rest) noexcept {
    const std::int64_t now = ops::now();
    return rest >= no_end - now ? no_end : now + rest;
}

}}} // namespace bide::BIDE_ABI::model::detail

#endif
