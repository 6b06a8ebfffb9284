#ifndef BIDE_TESTS_SUPPORT_SERVICE_HPP
#define BIDE_TESTS_SUPPORT_SERVICE_HPP

#include <bide/core/detail/worker_host.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/timer.hpp>
#include <support/gate.hpp>

#include <atomic>
#include <condition_variable>
#include <mutex>

namespace test {

// Returns when bide's service has fired the time-outs that were due and has run all that it had to
// run, to its end. Its threads run and rest then.
template <class Platform = bide::native_platform> void service_thread() {
    struct errand : bide::runnable {
        bide::timer t;
        std::atomic<bool> done{false};
    } it;
    it.run = bide::waker([](void* p) noexcept { static_cast<errand*>(p)->done = true; }, &it);
    it.t.when = bide::deadline::at_ns(Platform::now());
    it.t.fire = bide::waker(
        [](void* p) noexcept { bide::wake_scope<Platform>::run(*static_cast<errand*>(p)); }, &it);
    auto& service = bide::timer_service<Platform>();
    service.add(it.t);
    if (!eventually([&] { return it.done.load() && service.is_idle(); })) {
        give_up(where(), "the service does not come to rest");
    }
    service.cancel(it.t);
}

// The calling thread is one of those on which the service resumes coroutines.
template <class Platform = bide::native_platform> bool is_resumer() noexcept {
    auto* const host = bide::worker_local<Platform>::get().host;
    return host != nullptr && !host->executor();
}

// Where code blocks in a way that bide does not see, until the test opens it.
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
