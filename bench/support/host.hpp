#ifndef BIDE_BENCH_SUPPORT_HOST_HPP
#define BIDE_BENCH_SUPPORT_HOST_HPP

// Where the numbers come from.

#include <fstream>
#include <string>

#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

// The build may say which flags it used; the compiler itself does not.
#ifndef BIDE_BENCH_FLAGS
#define BIDE_BENCH_FLAGS "not recorded"
#endif

namespace bench {

struct host_info {
    std::string cpu;
    int cores;
    std::string kernel;
    std::string compiler;
    std::string flags;
    int nice;
};

inline std::string cpu_model() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        if (line.starts_with("model name")) {
            return line.substr(line.find(':') + 2);
        }
    }
    return "unknown processor";
}

inline std::string compiler_name() {
#if defined(__clang__)
    return "clang " __clang_version__;
#else
    return "g++ " __VERSION__;
#endif
}

inline std::string optimisation() {
#if defined(__OPTIMIZE__) && defined(NDEBUG)
    return "optimised, NDEBUG";
#elif defined(__OPTIMIZE__)
    return "optimised, assertions on";
#else
    return "NOT OPTIMISED";
#endif
}

inline host_info describe_host() {
    utsname system{};
    ::uname(&system);
    return {cpu_model(),
            static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)),
            std::string(system.sysname) + " " + system.release + " " + system.machine,
            compiler_name(),
            optimisation() + ", flags: " BIDE_BENCH_FLAGS,
            ::getpriority(PRIO_PROCESS, 0)};
}

} // namespace bench

#endif
