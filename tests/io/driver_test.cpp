#include <bide/core/async_op.hpp>
#include <support/file_waits.hpp>
#include <support/sched.hpp>

// A driver of the user, which is told of completions and not of readiness, and how its operations
// end.

using namespace bide;
using test::file_outcome;

static_assert(std::is_abstract_v<driver>);
static_assert(std::has_virtual_destructor_v<driver>);
static_assert(!std::is_copy_constructible_v<driver>);
static_assert(!std::is_copy_assignable_v<driver>);
static_assert(noexcept(std::declval<driver&>().wait(deadline::poll())));
static_assert(noexcept(std::declval<driver&>().wake()));
static_assert(driver::max_completions == 256);

namespace {

// Operations wait in a queue. complete(error) ends the oldest one in the next wait().
class answering_driver final : public driver {
    using waiter = basic_waiter<native_platform>;
    using queue = basic_waiter_queue<native_platform>;
    using list = basic_wake_list<native_platform>;

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

    async_op<io_result> async_answer() { return {answering{{}, *this}}; }

private:
    struct answering : io_operation {
        answering_driver& of;

        wait_status try_now() const noexcept { return wait_status::waiting; }
        wait_status enqueue(waiter& w, io_payload& mine) const noexcept {
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
                first.carried<io_payload>().error = answers_.front();
                answers_.pop_front();
                ready.push(first);
                ++handed;
            }
        }
        ready.publish(wait_status::granted);
        return handed;
    }

    parker parker_;
    std::mutex mutex_;
    std::deque<int> answers_;
    queue waiting_;
};

} // namespace

TEST_CASE("driver: an operation ends with nothing, or with the system's error") {
    answering_driver d;
    file_outcome good;
    file_outcome bad;
    test::held a = test::await(d.async_answer(), good);
    test::held b = test::await(d.async_answer(), bad);
    a.start();
    b.start();
    CHECK(d.wait(deadline::poll()) == 0);
    d.complete(0);
    CHECK(d.wait(deadline::poll()) == 1);
    CHECK(good.is_granted());
    CHECK_FALSE(bad.done);
    d.complete(static_cast<int>(std::errc::no_space_on_device));
    CHECK(d.wait(deadline::poll()) == 1);
    CHECK(bad.is(std::errc::no_space_on_device));
    CHECK(bad.why.category() == std::system_category());
}

TEST_CASE("driver: an operation that is stopped or times out ends with bide's errc") {
    file_outcome outs[2];
    {
        answering_driver d;
        std::stop_source stop = test::new_stop();
        stop.request_stop();
        test::held a = test::await(d.async_answer().with_stop(stop.get_token()), outs[0]);
        test::held b = test::await(d.async_answer().with_deadline(deadline::poll()), outs[1]);
        a.start();
        b.start();
    }
    CHECK(outs[0].is(errc::stopped));
    CHECK(outs[1].is(errc::timeout));
    io_payload payload;
    payload.error = 5; // from an attempt that did not decide
    const io_result closed = io_operation().collect(wait_status::closed, payload);
    REQUIRE_FALSE(closed);
    CHECK(closed.error() == errc::closed);
    CHECK(closed.error() != errc::stopped);
}

TEST_CASE("driver: wake() through the base class ends a wait()") {
    answering_driver d;
    CHECK(test::wakes_in_order(d, 200));
}
