#ifndef BIDE_DURABLE_SLOTS_FILE_HPP
#define BIDE_DURABLE_SLOTS_FILE_HPP

// A value in a file on a disk of this machine: no server, no library, one write and one sync for
// each change. Its room is taken when it is made, so it goes on where the disk is full. Empty where
// there is no flock(2).
//
// Files, beside each other:
//
//   <path>        two pages, each with a value, its version and a checksum; the newer one counts
//   <path>.lock   is locked by who reads or writes; stays for ever; see detail/lock_file.hpp
//   <path>.new    a file that is about to take the place of the first; what a crash leaves of it is
//                 removed by the next one
//   <path>.damaged  what a repair found in the place of the first, if there was one
//
// A change writes the page that does not count, and syncs: a crash at any point leaves the other
// page as it was, and a page half written has a wrong checksum. The lock is exclusive until the
// sync has returned, and then the version is put into the lock file: the mark. A reader that finds
// two good pages and the newer one marked has no need of the lock. Any other takes it, shared, and
// so waits for the sync: none sees what a crash could still take back. A writer that was killed
// between its write and the mark leaves a version that is not marked; whoever comes next, with the
// lock, syncs before it says or writes anything: else two pages could be half written when the
// power fails.
//
// A writer also holds a lock on the first file: the lock file may have been removed by other hands, and
// be made and locked again by another writer before this one has come to its end.
//
// Where the pages have no room for a value, and at first, a new file is written, synced, renamed,
// and its directory synced. An open slot notices, and also that the file was deleted, by what the
// path names under each lock. Versions are nanoseconds since 1970, or one more than the last where
// that is later, so that they do not come again when a file does.
//
// With one page bad and one good, the value may be the one before the last: fell_back. A crash
// leaves that, of a change that was not acknowledged. If the mark is of a later version than any that
// can be read, an acknowledged value is lost as well: the page has rotted, or the file is an earlier
// copy. With both pages bad, or a file of a size that no slot writes, all is
// durable_errc::corrupt_record until a repair. What is absent is a file that is not there, and
// nothing else.
//
// The pages are described in detail/page_format.hpp; files move between machines of any kind.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/file_failure.hpp>
#include <bide/durable/slots/detail/page_format.hpp>
#include <bide/durable/slots/detail/file_store.hpp>
#include <bide/durable/slots/detail/file_watch.hpp>
#include <bide/durable/slots/detail/posix_file.hpp>
#include <bide/durable/slots/detail/presence_file.hpp>

#if defined(__unix__) || defined(__APPLE__)

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace bide::inline BIDE_ABI {

struct file_slot_options {
    // Of each of the two pages of a file that is made, in bytes, rounded up to a multiple of 4096.
    // A value of all but 32 of them fits in.
    std::size_t page_size = 16'384;

    // In bytes; at most 1 GiB. A longer one is durable_errc::too_large.
    std::size_t max_value = std::size_t{64} << 20;

    // For the lock, which a process that was stopped may hold for as long as it likes.
    std::chrono::milliseconds patience{10'000};

    // Of files that are made, less the umask. Who may read the lock file may lock it, and keep all
    // others out: so nobody but the owner. Who shares the slot needs to read and to write both.
    unsigned mode = 0600;

    // Also on filesystems of which it is known that they may break the promises: those of the
    // network, and of programs (FUSE).
    bool any_filesystem = false;
};

// For threads and processes of one machine; each has its own object, and a forked child may go on
// with a copy of its parent's.
//
// Errors, besides those above, are the system's: ENOENT for a directory that is missing, EISDIR,
// ENOSPC when the file is made or grows, ETIMEDOUT when the patience was over, ELOOP where the path
// is a symbolic link and EMLINK where the file has a second name (either could be renamed or locked
// apart from the other), EXDEV where the file alone was mounted from elsewhere, EINVAL where it is
// no regular file, EDEADLK inside an update of the same object; and
// durable_errc::unsupported_filesystem, durable_errc::unsupported_record_version for a file of a
// later format, durable_errc::invalid_argument for a path that cannot name a file.
template <bool Synced> class basic_file_slot {
public:
    // Without syncs a crash of the system, or a loss of power, may take back any number of changes,
    // or leave no good page. Crashes of processes do no harm.
    static constexpr slot_guarantees guarantees{Synced, false, lock_clock::boottime};

    // Touches no file. A relative path is relative to the working directory of now. The directory
    // is there, is readable, and stays with those who trust each other.
    // Throws: std::bad_alloc.
    explicit basic_file_slot(std::string path, file_slot_options options = {})
        : is_valid_(is_file_name(path)), any_filesystem_(options.any_filesystem),
          path_(absolute(std::move(path))), store_(path_, settings(options)),
          presences_(path_ + ".lock", options.mode) {}

    // Blocks: for a writer's sync, as long as the patience lasts.
    // Throws: std::bad_alloc, as all that follows.
    result<slot_snapshot, std::error_code> load() {
        if (!is_valid_) {
            return unexpected{invalid()};
        }
        return store_.load();
    }

    // Blocks: for the lock, as long as the patience lasts, and for one sync.
    cas_result compare_exchange(slot_version version, std::string_view value) {
        return is_valid_ ? store_.compare_exchange(version, value) : refused();
    }

    // The same, and for the update, which runs under the lock and keeps all others out.
    // Throws: what the update throws; nothing is changed then.
    cas_result update_locked(const slot_update& update) {
        return is_valid_ ? store_.update_locked(update) : refused();
    }

    // Puts a file with the value in the place of one that is durable_errc::corrupt_record, which is
    // kept as <path>.damaged. What is no regular file stays, and is the error that load() says.
    cas_result replace_damaged(std::string_view value) {
        return is_valid_ ? store_.replace_damaged(value) : refused();
    }

    // The path, or the file that the last failure was about and what is wrong with it.
    std::string explain() const {
        return (is_valid_ ? store_.failure : detail::file_failure{invalid()}).explain(path_);
    }

#if defined(__linux__)
    // Tells of each change once it is durable, whoever made it, and when a presence ends; also when a
    // slot's object does. It does not tell of a file that was deleted. When the lock file is touched
    // by other hands, drain() says ESTALE, as it does in a forked child: a new one is needed then.
    // Each is an instance of inotify, of which the process keeps up to four for the next ones.
    result<std::unique_ptr<slot_watch>, std::error_code> watch() {
        if (!is_valid_) {
            return unexpected{invalid()};
        }
        if (const std::error_code error = store_.create_lock_file()) {
            return unexpected{error};
        }
        return detail::file_watch::of(store_.lock().path().c_str(), store_.lock().facts());
    }
#endif

    // A mark in the lock file; see detail/presence_file.hpp. Not on filesystems of any kind.
    // Errors: errc::operation_not_supported there, and where the system has no such locks.
    result<std::shared_ptr<slot_presence>, std::error_code> be_present();

    // Never waits for the lock. Unknown: the lock file is not the one that has the mark.
    presence is_present(std::int64_t mark) const noexcept {
        return is_valid_ && !any_filesystem_ ? presences_.is_present(mark) : presence::unknown;
    }

private:
    static constexpr std::size_t largest = std::size_t{1} << 30;

    static std::error_code invalid() noexcept { return durable_errc::invalid_argument; }
    static cas_result refused() { return {cas_status::failed, 0, {}, invalid()}; }

    static bool is_file_name(const std::string& path) noexcept {
        return !path.empty() && path.back() != '/' && path.find('\0') == std::string::npos;
    }
    static std::string absolute(std::string path);
    static detail::file_settings settings(const file_slot_options& options) noexcept;

    bool is_valid_;
    bool any_filesystem_;
    std::string path_;
    detail::file_store<detail::posix_io> store_;
    detail::presence_file presences_;
};

using file_slot = basic_file_slot<true>;
using relaxed_file_slot = basic_file_slot<false>;

template <bool Synced> std::string basic_file_slot<Synced>::absolute(std::string path) {
    if (path.empty() || path.front() == '/') {
        return path;
    }
    std::string here(256, '\0');
    while (::getcwd(here.data(), here.size()) == nullptr) {
        if (errno != ERANGE) {
            return path; // no directory: neither is there a file
        }
        here.resize(2 * here.size());
    }
    here.resize(here.find('\0'));
    return here + "/" + path;
}

template <bool Synced>
result<std::shared_ptr<slot_presence>, std::error_code> basic_file_slot<Synced>::be_present() {
    if (!is_valid_) {
        return unexpected{invalid()};
    }
    if (any_filesystem_) {
        return unexpected{std::make_error_code(std::errc::operation_not_supported)};
    }
    auto mark = presences_.be_present();
    if (!mark) {
        store_.failure = {mark.error(), detail::file_part::lock};
    }
    return mark;
}

template <bool Synced>
detail::file_settings basic_file_slot<Synced>::settings(const file_slot_options& options) noexcept {
    constexpr std::size_t granule = detail::file_page::granule;
    const std::size_t size = std::clamp(options.page_size, granule, largest);
    detail::file_settings to;
    to.is_synced = Synced;
    to.page_size = static_cast<std::uint32_t>((size + granule - 1) / granule * granule);
    to.max_value = std::min(options.max_value, largest);
    to.patience_ns =
        std::clamp<std::int64_t>(options.patience.count(), 0, 1'000'000'000) * 1'000'000;
    to.mode = options.mode;
    to.any_filesystem = options.any_filesystem;
    return to;
}

} // namespace bide::inline BIDE_ABI

#endif

#endif
