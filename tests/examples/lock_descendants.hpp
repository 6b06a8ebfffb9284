#ifndef BIDE_TESTS_EXAMPLES_LOCK_DESCENDANTS_HPP
#define BIDE_TESTS_EXAMPLES_LOCK_DESCENDANTS_HPP

// The processes that descend from this one, and signals to all of them. A subreaper stays the
// ancestor of processes that called setsid() or were forked twice.
//
// All functions are safe between fork() and exec in a program with threads: no allocation, no lock.

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__linux__)
#include <dirent.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

namespace lock_parts {

struct descendant {
    pid_t pid, parent;
};

#if defined(__linux__)

// Reads a file of /proc in pieces. Calls handle(byte) for each byte. False: it cannot be opened.
template <class Handle> bool read_bytes(const char* path, Handle handle) {
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    char some[1024];
    ssize_t n = 0;
    while ((n = ::read(file, some, sizeof some)) > 0 || (n < 0 && errno == EINTR))
        for (ssize_t i = 0; i < n; ++i)
            handle(some[i]);
    ::close(file);
    return true;
}

// Returns 0 if the process does not exist or /proc does not show its parent.
inline pid_t parent_of(pid_t pid) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
    char text[512];
    std::size_t size = 0;
    if (!read_bytes(path, [&](char c) {
            if (size < sizeof text - 1)
                text[size++] = c;
        }))
        return 0;
    text[size] = 0;
    // The name in parentheses may contain anything: the last parenthesis ends it.
    const char* const end = std::strrchr(text, ')');
    return end == nullptr || std::strlen(end) < 5 ? 0 : static_cast<pid_t>(std::atoi(end + 4));
}

// Calls handle(tid) for each thread of a process.
template <class Handle> void each_thread(pid_t pid, Handle handle) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/task", static_cast<int>(pid));
    const int directory = ::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return;
    struct entry { // the layout of getdents64(2)
        std::uint64_t inode;
        std::int64_t offset;
        unsigned short size;
        unsigned char type;
        char name[1];
    };
    alignas(entry) char some[4096];
    long n = 0;
    while ((n = ::syscall(SYS_getdents64, directory, some, sizeof some)) > 0)
        for (long at = 0; at < n;) {
            unsigned short size = 0;
            std::memcpy(&size, some + at + offsetof(entry, size), sizeof size);
            const int tid = std::atoi(some + at + offsetof(entry, name));
            if (tid > 0)
                handle(static_cast<pid_t>(tid));
            at += size;
        }
    ::close(directory);
}

// Calls handle(child) for each child of a process.
template <class Handle> void each_child(pid_t pid, Handle handle) {
    each_thread(pid, [&](pid_t tid) {
        char path[96];
        std::snprintf(path, sizeof path, "/proc/%d/task/%d/children", static_cast<int>(pid),
                      static_cast<int>(tid));
        pid_t child = 0;
        read_bytes(path, [&](char c) {
            if (c >= '0' && c <= '9')
                child = child * 10 + (c - '0');
            else if (child != 0)
                handle(child), child = 0;
        });
        if (child != 0)
            handle(child);
    });
}

#endif

// The list of descendants, static: it is too large for a stack, and nothing may allocate.
class descendant_list {
public:
    // Lists the descendants again, up to `most`. The keeper repeats SIGKILL until none is left.
    void look() {
        size_ = 0;
#if defined(__linux__)
        const pid_t self = ::getpid();
        const auto add = [this](pid_t parent) {
            return [this, parent](pid_t child) {
                if (size_ < most)
                    all_[size_++] = {child, parent};
            };
        };
        each_child(self, add(self));
        for (std::size_t next = 0; next < size_; ++next)
            each_child(all_[next].pid, add(all_[next].pid));
#endif
    }

    struct result {
        int reached = 0, refused = 0; // processes
    };

    // Sends a signal to the group (0: none) and to each descendant outside it.
    result send(pid_t group, int signal) {
        result r;
        if (group > 0) {
            if (::kill(-group, signal) == 0)
                ++r.reached;
            else if (errno == EPERM)
                ++r.refused;
        }
        look();
        for (std::size_t i = 0; i < size_; ++i)
            if (group <= 0 || ::getpgid(all_[i].pid) != group)
                send_one(all_[i], signal, r);
        return r;
    }

private:
    // The parent may have reaped the process, and its pid may be another process's. So this opens a
    // descriptor of the process, checks it, and signals through it.
    static void send_one(const descendant& one, int signal, result& r) {
#if defined(__linux__) && defined(SYS_pidfd_open) && defined(SYS_pidfd_send_signal)
        const auto fd = static_cast<int>(::syscall(SYS_pidfd_open, one.pid, 0));
        if (fd < 0 && errno == ESRCH)
            return;
        const pid_t parent = parent_of(one.pid);
        const bool is_it = parent == one.parent || parent == ::getpid();
        long sent = -1;
        if (is_it)
            sent = fd >= 0 ? ::syscall(SYS_pidfd_send_signal, fd, signal, nullptr, 0)
                           : ::kill(one.pid, signal);
        const int error = errno;
        if (fd >= 0)
            ::close(fd);
        if (!is_it)
            return; // the next call of look() finds its new place
#else
        const int sent = ::kill(one.pid, signal);
        const int error = errno;
#endif
        if (sent == 0)
            ++r.reached;
        else if (error == EPERM)
            ++r.refused;
    }

    static constexpr std::size_t most = 32'768;
    std::array<descendant, most> all_; // not initialized: its pages are allocated on use
    std::size_t size_ = 0;
};

inline descendant_list all_descendants;

} // namespace lock_parts

#endif
