#ifndef BIDE_TESTS_MODEL_POSTED_HPP
#define BIDE_TESTS_MODEL_POSTED_HPP

#include <bide/core/executor.hpp>
#include <bide/core/timer.hpp>
#include <model/check.hpp>

#include <support/standard.hpp>

namespace bide::model {

// A runnable that calls a function. May be destroyed in the last step of that call.
struct posted : bide::runnable {
    explicit posted(std::function<void()> what) : does(std::move(what)) {
        run = bide::waker([](void* self) noexcept { static_cast<posted*>(self)->does(); }, this);
    }
    std::function<void()> does;
};

// A timer that does.
struct timed : bide::timer {
    timed(bide::deadline due, std::function<void()> what) : does(std::move(what)) {
        when = due;
        fire = bide::waker([](void* self) noexcept { static_cast<timed*>(self)->does(); }, this);
    }
    std::function<void()> does;
};

} // namespace bide::model

#endif
