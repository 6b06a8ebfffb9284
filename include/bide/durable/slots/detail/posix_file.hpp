#ifndef BIDE_DURABLE_SLOTS_DETAIL_POSIX_FILE_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_POSIX_FILE_HPP

// The system as a file slot sees it. Each function does what the system call of that name does and
// leaves errno; a test puts a disk of its own in the place of posix_io.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>

#if defined(__unix__) || defined(__APPLE__)

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/vfs.h>
#elif defined(__APPLE__) || defined(__FreeBSD__) || defined(__OpenBSD__) || defined(__DragonFly__)
#include <sys/mount.h>
#include <sys/param.h>
#endif

namespace bide::inline BIDE_ABI {
namespace detail {

// Filesystems whose locks or syncs are another machine's, or a program's, to keep: as statfs(2)
// numbers them on Linux. Elsewhere what the system calls local is good.
inline constexpr std::uint32_t remote_filesystems[] = {
    0x6969,     // NFS
    0x517b,     // SMB
    0xfe534d42, // SMB2
    0xff534d42, // CIFS
    0x564c,     // NCP
    0x65735546, // FUSE, virtiofs
    0x01021997, // 9P
    0x00c36400, // Ceph
    0x5346414f, // AFS
    0x6b414653, // AFS, the kernel's own
    0x73757245, // Coda
    0x0bd00bd0, // Lustre
    0x47504653, // GPFS
    0x01161970, // GFS2
    0x7461636f, // OCFS2
    0x19830326, // BeeGFS
    0xaad7aaea, // Panasas
    0x786f4256, // VirtualBox's shared folders
    0xbacbacbc, // VMware's
};

constexpr bool is_remote_filesystem(std::uint32_t type) noexcept {
    for (const std::uint32_t remote : remote_filesystems) {
        if (type == remote) {
            return true;
        }
    }
    return false;
}

class posix_io {
    template <class Call> static auto again(Call call) noexcept {
        auto got = call();
        while (got < 0 && errno == EINTR) {
            got = call();
        }
        return got;
    }

public:
    int open_file(const char* path, int flags, unsigned mode = 0) noexcept {
        return again([&] { return ::open(path, flags | O_CLOEXEC, static_cast<mode_t>(mode)); });
    }
    void close_file(int fd) noexcept { ::close(fd); }

    ssize_t read_at(int fd, char* to, std::size_t size, std::uint64_t at) noexcept {
        return again([&] { return ::pread(fd, to, size, static_cast<off_t>(at)); });
    }
    ssize_t write_at(int fd, const char* from, std::size_t size, std::uint64_t at) noexcept {
        return again([&] { return ::pwrite(fd, from, size, static_cast<off_t>(at)); });
    }

    // Until what was written is where a loss of power leaves it.
    int sync_data(int fd) noexcept {
#if defined(__APPLE__)
        return sync_all(fd); // fdatasync() stops at the disk's own memory
#else
        return again([&] { return ::fdatasync(fd); });
#endif
    }
    int sync_all(int fd) noexcept {
#if defined(__APPLE__)
        const int flushed = again([&] { return ::fcntl(fd, F_FULLFSYNC); });
        if (flushed == 0 || (errno != ENOTSUP && errno != EINVAL)) {
            return flushed;
        }
#endif
        return again([&] { return ::fsync(fd); });
    }

    int rename_file(const char* from, const char* to) noexcept { return std::rename(from, to); }
    int remove_file(const char* path) noexcept { return ::unlink(path); }

    // Of a symbolic link, about the link.
    int look_at(const char* path, struct stat& facts) noexcept { return ::lstat(path, &facts); }
    int look_at(int fd, struct stat& facts) noexcept { return ::fstat(fd, &facts); }

    // Never waits; EWOULDBLOCK: somebody holds it.
    int try_lock(int fd, bool exclusive) noexcept {
        return again([&] { return ::flock(fd, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB); });
    }
    void unlock(int fd) noexcept { ::flock(fd, LOCK_UN); }

    // One whose locks hold and whose syncs sync, as far as the system tells.
    bool is_reliable(int fd) noexcept {
#if defined(__linux__)
        struct statfs facts;
        const int looked = again([&] { return ::fstatfs(fd, &facts); });
        return looked == 0 && !is_remote_filesystem(static_cast<std::uint32_t>(facts.f_type));
#elif defined(MNT_LOCAL)
        struct statfs facts;
        return ::fstatfs(fd, &facts) == 0 && (facts.f_flags & MNT_LOCAL) != 0;
#else
        return fd >= 0;
#endif
    }

    // Gives a file that takes another's place the other's mode, and its owner as far as we may.
    int take_after(int fd, const struct stat& other) noexcept {
        if (::fchown(fd, other.st_uid, other.st_gid) != 0 &&
            ::fchown(fd, static_cast<uid_t>(-1), other.st_gid) != 0 && errno != EPERM) {
            return -1;
        }
        return ::fchmod(fd, other.st_mode & static_cast<mode_t>(07777));
    }

    // After an error: what is read next comes from the disk.
    void distrust(int fd) noexcept {
#if defined(POSIX_FADV_DONTNEED)
        ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
#else
        static_cast<void>(fd);
#endif
    }

    long process() noexcept { return ::getpid(); }
    std::int64_t steady_ns() noexcept { return native_platform::now(); }
    std::uint64_t clock_ns() noexcept {
        const auto since = std::chrono::system_clock::now().time_since_epoch();
        const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
        return ns > 0 ? static_cast<std::uint64_t>(ns) : 0;
    }
    void sleep(std::int64_t ns) noexcept {
        const timespec rest{static_cast<time_t>(ns / 1'000'000'000),
                            static_cast<long>(ns % 1'000'000'000)};
        ::nanosleep(&rest, nullptr);
    }
};

// An open file, closed with this.
template <class Io> class held_file {
public:
    explicit held_file(Io io, int fd = -1) noexcept : io_(std::move(io)), fd_(fd) {}
    held_file(held_file&& other) noexcept : io_(other.io_), fd_(std::exchange(other.fd_, -1)) {}
    held_file& operator=(held_file&& other) noexcept {
        reset(std::exchange(other.fd_, -1));
        io_ = other.io_;
        return *this;
    }
    ~held_file() { reset(); }

    explicit operator bool() const noexcept { return fd_ >= 0; }
    int get() const noexcept { return fd_; }
    void reset(int fd = -1) noexcept {
        if (fd_ >= 0) {
            io_.close_file(fd_);
        }
        fd_ = fd;
    }

private:
    [[no_unique_address]] Io io_;
    int fd_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif

#endif
