// Workers of a scheduler that go to sleep, and producers that hand them work: what goes wrong when the
// steps of either are taken in another order, or in two instead of one.

#include <model/known_bad/parts.hpp>

using namespace known_bad;

namespace {

// One worker, one queue, and the bit that says that the worker sleeps.
struct one_worker {
    word queue{0};
    word parked{0};
    parker bed;

    void push() noexcept {
        queue.store(1, order::seq_cst);
        if (parked.exchange(0, order::seq_cst) != 0) {
            bed.unpark();
        }
    }
    // The bit is up, and work was found. The waker that lowered the bit has left a token.
    void get_up() noexcept {
        if (parked.exchange(0, order::relaxed) == 0) {
            bed.park();
        }
    }
};

// A push after the look and before the bit wakes no worker.
struct looks_before_the_bit : one_worker {
    void work() noexcept {
        if (queue.load(order::seq_cst) == 0) {
            parked.store(1, order::seq_cst);
            bed.park();
        }
    }
};

// No look at all, since it sleeps for no more than ten milliseconds: the time-out only hides from
// the test that the wake was lost.
struct leans_on_a_time_out : one_worker {
    void work() noexcept {
        while (queue.load(order::seq_cst) == 0) {
            parked.store(1, order::seq_cst);
            bed.park_until(soon);
        }
    }
};

// Repaired: first the bit, then the look, for each worker, whatever it has looked at
// before.
struct looks_after_the_bit : one_worker {
    void work() noexcept {
        parked.store(1, order::seq_cst);
        if (queue.load(order::seq_cst) != 0) {
            get_up();
        } else {
            bed.park();
        }
    }
};

template <class Workers> void one_job() {
    Workers w;
    model::thread worker([&] {
        w.work();
        MODEL_REQUIRE(w.queue.load(order::relaxed) == 1);
    });
    w.push();
}

} // namespace

TEST_CASE("known bad: a worker that looks before it says that it sleeps is not woken",
          "[known_bad]") {
    model::find("look, then bit", failure::lost_wakeup, {}, one_job<looks_before_the_bit>);
    model::check("bit, then look", {}, one_job<looks_after_the_bit>);
}

TEST_CASE("known bad: a wake that only a time-out makes up for is lost", "[known_bad]") {
    model::find("a time-out for a look", failure::lost_wakeup, {}, one_job<leans_on_a_time_out>);
}

// ---- Every queue, and the threads that may push to it

namespace {

struct two_queues : one_worker {
    word other_queue{0};

    void push_to_the_other() noexcept {
        other_queue.store(1, order::seq_cst);
        if (parked.exchange(0, order::seq_cst) != 0) {
            bed.unpark();
        }
    }
};

// The last look leaves out a queue.
struct looks_at_one_of_two : two_queues {
    void work() noexcept {
        if (other_queue.load(order::seq_cst) != 0) {
            return;
        }
        parked.store(1, order::seq_cst);
        if (queue.load(order::seq_cst) != 0) {
            get_up();
        } else {
            bed.park();
        }
    }
};

// Repaired: it looks at all of them.
struct looks_at_both : two_queues {
    void work() noexcept {
        parked.store(1, order::seq_cst);
        if (queue.load(order::seq_cst) != 0 || other_queue.load(order::seq_cst) != 0) {
            get_up();
        } else {
            bed.park();
        }
    }
};

template <class Workers> void one_job_in_the_other() {
    Workers w;
    model::thread worker([&] { w.work(); });
    w.push_to_the_other();
}

// A slot of the worker's own, in which others may leave a job unless it says that it goes to sleep.
// To ask and to leave are two steps, and the worker empties the slot between them.
struct others_push_into_the_slot : one_worker {
    word slot{0};
    word going_to_sleep{0};

    void hand_over() noexcept {
        if (going_to_sleep.load(order::seq_cst) == 0) {
            slot.store(1, order::seq_cst);
        } else {
            push();
        }
    }
    void work() noexcept {
        going_to_sleep.store(1, order::seq_cst);
        if (slot.exchange(0, order::seq_cst) != 0) {
            return;
        }
        parked.store(1, order::seq_cst);
        if (queue.load(order::seq_cst) != 0) {
            get_up();
        } else {
            bed.park();
        }
    }
};

// Repaired: only the owner fills its slot; others push into the queue, which is looked at last.
struct others_push_into_the_queue : looks_after_the_bit {
    void hand_over() noexcept { push(); }
};

template <class Workers> void one_job_handed_over() {
    Workers w;
    model::thread worker([&] { w.work(); });
    w.hand_over();
}

} // namespace

TEST_CASE("known bad: a last look that leaves out a queue loses a wake", "[known_bad]") {
    model::find("one queue of two", failure::lost_wakeup, {},
                one_job_in_the_other<looks_at_one_of_two>);
    model::check("both queues", {}, one_job_in_the_other<looks_at_both>);
}

TEST_CASE("known bad: a job that another left in the worker's own slot sleeps with it",
          "[known_bad]") {
    model::find("others push into the slot", failure::lost_wakeup, {},
                one_job_handed_over<others_push_into_the_slot>);
    model::check("others push into the queue", {}, one_job_handed_over<others_push_into_the_queue>);
}

// ---- Searchers: one word for the sleeping workers and the number of searching ones

namespace {

// The low bits say which workers sleep, the rest counts searchers. A wake makes the worker a searcher.
constexpr std::uint32_t searching = 4;

struct crew {
    word jobs{0};
    word idle;
    std::array<parker, 2> beds{};

    explicit crew(std::uint32_t at_first) : idle(at_first) {}

    // Wakes one, unless a worker searches already.
    void notify() noexcept {
        for (;;) {
            std::uint32_t seen = idle.load(order::seq_cst);
            if (seen == 0 || seen >= searching) {
                return;
            }
            const std::uint32_t lowest = seen & (~seen + 1);
            if (idle.compare_exchange_strong(seen, seen - lowest + searching, order::relaxed,
                                             order::relaxed)) {
                beds[lowest - 1].unpark();
                return;
            }
        }
    }
    void push() noexcept {
        jobs.fetch_add(1, order::seq_cst);
        notify();
    }
};

// A push that relied on a searcher has woken no worker, and the searcher takes one job only.
struct last_searcher_leaves : crew {
    using crew::crew;
    void work(std::uint32_t me) noexcept {
        beds[me].park();
        MODEL_REQUIRE(jobs.fetch_sub(1, order::relaxed) != 0);
        idle.fetch_sub(searching, order::seq_cst);
    }
};

// Repaired: the last one to stop searching looks whether there is more, and wakes the next.
struct last_searcher_wakes_the_next : crew {
    using crew::crew;
    void work(std::uint32_t me) noexcept {
        beds[me].park();
        MODEL_REQUIRE(jobs.fetch_sub(1, order::relaxed) != 0);
        const bool last = idle.fetch_sub(searching, order::seq_cst) / searching == 1;
        if (last && jobs.load(order::seq_cst) != 0) {
            notify();
        }
    }
};

// Both sleep; each is to take a job.
template <class Crew> void two_workers_two_jobs() {
    Crew c(3);
    model::thread first([&] { c.work(0); });
    model::thread second([&] { c.work(1); });
    c.push();
    c.push();
}

// A searcher that finds nothing says so after its last look: a push before it relies on it.
struct stops_searching_after_the_look : crew {
    using crew::crew;
    void work() noexcept {
        idle.fetch_or(1, order::seq_cst);
        if (jobs.load(order::seq_cst) != 0) {
            return;
        }
        idle.fetch_sub(searching, order::seq_cst);
        beds[0].park();
    }
};

// Repaired: it stops searching and says that it sleeps in one step, and looks after that.
struct stops_searching_before_the_look : crew {
    using crew::crew;
    void work() noexcept {
        idle.fetch_sub(searching - 1, order::seq_cst);
        if (jobs.load(order::seq_cst) == 0) {
            beds[0].park();
        }
    }
};

// The one worker is a searcher.
template <class Crew> void searcher_goes_to_sleep() {
    Crew c(searching);
    model::thread worker([&] { c.work(); });
    c.push();
}

// ---- A time-out

// The test says that it was not woken, and a waker wakes it before the bit is cleared: the worker
// counts as a searcher without knowing, and no push wakes any worker from then on.
struct time_out_ignores_the_result : crew {
    using crew::crew;
    // True: it was made a searcher.
    bool times_out() noexcept {
        if ((idle.load(order::seq_cst) & 1) == 0) {
            return true;
        }
        idle.fetch_and(~std::uint32_t{1}, order::seq_cst);
        return false;
    }
};

// Repaired: the one that cleared the bit has decided, as the read-modify-write says.
struct time_out_uses_the_result : crew {
    using crew::crew;
    bool times_out() noexcept {
        return (idle.fetch_and(~std::uint32_t{1}, order::relaxed) & 1) == 0;
    }
};

// In the end no worker searches.
template <class Crew> void time_out_and_push() {
    Crew c(1);
    model::thread worker([&] {
        const bool woken = c.beds[0].park_until(soon);
        if (woken || c.times_out()) {
            if (!woken) {
                c.beds[0].park(); // takes the token
            }
            c.idle.fetch_sub(searching, order::relaxed);
        }
    });
    c.push();
    worker.join();
    MODEL_REQUIRE(c.idle.load(order::relaxed) < searching);
}

} // namespace

TEST_CASE("known bad: the last searcher that wakes no worker leaves a job to a sleeper",
          "[known_bad]") {
    model::find("the last searcher leaves", failure::lost_wakeup, {},
                two_workers_two_jobs<last_searcher_leaves>);
    model::check("the last searcher wakes the next", {},
                 two_workers_two_jobs<last_searcher_wakes_the_next>);
}

TEST_CASE("known bad: a searcher that says so after its last look loses a wake", "[known_bad]") {
    model::find("look, then stop searching", failure::lost_wakeup, {},
                searcher_goes_to_sleep<stops_searching_after_the_look>);
    model::check("stop searching, then look", {},
                 searcher_goes_to_sleep<stops_searching_before_the_look>);
}

TEST_CASE("known bad: a time-out that ignores what fetch_and returned leaks a searcher",
          "[known_bad]") {
    model::find("the result ignored", failure::assertion, {.timeouts = 1},
                time_out_and_push<time_out_ignores_the_result>);
    model::check("the result used", {.timeouts = 1}, time_out_and_push<time_out_uses_the_result>);
}
