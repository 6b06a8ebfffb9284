#ifndef BIDE_TESTS_SUPPORT_CONTESTED_HPP
#define BIDE_TESTS_SUPPORT_CONTESTED_HPP

// One case of a select, by hand: a wait whose choice the test decides.

#include <bide/core/choice.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/waiter.hpp>

#include <utility>

namespace test {

template <class R, class Platform> class contested {
public:
    contested(bide::basic_wait<R, Platform> wait, bide::basic_choice<Platform>& with) noexcept
        : wait_(std::move(wait)) {
        wait_.target.carry(wait_.payload);
        node_.contest([](void*) noexcept {}, with);
    }
    contested(const contested&) = delete;
    contested& operator=(const contested&) = delete;

    // True: complete.
    bool start() noexcept { return wait_.ops->enqueue(wait_.target, node_); }
    // True: it had been queued still.
    bool cancel() noexcept {
        return wait_.ops->cancel(wait_.target, node_, bide::wait_status::stopped);
    }
    bool is_complete() const noexcept { return node_.is_complete(); }
    R collect() { return wait_.ops->collect(wait_.target, node_.outcome()); }

private:
    bide::basic_wait<R, Platform> wait_;
    bide::basic_waiter<Platform> node_;
};

} // namespace test

#endif
