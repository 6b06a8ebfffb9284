// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_FILE_POSIX_FILE_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_FILE_POSIX_FILE_HPP

// What the slots file and SQLite share: checksums, system calls, open files, marks of presence, and
// the operations of a slot whose store can be locked.

#include <bide/durable/process.hpp>

#include <array>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#if defined(__linux__)
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#elif defined(__APPLE__) || defined(__FreeBSD__) || defined(__OpenBSD__) || defined(__DragonFly__)
#include <sys/mount.h>
#include <sys/param.h>
#endif

namespace bide { inline namespace BIDE_ABI { namespace detail {

// ---- bytes

// CRC-32C (Castagnoli; RFC 3720, appendix B.4). `before` is the result for the bytes before these.
constexpr std::uint32_t crc32c_by_table(std::string_view bytes, std::uint32_t before = 0) noexcept {
    constexpr auto of_byte = [] {
        std::array<std::uint32_t, 256> table{};
        for (std::uint32_t byte = 0; byte < 256; ++byte) {
            std::uint32_t crc = byte;
            for (int bit = 0; bit < 8; ++bit) {
                crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
            }
            table[byte] = crc;
        }
        return table;
    }();
    std::uint32_t crc = ~before;
    for (const char c : bytes) {
        crc = (crc >> 8) ^ of_byte[(crc ^ static_cast<unsigned char>(c)) & 0xff];
    }
    return ~crc;
}

static_assert(crc32c_by_table("123456789") == 0xe3069283u);

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("sse4.2"))) inline std::uint32_t
crc32c_by_instruction(std::string_view bytes, std::uint32_t before) noexcept {
    std::uint64_t sum = ~before;
    for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
        std::uint64_t eight;
        std::memcpy(&eight, bytes.data(), 8);
        sum = __builtin_ia32_crc32di(sum, eight);
    }
    auto crc = static_cast<std::uint32_t>(sum);
    for (const char c : bytes) {
        crc = __builtin_ia32_crc32qi(crc, static_cast<unsigned char>(c));
    }
    return ~crc;
}
#endif

// A load of 3 kB takes 5 us with the instruction, and 20 us without.
inline std::uint32_t crc32c(std::string_view bytes, std::uint32_t before = 0) noexcept {
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("sse4.2") != 0) {
        return crc32c_by_instruction(bytes, before);
    }
#endif
    return crc32c_by_table(bytes, before);
}

// Numbers in files are little-endian on every machine.
template <class T> T load_little(const char* from) noexcept {
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
        value |= static_cast<T>(static_cast<T>(static_cast<unsigned char>(from[i])) << (8 * i));
    }
    return value;
}

template <class T> void store_little(char* to, T value) noexcept {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
        to[i] = static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
    }
}

// ---- paths and kinds of files

// Filesystems whose locks and syncs depend on another machine or a program, by their statfs(2)
// numbers on Linux: NFS, SMB, SMB2, CIFS, NCP, FUSE (and virtiofs), 9P, Ceph, AFS, AFS of the
// kernel, Coda, Lustre, GPFS, GFS2, OCFS2, BeeGFS, Panasas, VirtualBox's shared folders, VMware's.
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

// Returns an error unless the file is regular and has one name: two names would have two locks.
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

// Returns what is wrong with a slot's file, and what an operator can do.
// Throws: std::bad_alloc.
inline std::string file_error_text(std::error_code error, const std::string& file) {
    const std::string words = error.message();
    switch (error.category() == std::generic_category() ? error.value() : 0) {
    case EMLINK: return "has a second name (hard link): two locks would exist; remove that name";
    case ELOOP: return "is a symbolic link, or its path has too many; name the file itself";
    case EXDEV: return "is mounted here from another place; mount the directory instead";
    case EISDIR: return "is a directory, and not a regular file";
    case EINVAL: {
        struct stat facts{};
        const mode_t mode = ::lstat(file.c_str(), &facts) == 0 ? facts.st_mode : 0;
        return S_ISFIFO(mode)                   ? "is a pipe (FIFO), and not a regular file"
               : S_ISSOCK(mode)                 ? "is a socket, and not a regular file"
               : S_ISCHR(mode) || S_ISBLK(mode) ? "is a device, and not a regular file"
                                                : words;
    }
    case ENOENT: return "there is no such directory";
    case ENOTDIR: return "a part of the path is not a directory";
    case EACCES:
    case EPERM:
        return "no permission to open or make it (" + words +
               "); a process that shares the lock needs to read and write both of its files";
    case ETIMEDOUT:
        return "another process has held its lock for longer than the slot waits; it may be "
               "stopped";
    default: return words;
    }
}

// ---- hashes, and locks of bytes

// The mixing function of SplitMix64 (Steele, Lea, Flood 2014).
constexpr std::uint64_t mixed_bits(std::uint64_t z) noexcept {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

enum class byte_lock { set, remove, ask };

// Sets or removes a write lock on one byte, and returns 0; or asks whether another open file
// description has such a lock, and returns 1 or 0. The lock belongs to the open file description:
// the system drops it when the last process that has it open has closed it or ended.
//
// Returns -1 with errno set if it fails: EAGAIN or EACCES if another open file has the lock,
// EOPNOTSUPP if the system has no such locks (Linux has them from 3.15 on).
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

// ---- the system calls

// Each function sets errno if it fails. A test replaces this class by a simulated disk.
class posix_io {
    // Looks at the path, or at the open file if the path is empty. Does not ask for times: on some
    // filesystems, such a request makes the next write record its exact time, and the sync after
    // that takes 1.5 times as long.
    static int look(int fd, const char* path, struct stat& facts) noexcept {
#if defined(__linux__) && defined(STATX_BASIC_STATS)
        struct statx found;
        constexpr int how = AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW;
        constexpr unsigned wanted =
            STATX_TYPE | STATX_MODE | STATX_NLINK | STATX_UID | STATX_GID | STATX_INO | STATX_SIZE;
        if (::statx(fd, path, how, wanted, &found) == 0) {
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
        if (errno != ENOSYS && errno != EPERM) { // an old sandbox may forbid the call
            return -1;
        }
#endif
        return *path == 0 ? ::fstat(fd, &facts) : ::lstat(path, &facts);
    }

public:
    int open_file(const char* path, int flags, unsigned mode = 0) noexcept {
        return ::open(path, flags | O_CLOEXEC, integer_cast<mode_t>(mode));
    }
    void close_file(int fd) noexcept { ::close(fd); }

    ssize_t read_at(int fd, char* to, std::size_t size, std::uint64_t at) noexcept {
        return ::pread(fd, to, size, static_cast<off_t>(at));
    }
    ssize_t write_at(int fd, const char* from, std::size_t size, std::uint64_t at) noexcept {
        return ::pwrite(fd, from, size, static_cast<off_t>(at));
    }

    // Waits until the written data survives a loss of power.
#if defined(__APPLE__) // fsync() leaves the data in the disk's write cache
    int sync_data(int fd) noexcept { return ::fcntl(fd, F_FULLFSYNC); }
    int sync_all(int fd) noexcept { return ::fcntl(fd, F_FULLFSYNC); }
#else
    int sync_data(int fd) noexcept { return ::fdatasync(fd); }
    int sync_all(int fd) noexcept { return ::fsync(fd); }
#endif

    // If `is_exchange` is set, exchanges the two files in one step, or fails.
    int rename_file(const char* from, const char* to, bool is_exchange) noexcept {
        if (!is_exchange) {
            return std::rename(from, to);
        }
#if defined(SYS_renameat2)
        constexpr unsigned how = 2; // RENAME_EXCHANGE
        return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, how));
#elif defined(RENAME_SWAP)
        return ::renamex_np(from, to, RENAME_SWAP);
#else
        errno = ENOTSUP;
        return -1;
#endif
    }
    int remove_file(const char* path) noexcept { return ::unlink(path); }

    int look_at(const char* path, struct stat& facts) noexcept {
        return look(AT_FDCWD, path, facts);
    }
    int look_at(int fd, struct stat& facts) noexcept { return look(fd, "", facts); }

    // Never waits. EWOULDBLOCK: another open file holds the lock.
    int try_lock(int fd, bool exclusive) noexcept {
        return ::flock(fd, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB);
    }
    void unlock(int fd) noexcept { ::flock(fd, LOCK_UN); }

    // The claim is a lock on the first byte of the same file, which does not conflict with flock().
    int claim(int fd, byte_lock what) noexcept { return lock_byte(fd, what, 0); }

    // Returns true if the filesystem's locks and syncs work, as far as the system reports.
    bool is_reliable(int fd) noexcept {
#if defined(__linux__)
        struct statfs facts;
        const int looked = ::fstatfs(fd, &facts);
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
        return static_cast<std::uint64_t>(std::max<std::int64_t>(
            std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1), 0));
    }
    void sleep(std::int64_t ns) noexcept {
        std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
    }
};

// An open file. The destructor closes it.
template <class Io> class file_descriptor {
public:
    explicit file_descriptor(Io io = Io(), int fd = -1) noexcept : io_(io), fd_(fd) {}
    file_descriptor(const file_descriptor&) = delete;
    file_descriptor& operator=(const file_descriptor&) = delete;
    ~file_descriptor() { reset(); }

    // Set by open() and follow(). The user may replace them by later facts of the same file.
    struct stat facts{};
    bool is_writable = true;
    bool is_locked = false; // set by the user of the object; no file that is not open is locked

    // If the path now names another file than the open one, or none is open, calls open().
    std::error_code follow(const char* path, bool is_reading_enough) noexcept {
        struct stat now;
        if (fd_ < 0 || (!is_writable && !is_reading_enough) || io_.look_at(path, now) != 0 ||
            !is_same_file(now, facts)) {
            return open(path, is_reading_enough);
        }
        facts = now;
        return check_kind(now);
    }

    // Opens a file that passes check_kind() and is_reliable(); for reading if that is enough and
    // writing is forbidden. If it is missing and `create` is O_CREAT, makes it with this mode.
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
        std::error_code error =
            fd_ < 0 || io_.look_at(fd_, facts) != 0 ? system_error_code() : check_kind(facts);
        if (!error && !io_.is_reliable(fd_)) {
            error = durable_errc::unsupported_filesystem;
        }
        if (error) {
            reset();
        }
        return error;
    }

    explicit operator bool() const noexcept { return fd_ >= 0; }
    int get() const noexcept { return fd_; }
    // Forgets a descriptor that other code has closed: its number may now name another file.
    void forget_if_not_ours() noexcept {
        struct stat now;
        if (fd_ >= 0 && (io_.look_at(fd_, now) != 0 || !is_same_file(now, facts))) {
            fd_ = -1;
            is_locked = false;
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

// ---- marks of presence
//
// A mark is a lock on one byte of a file, far behind its data (lock_byte()). Every process that can
// open the file can see it, whatever its namespaces are. The number of a mark has 53 bits:
//
//   bits  0..23   which byte, from 1; drawn at random until it is free
//        24..52   a hash that tells this file from one that replaces it: of the inode number, the
//                 time of birth, and the generation if the filesystem has one
//
// A new mark may draw the byte of an ended mark, which then looks present until the new one ends.

struct file_presence final : slot_presence {
    explicit file_presence(int fd) noexcept : file(posix_io(), fd) {}

    std::int64_t mark() const noexcept override { return number; }
    int fd() const noexcept override { return file.get(); }
    void leave() noexcept override { file.reset(); }

    file_descriptor<posix_io> file; // closed, never unlocked: a child may have it open
    std::int64_t number = 0;
};

// The marks in the file at a path. Any thread may call any function at any time.
struct presence_file {
    static constexpr int byte_bits = 24;
    static constexpr std::int64_t byte_mask = (std::int64_t{1} << byte_bits) - 1;
    static constexpr int file_bits = 29;
    static constexpr std::int64_t first = std::int64_t{1} << 30; // the offset of byte 0

    // If the file is missing, makes it with this mode, less the umask. If `on` is a descriptor,
    // takes the mark on a copy of it: the mark lasts as long as any process has a copy open.
    // Returns: errc::operation_not_supported on a network filesystem, and on a system without such
    // locks; ESTALE if the descriptor has another file open; otherwise the system's error.
    // Throws: std::bad_alloc.
    static result<std::shared_ptr<slot_presence>, std::error_code>
    be_present(const std::string& path, unsigned mode, int on = -1) {
        posix_io io;
        auto made = std::make_shared<file_presence>(on < 0 ? -1 : ::fcntl(on, F_DUPFD_CLOEXEC, 3));
        auto& file = made->file;
        std::error_code error;
        if (on < 0) {
            error = file.open(path.c_str(), false, O_CREAT, mode);
        } else if (!file || io.look_at(on, file.facts) != 0) {
            error = system_error_code();
        }
        if (error ? error == durable_errc::unsupported_filesystem : !io.is_reliable(file.get())) {
            error = std::make_error_code(std::errc::operation_not_supported);
        }
        made->number = error ? 0 : take(file.get());
        if (made->number == 0) {
            return unexpected{error ? error : system_error_code()};
        }
        struct stat now;
        if (io.look_at(path.c_str(), now) != 0 || !is_same_file(now, file.facts)) {
            // The path has another file now, which other processes ask.
            return on < 0 ? be_present(path, mode) : unexpected{system_error_code(ESTALE)};
        }
        return std::shared_ptr<slot_presence>(std::move(made));
    }

    // Asks the file that has the path now; read permission is enough. Returns `unknown` if that is
    // not the mark's file. If this process is out of descriptors or memory, returns `yes`, so that
    // no holder is removed until the process can ask.
    static presence is_present(const std::string& path, std::int64_t mark) noexcept {
        constexpr int how = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
        posix_io io;
        struct stat facts;
        if (io.look_at(path.c_str(), facts) != 0 || !S_ISREG(facts.st_mode)) {
            return presence::unknown;
        }
        const file_descriptor<posix_io> file(io, io.open_file(path.c_str(), how));
        if (!file) {
            return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? presence::yes
                                                                         : presence::unknown;
        }
        return io.is_reliable(file.get()) ? ask(file.get(), mark) : presence::unknown;
    }

    // See slot::watch(). Each change of a slot writes into the file with its marks. When the system
    // reports the close of a mark, it is just about to drop the lock.
    static bool watch([[maybe_unused]] const std::string& path, [[maybe_unused]] int inotify) {
#if defined(__linux__)
        return ::inotify_add_watch(inotify, path.c_str(),
                                   IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_MOVE_SELF) >= 0;
#else
        return false;
#endif
    }

    // Asks if an open file description other than that of `fd` has the mark.
    static presence ask(int fd, std::int64_t mark) noexcept {
        const std::int64_t byte = mark & byte_mask;
        if (mark <= 0 || byte == 0 || mark >> byte_bits != file_hash(fd)) {
            return presence::unknown;
        }
        const int found = lock_byte(fd, byte_lock::ask, first + byte);
        return found < 0 ? presence::unknown : found == 0 ? presence::no : presence::yes;
    }

    // Locks a free byte. Returns the mark, or 0 with errno set.
    static std::int64_t take(int fd) noexcept {
        const std::int64_t file = file_hash(fd);
        errno = EOPNOTSUPP;
        for (int tries = 1'000; file >= 0 && tries > 0; --tries) {
            const std::int64_t byte = 1 + jitter(byte_mask - 1);
            if (lock_byte(fd, byte_lock::set, first + byte) == 0) {
                return file << byte_bits | byte;
            }
            if (errno != EAGAIN && errno != EACCES && errno != EINTR) {
                break;
            }
        }
        return 0;
    }

    // Returns a number of `file_bits` bits, or -1 if the system does not report what the hash is
    // made of. Leaves out the device number, which may change at a reboot.
    static std::int64_t file_hash([[maybe_unused]] int fd) noexcept {
#if defined(__linux__) && defined(STATX_BTIME)
        struct statx facts;
        constexpr unsigned wanted = STATX_INO | STATX_BTIME; // no other times: see posix_io::look()
        if (::statx(fd, "", AT_EMPTY_PATH, wanted, &facts) != 0 ||
            (facts.stx_mask & STATX_INO) == 0) {
            return -1;
        }
        std::uint64_t hash = mixed_bits(facts.stx_ino + 1);
        if ((facts.stx_mask & STATX_BTIME) != 0) {
            hash = mixed_bits(hash ^ static_cast<std::uint64_t>(facts.stx_btime.tv_sec));
            hash = mixed_bits(hash ^ facts.stx_btime.tv_nsec);
        }
        constexpr unsigned long get_generation = _IOR('v', 1, long); // of an int
        int generation[2] = {0, 0};
        if (::ioctl(fd, get_generation, generation) == 0) {
            hash = mixed_bits(hash ^ static_cast<unsigned>(generation[0]));
        }
        return static_cast<std::int64_t>(hash >> (64 - file_bits));
#else
        return -1;
#endif
    }
};

// ---- the operations
//
// A Core has these functions. One that returns false has set error_.
//
//   bool enter(bool to_change)     locks the store
//   bool read(bool to_change)      reads the value
//   slot_version version() const   of the value that was read; 0: there is none
//   slot_snapshot snapshot()       the value that was read
//   cas_result put(value)          stores a value in place of the one that was read
//   cas_result mend(value)         the same, if read() failed with durable_errc::corrupt_record
//   void leave()                   unlocks the store
template <class Core> class locking_slot : public slot {
public:
    result<slot_snapshot, std::error_code> load() override {
        const operation now{self(), false};
        if (!now.read()) {
            return unexpected{error_};
        }
        return self().snapshot();
    }

    cas_result compare_exchange(slot_version version, std::string_view value) override {
        const operation now{self(), true};
        return !now.read()                   ? failed()
               : version != self().version() ? conflict()
                                             : self().put(value);
    }

    cas_result update_locked(const slot_update& update) override {
        const operation now{self(), true};
        if (!now.read()) {
            return failed();
        }
        const std::optional<std::string> value = update(self().snapshot());
        return value ? self().put(*value)
                     : cas_result{cas_status::stored, self().version(), {}, {}};
    }

    cas_result replace_damaged(std::string_view value) override {
        const operation now{self(), true};
        return now.read()                               ? conflict()
               : error_ == durable_errc::corrupt_record ? self().mend(value)
                                                        : failed();
    }

protected:
    cas_result failed(bool is_unsure = false) const {
        return {is_unsure ? cas_status::indeterminate : cas_status::failed, 0, {}, error_};
    }

    std::error_code error_{}; // of the last operation that failed

private:
    struct operation {
        Core& of;
        const bool to_change;
        const bool is_in = of.enter(to_change);
        bool read() const { return is_in && of.read(to_change); }
        ~operation() {
            if (is_in) {
                of.leave();
            }
        }
    };

    Core& self() noexcept { return static_cast<Core&>(*this); }
    cas_result conflict() { return {cas_status::conflict, 0, self().snapshot(), {}}; }
};

}}} // namespace bide::BIDE_ABI::detail

#endif
