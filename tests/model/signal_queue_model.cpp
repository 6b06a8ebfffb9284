// signal_queue: every signal that is delivered reaches a wait or stays for the next one, and is taken once. A waiter
// that was let through finds a signal.

#include <bide/io/detail/signal_queue.hpp>
#include <model/sync_support.hpp>
#include <support/test.hpp>

using namespace sync_model;

namespace {

using queue = bide::detail::basic_signal_queue<platform>;
using bide::detail::mask_of;

constexpr int low = 10, high = 12;

// What the waits of one thread have taken.
struct taken {
    var<int> lows{0}, highs{0};
    void note(int signal) {
        MODEL_REQUIRE(signal == low || signal == high);
        auto& one = signal == low ? lows : highs;
        one = one + 1;
    }
};

bool take_one(queue& from, taken& by, deadline until) {
    if (from.wait(until) != wait_status::granted) {
        return false;
    }
    by.note(from.take());
    return true;
}

// The low signal comes twice and may count once, the high one comes once.
void require_all(const taken& a, const taken& b) {
    const int lows = a.lows + b.lows;
    MODEL_REQUIRE(lows == 1 || lows == 2);
    MODEL_REQUIRE(a.highs + b.highs == 1);
    model::record(lows == 1 ? "counts once" : "counts twice");
}
void deliver(queue& to) {
    to.deliver(mask_of(low));
    to.deliver(mask_of(low) | mask_of(high));
}
void drain(queue& from, taken& by) {
    while (take_one(from, by, deadline::poll())) {
    }
}

} // namespace

TEST_CASE("signal_queue: two waiters take what comes, and a time-out loses nothing") {
    const auto run = [](bool may_time_out) {
        queue q;
        taken mine, theirs;
        model::thread delivering([&] { deliver(q); });
        model::thread other(
            [&] { take_one(q, theirs, may_time_out ? deadline::after(soon) : deadline::never()); });
        take_one(q, mine, deadline::never());
        delivering.join();
        other.join();
        drain(q, mine);
        require_all(mine, theirs);
    };
    model::check("signal_queue: two waiters", random_or_long(5'000), [=] { run(false); });
    model::options timed = random_or_long(5'000);
    timed.timeouts = 1;
    model::check("signal_queue: one of two waiters times out", timed, [=] { run(true); });
}

TEST_CASE("signal_queue: a signal that comes again before it is taken counts once") {
    model::check("signal_queue: one waiter", bounded(2), [] {
        queue q;
        taken mine;
        const taken none;
        model::thread delivering([&] { deliver(q); });
        take_one(q, mine, deadline::never());
        delivering.join();
        drain(q, mine);
        require_all(mine, none);
    });
}

TEST_CASE("signal_queue: a wait that gives back its grant leaves the signal to another one") {
    model::check("signal_queue: a grant comes back", bounded(2), [] {
        queue q;
        taken mine, theirs;
        model::thread delivering([&] { q.deliver(mask_of(low)); });
        model::thread other([&] {
            const queue::taking cancelled(q);
            if (cancelled.try_now() == wait_status::granted) {
                cancelled.give_back(wait_status::granted);
            }
        });
        take_one(q, mine, deadline::never());
        MODEL_REQUIRE(mine.lows == 1);
        delivering.join();
        other.join();
        drain(q, mine);
        MODEL_REQUIRE(mine.lows == 1);
    });
}

TEST_CASE(
    "signal_queue: what came before a delivery is visible to the wait that takes the signal") {
    model::check("signal_queue: the message of a signal", bounded(2), [] {
        queue q;
        taken mine;
        var<int> data{0};
        model::thread delivering(
            model::after_writing(data, [&q] { q.deliver(mask_of(low) | mask_of(high)); }));
        take_one(q, mine, deadline::never());
        MODEL_REQUIRE(data == 1);
        MODEL_REQUIRE(mine.lows == 1);
    });
}
