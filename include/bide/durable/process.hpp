// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_PROCESS_HPP
#define BIDE_DURABLE_PROCESS_HPP

/// \file
/// Identifies processes for other processes of the same machine, tells whether a process still
/// runs, and reads the clock that continues while the machine sleeps.
///
/// A process is identified by its pid, the namespace of the pid, the time of its start, and the
/// boot of the machine. The time of the start is needed because pids are reused. Only a process of
/// the same boot and namespace can look it up. If a process cannot be looked up, it counts as
/// running.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/durable/record.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#if defined(__unix__) || defined(__APPLE__)
#include <time.h>
#include <unistd.h>
#endif
#if defined(__linux__)
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#endif

namespace bide { inline namespace BIDE_ABI { namespace durable {

/// Returns the milliseconds since the machine was booted, including the time it slept. The clock is
/// never set, and never goes back.
inline std::int64_t boottime_ms() noexcept {
#if defined(CLOCK_BOOTTIME)
    timespec now{};
    ::clock_gettime(CLOCK_BOOTTIME, &now);
    return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
#else
    return native_platform::now() / 1'000'000;
#endif
}

/// Returns the milliseconds since 1970 on this machine's clock, which may be set.
inline std::int64_t unix_ms() noexcept {
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
}

/// Returns floor_of() of the present time of this machine's clock: the least token of a grant that
/// is made now.
inline std::int64_t floor_of_now() noexcept {
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(since).count();
    return floor_of(us / 1000, us % 1000);
}

namespace detail {

#if defined(__linux__)

// Reads a small file of the system, at most 4095 bytes. Empty if it cannot be read.
inline std::string read_small(const char* path) {
    std::string text;
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return text;
    }
    char some[4096];
    ssize_t n = 0;
    do {
        n = ::read(file, some, sizeof some - 1);
    } while (n < 0 && errno == EINTR);
    ::close(file);
    if (n > 0) {
        text.assign(some, static_cast<std::size_t>(n));
    }
    return text;
}

// What /proc/<pid>/stat says.
struct process_stat {
    bool is_there = false;
    std::int64_t pid = 0;
    char state = 0;
    std::int64_t start = 0;
};
inline process_stat stat_of(const char* path) {
    process_stat found;
    const std::string text = read_small(path);
    // The name in parentheses may contain any character; the text after the last ')' is regular.
    const auto after_name = text.rfind(')');
    if (after_name == std::string::npos) {
        return found;
    }
    std::size_t at = after_name + 2;
    if (at < text.size()) {
        found.state = text[at];
    }
    for (int field = 3; field < 22 && at != std::string::npos && at != 0; ++field) {
        at = text.find(' ', at) + 1; // 0 if there is no further field
    }
    if (at != 0 && at < text.size()) {
        found.pid = std::strtoll(text.c_str(), nullptr, 10);
        found.start = std::strtoll(text.c_str() + at, nullptr, 10);
        found.is_there = true;
    }
    return found;
}

// True if the process has threads besides its first one, or may have.
inline bool has_threads(const char* tasks) {
    DIR* const directory = ::opendir(tasks);
    if (directory == nullptr) {
        return errno != ENOENT; // not known: it may have some
    }
    int count = 0;
    while (const dirent* const entry = ::readdir(directory)) {
        count += entry->d_name[0] != '.' ? 1 : 0;
    }
    ::closedir(directory);
    return count > 1;
}

#endif

} // namespace detail

/// Returns an id of the present boot of the machine, plus the time namespace unless that is the
/// initial one.
///
/// Processes with the same id can read each other's times. In each time namespace the boottime
/// clock and the start times of processes differ. Empty if the system does not tell.
inline std::string this_boot() {
    std::string id;
#if defined(__linux__)
    constexpr ino_t first_time_namespace = 0xeffffffa; // PROC_TIME_INIT_INO
    struct stat times{};
    id = detail::read_small("/proc/sys/kernel/random/boot_id");
    while (!id.empty() && id.back() == '\n') {
        id.pop_back();
    }
    struct stat pids{};
    const bool has_times = ::stat("/proc/self/ns/time", &times) == 0;
    if (!has_times && ::stat("/proc/self/ns/pid", &pids) != 0) {
        id.clear(); // namespaces may exist, but cannot be seen here
    }
    if (!id.empty() && has_times && times.st_ino != first_time_namespace) {
        // The number of a namespace may be reused for another clock, so its offsets are added.
        id += "/" + std::to_string(times.st_ino);
        for (const char c : detail::read_small("/proc/self/timens_offsets")) {
            if (c == '-' || (c >= '0' && c <= '9')) {
                id += c;
            } else if (id.back() != '/') {
                id += '/';
            }
        }
    }
    if (id.size() > longest_name) {
        id.clear();
    }
#endif
    return id;
}

/// Returns the name of this machine.
inline std::string this_host() {
#if defined(__unix__) || defined(__APPLE__)
    char name[256] = {};
    if (::gethostname(name, sizeof name - 1) == 0 && name[0] != 0) {
        return name;
    }
#endif
    return "localhost";
}

/// Returns where this process runs. If `bound` is true, the origin is bound to this process. If the
/// system does not tell the pid namespace, `space` is absent and the process cannot be looked up.
inline origin this_origin(bool bound) {
    origin here;
    here.host = this_host();
    here.boot = this_boot();
#if defined(__linux__)
    struct stat space{};
    const detail::process_stat self = detail::stat_of("/proc/self/stat");
    // The /proc of another namespace shows other processes under our pids.
    const bool is_known = self.is_there && self.pid == ::getpid();
    if (bound) {
        here.pid = ::getpid();
    }
    if (bound && is_known && !here.boot.empty() && ::stat("/proc/self/ns/pid", &space) == 0) {
        here.start = self.start;
        here.space = static_cast<std::int64_t>(space.st_ino);
    }
    if (bound && ::stat("/proc/self/ns/net", &space) == 0) {
        here.network = static_cast<std::int64_t>(space.st_ino);
    }
#else
    static_cast<void>(bound);
#endif
    return here;
}

/// Tells whether `it` is bound to a process that can be looked up from here. `here` is
/// this_origin(true).
inline bool can_look_up(const origin& it, const origin& here) noexcept {
    return it.pid != 0 && it.space != 0 && it.space == here.space && it.boot == here.boot;
}

/// Tells whether the process can be looked up and has ended. A zombie has ended.
inline bool is_gone(const origin& it, const origin& here) {
#if defined(__linux__)
    if (!can_look_up(it, here)) {
        return false;
    }
    if (it.pid == here.pid &&
        it.pid == ::getpid()) { // not in a child that still has its parent's origin
        return it.start != here.start;
    }
    const auto pid = static_cast<pid_t>(it.pid);
    if (pid != it.pid || (::kill(pid, 0) != 0 && errno == ESRCH)) {
        return true;
    }
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
    const detail::process_stat found = detail::stat_of(path);
    if (!found.is_there) {
        return ::kill(pid, 0) != 0 &&
               errno == ESRCH; // otherwise /proc hides it, or there are no resources
    }
    if (found.start != it.start) {
        return true;
    }
    if (found.state != 'Z' && found.state != 'X') {
        return false;
    }
    // Its first thread has ended. Other threads may still run.
    std::snprintf(path, sizeof path, "/proc/%d/task", static_cast<int>(pid));
    return !detail::has_threads(path);
#else
    static_cast<void>(it);
    static_cast<void>(here);
    return false;
#endif
}

/// Returns a descriptor that poll(2) reports as readable when the process has ended; -1 if the
/// system gives none, or if the process has ended already. The caller closes it.
inline int watch_process(const origin& it, const origin& here) {
#if defined(__linux__) && defined(SYS_pidfd_open)
    if (!can_look_up(it, here) || it.pid == ::getpid()) {
        return -1;
    }
    // glibc has pidfd_open(2) only in later versions, and its first header was not usable from C++.
    const auto fd = static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(it.pid), 0));
    if (fd >= 0 && is_gone(it, here)) {
        ::close(fd); // the pid was reused meanwhile
        return -1;
    }
    return fd;
#else
    static_cast<void>(it);
    static_cast<void>(here);
    return -1;
#endif
}

}}} // namespace bide::BIDE_ABI::durable

#endif
