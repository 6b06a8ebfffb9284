#ifndef BIDE_BENCH_SCHED_USAGE_HPP
#define BIDE_BENCH_SCHED_USAGE_HPP

// What this process has used.

#include <fstream>

#include <sys/resource.h>
#include <unistd.h>

namespace bench {

struct usage {
    double cpu_us;
    double voluntary_switches; // how often a thread went to sleep
};

inline usage usage_so_far() {
    rusage all{};
    ::getrusage(RUSAGE_SELF, &all);
    const auto us = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_usec);
    };
    return {us(all.ru_utime) + us(all.ru_stime), static_cast<double>(all.ru_nvcsw)};
}

// Of memory in use, as the kernel counts it.
inline double resident_bytes() {
    std::ifstream statm("/proc/self/statm");
    double total = 0;
    double resident = 0;
    statm >> total >> resident;
    return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

} // namespace bench

#endif
