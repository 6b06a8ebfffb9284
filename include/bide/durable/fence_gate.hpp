// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_FENCE_GATE_HPP
#define BIDE_DURABLE_FENCE_GATE_HPP

#include <bide/core/platform.hpp>

namespace bide { inline namespace BIDE_ABI {

/// Admits fencing tokens in order: refuses a token if a larger one was admitted.
///
/// \code
/// bide::fence_gate gate;                 // guards a resource
/// if (gate.admit(7)) std::puts("use it"); // 7 is the token of a lock: durable_guard::fence()
/// if (!gate.admit(6)) std::puts("late");  // a later holder was here
/// \endcode
///
/// A holder that was suspended for longer than its lease is refused, if the next holder has used
/// the gate. A holder that is suspended between the check and its action may still act. If that
/// matters, the resource must check and act in one step, as `UPDATE ... WHERE fence <= :mine` does.
///
/// The gate is one lock-free word without addresses, so it may lie in memory that processes share.
/// A word whose bytes are all zero is a gate that has admitted no token.
/// Thread safety: any thread of any such process may call any function at any time.
template <class Platform> class basic_fence_gate {
public:
    /// Constructs a gate that has admitted no token.
    constexpr basic_fence_gate() noexcept = default;
    basic_fence_gate(const basic_fence_gate&) = delete;
    basic_fence_gate& operator=(const basic_fence_gate&) = delete;

    /// Admits the token, unless a larger one was admitted.
    /// Returns: false if a larger token was admitted.
    /// Memory order: what was done before an admission happens-before the return of later calls.
    bool admit(std::int64_t fence) noexcept {
        // Order: acquire [fence_gate.admit]; a refused caller, too, sees what was done before the
        // larger token was admitted.
        std::int64_t seen = highest_.load(std::memory_order_acquire);
        do {
            if (fence < seen) {
                return false;
            }
            // Order: acq_rel [fence_gate.admit]; publishes to the callers that are admitted later,
            // and sees what earlier ones did. A token that equals the largest one is stored again,
            // so a later caller sees what was done before each call that admitted that token.
            // Failure: acquire; the caller may be refused.
        } while (!highest_.compare_exchange_weak(seen, fence, std::memory_order_acq_rel,
                                                 std::memory_order_acquire));
        return true;
    }

    /// Returns the largest token that was admitted; 0 if there is none.
    /// Memory order: what was done before that admission happens-before the return.
    std::int64_t highest() const noexcept {
        // Order: acquire [fence_gate.admit]; what was done before the admission is seen.
        return highest_.load(std::memory_order_acquire);
    }

private:
    typename Platform::template atomic<std::int64_t> highest_{0};
};

/// The gate for real threads and processes.
using fence_gate = basic_fence_gate<native_platform>;
static_assert(sizeof(fence_gate) == sizeof(std::int64_t));

}} // namespace bide::BIDE_ABI

#endif
