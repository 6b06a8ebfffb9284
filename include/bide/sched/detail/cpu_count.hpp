// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_CPU_COUNT_HPP
#define BIDE_SCHED_DETAIL_CPU_COUNT_HPP

// Counts the processors that this process may use. The affinity mask of the process limits them,
// and so does the CPU quota of its control group (version 2). The quota is rounded up.

#include <bide/core/config.hpp>

#include <algorithm>
#include <cstdio>
#include <thread>

#if defined(__linux__)
#include <cstring>
#include <sched.h>
#include <unistd.h>
#endif

namespace bide { inline namespace BIDE_ABI { namespace detail {

#if defined(__linux__)

// Returns the number of processors in a cpu.max file of cgroup v2, such as "50000 100000". Returns
// 0 if the file says "max" or does not exist.
BIDE_COLD inline unsigned processors_of_cpu_max(const char* path) noexcept {
    std::FILE* const file = std::fopen(path, "re");
    if (file == nullptr) {
        return 0;
    }
    long long quota = 0;
    long long period = 0;
    const bool limited = std::fscanf(file, "%lld %lld", &quota, &period) == 2;
    std::fclose(file);
    return limited && quota > 0 && period > 0
               ? static_cast<unsigned>((std::min)((quota - 1) / period + 1, 1'000'000LL))
               : 0;
}

// Returns the least quota of the process's control group and the groups above it, or 0.
BIDE_COLD inline unsigned processors_of_cgroup() noexcept {
    std::FILE* const file = std::fopen("/proc/self/cgroup", "re");
    if (file == nullptr) {
        return 0;
    }
    char path[4096] = "/sys/fs/cgroup";
    const std::size_t root = std::strlen(path);
    char line[4000];
    while (std::fgets(line, sizeof line, file) != nullptr) {
        if (std::strncmp(line, "0::/", 4) == 0) { // the group of the unified hierarchy
            std::strcpy(path + root, line + 3);
            path[std::strcspn(path, "\n")] = '\0';
        }
    }
    std::fclose(file);
    unsigned least = 0;
    for (;;) {
        char max[sizeof path + 16];
        std::snprintf(max, sizeof max, "%s/cpu.max", path);
        if (const unsigned n = processors_of_cpu_max(max); n != 0) {
            least = least == 0 ? n : (std::min)(least, n);
        }
        char* const last = std::strrchr(path, '/');
        if (last < path + root) {
            return least;
        }
        *last = '\0';
    }
}

#endif

// The processors of the process's main thread, even if another thread constructs this object.
class cpu_mask {
public:
    cpu_mask() noexcept {
#if defined(__linux__)
        known_ =
            ::sched_getaffinity(::getpid(), sizeof mask_, &mask_) == 0 && CPU_COUNT(&mask_) > 0;
#endif
    }

    // Returns the number of these processors, or 0 if it is not known.
    unsigned count() const noexcept {
#if defined(__linux__)
        return known_ ? static_cast<unsigned>(CPU_COUNT(&mask_)) : 0;
#else
        return 0;
#endif
    }

    // Lets the calling thread use all of these processors.
    void apply() const noexcept {
#if defined(__linux__)
        if (known_) {
            ::sched_setaffinity(0, sizeof mask_, &mask_);
        }
#endif
    }
    // Lets the calling thread use only the n-th processor, modulo their number.
    void apply_only(unsigned n) const noexcept {
#if defined(__linux__)
        unsigned left = known_ ? n % count() : 0;
        for (std::size_t cpu = 0; known_ && cpu < CPU_SETSIZE; ++cpu) {
            if (CPU_ISSET(cpu, &mask_) && left-- == 0) {
                cpu_set_t one;
                CPU_ZERO(&one);
                CPU_SET(cpu, &one);
                ::sched_setaffinity(0, sizeof one, &one);
                return;
            }
        }
#else
        static_cast<void>(n);
#endif
    }

private:
#if defined(__linux__)
    cpu_set_t mask_;
    bool known_ = false;
#endif
};

// Returns how many processors the process may use, at least 1.
BIDE_COLD inline unsigned cpu_count() noexcept {
    const unsigned allowed = cpu_mask().count();
    unsigned count = allowed != 0 ? allowed : (std::max)(1U, std::thread::hardware_concurrency());
#if defined(__linux__)
    if (const unsigned quota = processors_of_cgroup(); quota != 0) {
        count = (std::min)(count, quota);
    }
#endif
    return count;
}

}}} // namespace bide::BIDE_ABI::detail

#endif
