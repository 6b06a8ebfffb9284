#ifndef BIDE_TESTS_SUPPORT_HOMES_HPP
#define BIDE_TESTS_SUPPORT_HOMES_HPP

// Where the tasks of a test run, for what schedulers and run loops promise alike.

#include <bide/sched/run_loop.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sched/task_runner.hpp>
#include <bide/task/task.hpp>
#include <support/tasks.hpp>
#include <support/test.hpp>

namespace test {

// In turn, as GENERATE() does: a scheduler, for a task on this thread and for one of its own, and a
// run_loop.
class each_home {
public:
    explicit each_home(unsigned threads = 2) : kind_(GENERATE(range(0, 3))) {
        UNSCOPED_INFO("home " << kind_);
        if (kind_ == 2) {
            loop_.emplace();
        } else {
            pool_.emplace(workers(threads));
        }
    }

    bide::task_runner& operator*() noexcept {
        return pool_ ? static_cast<bide::task_runner&>(*pool_) : *loop_;
    }
    template <class T> T run(bide::task<T> t) {
        return kind_ == 0   ? bide::sync_wait(std::move(t))
               : kind_ == 1 ? bide::sync_wait(*pool_, std::move(t))
                            : loop_->run_until(std::move(t));
    }

private:
    const int kind_;
    std::optional<bide::scheduler> pool_;
    std::optional<bide::run_loop> loop_;
};

} // namespace test

#endif
