// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_FILE_POSIX_FILE_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_FILE_POSIX_FILE_HPP

// The system calls of the slots on local files, and what else these slots share. Each function of
// posix_io does what the system call of that name does and sets errno. A test replaces posix_io by
// a simulated disk.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#elif defined(__APPLE__) || defined(__FreeBSD__) || defined(__OpenBSD__) || defined(__DragonFly__)
#include <sys/mount.h>
#include <sys/param.h>
#endif

namespace bide { inline namespace BIDE_ABI { namespace detail {

// Filesystems whose locks and syncs depend on another machine or a program, by their statfs(2)
// numbers on Linux: NFS, SMB, SMB2, CIFS, NCP, FUSE (and virtiofs), 9P, Ceph, AFS, AFS of the
// kernel, Coda, Lustre, GPFS, GFS2, OCFS2, BeeGFS, Panasas, VirtualBox's shared folders, VMware's.
// On other systems a filesystem is accepted if the system calls it local.
constexpr bool is_remote_filesystem(std::uint32_t type) noexcept {
    constexpr std::uint32_t remote[] = {0x6969,     0x517b,     0xfe534d42, 0xff534d42, 0x564c,
                                        0x65735546, 0x01021997, 0x00c36400, 0x5346414f, 0x6b414653,
                                        0x73757245, 0x0bd00bd0, 0x47504653, 0x01161970, 0x7461636f,
                                        0x19830326, 0xaad7aaea, 0x786f4256, 0xbacbacbc};
    return std::find(std::begin(remote), std::end(remote), type) != std::end(remote);
}

inline std::error_code system_error_code(int error = errno) noexcept {
    return {error, std::generic_category()};
}

// A slot's file is regular and has one name. A file with two names would have two locks.
inline std::error_code check_kind(const struct stat& facts) noexcept {
    return system_error_code(S_ISREG(facts.st_mode)   ? (facts.st_nlink > 1 ? EMLINK : 0)
                             : S_ISDIR(facts.st_mode) ? EISDIR
                             : S_ISLNK(facts.st_mode) ? ELOOP
                                                      : EINVAL);
}

inline bool is_same_file(const struct stat& a, const struct stat& b) noexcept {
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

inline bool is_file_name(const std::string& path) noexcept {
    return !path.empty() && path.back() != '/' && path.find('\0') == path.npos;
}

// Resolves a relative path against the current working directory.
// Throws: std::bad_alloc.
inline std::string absolute_path(const std::string& path) {
    if (path.empty() || path.front() == '/') {
        return path;
    }
    char* const here = ::getcwd(nullptr, 0);          // allocates
    std::string whole = here != nullptr ? here : "."; // no directory: its files are gone, too
    std::free(here);
    return whole + '/' + path;
}

// The mixing function of SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number
// generators" (2014).
constexpr std::uint64_t mixed_bits(std::uint64_t z) noexcept {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

// Returns a number from 0 to n - 1 that differs from call to call and from process to process.
inline std::int64_t random_below(std::int64_t n) noexcept {
    const auto now = static_cast<std::uint64_t>(native_platform::now());
    const std::uint64_t bits = mixed_bits(now ^ static_cast<std::uint64_t>(::getpid()) << 40);
    return static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(n));
}

// Sets or removes a write lock of an open file on one byte, or asks whether another open file has
// such a lock, by F_OFD_SETLK and F_OFD_GETLK (Linux 3.15). Such a lock belongs to the open file
// description. The system drops it when the last process that has the description open has closed
// it or ended. Other code may open, lock, read, write and close the file without harm. (With
// POSIX's own locks, a process that closes any descriptor of the file loses its locks.)
enum class byte_lock { set, remove, ask };

// Returns -1 with errno set if it fails: EAGAIN or EACCES if another open file has the lock,
// EOPNOTSUPP if the system has no such locks. ask: returns 1 if another open file has the lock.
inline int lock_byte([[maybe_unused]] int fd, [[maybe_unused]] byte_lock what,
                     [[maybe_unused]] std::int64_t byte) noexcept {
#if defined(__linux__) && defined(F_OFD_SETLK)
    struct flock lock{};
    lock.l_type = what == byte_lock::remove ? F_UNLCK : F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = integer_cast<off_t>(byte);
    lock.l_len = 1;
    if (::fcntl(fd, what == byte_lock::ask ? F_OFD_GETLK : F_OFD_SETLK, &lock) == 0) {
        return what == byte_lock::ask && lock.l_type != F_UNLCK ? 1 : 0;
    }
    errno = errno == EINVAL ? EOPNOTSUPP : errno;
#else
    errno = EOPNOTSUPP;
#endif
    return -1;
}

class posix_io {
#if defined(__linux__) && defined(STATX_BASIC_STATS)
    static int look_at(int at, const char* path, int flags, struct stat& facts) noexcept {
        struct statx found;
        constexpr unsigned wanted =
            STATX_TYPE | STATX_MODE | STATX_NLINK | STATX_UID | STATX_GID | STATX_INO | STATX_SIZE;
        if (::statx(at, path, flags, wanted, &found) != 0) { // an old sandbox may forbid it
            return errno == ENOSYS || errno == EPERM ? ::fstatat(at, path, &facts, flags) : -1;
        }
        facts = {};
        facts.st_dev = makedev(found.stx_dev_major, found.stx_dev_minor);
        facts.st_ino = static_cast<ino_t>(found.stx_ino);
        facts.st_mode = found.stx_mode;
        facts.st_nlink = static_cast<nlink_t>(found.stx_nlink);
        facts.st_uid = found.stx_uid;
        facts.st_gid = found.stx_gid;
        facts.st_size = static_cast<off_t>(found.stx_size);
        return 0;
    }
#endif

    template <class Call> static auto again(Call call) noexcept {
        auto got = call();
        while (got < 0 && errno == EINTR) {
            got = call();
        }
        return got;
    }

public:
    int open_file(const char* path, int flags, unsigned mode = 0) noexcept {
        return again([&] { return ::open(path, flags | O_CLOEXEC, integer_cast<mode_t>(mode)); });
    }
    void close_file(int fd) noexcept { ::close(fd); }

    ssize_t read_at(int fd, char* to, std::size_t size, std::uint64_t at) noexcept {
        return again([&] { return ::pread(fd, to, size, static_cast<off_t>(at)); });
    }
    ssize_t write_at(int fd, const char* from, std::size_t size, std::uint64_t at) noexcept {
        return again([&] { return ::pwrite(fd, from, size, static_cast<off_t>(at)); });
    }

    // Waits until the written data survives a loss of power.
    int sync_data(int fd) noexcept {
#if defined(__APPLE__)
        return sync_all(fd); // fdatasync() leaves the data in the disk's write cache
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
    // Exchanges two names in one step.
    int exchange_files([[maybe_unused]] const char* a, [[maybe_unused]] const char* b) noexcept {
#if defined(__linux__) && defined(RENAME_EXCHANGE)
        return ::renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
#else
        errno = ENOSYS;
        return -1;
#endif
    }

    // Does not follow a symbolic link. Does not ask for times: on some filesystems a file whose
    // times were asked for must record the exact time of its next write, and the sync after that
    // takes half as long again.
#if defined(__linux__) && defined(STATX_BASIC_STATS)
    int look_at(const char* path, struct stat& facts) noexcept {
        return look_at(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, facts);
    }
    int look_at(int fd, struct stat& facts) noexcept {
        return look_at(fd, "", AT_EMPTY_PATH, facts);
    }
#else
    int look_at(const char* path, struct stat& facts) noexcept { return ::lstat(path, &facts); }
    int look_at(int fd, struct stat& facts) noexcept { return ::fstat(fd, &facts); }
#endif

    // Never waits. EWOULDBLOCK: another open file holds the lock.
    int try_lock(int fd, bool exclusive) noexcept {
        return again([&] { return ::flock(fd, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB); });
    }
    void unlock(int fd) noexcept { ::flock(fd, LOCK_UN); }

    // The claim: a second lock on the same file, independent of the first, on its first byte.
    bool try_claim(int fd) noexcept { return lock_byte(fd, byte_lock::set, 0) == 0; }
    void unclaim(int fd) noexcept { lock_byte(fd, byte_lock::remove, 0); }
    bool is_claimed(int fd) noexcept { return lock_byte(fd, byte_lock::ask, 0) == 1; }

    // True if the filesystem's locks and syncs work, as far as the system reports.
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

    // Copies the mode of the replaced file, and its owner and group as far as permission allows.
    int copy_owner_and_mode(int fd, const struct stat& other) noexcept {
        if (::fchown(fd, other.st_uid, other.st_gid) != 0 &&
            ::fchown(fd, static_cast<uid_t>(-1), other.st_gid) != 0 && errno != EPERM) {
            return -1;
        }
        return ::fchmod(fd, other.st_mode & static_cast<mode_t>(07777));
    }

    // After an error: the next read comes from the disk.
    void drop_cache([[maybe_unused]] int fd) noexcept {
#if defined(POSIX_FADV_DONTNEED)
        ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
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
        const timespec rest{integer_cast<time_t>(ns / 1'000'000'000),
                            integer_cast<long>(ns % 1'000'000'000)};
        ::nanosleep(&rest, nullptr);
    }
};

// An open file. The destructor closes it.
template <class Io> class file_descriptor {
public:
    explicit file_descriptor(Io io = Io(), int fd = -1) noexcept : io_(io), fd_(fd) {}
    file_descriptor(file_descriptor&& other) noexcept : file_descriptor() {
        *this = std::move(other);
    }
    file_descriptor& operator=(file_descriptor&& other) noexcept {
        reset(std::exchange(other.fd_, -1));
        io_ = other.io_;
        facts = other.facts;
        is_writable = other.is_writable;
        is_locked = other.is_locked;
        return *this;
    }
    ~file_descriptor() { reset(); }

    // Of a file that was opened by open(); may be changed to later ones of the same file.
    struct stat facts{};
    bool is_writable = true;
    bool is_locked = false; // set by the user of the file

    // Opens the file that the path names now, unless that is open already; see open().
    std::error_code follow(const char* path, bool is_reading_enough) noexcept {
        struct stat now;
        if (fd_ < 0 || (!is_writable && !is_reading_enough) || io_.look_at(path, now) != 0 ||
            !is_same_file(now, facts)) {
            return open(path, is_reading_enough);
        }
        facts = now;
        return check_kind(now);
    }

    // Opens a file that has to be regular, with one name. If it is missing and `create` is O_CREAT,
    // makes it with this mode. If permission to write is missing, opens it for reading, if that is
    // enough.
    std::error_code open(const char* path, bool is_reading_enough, int create = 0,
                         unsigned mode = 0) noexcept {
        constexpr int how = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
        reset();
        if (io_.look_at(path, facts) == 0 && check_kind(facts)) { // to open a device has effects
            return check_kind(facts);
        }
        is_writable = true;
        fd_ = io_.open_file(path, how | O_RDWR);
        if (fd_ < 0 && errno == ENOENT && create != 0) {
            fd_ = io_.open_file(path, how | O_RDWR | create, mode);
        }
        if (fd_ < 0 && is_reading_enough && (errno == EACCES || errno == EROFS)) {
            const int why = errno;
            fd_ = io_.open_file(path, how | O_RDONLY);
            errno = fd_ < 0 && errno == ENOENT ? why : errno;
            is_writable = false;
        }
        const std::error_code error =
            fd_ < 0 || io_.look_at(fd_, facts) != 0 ? system_error_code() : check_kind(facts);
        if (error) {
            reset();
        }
        return error;
    }

    explicit operator bool() const noexcept { return fd_ >= 0; }
    int get() const noexcept { return fd_; }
    int leave() noexcept { return std::exchange(fd_, -1); } // does not close it
    // Forgets the descriptor if it does not refer to this file any more: other code in the process
    // has closed it, and its number may now name another file.
    void forget_if_not_ours() noexcept {
        struct stat now;
        if (fd_ >= 0 && (io_.look_at(fd_, now) != 0 || !is_same_file(now, facts))) {
            fd_ = -1;
        }
    }
    void reset(int fd = -1) noexcept {
        if (fd_ >= 0) {
            io_.close_file(fd_);
        }
        fd_ = fd;
        is_locked = false;
    }

private:
    [[no_unique_address]] Io io_;
    int fd_;
};

}}} // namespace bide::BIDE_ABI::detail

#endif
