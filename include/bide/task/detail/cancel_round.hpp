#ifndef BIDE_TASK_DETAIL_CANCEL_ROUND_HPP
#define BIDE_TASK_DETAIL_CANCEL_ROUND_HPP

#include <bide/core/config.hpp>

#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_group;

// The groups whose members a thread is telling, one after the other, that they are cancelled.
template <class Platform> struct cancel_round {
    basic_group<Platform>* first = nullptr;
    basic_group<Platform>* last = nullptr;

    // This thread's; nullptr: none. User code that a cancellation calls is in none: it may wait for
    // what it cancels itself.
    static cancel_round*& here() noexcept { return Platform::template local<current>().now; }

    // While one lives, `round` is this thread's.
    class scope {
    public:
        explicit scope(cancel_round* round) noexcept : outer_(std::exchange(here(), round)) {}
        scope(const scope&) = delete;
        scope& operator=(const scope&) = delete;
        ~scope() { here() = outer_; }

    private:
        cancel_round* const outer_;
    };

private:
    struct current {
        cancel_round* now = nullptr;
    };
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
