#ifndef BIDE_TESTS_SUPPORT_FOREIGN_WAIT_HPP
#define BIDE_TESTS_SUPPORT_FOREIGN_WAIT_HPP

// The wait of an event loop in any primitive that has an operation: a node of its own, with a waker.

#include <bide/core/async_op.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waker.hpp>
#include <support/waiting.hpp>

#include <atomic>
#include <utility>

namespace test {

template <class R, class Platform> class foreign_wait {
public:
    foreign_wait(bide::basic_wait<R, Platform> wait, journal& turns, int name) noexcept
        : wait_(std::move(wait)), turns_(turns), name_(name),
          node_(1, bide::waker(&on_wake, this)) {
        wait_.target.carry(wait_.payload);
    }
    foreign_wait(const foreign_wait&) = delete;
    foreign_wait& operator=(const foreign_wait&) = delete;

    // True: it was complete at once.
    bool start() noexcept { return wait_.ops->enqueue(wait_.target, node_); }
    // True: it was queued still.
    bool cancel() noexcept {
        return wait_.ops->cancel(wait_.target, node_, bide::wait_status::stopped);
    }
    bool is_complete() const noexcept { return node_.is_complete(); }
    R collect() { return wait_.ops->collect(wait_.target, node_.outcome()); }

private:
    static void on_wake(void* self) noexcept {
        auto& mine = *static_cast<foreign_wait*>(self);
        mine.turns_.add(mine.name_);
    }

    bide::basic_wait<R, Platform> wait_;
    journal& turns_;
    const int name_;
    bide::basic_waiter<Platform> node_;
};
template <class R, class Platform>
foreign_wait(bide::basic_wait<R, Platform>, journal&, int) -> foreign_wait<R, Platform>;

} // namespace test

#endif
