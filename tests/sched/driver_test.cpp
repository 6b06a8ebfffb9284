#include <bide/core/async_op.hpp>
#include <bide/core/parker.hpp>
#include <bide/core/waiter_queue.hpp>
#include <bide/sched/driver.hpp>
#include <support/catch.hpp>
#include <support/coroutines.hpp>
#include <support/gate.hpp>
#include <support/stop.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <type_traits>

// A driver of the user, which is told of completions and not of readiness, and how its operations
// end.

using namespace std::chrono_literals;
using bide::deadline;
using bide::errc;
using bide::io_result;
using bide::wait_status;

static_assert(std::is_abstract_v<bide::driver>);
static_assert(std::has_virtual_destructor_v<bide::driver>);
static_assert(!std::is_copy_constructible_v<bide::driver>);
static_assert(!std::is_copy_assignable_v<bide::driver>);
static_assert(noexcept(std::declval<bide::driver&>().wait(deadline::poll())));
static_assert(noexcept(std::declval<bide::driver&>().wake()));
static_assert(bide::driver::max_completions == 256);

namespace {

// Operations wait in a queue. complete(error) ends the oldest one in the next wait().
class answering_driver final : public bide::driver {
    using waiter = bide::basic_waiter<bide::native_platform>;
    using queue = bide::basic_waiter_queue<bide::native_platform>;
    using list = bide::basic_wake_list<bide::native_platform>;

public:
    unsigned wait(deadline until) noexcept override {
        unsigned handed = take();
        if (handed == 0 && parker_.park_until(until)) {
            handed = take();
        }
        return handed;
    }
    void wake() noexcept override { parker_.unpark(); }

    void complete(int error) {
        const std::lock_guard lock(mutex_);
        answers_.push_back(error);
    }

    bide::async_op<io_result> async_answer() { return {answering{{}, *this}}; }

private:
    struct answering : bide::io_operation {
        answering_driver& of;

        wait_status try_now() const noexcept { return wait_status::waiting; }
        wait_status enqueue(waiter& w, bide::io_payload& mine) const noexcept {
            const std::lock_guard lock(of.mutex_);
            if (w.forbidden() != wait_status::waiting) {
                w.settle(w.forbidden());
                return w.forbidden();
            }
            w.carry(mine);
            of.waiting_.push(w);
            return wait_status::waiting;
        }
        bool cancel(waiter& w, wait_status why) const noexcept {
            const std::lock_guard lock(of.mutex_);
            return of.waiting_.withdraw(w, why);
        }
    };

    unsigned take() noexcept {
        list ready;
        unsigned handed = 0;
        {
            const std::lock_guard lock(mutex_);
            while (!answers_.empty() && !waiting_.empty() && handed < max_completions) {
                waiter& first = waiting_.pop();
                first.carried<bide::io_payload>().error = answers_.front();
                answers_.pop_front();
                ready.push(first);
                ++handed;
            }
        }
        ready.publish(wait_status::granted);
        return handed;
    }

    bide::parker parker_;
    std::mutex mutex_;
    std::deque<int> answers_;
    queue waiting_;
};

struct outcome {
    std::atomic<bool> done{false};
    bool granted = false;
    std::error_code why;
};

test::held answered(answering_driver& d, outcome& out) {
    const io_result got = co_await d.async_answer();
    out.granted = got.has_value();
    out.why = got ? std::error_code() : got.error();
    out.done = true;
}
test::held answered_unless(answering_driver& d, outcome& out, std::stop_token stop,
                           deadline until) {
    const io_result got = co_await d.async_answer().with_stop(stop).with_deadline(until);
    out.granted = got.has_value();
    out.why = got ? std::error_code() : got.error();
    out.done = true;
}

} // namespace

TEST_CASE("driver: an operation ends with nothing, or with the system's error") {
    answering_driver d;
    outcome good;
    outcome bad;
    test::held a = answered(d, good);
    test::held b = answered(d, bad);
    a.start();
    b.start();
    CHECK(d.wait(deadline::poll()) == 0);
    d.complete(0);
    CHECK(d.wait(deadline::poll()) == 1);
    CHECK(good.done);
    CHECK(good.granted);
    CHECK_FALSE(bad.done);
    d.complete(static_cast<int>(std::errc::no_space_on_device));
    CHECK(d.wait(deadline::poll()) == 1);
    CHECK(bad.done);
    CHECK_FALSE(bad.granted);
    CHECK(bad.why == std::errc::no_space_on_device);
    CHECK(bad.why.category() == std::system_category());
}

TEST_CASE("driver: an operation that is stopped or times out ends with bide's errc") {
    outcome outs[3];
    {
        answering_driver d;
        std::stop_source stop = test::new_stop();
        stop.request_stop();
        test::held a = answered_unless(d, outs[0], stop.get_token(), deadline::never());
        test::held b = answered_unless(d, outs[1], std::stop_token(), deadline::poll());
        a.start();
        b.start();
    }
    CHECK(outs[0].done);
    CHECK(outs[0].why == errc::stopped);
    CHECK(outs[1].done);
    CHECK(outs[1].why == errc::timeout);
    bide::io_payload payload;
    payload.error = 5; // from an attempt that did not decide
    const io_result closed = bide::io_operation().collect(wait_status::closed, payload);
    REQUIRE_FALSE(closed);
    CHECK(closed.error() == errc::closed);
    CHECK(closed.error() != errc::stopped);
}

TEST_CASE("driver: wake() through the base class ends a wait()") {
    const test::watchdog guard;
    answering_driver own;
    bide::driver& d = own;
    constexpr int rounds = 200;
    std::atomic<int> seen{0};
    int said = 0; // published by wake() only
    bool in_order = true;
    test::team threads(2, [&](int i) {
        for (int round = 1; round <= rounds; ++round) {
            if (i == 0) {
                d.wait(deadline::never());
                in_order = in_order && said == round;
                seen = round;
            } else {
                said = round;
                d.wake();
                while (seen != round) {
                    std::this_thread::yield();
                }
            }
        }
    });
    threads.join();
    CHECK(in_order);
}
