// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_FILE_HPP
#define BIDE_DURABLE_SLOTS_FILE_HPP

/// \file
/// A slot in a file on a local disk. It needs no server and no library. Each change costs one write
/// and one sync. The file's space is allocated when the file is made, so changes go on when the
/// disk is full. It needs flock(2). A machine of any architecture can read the file.
///
/// Files, all in one directory:
/// \code
///   <path>          two pages, each with a value, its version and a checksum; the newer one counts
///   <path>.lock     readers and writers lock it; never removed
///   <path>.new      a file that is about to replace <path>; the next change removes one that a
///                   crash left
///   <path>.damaged  the damaged file that a repair replaced
/// \endcode
/// impl/file.hpp describes the pages and the protocol.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/slot.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>

namespace bide { inline namespace BIDE_ABI {

/// Options of a file slot.
struct file_slot_options {
    /// The size in bytes of each of the two pages of a new file, rounded up to a multiple of 4096.
    /// A page holds a value of page_size - 32 bytes.
    std::size_t page_size = 16'384;

    /// The largest value in bytes, at most 1 GiB. A longer value fails with
    /// durable_errc::too_large.
    std::size_t max_value = std::size_t{64} << 20;

    /// How long an operation waits for the lock. A stopped process can hold it for any time.
    std::chrono::milliseconds retry_time{10'000};

    /// The mode of new files, less the umask. A process that may read the lock file may lock it and
    /// block all other processes, so the default admits only the owner. Processes that share the
    /// slot need read and write permission on both files.
    unsigned mode = 0600;

    /// A descriptor of the caller that has the `.lock` file open for writing; -1 means none. Marks
    /// of presence are taken on the open file of this descriptor. So an inheritable grant lasts as
    /// long as any process has that open file, for example the shell that runs this program. A mark
    /// that no record needs any more lasts as long, too.
    int descriptor = -1;
};

/// The operations of file slots, for the threads and processes of one machine. Each thread or
/// process uses its own object. A child of fork() may use a copy of its parent's object.
///
/// Errors are those of the system, and of durable_errc:
/// \code
///   ENOENT      a directory is missing
///   EISDIR      the path names a directory
///   EINVAL      the path names another kind of file that is not regular
///   ELOOP       the path names a symbolic link; the link and the file would have two locks
///   EMLINK      the file has a second name (hard link); the two names would have two locks
///   EXDEV       the file alone is mounted from another place
///   ENOSPC      a new or growing file does not fit on the disk
///   ETIMEDOUT   the lock was not free within the option `retry_time`
///   EDEADLK     the object was used inside its own update
///   durable_errc::corrupt_record, too_large
///   durable_errc::unsupported_filesystem      a network filesystem or FUSE
///   durable_errc::unsupported_record_version  a later format wrote the file
///   durable_errc::invalid_argument            the path cannot name a file
/// \endcode
///
/// load() waits until a writer's sync has ended, at most for `retry_time`. A change waits for the
/// lock, also at most for `retry_time`, and then for one sync. All operations throw std::bad_alloc.
/// If the update of update_locked() throws, update_locked() throws the same exception and changes
/// nothing. replace_damaged() exchanges the damaged file for a new one in one step, and keeps it as
/// `.damaged`; it fails where the system or the filesystem cannot do that. A file that is not
/// regular stays, and the call fails with the error of load(). explain() returns the path, or the file of
/// the last failure and what is wrong with it.
///
/// On Linux, watch() makes a watch that reports each change by any process after it is durable. It
/// also reports when a mark of presence ends, and when a slot object that used the file is
/// destroyed. It does not report that the file was deleted. If another program removes or renames
/// the lock file, and in a child of fork(), drain() returns ESTALE: make a new watch then. Each
/// watch uses an inotify instance. The process keeps up to four unused instances.
///
/// be_present() takes a mark in the lock file; see detail/file/posix_file.hpp. It returns
/// errc::operation_not_supported if the system has no such locks. is_present() never waits for the
/// lock, and returns `unknown` if the lock file is not the one that has the mark.
class file_slot_operations : public detail::slot_handle {
public:
    /// Makes a watch.
    result<std::unique_ptr<slot_watch>, std::error_code> watch() override { return core_->watch(); }

    /// Returns true if the mark was taken on the open file of `descriptor`.
    bool has_mark(int descriptor, std::int64_t mark) const noexcept;

protected:
    /// Makes a slot; see basic_file_slot.
    file_slot_operations(const std::string& path, const file_slot_options& options, bool is_synced);
};

/// A slot in a file; see file_slot and relaxed_file_slot.
template <bool Synced> class basic_file_slot : public file_slot_operations {
public:
    /// What the slot promises. Without syncs, a crash of the system or a loss of power may take
    /// back any number of changes, or leave no good page. A crash of a process loses nothing.
    static constexpr slot_guarantees guarantees{Synced, false, lock_clock::boottime};

    /// Remembers the path; touches no file. A relative path is resolved against the current working
    /// directory at once.
    /// Requires: the directory exists and is readable; only trusted users may change it.
    /// Throws: std::bad_alloc.
    explicit basic_file_slot(const std::string& path, const file_slot_options& options = {})
        : file_slot_operations(path, options, Synced) {}
};

/// A file slot that syncs each change before it acknowledges it.
using file_slot = basic_file_slot<true>;
/// A file slot that does not sync.
using relaxed_file_slot = basic_file_slot<false>;

}} // namespace bide::BIDE_ABI

#if defined(BIDE_DURABLE_HEADER_ONLY)
#include <bide/durable/slots/impl/file.hpp>
#endif

#endif
