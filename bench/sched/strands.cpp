// Small functions that must not overlap, posted by a thread outside: to a strand over a pool.

#include "sched/job.hpp"
#include "sched/pools.hpp"
#include "sched/workloads.hpp"

#include <bide/core/executor.hpp>
#include <bide/core/waker.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/task/strand.hpp>

#include <cstdint>
#include <memory>

#if __has_include(<boost/asio.hpp>)
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#define BIDE_BENCH_HAS_BOOST_ASIO 1
#else
#define BIDE_BENCH_HAS_BOOST_ASIO 0
#endif

namespace bench {
namespace {

// Counts what has run, without a lock. The last one crosses the line.
struct counter {
    std::uint64_t left = 0;
    finish_line over;

    void count() {
        if (--left == 0) {
            over.cross();
        }
    }
};

void post_to_strand(bide::scheduler& s, std::uint64_t count) {
    counter c;
    c.left = count;
    bide::strand serial(s);
    const auto all = std::make_unique<bide::runnable[]>(count);
    for (std::uint64_t i = 0; i < count; ++i) {
        all[i].run =
            bide::waker([](void* self) noexcept { static_cast<counter*>(self)->count(); }, &c);
        serial.post(all[i]);
    }
    c.over.wait();
}

#if BIDE_BENCH_HAS_BOOST_ASIO
sample post_to_asio(const job& j) {
    counter c; // outlives the threads
    boost::asio::thread_pool pool(j.workers);
    const auto serial = boost::asio::make_strand(pool);
    run_timer timer(j);
    while (timer.next()) {
        c.left = j.count;
        for (std::uint64_t i = 0; i < j.count; ++i) {
            boost::asio::post(serial, [&c] { c.count(); });
        }
        c.over.wait();
    }
    return timer.result();
}
#endif

} // namespace

void add_strands(harness& h) {
    constexpr std::uint64_t count = 20'000;
    run_table t(h, "strand/post", "posts by a thread outside to one strand", count,
                ns_each("post", count));
#if BIDE_BENCH_HAS_BOOST_ASIO
    t.add("boost::asio::strand", post_to_asio);
#endif
    t.add("bide::strand", repeat_on_bide(post_to_strand));
    t.finish();
}

} // namespace bench
