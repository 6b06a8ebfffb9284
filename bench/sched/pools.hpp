#ifndef BIDE_BENCH_SCHED_POOLS_HPP
#define BIDE_BENCH_SCHED_POOLS_HPP

// The pools that are compiled in, each with a thread outside that gives it work, and the tables of what they run.
// (Tokio, Go and TooManyCooks are in programs.hpp.) No thread is pinned to a processor.

#include "sched/job.hpp"
#include "sched/programs.hpp"

#include <bide/sched/scheduler.hpp>
#include <bide/task/task.hpp>

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

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
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

// A table of the time that runs take, or of that divided among what is counted in a run.
class run_table {
public:
    run_table(std::string name, std::string note, std::uint64_t count, double divisor = 1,
              unsigned of_workers = workers())
        : table_(std::move(name), std::move(note)), job_{count, of_workers}, divisor_(divisor) {}

    void add(const peer_program& peer, const char* workload) {
        if (peer.path != nullptr) {
            const auto run = [=](const job& j) { return run_peer(peer.path, workload, j); };
            add(peer.row, run, placement::here);
        }
    }

    template <class... Peers> void add_peers(const char* workload, const Peers&... peers) {
        (add(peers, workload), ...);
    }

    // measure(job): as run_timer has it.
    void add(const char* row, std::function<measured(const job&)> measure,
             placement where = placement::own_process) {
        table_.add(row, [=, j = job_, d = divisor_] { return each(measure(j), d); }, where);
    }

private:
    table table_;
    job job_;
    double divisor_;
};

// A measurement: run(pool, count) again and again.
template <class Pool, class Run> auto repeat_on(Run run) {
    return [run](const job& j) {
        Pool pool(j.workers);
        run_timer timer(j);
        while (timer.next()) {
            run(pool, j.count);
        }
        return timer.result();
    };
}

template <class Run> auto repeat_on_bide(Run run) {
    return [run](const job& j) {
        bide::scheduler s(scheduler_options_of(j));
        run_timer timer(j);
        while (timer.next()) {
            run(s, j.count);
        }
        return timer.result();
    };
}

using bide_root = bide::task<> (*)(bide::scheduler&, std::uint64_t);

// The root task, given to the scheduler from outside: by a thread that may work while it waits, and
// by one that only waits.
inline void add_bide_roots(run_table& t, bide_root root) {
    t.add(bide_row, repeat_on_bide([=](bide::scheduler& s, std::uint64_t count) {
              bide::sync_wait(s, root(s, count));
          }));
    t.add(bide_join_row, repeat_on_bide([=](bide::scheduler& s, std::uint64_t count) {
              s.spawn(root(s, count)).join();
          }));
}

} // namespace bench

#endif
