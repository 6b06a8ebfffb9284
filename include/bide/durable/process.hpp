// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_PROCESS_HPP
#define BIDE_DURABLE_PROCESS_HPP

/// \file
/// Identifies processes for other processes of the same machine, and reads its clocks.
///
/// A process is identified by its pid, the namespace of the pid, the time of its start (because
/// pids are reused), and the boot of the machine. Only a process of the same boot and namespace can
/// look it up. If a process cannot be looked up, it counts as running.

#include <bide/core/detail/process_wide.hpp>
#include <bide/durable/record.hpp>
#include <bide/sync/mutex.hpp>

#include <cerrno>
#include <chrono>
#include <map>

#include <time.h>
#include <unistd.h>
#if __has_include(<sys/random.h>)
#include <sys/random.h>
#endif
#if defined(__linux__)
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#endif

namespace bide { inline namespace BIDE_ABI {

namespace detail {

// Returns the simulation of the calling thread if the simulation has threads (test/scheduler.hpp);
// otherwise nullptr.
inline simulated_machine* simulated_threads() noexcept {
    simulated_machine* const machine = simulated_machine::here();
    return machine != nullptr && machine->has_threads() ? machine : nullptr;
}

} // namespace detail

namespace durable {

/// Returns the milliseconds since the machine was booted, including the time it slept. The clock is
/// never set, and never goes back. In a simulation with threads (test/scheduler.hpp), returns the
/// simulated time.
inline std::int64_t boottime_ms() noexcept {
#if defined(CLOCK_BOOTTIME)
    if (bide::detail::simulated_threads() != nullptr) [[unlikely]] {
        return native_platform::now() / 1'000'000;
    }
    timespec now{};
    ::clock_gettime(CLOCK_BOOTTIME, &now);
    return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
#else
    return native_platform::now() / 1'000'000;
#endif
}

/// Returns the milliseconds since 1970 on this machine's clock, which may be set.
inline std::int64_t unix_ms() noexcept {
    return std::chrono::system_clock::now().time_since_epoch() / std::chrono::milliseconds(1);
}

/// Returns floor_of() of the present time: the least token of a grant that is made now. In a
/// simulation with threads, that is the simulated time, counted from 1970.
inline std::int64_t floor_of_now() noexcept {
    const bool is_simulated = bide::detail::simulated_threads() != nullptr;
    const std::int64_t us = is_simulated ? native_platform::now() / 1'000
                                         : std::chrono::system_clock::now().time_since_epoch() /
                                               std::chrono::microseconds(1);
    return floor_of(us / 1000, us % 1000);
}

namespace detail {

#if defined(__linux__)

// Reads a small file of the system, at most 4096 bytes. Empty if it cannot be read.
inline std::string read_small(const std::string& path) {
    char some[4096];
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const ssize_t size = file < 0 ? -1 : ::read(file, some, sizeof some);
    if (file >= 0) {
        ::close(file);
    }
    return {some, size < 0 ? 0 : static_cast<std::size_t>(size)};
}

// What /proc/<pid>/stat says.
struct process_stat {
    std::int64_t pid = 0; // 0: nothing
    char state = 0;
    long threads = 0;
    long long start = 0;
};
inline process_stat stat_of(const std::string& path) {
    process_stat found;
    const std::string text = read_small(path);
    // The name in parentheses may contain any character; the text after the last ')' is regular.
    const auto name_end = std::min(text.rfind(')'), text.size());
    constexpr const char* fields =
        ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s"
        " %*s %ld %*s %lld"; // the fields 3, 20 and 22
    if (std::sscanf(text.c_str() + name_end, fields, &found.state, &found.threads, &found.start) ==
        3) {
        found.pid = std::strtoll(text.c_str(), nullptr, 10);
    }
    return found;
}

#endif

} // namespace detail

/// Returns an id of the present boot. In a time namespace other than the initial one, the id names
/// the namespace, too, because each has another boottime clock. Processes with the same id can read
/// each other's times. If the system does not tell the boot, the id is empty.
inline std::string this_boot() {
    std::string id;
#if defined(__linux__)
    constexpr ino_t first_time_namespace = 0xeffffffa; // PROC_TIME_INIT_INO
    struct stat times{};
    struct stat pids{};
    const bool has_times = ::stat("/proc/self/ns/time", &times) == 0;
    if (!has_times && ::stat("/proc/self/ns/pid", &pids) != 0) {
        return id; // namespaces may exist, but cannot be seen here
    }
    id = detail::read_small("/proc/sys/kernel/random/boot_id");
    id.erase(id.find_last_not_of('\n') + 1);
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
#endif
    return id;
}

/// Returns the name of this machine.
inline std::string this_host() {
    char name[256] = {};
    const bool is_known = ::gethostname(name, sizeof name - 1) == 0 && name[0] != 0;
    return is_known ? name : "localhost";
}

/// Returns where this process runs. If `bound` is true, the origin is bound to this process. If the
/// system does not tell the pid namespace, `space` is absent and the process cannot be looked up.
inline origin this_origin([[maybe_unused]] bool bound) {
    origin here;
    here.host = this_host();
    here.boot = this_boot();
#if defined(__linux__)
    struct stat space{};
    const detail::process_stat self = detail::stat_of("/proc/self/stat");
    // The /proc of another namespace shows other processes under our pids.
    const bool is_known = self.pid == ::getpid();
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
#endif
    return here;
}

/// Tells whether `it` is bound to a process that can be looked up. `here` is this_origin(true).
inline bool can_look_up(const origin& it, const origin& here) noexcept {
    return it.pid != 0 && it.space != 0 && it.space == here.space && it.boot == here.boot;
}

/// Tells whether the process can be looked up and has ended. A zombie has ended.
inline bool is_gone([[maybe_unused]] const origin& it, [[maybe_unused]] const origin& here) {
#if defined(__linux__)
    if (!can_look_up(it, here)) {
        return false;
    }
    if (it.pid == here.pid && it.pid == ::getpid()) { // a child may have its parent's origin
        return it.start != here.start;
    }
    const detail::process_stat found = detail::stat_of("/proc/" + std::to_string(it.pid) + "/stat");
    if (found.pid == 0) { // it has ended, /proc hides it, or there are no resources
        return ::kill(static_cast<pid_t>(it.pid), 0) != 0 && errno == ESRCH;
    }
    // If only the first thread has ended, the state is that of a zombie, but other threads run.
    return found.start != it.start ||
           ((found.state == 'Z' || found.state == 'X') && found.threads <= 1);
#else
    return false;
#endif
}

/// Returns a descriptor that poll(2) reports as readable when the process has ended; -1 if the
/// system gives none, or if the process has ended already. The caller closes it.
inline int watch_process([[maybe_unused]] const origin& it, [[maybe_unused]] const origin& here) {
#if defined(__linux__) && defined(SYS_pidfd_open)
    if (!can_look_up(it, here) || it.pid == ::getpid()) {
        return -1;
    }
    // glibc has pidfd_open(2) only in later versions, and its first header was not usable from C++.
    const auto fd = static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(it.pid), 0));
    if (fd < 0 || !is_gone(it, here)) {
        return fd;
    }
    ::close(fd); // the pid was reused meanwhile
#endif
    return -1;
}

} // namespace durable

namespace detail {

// Returns the one T of this process. It is never destroyed.
// Throws: std::system_error if there is no memory; what the constructor throws.
template <class T> T& of_process() {
    T* const one = process_wide<T, native_platform>::get(+[] { return new T; });
    if (one == nullptr) {
        throw_error(std::make_error_code(std::errc::not_enough_memory));
    }
    return *one;
}

// The objects of this process that the users of one key share, while there are any.
template <class Key, class T> struct BIDE_SHARED shared_by_key {
    template <class Make> static std::shared_ptr<T> find(const Key& key, Make make) {
        auto& here = of_process<shared_by_key>();
        const std::lock_guard held(here.lock);
        std::erase_if(here.all, [](const auto& each) { return each.second.expired(); });
        std::weak_ptr<T>& known = here.all[key];
        std::shared_ptr<T> found = known.lock();
        if (found == nullptr) {
            known = found = make();
        }
        return found;
    }

    mutex lock;
    std::map<Key, std::weak_ptr<T>> all; // under the lock
};

// Returns a pseudo-random number from 0 to `most` (below 2^32). It spreads what contenders do.
inline std::int64_t jitter(std::int64_t most) noexcept {
    const auto any = static_cast<std::uint64_t>(native_platform::now()) * 0x9e3779b97f4a7c15;
    return static_cast<std::int64_t>((any >> 32) % (static_cast<std::uint64_t>(most) + 1));
}

// Returns 128 random bits of the system, in hexadecimal. Throws: std::system_error.
// No std::random_device: with libstdc++, each use of it asks the processor which instructions it
// has, which takes tens of microseconds on a virtual machine.
inline std::string fresh_nonce() {
    std::uint32_t words[4];
    if (auto* const simulated = simulated_threads()) [[unlikely]] {
        for (std::uint32_t& bits : words) {
            bits = static_cast<std::uint32_t>(simulated->random() >> 32);
        }
    } else if (::getentropy(words, sizeof words) != 0) {
        throw_error(std::error_code(errno, std::system_category()));
    }
    std::string nonce;
    nonce.reserve(32);
    for (std::uint32_t bits : words) {
        for (int digit = 0; digit < 8; ++digit, bits >>= 4) {
            nonce.push_back("0123456789abcdef"[bits & 15]);
        }
    }
    return nonce;
}

// Identifies a process by an address, which differs in a child of fork(), without a system call.
struct BIDE_SHARED process_token {
    // Returns nullptr if there is no memory.
    static const process_token* here() noexcept {
        return process_wide<process_token, native_platform>::get(
            +[]() noexcept { return new (std::nothrow) process_token; });
    }
};

// Gives an object one T in each process.
//
// A child of fork() makes a T of its own at its first use. It never destroys the inherited T, which
// may be half changed or locked. If T has a function leave(), the child calls it once on the
// inherited T, for example to close files.
template <class T> class per_process {
public:
    ~per_process() {
        // Order: relaxed; the last reference is gone.
        entry* const last = current_.load(std::memory_order_relaxed);
        if (last != nullptr && last->process != process_token::here()) {
            leave(*last);
        } else {
            delete last;
        }
    }

    // Returns the T of this process. The first call in a process makes it by make().
    // Throws: what make() throws; std::bad_alloc or std::system_error if there is no memory.
    template <class Make> T& get(Make make) {
        const process_token* const here = process_token::here();
        if (here == nullptr) {
            throw_error(std::make_error_code(std::errc::not_enough_memory));
        }
        // Order: acquire [per_process.publish]; the T is seen as it was made.
        entry* found = current_.load(std::memory_order_acquire);
        while (found == nullptr || found->process != here) {
            auto mine = std::make_unique<entry>(here, make);
            // Order: acq_rel [per_process.publish]; publishes the new T. Failure: acquire; the T
            // that another thread made is seen.
            if (current_.compare_exchange_strong(found, mine.get(), std::memory_order_acq_rel,
                                                 std::memory_order_acquire)) {
                if (found != nullptr) {
                    leave(*found);
                }
                found = mine.release();
            }
        }
        return found->value;
    }

private:
    struct entry {
        template <class Make>
        entry(const process_token* here, Make& make) : process(here), value(make()) {}

        const process_token* const process;
        T value;
    };

    static void leave(entry& inherited) noexcept {
        if constexpr (requires { inherited.value.leave(); }) {
            inherited.value.leave();
        }
    }

    native_platform::atomic<entry*> current_{nullptr};
};

} // namespace detail
}} // namespace bide::BIDE_ABI

#endif
