#ifndef BIDE_BENCH_SUPPORT_FOREIGN_TIME_HPP
#define BIDE_BENCH_SUPPORT_FOREIGN_TIME_HPP

// How much processor time others used while we measured: what /proc/stat says the machine used (and
// what its host stole from it), less what getrusage says we and our children did.

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>

#include <sys/resource.h>
#include <unistd.h>

namespace bench {

class foreign_time {
public:
    // Starts watching.
    foreign_time() : machine_(machine_seconds()), own_(own_seconds()), began_(clock::now()) {}

    // More than 3 % of the machine, and more than two ticks (of 10 ms as a rule), in which
    // /proc/stat counts: so few prove nothing.
    bool was_disturbed() const {
        const double tick = 1.0 / static_cast<double>(::sysconf(_SC_CLK_TCK));
        const double others = (machine_seconds() - machine_) - (own_seconds() - own_);
        const double elapsed = std::chrono::duration<double>(clock::now() - began_).count();
        const auto cpus = static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN));
        return others > std::max(2 * tick, 0.03 * elapsed * cpus);
    }

private:
    using clock = std::chrono::steady_clock;

    static double machine_seconds() {
        std::ifstream stat("/proc/stat");
        std::string label;
        double user = 0, nice = 0, system = 0, other = 0, steal = 0;
        stat >> label >> user >> nice >> system;
        stat >> other >> other >> other >> other >> steal; // idle, iowait, irq, softirq between
        return (user + nice + system + steal) / static_cast<double>(::sysconf(_SC_CLK_TCK));
    }

    static double own_seconds() {
        const auto of = [](auto who) {
            rusage usage{};
            ::getrusage(who, &usage);
            const auto seconds = [](const timeval& t) {
                return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
            };
            return seconds(usage.ru_utime) + seconds(usage.ru_stime);
        };
        return of(RUSAGE_SELF) + of(RUSAGE_CHILDREN);
    }

    double machine_;
    double own_;
    clock::time_point began_;
};

} // namespace bench

#endif
