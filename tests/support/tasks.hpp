#ifndef BIDE_TESTS_SUPPORT_TASKS_HPP
#define BIDE_TESTS_SUPPORT_TASKS_HPP

// Runs tasks for tests, and says how they fail.

#include <bide/core/errc.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>
#include <support/gate.hpp>
#include <support/standard.hpp>

namespace test {

inline bide::scheduler_options workers(unsigned n) {
    bide::scheduler_options o;
    o.num_workers = n;
    return o;
}

// Runs tasks on the test's own thread, or on a scheduler of two.
class runner {
public:
    explicit runner(bool pooled) {
        if (pooled) {
            pool_.emplace(workers(2));
        }
    }
    template <class T> T operator()(bide::task<T> t) {
        return pool_ ? bide::sync_wait(*pool_, std::move(t)) : bide::sync_wait(std::move(t));
    }

private:
    std::optional<bide::scheduler> pool_;
};

inline bide::task<int> fails(const char* why) {
    throw std::runtime_error(why);
    co_return 0;
}
inline bide::task<int> fails_late(const char* why) {
    co_await bide::this_task::sleep_for(std::chrono::milliseconds(2));
    throw std::runtime_error(why);
}
// Waits until it is cancelled.
inline bide::task<int> stuck() {
    co_await bide::this_task::sleep_for(std::chrono::hours(1));
    co_return 0;
}

// Waits for tasks, whose values are dropped.
template <class Handles> void join_all(Handles& of) {
    for (auto& handle : of) {
        static_cast<void>(std::move(handle).join());
    }
}
// Whether each of these tasks returned true.
template <class Handles> bool all_true(Handles& of) {
    bool all = true;
    for (auto& handle : of) {
        all = std::move(handle).join() && all;
    }
    return all;
}

// What it says when it fails.
template <class F> std::string what_of(F f) {
    try {
        f();
    } catch (const bide::stopped_error&) {
        return "stopped";
    } catch (const std::exception& e) {
        return e.what();
    }
    return "nothing";
}

} // namespace test

#endif
