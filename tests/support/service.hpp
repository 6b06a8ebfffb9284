#ifndef BIDE_TESTS_SUPPORT_SERVICE_HPP
#define BIDE_TESTS_SUPPORT_SERVICE_HPP

#include <bide/core/timer.hpp>
#include <support/gate.hpp>

#include <atomic>
#include <thread>

namespace test {

// The id of bide's service thread, which has done by then all that was posted to it before.
template <class Platform = bide::native_platform> std::thread::id service_thread() {
    struct errand : bide::runnable {
        std::thread::id id;
        std::atomic<bool> done{false};
    } it;
    it.run = bide::waker(
        [](void* p) noexcept {
            auto& mine = *static_cast<errand*>(p);
            mine.id = std::this_thread::get_id();
            mine.done = true;
        },
        &it);
    bide::timer_service<Platform>().post(it);
    if (!eventually([&] { return it.done.load(); })) {
        give_up(where(), "the service thread does not answer");
    }
    return it.id;
}

} // namespace test

#endif
