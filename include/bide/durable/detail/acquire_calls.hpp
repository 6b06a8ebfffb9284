// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_ACQUIRE_CALLS_HPP
#define BIDE_DURABLE_DETAIL_ACQUIRE_CALLS_HPP

// The threads on which an acquisition calls its store:
//
//   a thread without a timeout and without a stop token    on that thread
//   any other thread, and every coroutine                  on store threads, one try at a time
//
// If the caller's time is up during a try, the caller leaves. The try shares ownership of the
// acquisition. When the try ends, its store thread takes back the grant or the place in the queue.
// If the store fails then, the lock's withdrawals try again. If the caller gives up between two
// tries, it makes one more call, which takes back what the acquisition has in the store. The caller
// waits for this call as it waits for a try.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/acquisition.hpp>
#include <bide/durable/detail/store_call.hpp>
#include <bide/durable/detail/try_to.hpp>
#include <bide/durable/options.hpp>
#include <bide/task/task.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <stop_token>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

class look_call final : public store_call {
public:
    enum class kind { look, give_up };

    look_call(std::shared_ptr<acquisition> of, kind what) : of_(std::move(of)), kind_(what) {}

    // Returns true if the acquisition is not over.
    // Requires: the call has ended.
    bool goes_on() const {
        if (thrown_) {
            std::rethrow_exception(thrown_);
        }
        return goes_on_;
    }

private:
    void call() noexcept override {
        if (kind_ == kind::give_up) {
            of_->give_up_stopped();
            return;
        }
        thrown_ = thrown_by([this] { goes_on_ = of_->look(); });
        if (thrown_) {
            of_->undo();
        }
        is_over_ = !goes_on_;
    }
    void was_left() noexcept override {
        of_->undo();
        is_over_ = true;
    }
    void afterwards() noexcept override {
        if (is_over_ || kind_ == kind::give_up) {
            of_->end();
        }
        of_.reset();
    }

    std::shared_ptr<acquisition> of_;
    const kind kind_;
    bool goes_on_ = false;
    bool is_over_ = false; // used by the store thread only
    std::exception_ptr thrown_;
};

// The caller's side of an acquisition on store threads. If it is destroyed before the acquisition
// is over, the caller leaves.
class bounded_acquisition {
public:
    bounded_acquisition(lock_parts parts, acquire_request request)
        : of_(std::make_shared<acquisition>(std::move(parts), std::move(request))) {}
    bounded_acquisition(const bounded_acquisition&) = delete;
    bounded_acquisition& operator=(const bounded_acquisition&) = delete;
    ~bounded_acquisition() {
        if (call_ != nullptr) {
            call_->leave();
        }
    }

    acquisition& of() noexcept { return *of_; }
    const std::shared_ptr<look_call>& call() const noexcept { return call_; }

    // Throws: std::system_error if no store thread can be started, std::bad_alloc.
    void start(look_call::kind what) {
        call_ = std::make_shared<look_call>(of_, what);
        if (const std::error_code error = store_call::start(call_)) {
            call_.reset();
            throw_error(error);
        }
    }

private:
    const std::shared_ptr<acquisition> of_;
    std::shared_ptr<look_call> call_;
};

inline void wait_for_change(acquisition& it) {
    const std::int64_t rest = it.again().steady_ns() - native_platform::now();
    it.changed().wait_for(std::chrono::nanoseconds(rest));
}

// Acquires on the calling thread, without a time limit.
inline acquisition::answer acquire_here(const lock_parts& parts, acquire_request request) {
    acquisition it(parts, std::move(request));
    const std::exception_ptr thrown = thrown_by([&it] {
        while (it.look()) {
            wait_for_change(it);
        }
    });
    if (thrown) {
        it.undo();
    }
    it.end();
    if (thrown) {
        std::rethrow_exception(thrown);
    }
    return it.told(it.take(false));
}

// Acquires for a thread.
inline acquisition::answer acquire_blocking(const lock_parts& parts, acquire_request request) {
    if (deadline::after(request.timeout).is_never() && !request.stop.stop_possible()) {
        return acquire_here(parts, std::move(request));
    }
    bounded_acquisition mine(parts, std::move(request));
    acquisition& it = mine.of();
    const auto look = [&it]() noexcept { it.nudge(); };
    const std::stop_callback on_stop(it.stop(), look);
    for (;;) {
        const call_limits limits = it.limits();
        const std::error_code late = it.if_late();
        mine.start(look_call::kind::look);
        if (const std::error_code why = mine.call()->wait(limits)) {
            return it.told(unexpected{why == errc::timeout ? late : why});
        }
        if (!mine.call()->goes_on()) {
            return it.told(it.take(false));
        }
        wait_for_change(it);
    }
}

// Acquires for a coroutine.
inline task<acquisition::answer> acquire_task(lock_parts parts, acquire_request request) {
    bounded_acquisition mine(std::move(parts), std::move(request));
    acquisition& it = mine.of();
    for (bool waits = true; waits;) {
        const call_limits limits = it.limits();
        const std::error_code late = it.if_late();
        mine.start(look_call::kind::look);
        auto looking = wait_for_call(mine.call(), limits);
        if (const std::error_code why = co_await std::move(looking)) {
            co_return it.told(unexpected{why == errc::timeout ? late : why});
        }
        if (!mine.call()->goes_on()) {
            co_return it.told(it.take(true));
        }
        auto change = it.changed().async_wait().with_deadline(it.again()).with_stop(it.stop());
        const auto changed = co_await std::move(change);
        waits = changed || changed.error() != errc::stopped;
    }
    const call_limits limits = it.limits();
    mine.start(look_call::kind::give_up);
    auto leaving = wait_for_call(mine.call(), limits);
    static_cast<void>(co_await std::move(leaving));
    co_return it.told(unexpected{make_error_code(errc::stopped)});
}

}}} // namespace bide::BIDE_ABI::detail

#endif
