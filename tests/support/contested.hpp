#ifndef BIDE_TESTS_SUPPORT_CONTESTED_HPP
#define BIDE_TESTS_SUPPORT_CONTESTED_HPP

// One case of a select, by hand: a wait whose choice the test decides.

#include <bide/core/waiter.hpp>
#include <support/manual_wait.hpp>

#include <utility>

namespace test {

template <class R, class Platform> class contested : public manual_wait<R, Platform> {
public:
    contested(bide::basic_wait<R, Platform> wait, bide::basic_choice<Platform>& with) noexcept
        : manual_wait<R, Platform>(std::move(wait)) {
        this->node_.contest([](void*) noexcept {}, with);
    }
};

} // namespace test

#endif
