// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_FILE_PRESENCE_FILE_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_FILE_PRESENCE_FILE_HPP

// Marks of presence in a file. A mark is a lock on one byte, far behind a slot file's data; see
// byte_lock. Each mark has an open file description of its own, which holds the lock. Every process
// that can open the file can see the lock, whatever its namespaces are. On systems without such
// locks there are no marks.
//
// A mark has 53 bits:
//
//   bits  0..23   which byte, from 1
//        24..52   a hash that tells this file from one that replaces it: of the inode number, the
//                 time of birth, and the generation if the filesystem has one
//
// A byte is drawn at random, and drawn again if it is taken. So two marks that exist at a time
// differ. If a new mark draws the byte of a mark that has ended, the ended mark looks present until
// the new mark ends.
//
// is_present() asks the file that has the path now. If that file is not the mark's file, the mark's
// file was deleted and its bytes cannot be read: the result is unknown.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/file/posix_file.hpp>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#if defined(__linux__)
#include <sys/ioctl.h>
#endif

namespace bide { inline namespace BIDE_ABI { namespace detail {

// The bytes of one open file.
struct presence_bytes {
    static constexpr int byte_bits = 24;
    static constexpr std::int64_t byte_mask = (std::int64_t{1} << byte_bits) - 1;
    static constexpr int file_bits = 29;
    static constexpr std::int64_t largest_mark = (std::int64_t{1} << (byte_bits + file_bits)) - 1;
    static constexpr std::int64_t first = std::int64_t{1} << 30; // the offset of byte 0

    // Locks a free byte. Returns the mark, or 0 with errno set.
    static std::int64_t take(int fd) noexcept {
        constexpr int most_tries = 1'000;
        const std::int64_t file = file_hash(fd);
        errno = EOPNOTSUPP;
        for (int i = 0; file >= 0 && i < most_tries; ++i) {
            const std::int64_t byte = 1 + random_below(byte_mask);
            if (lock_byte(fd, byte_lock::set, first + byte) == 0) {
                return file << byte_bits | byte;
            }
            if (errno != EAGAIN && errno != EACCES && errno != EINTR) {
                break;
            }
        }
        return 0;
    }

    // Asks if another open file description has the mark. The descriptor may be read-only.
    static presence ask(int fd, std::int64_t mark) noexcept {
        const std::int64_t byte = mark & byte_mask;
        if (byte == 0 || mark > largest_mark || mark >> byte_bits != file_hash(fd)) {
            return presence::unknown;
        }
        const int found = lock_byte(fd, byte_lock::ask, first + byte);
        return found < 0 ? presence::unknown : found == 0 ? presence::no : presence::yes;
    }

private:
    // Returns -1 if the system does not report what the hash is made of. The hash is the same for
    // all processes that share the file. So it leaves out the device number, which may change at a
    // reboot.
    static std::int64_t file_hash([[maybe_unused]] int fd) noexcept {
#if defined(__linux__) && defined(STATX_BTIME)
        struct statx facts;
        constexpr unsigned wanted = STATX_INO | STATX_BTIME; // not ctime, mtime: see look_at()
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

class file_presence final : public slot_presence {
public:
    file_presence(file_descriptor<posix_io> file, std::int64_t mark) noexcept
        : file_(std::move(file)), mark_(mark) {}

    std::int64_t mark() const noexcept override { return mark_; }
    int fd() const noexcept override { return file_.get(); }
    void leave() noexcept override { file_.reset(); }

private:
    file_descriptor<posix_io> file_; // closed, never unlocked: a child may have it open
    std::int64_t mark_;
};

// The marks in the file at a path. Only a presence keeps the file open.
class presence_file {
public:
    // Touches no file. The mode is for a new file, less the umask.
    presence_file(std::string path, unsigned mode) noexcept : path_(std::move(path)), mode_(mode) {}

    // Takes a mark. Makes the file if it is missing. If `on` is a descriptor, takes the mark on the
    // open file of that descriptor, and keeps a copy of the descriptor: the mark lasts as long as
    // any copy is open, in any process.
    // Returns: errc::operation_not_supported if the processes that share the file cannot all see
    // marks (a network filesystem, a system without such locks); ESTALE if the descriptor has
    // another file open; otherwise the system's error.
    // Throws: std::bad_alloc.
    result<std::shared_ptr<slot_presence>, std::error_code> be_present(int on = -1) const {
        constexpr int most_tries = 100;
        posix_io io;
        for (int i = 0; i < most_tries; ++i) {
            file_descriptor<posix_io> file(io, on < 0 ? -1 : ::fcntl(on, F_DUPFD_CLOEXEC, 3));
            std::error_code error;
            if (on < 0) {
                error = file.open(path_.c_str(), false, O_CREAT, mode_);
            } else if (!file || io.look_at(on, file.facts) != 0) {
                error = system_error_code();
            }
            if (!error && !io.is_reliable(file.get())) {
                error = std::make_error_code(std::errc::operation_not_supported);
            }
            struct stat now;
            const bool is_there = io.look_at(path_.c_str(), now) == 0;
            const bool is_right = is_there && is_same_file(now, file.facts);
            if (!error && on >= 0 && !is_right) {
                error = is_there ? system_error_code(ESTALE) : system_error_code();
            }
            const std::int64_t mark = error ? 0 : presence_bytes::take(file.get());
            if (mark == 0) {
                return unexpected{error ? error : system_error_code()};
            }
            // If the file was removed since, other processes ask another file: try again.
            if (io.look_at(path_.c_str(), now) == 0 && is_same_file(now, file.facts)) {
                return std::shared_ptr<slot_presence>(
                    std::make_shared<file_presence>(std::move(file), mark));
            }
        }
        return unexpected{system_error_code(EAGAIN)};
    }

    // Returns true if the open file of the descriptor has the mark.
    bool is_on(int fd,
               std::int64_t mark) const noexcept { // a lock does not conflict with its owner
        return presence_bytes::ask(fd, mark) == presence::no && is_present(mark) == presence::yes;
    }

    // Opens the file, asks the kernel about the lock, and closes the file; read permission is
    // enough. If this process is out of descriptors or memory, returns `yes`: so no holder is
    // removed until the process can ask.
    presence is_present(std::int64_t mark) const noexcept {
        constexpr int how = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
        posix_io io;
        struct stat facts;
        const bool is_there = io.look_at(path_.c_str(), facts) == 0;
        if (is_there && !S_ISREG(facts.st_mode)) {
            return presence::unknown;
        }
        const file_descriptor<posix_io> file(io, is_there ? io.open_file(path_.c_str(), how) : -1);
        if (!file) {
            return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? presence::yes
                                                                         : presence::unknown;
        }
        return io.is_reliable(file.get()) ? presence_bytes::ask(file.get(), mark)
                                          : presence::unknown;
    }

private:
    std::string path_;
    unsigned mode_;
};

}}} // namespace bide::BIDE_ABI::detail

#endif
