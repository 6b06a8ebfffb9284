#include <bide/fwd.hpp>

// A header of a user: it names the types before their definitions.
namespace {

struct parts {
    bide::semaphore* permits;
    bide::mutex* lock;
    bide::adaptive_mutex* short_lock;
    bide::shared_mutex* shared;
    bide::biased_shared_mutex* read_mostly;
    bide::event* ready;
    bide::latch* done;
    bide::barrier<>* meeting;
    bide::once_flag* begun;
    bide::once_cell<int>* found;
    bide::lazy<int>* made;
    bide::object_pool<int>* numbers;
    bide::object_lease<int>* number;
    bide::notify* changed;
    bide::condition_variable* condition;
    bide::synchronized_value<int>* value;
    bide::permit* permit;
    bide::channel<int>* jobs;
    bide::sender<int>* in;
    bide::receiver<int>* out;
    bide::unbounded_channel<int>* log;
    bide::unbounded_sender<int>* log_in;
    bide::unbounded_receiver<int>* log_out;
    bide::sliding_channel<int>* latest;
    bide::sliding_sender<int>* latest_in;
    bide::sliding_receiver<int>* latest_out;
    bide::oneshot_sender<int>* answer_in;
    bide::oneshot_receiver<int>* answer_out;
    bide::broadcast<int>* news;
    bide::broadcast_subscriber<int>* subscriber;
    bide::watch<int>* state;
    bide::watch_receiver<int>* watcher;
    bide::selector* choices;
    bide::scheduler* workers;
    const bide::scheduler_options* options;
    const bide::scheduler_stats* stats;
    bide::task_group* group;
    bide::join_set<>* children;
    bide::driver* io;
    bide::epoll_driver* epoll;
    bide::uring_driver* uring;
    bide::trace_sink* trace;
    bide::chrome_trace* chrome;
    bide::interval* ticks;
    const bide::fork_options* fork;
    bide::parker* parked;
    bide::event_count* events;
    bide::runnable* job;
};

// Function types may name incomplete types as results and parameters.
using reads = bide::result<int>(parts&, bide::deadline);
using fails = bide::errc(parts&, const bide::unexpected<int>&);
using starts = bide::task<>(parts&, bide::executor_ref, bide::waker);
using joins = bide::join_handle<>(bide::task<int>);
using waits = bide::async_op<void>(const bide::closed_error&, const bide::stopped_error&);

} // namespace

#include "support/test.hpp"

#include <bide/bide.hpp>
#include <bide/core/parker.hpp>
#include <bide/io.hpp>
#include <bide/parallel.hpp>
#include <bide/sched/chrome_trace.hpp>
#include <bide/stream.hpp>
#include <bide/sync/biased_shared_mutex.hpp>

#include <cstdint>
#include <type_traits>

TEST_CASE("fwd: a name that is declared before its definition is the defined type") {
    STATIC_REQUIRE(std::is_same_v<reads, bide::result<int, bide::errc>(parts&, bide::deadline)>);
    STATIC_REQUIRE(std::is_invocable_r_v<bide::errc, fails*, parts&, bide::unexpected<int>>);
    STATIC_REQUIRE(
        std::is_invocable_r_v<bide::task<void>, starts*, parts&, bide::executor_ref, bide::waker>);
    STATIC_REQUIRE(std::is_invocable_r_v<bide::join_handle<void>, joins*, bide::task<int>>);
    STATIC_REQUIRE(
        std::is_same_v<std::invoke_result_t<waits*, bide::closed_error, bide::stopped_error>,
                       bide::basic_async_op<void, bide::native_platform, 0>>);
    STATIC_REQUIRE(
        std::is_same_v<decltype(parts::value),
                       bide::synchronized_value<int, bide::basic_mutex<bide::native_platform>>*>);
    STATIC_REQUIRE(std::is_same_v<decltype(parts::jobs),
                                  bide::basic_channel<int, bide::native_platform, std::uint64_t>*>);
    STATIC_REQUIRE(std::is_same_v<decltype(*parts::permits), bide::semaphore&>);

    bide::semaphore permits(1);
    bide::channel<int> jobs(1);
    parts p{};
    p.permits = &permits;
    p.jobs = &jobs;
    CHECK(p.permits->available() == 1);
    CHECK(p.jobs->capacity() == 1);
}
