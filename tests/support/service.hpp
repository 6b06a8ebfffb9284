#ifndef BIDE_TESTS_SUPPORT_SERVICE_HPP
#define BIDE_TESTS_SUPPORT_SERVICE_HPP

#include <bide/core/resume.hpp>
#include <bide/core/timer.hpp>
#include <bide/core/wake_scope.hpp>
#include <support/gate.hpp>
#include <support/standard.hpp>

namespace test {

// Blocks until bide's timer service has fired the time-outs that are due and has finished all jobs.
// Its threads are started and idle then.
template <class Platform = bide::native_platform> void service_thread() {
    struct posted_call : bide::runnable {
        bide::timer t;
        std::atomic<bool> done{false};
    } it;
    it.run = bide::waker([](void* p) noexcept { static_cast<posted_call*>(p)->done = true; }, &it);
    it.t.when = bide::deadline::at_ns(Platform::now());
    it.t.fire = bide::waker(
        [](void* p) noexcept { bide::wake_scope<Platform>::run(*static_cast<posted_call*>(p)); },
        &it);
    auto& service = bide::timer_service<Platform>();
    service.add(it.t);
    if (!eventually([&] { return it.done.load() && service.is_idle(); })) {
        give_up(where(), "the timer service does not become idle");
    }
    service.cancel(it.t);
}

// Whether the service resumes coroutines on the calling thread.
template <class Platform = bide::native_platform> bool is_resumer() noexcept {
    auto* const host = bide::worker_local<Platform>::get().host;
    return host != nullptr && !host->executor();
}

// Blocks a thread, without bide's knowledge, until the test opens the barrier.
class barrier {
public:
    void pass() noexcept {
        std::unique_lock lock(mutex_);
        reached_ = true;
        changed_.notify_all();
        changed_.wait(lock, [this] { return open_; });
    }
    bool is_reached() noexcept {
        const std::lock_guard lock(mutex_);
        return reached_;
    }
    void open() noexcept {
        const std::lock_guard lock(mutex_);
        open_ = true;
        changed_.notify_all();
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool reached_ = false;
    bool open_ = false;
};

} // namespace test

#endif
