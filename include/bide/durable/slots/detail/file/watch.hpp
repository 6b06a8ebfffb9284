// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_FILE_WATCH_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_FILE_WATCH_HPP

// A watch of a file slot, by Linux's inotify(7) on the lock file. The synced version is written
// into that file after each change, when the change is on the disk. The header is empty elsewhere.
//
// The watch also reports when an open file description that may write the lock file is closed. The
// end of a presence closes one, and a process in another PID namespace has no other way to see that
// end. The end of a slot object closes one, too; it costs a waiter one needless read of the record,
// a few microseconds. The system reports the close just before it drops the lock. A waiter that
// reads at that moment still sees the presence, and reads again at its next poll.
//
// Closing an inotify instance takes ten milliseconds or more: the kernel waits until no CPU can
// still use a watch of the instance. Removing a watch takes no such time. So the process keeps up
// to four unused instances for later watches. It keeps no more, because by default all processes of
// one user share 128 instances. The end of the process closes the instances. It does not wait for
// the kernel, unless an instance was in use.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/file/lock_file.hpp>
#include <bide/durable/slots/detail/file/posix_file.hpp>

#if defined(__linux__)

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include <sys/inotify.h>
#include <unistd.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

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
    // `facts` describe the lock file that is meant.
    static result<std::unique_ptr<slot_watch>, std::error_code> of(const char* path,
                                                                   const struct stat& facts) {
        constexpr std::uint32_t all = changed | lost;
        file_descriptor<posix_io> events(posix_io(), inotify_pool::take());
        int watch = events ? ::inotify_add_watch(events.get(), path, all) : -1;
        if (watch < 0 && events && (errno == EBADF || errno == EINVAL)) {
            events.leave(); // other code closed it, and the number may be another file's
        }
        if (!events) {
            events.reset(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
            watch = events ? ::inotify_add_watch(events.get(), path, all) : -1;
        }
        if (watch < 0) {
            return unexpected{system_error_code()};
        }
        std::unique_ptr<file_watch> made(new file_watch(std::move(events), watch));
        struct stat now;
        if (posix_io().look_at(path, now) != 0) {
            return unexpected{system_error_code()};
        }
        if (!is_same_file(now, facts)) {
            return unexpected{system_error_code(ESTALE)};
        }
        return std::unique_ptr<slot_watch>(std::move(made));
    }

    ~file_watch() override {
        if (posix_io().process() == owner_) {
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
        alignas(inotify_event) char bytes[4096];
        bool is_lost = false;
        for (;;) {
            const ssize_t got = ::read(events_.get(), bytes, sizeof bytes);
            if (got > 0) {
                is_lost = tells_loss(bytes, static_cast<std::size_t>(got)) || is_lost;
            } else if (got == 0 || errno == EAGAIN) {
                return is_lost ? system_error_code(ESTALE) : std::error_code();
            } else if (errno != EINTR) {
                return system_error_code();
            }
        }
    }

private:
    static constexpr std::uint32_t changed = IN_MODIFY | IN_CLOSE_WRITE;
    static constexpr std::uint32_t lost = IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF;

    file_watch(file_descriptor<posix_io> events, int watch) noexcept
        : events_(std::move(events)), watch_(watch), owner_(posix_io().process()) {}

    // Returns true if the file was renamed or removed, so that other slots use a new file. Ignores
    // events of an earlier watch of the same instance.
    bool tells_loss(const char* bytes, std::size_t size) const noexcept {
        for (std::size_t at = 0; at + sizeof(inotify_event) <= size;) {
            inotify_event event;
            std::memcpy(&event, bytes + at, sizeof event);
            if (event.wd == watch_ && (event.mask & (lost | IN_IGNORED)) != 0) {
                return true;
            }
            at += sizeof event + event.len;
        }
        return false;
    }

    file_descriptor<posix_io> events_;
    int watch_;
    long owner_;
};

}}} // namespace bide::BIDE_ABI::detail

#endif

#endif
