#ifndef BIDE_BENCH_SUPPORT_FOREIGN_TIME_HPP
#define BIDE_BENCH_SUPPORT_FOREIGN_TIME_HPP

// How much processor time other programs used while we measured: what /proc/stat says the machine
// used (and what its host stole from it), less what we did, our children, theirs, and the system's
// own threads, which work for us or for those that show themselves.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <sys/resource.h>
#include <sys/types.h>
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
        const auto of = [](auto processes) {
            rusage usage{};
            ::getrusage(processes, &usage);
            const auto seconds = [](const timeval& t) {
                return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
            };
            return seconds(usage.ru_utime) + seconds(usage.ru_stime);
        };
        return of(RUSAGE_SELF) + of(RUSAGE_CHILDREN) + descendants_seconds();
    }

    // Of the children that were not waited for yet, servers for example: getrusage leaves them out.
    static double descendants_seconds() {
        const std::vector<process> all = processes();
        std::vector<pid_t> family{::getpid()};
        for (const process& p : all) {
            if (p.id == 2 && p.name == "kthreadd") {
                family.push_back(p.id);
            }
        }
        double ticks = 0;
        for (std::size_t i = 0; i < family.size(); ++i) {
            for (const process& p : all) {
                if (p.parent == family[i]) {
                    family.push_back(p.id);
                    ticks += p.ticks;
                }
            }
        }
        return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
    }

    struct process {
        pid_t id = 0;
        pid_t parent = 0;
        std::string name = {};
        double ticks = 0; // with those of the children that it has waited for
    };

    static std::vector<process> processes() {
        std::vector<process> all;
        std::error_code ignored;
        for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
            const std::string number = entry.path().filename().string();
            if (number.find_first_not_of("0123456789") != number.npos) {
                continue;
            }
            process p;
            std::ifstream stat(entry.path() / "stat"); // "17 (its name) S 16 ..."
            std::string skipped;
            std::getline(stat, skipped, '(');
            std::getline(stat, p.name, ')');
            stat >> skipped >> p.parent;
            for (int field = 5; field < 14; ++field) {
                stat >> skipped;
            }
            double user = 0, system = 0, childrens_user = 0, childrens_system = 0;
            if (stat >> user >> system >> childrens_user >> childrens_system) {
                p.id = static_cast<pid_t>(std::stol(number));
                p.ticks = user + system + childrens_user + childrens_system;
                all.push_back(std::move(p));
            }
        }
        return all;
    }

    double machine_;
    double own_;
    clock::time_point began_;
};

} // namespace bench

#endif
