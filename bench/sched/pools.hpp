#ifndef BIDE_BENCH_SCHED_POOLS_HPP
#define BIDE_BENCH_SCHED_POOLS_HPP

// The pools that are compiled in, each with a thread outside that gives it work. (Tokio, Go and
// TooManyCooks are in programs.hpp.) The process may use the processors of --cpu-list; no thread is pinned to one of them.

#include "sched/job.hpp"

#include <bide/sched/scheduler.hpp>

#if defined(BIDE_BENCH_HAS_BOOST_FIBER)
#include <boost/fiber/algo/work_stealing.hpp>
#include <boost/fiber/buffered_channel.hpp>
#include <boost/fiber/fiber.hpp>
#include <boost/fiber/operations.hpp>
#endif
#if defined(BIDE_BENCH_HAS_TBB)
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_arena.h>
#endif

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace bench {

inline constexpr const char* bide_row = "bide::scheduler";
inline constexpr const char* bide_join_row =
    "bide::scheduler, join"; // the thread outside only waits
inline constexpr const char* bide_post_row = "bide::scheduler, post";
inline constexpr const char* bide_slack_row = "bide::scheduler, slack of 1 ms";
inline constexpr const char* futex_row = "raw futex";
inline constexpr const char* fiber_row = "boost::fibers, work_stealing";
inline constexpr const char* tbb_row = "tbb::task_arena";

inline bide::scheduler_options scheduler_options_of(const job& j) {
    bide::scheduler_options options;
    options.num_workers = j.workers;
    return options;
}

#if defined(BIDE_BENCH_HAS_TBB)

// All threads of the arena are workers: none of its places is kept for a thread outside.
class tbb_pool {
public:
    explicit tbb_pool(unsigned workers)
        : limit_(tbb::global_control::max_allowed_parallelism, workers + 1),
          arena_(static_cast<int>(workers), 0) {
        arena_.initialize();
    }

    template <class Body> void post(Body body) { arena_.enqueue(std::move(body)); }

    // body() by a worker.
    template <class Body> void run(Body body) {
        post([&] {
            body();
            done.cross();
        });
        done.wait();
    }

    finish_line done;

private:
    tbb::global_control limit_;
    tbb::task_arena arena_;
};

#endif

#if defined(BIDE_BENCH_HAS_BOOST_FIBER)

// Small stacks, from malloc: of the library's own, one is 128 KiB, and a pool of them is for one
// thread.
template <class Body> boost::fibers::fiber make_fiber(Body body) {
    return boost::fibers::fiber(boost::fibers::launch::post, std::allocator_arg,
                                boost::fibers::fixedsize_stack(std::size_t{16} * 1024),
                                std::move(body));
}

// Its workers look for work without a pause, as they do unless told otherwise: those that sleep are
// not woken to steal. One in a process, which is what work_stealing allows.
class fiber_pool {
public:
    explicit fiber_pool(unsigned workers) {
        for (unsigned i = 0; i < workers; ++i) {
            threads_.emplace_back([this, workers, i] {
                boost::fibers::use_scheduling_algorithm<boost::fibers::algo::work_stealing>(
                    workers);
                auto& jobs = i == 0 ? jobs_ : nothing_;
                for (std::function<void()> body; pop(jobs, body);) {
                    make_fiber(std::move(body)).detach();
                }
            });
        }
    }
    fiber_pool(const fiber_pool&) = delete;
    fiber_pool& operator=(const fiber_pool&) = delete;
    ~fiber_pool() {
        jobs_.close();
        nothing_.close();
    }

    void post(std::function<void()> body) { jobs_.push(std::move(body)); }

    // body() in a fiber on a worker.
    template <class Body> void run(Body body) {
        post([&] {
            body();
            done.cross();
        });
        done.wait();
    }

    finish_line done;

private:
    using channel = boost::fibers::buffered_channel<std::function<void()>>;

    static bool pop(channel& from, std::function<void()>& body) {
        return from.pop(body) == boost::fibers::channel_op_status::success;
    }

    channel jobs_{16384};
    channel nothing_{2}; // what the other workers wait for
    std::vector<std::jthread> threads_;
};

#endif

} // namespace bench

#endif
