#ifndef BIDE_TESTS_SUPPORT_FOREIGN_WAIT_HPP
#define BIDE_TESTS_SUPPORT_FOREIGN_WAIT_HPP

// The wait of an event loop in any primitive that has an operation: a node of its own, with a waker.

#include <bide/core/async_op.hpp>
#include <bide/core/executor.hpp>
#include <support/manual_wait.hpp>
#include <support/waiting.hpp>

#include <utility>

namespace test {

template <class R, class Platform> class foreign_wait : public manual_wait<R, Platform> {
public:
    foreign_wait(bide::basic_wait<R, Platform> wait, journal& turns, int name) noexcept
        : manual_wait<R, Platform>(std::move(wait), 1, bide::waker(&on_wake, this)), turns_(turns),
          name_(name) {}

private:
    static void on_wake(void* self) noexcept {
        auto& mine = *static_cast<foreign_wait*>(self);
        mine.turns_.add(mine.name_);
    }

    journal& turns_;
    const int name_;
};
template <class R, class Platform>
foreign_wait(bide::basic_wait<R, Platform>, journal&, int) -> foreign_wait<R, Platform>;

} // namespace test

#endif
