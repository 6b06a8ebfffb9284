#ifndef BIDE_TESTS_SUPPORT_SCHEDULING_HPP
#define BIDE_TESTS_SUPPORT_SCHEDULING_HPP

#include <bide/sched/report.hpp>
#include <bide/sched/scheduler.hpp>
#include <support/death.hpp>
#include <support/test.hpp>

// Whether a child process may have schedulers of its own: ThreadSanitizer lets it start no threads.
#define BIDE_TESTS_CAN_DIE_AT_WORK BIDE_TESTS_CAN_DIE
#if defined(__SANITIZE_THREAD__)
#undef BIDE_TESTS_CAN_DIE_AT_WORK
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#undef BIDE_TESTS_CAN_DIE_AT_WORK
#endif
#endif
#if !defined(BIDE_TESTS_CAN_DIE_AT_WORK)
#define BIDE_TESTS_CAN_DIE_AT_WORK 0
#endif

namespace test {

// So many workers, of which idle ones nap, or sleep until they are woken: then nothing has a time-out.
inline bide::scheduler_options with(unsigned workers, bool naps) {
    bide::scheduler_options wanted;
    wanted.num_workers = workers;
    if (!naps) {
        wanted.max_timed_sleep = std::chrono::microseconds(0);
    }
    return wanted;
}

// One worker, which takes no arms: each thread runs all arms that it forks.
inline bide::scheduler_options with_serial_forks() {
    bide::scheduler_options wanted = with(1, true);
    wanted.enable_stealing = false;
    return wanted;
}

// In turn, as GENERATE() does: each of these numbers of workers, with naps and without.
inline bide::scheduler_options each_of(const std::vector<unsigned>& workers) {
    const auto i =
        static_cast<std::size_t>(GENERATE_COPY(range(0, 2 * static_cast<int>(workers.size()))));
    UNSCOPED_INFO(workers[i / 2] << " workers, naps: " << (i % 2 == 0));
    return with(workers[i / 2], i % 2 == 0);
}

// Gives the workers the time to go to sleep. Without naps, true: they all do.
inline bool fall_asleep(const bide::scheduler& s) {
    return eventually(
        [&s] {
            const bide::scheduler_stats now = stats_of(s);
            return now.parked >= now.woken + s.concurrency();
        },
        std::chrono::milliseconds(100));
}

// Keeps this thread busy until it is told; false: it was not told.
inline bool spin_until(const std::atomic<bool>& told) {
    return eventually([&told] { return told.load(); }, patience / 2);
}

} // namespace test

#endif
