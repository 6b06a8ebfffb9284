// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_IMPL_FILE_HPP
#define BIDE_DURABLE_SLOTS_IMPL_FILE_HPP

// The definitions of slots/file.hpp: the slot, the text of its errors, and its watch.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/file/page_file.hpp>
#include <bide/durable/slots/detail/file/posix_file.hpp>
#include <bide/durable/slots/detail/file/presence_file.hpp>
#include <bide/durable/slots/detail/file/store.hpp>
#include <bide/durable/slots/file.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#if defined(__linux__)
#include <sys/inotify.h>
#include <unistd.h>
#endif

namespace bide { inline namespace BIDE_ABI {

namespace detail {

// ---- the text of an error

// Returns what is wrong with the file of a failed operation, and what an operator can do. Looks at
// the file, which may have been replaced since.
// Throws: std::bad_alloc.
inline std::string file_error_text(std::error_code error, const std::string& file) {
    const std::string words = error.message();
    if (error.category() == durable_category()) {
        switch (static_cast<durable_errc>(error.value())) {
        case durable_errc::corrupt_record:
            return "is not a slot's file, or both copies of the record in it are damaged; a repair "
                   "keeps it as .damaged and makes a new one";
        case durable_errc::unsupported_record_version:
            return "was written by a later version of this library, in a format unknown to this "
                   "one";
        case durable_errc::unsupported_filesystem:
            return "is on a network filesystem or on FUSE, where file locks and syncs may not "
                   "work; "
                   "use a local disk";
        case durable_errc::too_large: return "the record is larger than the slot's max_value";
        default: return "the path cannot name a file";
        }
    }
    switch (error.value()) {
    case EMLINK: return "has a second name (hard link): two locks would exist; remove that name";
    case ELOOP: return "is a symbolic link, or its path has too many; name the file itself";
    case EXDEV: return "is mounted here from another place; mount the directory instead";
    case EISDIR: return "is a directory, and has to be a file";
    case EINVAL: {
        struct stat facts{};
        posix_io().look_at(file.c_str(), facts);
        const mode_t mode = facts.st_mode;
        return S_ISFIFO(mode)                   ? "is a pipe (FIFO), and has to be a regular file"
               : S_ISSOCK(mode)                 ? "is a socket, and has to be a regular file"
               : S_ISCHR(mode) || S_ISBLK(mode) ? "is a device, and has to be a regular file"
                                                : words;
    }
    case ENOENT: return "there is no such directory";
    case ENOTDIR: return "a part of the path is not a directory";
    case EACCES:
    case EPERM:
        return "no permission to open or make it (" + words +
               "); a process that shares the lock needs to read and write both of its files";
    case EROFS: return "is on a read-only filesystem";
    case ENOSPC:
    case EDQUOT: return words + ": the file cannot be made, or cannot grow";
    case ETIMEDOUT:
        return "another process has held its lock for longer than the slot waits; it may be "
               "stopped";
    default: return words;
    }
}

#if defined(__linux__)

// ---- the watch, by inotify(7) on the lock file
//
// The synced version is written into the lock file after each change, when the change is on the
// disk.
//
// The watch also reports when an open file description that may write the lock file is closed. The
// end of a mark of presence closes one, and a process in another PID namespace has no other way to
// see that end. The end of a slot object closes one, too; this costs a waiter one needless read of
// the record, a few microseconds. The system reports the close just before it drops the lock. A
// waiter that reads at that moment still sees the presence, and reads again at its next poll.
//
// Closing an inotify instance takes ten milliseconds or more: the kernel waits until no CPU can
// still use a watch of the instance. Removing a watch takes no such time. So the process keeps up
// to four unused instances for later watches. It keeps no more, because by default all processes of
// one user share 128 instances. The end of the process closes the instances. It does not wait for
// the kernel, unless an instance was in use.

// The unused inotify instances of this process. A child of fork() must neither use nor close its
// parent's instances: it may have closed them, and may have opened another file with that number.
// There is no lock here, because a child could find it locked forever.
class BIDE_SHARED inotify_pool {
public:
    // Returns an instance, or -1 if there is none.
    static int take() noexcept {
        for (auto& place : places()) {
            // Order: acq_rel [inotify_pool.instance]; sees the instance as its last user left it.
            const std::uint64_t found = place.exchange(0, std::memory_order_acq_rel);
            if (found != 0 && found >> 32 == process()) {
                return static_cast<int>(found & 0xffffffff);
            }
        }
        return -1;
    }

    static void give(int fd) noexcept {
        const std::uint64_t kept = process() << 32 | static_cast<std::uint64_t>(fd);
        for (auto& place : places()) {
            std::uint64_t none = 0;
            // Order: acq_rel [inotify_pool.instance]; publishes the instance to its next user.
            // Failure: relaxed; the value is not used.
            if (place.compare_exchange_strong(none, kept, std::memory_order_acq_rel,
                                              std::memory_order_relaxed)) {
                return;
            }
        }
        ::close(fd);
    }

private:
    using place_list = native_platform::atomic<std::uint64_t>[4];

    static place_list& places() noexcept {
        static place_list all{};
        return all;
    }
    static std::uint64_t process() noexcept { return static_cast<std::uint64_t>(::getpid()); }
};

class file_watch final : public slot_watch {
public:
    // Throws: std::bad_alloc.
    static result<std::unique_ptr<slot_watch>, std::error_code> of(const std::string& path) {
        std::unique_ptr<file_watch> made(new file_watch(path));
        made->add();
        if (made->watch_ < 0 && made->events_ && (errno == EBADF || errno == EINVAL)) {
            made->events_.leave(); // other code closed it, and the number may be another file's
        }
        if (!made->events_) {
            made->events_.reset(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
            made->add();
        }
        const std::error_code error = made->watch_ < 0 ? system_error_code() : made->look();
        if (error) {
            return unexpected{error};
        }
        return std::unique_ptr<slot_watch>(std::move(made));
    }

    ~file_watch() override {
        if (watch_ >= 0 && posix_io().process() == owner_) {
            ::inotify_rm_watch(events_.get(), watch_); // fails if the watch ended with the file
            static_cast<void>(drain());                // so that the next watch is not readable yet
            inotify_pool::give(events_.leave());
        }
    }

    int fd() const noexcept override { return events_.get(); }

    std::error_code drain() noexcept override {
        if (posix_io().process() != owner_) { // a child's read would take the parent's events
            return system_error_code(ESTALE);
        }
        char bytes[4096];
        ssize_t got = 0;
        do {
            got = ::read(events_.get(), bytes, sizeof bytes);
        } while (got > 0 || (got < 0 && errno == EINTR));
        return errno == EAGAIN ? look() : system_error_code();
    }

private:
    explicit file_watch(const std::string& path) : path_(path) {
        posix_io().look_at(path_.c_str(), facts_); // before it is watched
    }

    void add() noexcept {
        // An attribute changes when the file is removed.
        constexpr std::uint32_t wanted = IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_MOVE_SELF;
        watch_ = events_ ? ::inotify_add_watch(events_.get(), path_.c_str(), wanted) : -1;
    }
    // Returns ESTALE if the file was renamed or removed: other slots use a new file.
    std::error_code look() const noexcept {
        struct stat now;
        const bool is_same =
            posix_io().look_at(path_.c_str(), now) == 0 && is_same_file(now, facts_);
        return is_same ? std::error_code() : system_error_code(ESTALE);
    }

    const std::string path_;
    struct stat facts_{};
    const long owner_ = posix_io().process();
    file_descriptor<posix_io> events_{posix_io(), inotify_pool::take()};
    int watch_ = -1;
};

#endif

// ---- the slot

class file_core final : public file_store<posix_io> {
public:
    file_core(const std::string& path, const file_slot_options& options, bool is_synced)
        : file_store(absolute_path(path), settings(options, is_synced)), options_(options),
          marks_(lock_path(), options.mode) {}

    std::string explain() const override {
        std::string file = path();
        if (!error()) {
            return file;
        }
        if (part() == file_part::directory || error() == std::errc::no_such_file_or_directory) {
            file.erase(file.rfind('/') + 1);
        } else if (part() != file_part::data) {
            file += part() == file_part::lock ? ".lock" : ".new";
        }
        return file + ": " + file_error_text(error(), file);
    }

#if defined(__linux__)
    result<std::unique_ptr<slot_watch>, std::error_code> watch() override {
        if (const std::error_code error = make_lock_file()) {
            return unexpected{error};
        }
        return file_watch::of(lock_path());
    }
#endif

    result<std::shared_ptr<slot_presence>, std::error_code> be_present() override {
        if (!is_file_name(path())) {
            return unexpected{make_error_code(durable_errc::invalid_argument)};
        }
        if (options_.any_filesystem) {
            return unexpected{std::make_error_code(std::errc::operation_not_supported)};
        }
        return marks_.be_present(options_.descriptor);
    }
    presence is_present(std::int64_t mark) const override {
        return options_.any_filesystem ? presence::unknown : marks_.is_present(mark);
    }
    bool has_mark(int descriptor, std::int64_t mark) const noexcept {
        return !options_.any_filesystem && marks_.is_on(descriptor, mark);
    }

private:
    static file_settings settings(const file_slot_options& options, bool is_synced) noexcept {
        constexpr std::size_t granule = file_page::granule;
        constexpr std::size_t largest = std::size_t{1} << 30;
        const std::size_t size = std::clamp(options.page_size, granule, largest);
        return {.is_synced = is_synced,
                .page_size = static_cast<std::uint32_t>((size + granule - 1) / granule * granule),
                .max_value = std::min(options.max_value, largest),
                .retry_time_ns = 1'000'000 * std::clamp<std::int64_t>(options.retry_time.count(), 0,
                                                                      1'000'000'000),
                .mode = options.mode,
                .any_filesystem = options.any_filesystem};
    }

    const file_slot_options options_;
    const presence_file marks_; // any thread may use it at any time
};

} // namespace detail

BIDE_DURABLE_INLINE file_slot_operations::file_slot_operations(const std::string& path,
                                                               const file_slot_options& options,
                                                               bool is_synced)
    : slot_handle(std::make_unique<detail::file_core>(path, options, is_synced)) {}

BIDE_DURABLE_INLINE bool file_slot_operations::has_mark(int descriptor,
                                                        std::int64_t mark) const noexcept {
    return static_cast<const detail::file_core&>(*core_).has_mark(descriptor, mark);
}

}} // namespace bide::BIDE_ABI

#endif
