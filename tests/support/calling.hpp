#ifndef BIDE_TESTS_SUPPORT_CALLING_HPP
#define BIDE_TESTS_SUPPORT_CALLING_HPP

#include <bide/core/executor.hpp>

namespace test {

// A waker that calls f, which outlives it.
template <class F> bide::waker waker_of(F& f) noexcept {
    return {[](void* it) noexcept { (*static_cast<F*>(it))(); }, &f};
}

} // namespace test

#endif
