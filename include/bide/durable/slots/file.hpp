// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_FILE_HPP
#define BIDE_DURABLE_SLOTS_FILE_HPP

/// \file
/// A slot in a file on a local disk, with flock(2). Each change costs one write and one sync. The
/// file's space is allocated when the file is made, so changes succeed even if the disk is full. A
/// machine of any architecture can read the file. impl/file.hpp describes its pages.
///
/// Files, all in one directory:
/// \code
///   <path>          two pages, each with a value, its version and a checksum
///   <path>.lock     readers and writers lock it; never removed
///   <path>.new      a file that is about to replace <path>, or one that a crash left
///   <path>.damaged  the damaged file that a repair replaced
/// \endcode

#include <bide/durable/slot.hpp>

#include <chrono>

namespace bide { inline namespace BIDE_ABI {

/// Options of a file slot.
struct file_slot_options {
    /// The size in bytes of each of the two pages of a new file, rounded up to a multiple of 4096.
    /// A page holds a value of page_size - 32 bytes.
    std::size_t page_size = 16'384;

    /// The largest value in bytes, at most 1 GiB.
    std::size_t max_value = std::size_t{64} << 20;

    /// How long an operation waits for the lock. A stopped process can hold it for any time.
    std::chrono::milliseconds retry_time{10'000};

    /// The mode of new files, less the umask. A process that can read the lock file can block all
    /// others. Processes that share the slot need read and write permission on both files.
    unsigned mode = 0600;

    /// A descriptor of the caller that has the `.lock` file open for writing; -1 means none. Marks
    /// of presence are taken on the open file of this descriptor. So an inheritable grant lasts as
    /// long as any process has that open file, for example the shell that runs this program.
    int descriptor = -1;
};

/// A slot in a file, for the threads and processes of one machine. Each thread or process uses its
/// own object. A child of fork() may use a copy of its parent's object.
///
/// Errors are those of the system, and of durable_errc:
/// \code
///   ENOENT          a directory is missing
///   EISDIR, EINVAL  the path names a directory, or another file that is not regular
///   ELOOP, EMLINK   the file has a second name (symbolic or hard link), which would have a lock of
///                   its own
///   EXDEV           the file alone is mounted from another place
///   ENOSPC          a new or growing file does not fit on the disk
///   ETIMEDOUT       the lock was not free within the option `retry_time`
///   EDEADLK         the object was used inside its own update
///   durable_errc::corrupt_record, too_large
///   durable_errc::unsupported_filesystem      a network filesystem or FUSE
///   durable_errc::unsupported_record_version  a later format wrote the file
///   durable_errc::invalid_argument            the path cannot name a file
/// \endcode
///
/// A change waits for the lock, at most for `retry_time`, and then for one sync. So does the first
/// load() of an object, and a load() after a crash or a damage. Any other load() waits for no
/// writer. All operations throw std::bad_alloc. If the update of update_locked() throws, so does
/// update_locked(), and changes nothing. replace_damaged() exchanges the damaged file for a new one
/// in one step, and keeps it as `.damaged`. It fails where the system cannot do that.
///
/// be_present() takes a mark in the lock file, if the system has locks of open files (Linux has
/// them). is_present() never waits for the lock.
class file_slot : public detail::slot_handle {
public:
    /// What the slot promises.
    static constexpr slot_guarantees guarantees{true, false, lock_clock::boottime};

    /// Touches no file. A relative path is resolved against the working directory at once.
    /// Requires: the directory exists and is readable; only trusted users may change it.
    /// Throws: std::bad_alloc.
    explicit file_slot(const std::string& path, const file_slot_options& options = {});

    /// Returns true if the mark was taken on the open file of `descriptor`.
    bool has_mark(int descriptor, std::int64_t mark) const noexcept;
};

}} // namespace bide::BIDE_ABI

#if defined(BIDE_DURABLE_HEADER_ONLY)
#include <bide/durable/slots/impl/file.hpp>
#endif

#endif
