#ifndef BIDE_DURABLE_SLOTS_DETAIL_FILE_WATCH_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_FILE_WATCH_HPP

// Linux's inotify(7) on a file slot's lock file, whose mark is written after each change, when that
// is on the disk and not before. Empty elsewhere.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/lock_file.hpp>
#include <bide/durable/slots/detail/posix_file.hpp>

#if defined(__linux__)

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include <sys/inotify.h>
#include <unistd.h>

namespace bide::inline BIDE_ABI {
namespace detail {

class file_watch final : public slot_watch {
public:
    // `facts`: of the lock file that is meant.
    static result<std::unique_ptr<slot_watch>, std::error_code> of(const char* path,
                                                                   const struct stat& facts) {
        held_file<posix_io> events(posix_io(), ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
        struct stat now;
        if (!events || ::inotify_add_watch(events.get(), path, changed | lost) < 0 ||
            ::lstat(path, &now) != 0) {
            return unexpected{system_error_code()};
        }
        if (!is_same_file(now, facts)) {
            return unexpected{system_error_code(ESTALE)};
        }
        return std::unique_ptr<slot_watch>(new file_watch(std::move(events)));
    }

    int fd() const noexcept override { return events_.get(); }

    std::error_code drain() noexcept override {
        if (posix_io().process() != owner_) { // what a child reads is missing for its parent
            return system_error_code(ESTALE);
        }
        alignas(inotify_event) char bytes[4096];
        for (;;) {
            const ssize_t got = ::read(events_.get(), bytes, sizeof bytes);
            if (got < 0 && errno == EINTR) {
                continue;
            }
            if (got <= 0) {
                return got == 0 || errno == EAGAIN ? std::error_code() : system_error_code();
            }
            if (tells_loss(bytes, static_cast<std::size_t>(got))) {
                return system_error_code(ESTALE);
            }
        }
    }

private:
    static constexpr std::uint32_t changed = IN_MODIFY;
    static constexpr std::uint32_t lost = IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF;

    explicit file_watch(held_file<posix_io> events) noexcept
        : events_(std::move(events)), owner_(posix_io().process()) {}

    // The file has another name or none: others make and lock a new one.
    static bool tells_loss(const char* bytes, std::size_t size) noexcept {
        for (std::size_t at = 0; at + sizeof(inotify_event) <= size;) {
            inotify_event event;
            std::memcpy(&event, bytes + at, sizeof event);
            if ((event.mask & (lost | IN_IGNORED)) != 0) {
                return true;
            }
            at += sizeof event + event.len;
        }
        return false;
    }

    held_file<posix_io> events_;
    long owner_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif

#endif
