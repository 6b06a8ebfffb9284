#ifndef BIDE_TESTS_SUPPORT_MANUAL_WAIT_HPP
#define BIDE_TESTS_SUPPORT_MANUAL_WAIT_HPP

// A wait in any primitive that has an operation, with a node of its own, step by step.

#include <bide/core/wait_ops.hpp>
#include <bide/core/waiter.hpp>

#include <utility>

namespace test {

template <class R, class Platform> class manual_wait {
public:
    manual_wait(const manual_wait&) = delete;
    manual_wait& operator=(const manual_wait&) = delete;

    // Returns true if it was complete at once.
    bool start() noexcept { return wait_.ops->enqueue(wait_.target, node_); }
    // Returns true if it was still queued.
    bool cancel() noexcept {
        return wait_.ops->cancel(wait_.target, node_, bide::wait_status::stopped);
    }
    bool is_complete() const noexcept { return node_.is_complete(); }
    R collect() { return wait_.ops->collect(wait_.target, node_.outcome()); }

protected:
    // `node`: the arguments of the node's constructor.
    template <class... Node>
    explicit manual_wait(bide::basic_wait<R, Platform> wait, Node... node) noexcept
        : wait_(std::move(wait)), node_(node...) {}
    ~manual_wait() = default;

    bide::basic_wait<R, Platform> wait_;
    bide::basic_waiter<Platform> node_;
};

} // namespace test

#endif
