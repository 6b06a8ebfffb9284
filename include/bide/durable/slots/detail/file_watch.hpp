#ifndef BIDE_DURABLE_SLOTS_DETAIL_FILE_WATCH_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_FILE_WATCH_HPP

// Linux's inotify(7) on a file slot's lock file, whose mark is written after each change, when that
// is on the disk and not before. Empty elsewhere.
//
// It also tells when a file description that may write the lock file is closed: the end of a
// presence, which is seen in no other way by those who have another namespace of processes. A slot's
// object that ends looks the same, and costs the watcher a look at the record, a few microseconds.
// The system tells of it just before it drops the lock: who looks in that moment is told too early,
// and looks again when it would without a watch.
//
// To close an instance of inotify takes ten milliseconds or more: the system first waits until nobody
// can still be looking at a watch that was in it. To take a watch out takes none. So instances are
// kept for the next watch, and closed by the end of the process; by then there is nothing to wait
// for, unless it was watching. Only a few: all processes of a user have 128 between them, by default.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/lock_file.hpp>
#include <bide/durable/slots/detail/posix_file.hpp>

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

namespace bide::inline BIDE_ABI {
namespace detail {

// Instances that nobody uses, of this process. What a child of fork() has of its parent's is not for
// it, nor for it to close: by then it may have closed it, and opened another file by that number. No
// lock, which a child could find locked for ever.
class inotify_pool {
public:
    // One, or -1: there is none.
    static int take() noexcept {
        for (auto& place : places()) {
            // Order: acq_rel [FW1]; the instance is as its last user left it.
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
            // Order: acq_rel [FW1]; the next user finds the instance as it was left. Failure:
            // relaxed, nothing was learnt.
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
    // `facts`: of the lock file that is meant.
    static result<std::unique_ptr<slot_watch>, std::error_code> of(const char* path,
                                                                   const struct stat& facts) {
        constexpr std::uint32_t all = changed | lost;
        file_descriptor<posix_io> events(posix_io(), inotify_pool::take());
        int watch = events ? ::inotify_add_watch(events.get(), path, all) : -1;
        if (watch < 0 && events && (errno == EBADF || errno == EINVAL)) {
            events.leave(); // somebody has closed it, and what has its number now is not ours
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
            ::inotify_rm_watch(events_.get(), watch_); // an error: the file is gone, and so is this
            static_cast<void>(drain());                // else the next watch would begin readable
            inotify_pool::give(events_.leave());
        }
    }

    int fd() const noexcept override { return events_.get(); }

    std::error_code drain() noexcept override {
        if (posix_io().process() != owner_) { // what a child reads is missing for its parent
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

    // The file has another name or none: others make and lock a new one. What is told of a watch
    // that was in the instance before is of no interest.
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

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif

#endif
