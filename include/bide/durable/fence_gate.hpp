#ifndef BIDE_DURABLE_FENCE_GATE_HPP
#define BIDE_DURABLE_FENCE_GATE_HPP

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>

#include <cstdint>

namespace bide::inline BIDE_ABI {

// What a resource asks whether a holder is still the latest: it admits a fencing token unless it has
// seen a larger one. A holder that was suspended for longer than its lease finds the gate shut, if
// the next one has been there.
//
// One word, free of locks and addresses: it may lie in memory that processes share, and no crash
// leaves it in between. Zero bytes are a gate that has seen nothing.
//
// Asking and acting are two steps: a holder that is suspended between them acts late. Where that
// matters the resource does both as one, as a database does by `... WHERE fence <= :mine`.
template <class Platform> class basic_fence_gate {
public:
    constexpr basic_fence_gate() noexcept = default;
    basic_fence_gate(const basic_fence_gate&) = delete;
    basic_fence_gate& operator=(const basic_fence_gate&) = delete;

    // False: a larger token was here before.
    // Order: what was done before a token was admitted happens-before the return of every later
    // call.
    bool admit(std::int64_t fence) noexcept {
        // Order: acquire [FG1]; who is refused sees what was done before the larger token came, too.
        std::int64_t seen = highest_.load(std::memory_order_acquire);
        do {
            if (fence < seen) {
                return false;
            }
            // Order: acq_rel [FG1]; publishes to, and sees, who is admitted after and before. The
            // same token is written again, so that its earlier calls are seen as well. Failure:
            // acquire; it may be refused.
        } while (!highest_.compare_exchange_weak(seen, fence, std::memory_order_acq_rel,
                                                 std::memory_order_acquire));
        return true;
    }

    // The largest token that was admitted; 0: none.
    // Order: acquire [FG1]; what was done before that.
    std::int64_t highest() const noexcept { return highest_.load(std::memory_order_acquire); }

private:
    typename Platform::template atomic<std::int64_t> highest_{0};
};

using fence_gate = basic_fence_gate<native_platform>;
static_assert(sizeof(fence_gate) == sizeof(std::int64_t));

} // namespace bide::inline BIDE_ABI

#endif
