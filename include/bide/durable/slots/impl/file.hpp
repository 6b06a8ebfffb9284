// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_IMPL_FILE_HPP
#define BIDE_DURABLE_SLOTS_IMPL_FILE_HPP

// The definitions of slots/file.hpp: the slot and its watch.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/file/posix_file.hpp>
#include <bide/durable/slots/detail/file/store.hpp>
#include <bide/durable/slots/file.hpp>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#if defined(__linux__)
#include <sys/inotify.h>
#include <unistd.h>
#endif

namespace bide { inline namespace BIDE_ABI {

namespace detail {

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

// The unused inotify instances of this process, each in the lower half of a word, below the pid. A
// child of fork() must neither use nor close its parent's instances: it may have closed them, and
// may have opened another file with that number. There is no lock here, because a child could find
// it locked forever.
class BIDE_SHARED inotify_pool {
public:
    // Returns an instance, or -1 if there is none.
    static int take() noexcept {
        for (auto& place : places()) {
            // Order: acq_rel [inotify_pool.instance]; sees the instance as its last user left it.
            const std::uint64_t found = place.exchange(0, std::memory_order_acq_rel);
            if (found >> 32 == process()) {
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
    // Sets errno if it fails.
    explicit file_watch(const std::string& path) : path_(path) {
        posix_io().look_at(path_.c_str(), facts_); // before it is watched
        // If other code closed the instance, its number may be another file's.
        if (!add() && (errno == EBADF || errno == EINVAL)) {
            events_ = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
            if (events_ >= 0) {
                add();
            }
        }
    }
    file_watch(const file_watch&) = delete;
    file_watch& operator=(const file_watch&) = delete;
    ~file_watch() override {
        if (is_made() && ::getpid() == owner_) {
            ::inotify_rm_watch(events_, watch_); // fails if the watch ended with the file
            static_cast<void>(drain());          // so that the next watch is not readable yet
            inotify_pool::give(events_);
        } else if (events_ >= 0) {
            ::close(events_);
        }
    }

    bool is_made() const noexcept { return watch_ >= 0; }
    int fd() const noexcept override { return events_; }

    // Returns ESTALE in two cases. First, the file was renamed or removed: other slots then use a
    // new file. Second, the caller is a child of fork(): a read by the child would take events from
    // the parent.
    std::error_code drain() noexcept override {
        if (::getpid() != owner_) {
            return system_error_code(ESTALE);
        }
        char bytes[4096];
        ssize_t got = 0;
        do {
            got = ::read(events_, bytes, sizeof bytes);
        } while (got > 0 || (got < 0 && errno == EINTR));
        if (errno != EAGAIN) {
            return system_error_code();
        }
        struct stat now;
        const bool is_same =
            posix_io().look_at(path_.c_str(), now) == 0 && is_same_file(now, facts_);
        return system_error_code(is_same ? 0 : ESTALE);
    }

private:
    bool add() noexcept {
        // An attribute changes when the file is removed.
        constexpr std::uint32_t wanted = IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_MOVE_SELF;
        watch_ = ::inotify_add_watch(events_, path_.c_str(), wanted);
        return is_made();
    }

    const std::string path_;
    struct stat facts_{};
    const pid_t owner_ = ::getpid();
    int events_ = inotify_pool::take();
    int watch_ = -1;
};

#endif

// ---- the slot

class file_core final : public file_store<posix_io> {
public:
    using file_store::file_store;

#if defined(__linux__)
    result<std::unique_ptr<slot_watch>, std::error_code> watch() override {
        if (const std::error_code error = make_lock_file()) {
            return unexpected{error};
        }
        auto made = std::make_unique<file_watch>(lock_path());
        if (const auto error = made->is_made() ? made->drain() : system_error_code()) {
            return unexpected{error};
        }
        return std::unique_ptr<slot_watch>(std::move(made));
    }
#endif
};

} // namespace detail

BIDE_DURABLE_INLINE file_slot_operations::file_slot_operations(const std::string& path,
                                                               const file_slot_options& options,
                                                               bool is_synced)
    : slot_handle(
          std::make_unique<detail::file_core>(detail::absolute_path(path), options, is_synced)) {}

BIDE_DURABLE_INLINE bool file_slot_operations::has_mark(int descriptor,
                                                        std::int64_t mark) const noexcept {
    return static_cast<const detail::file_core&>(*core_).has_mark(descriptor, mark);
}

}} // namespace bide::BIDE_ABI

#endif
