// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_IMPL_MEMORY_HPP
#define BIDE_DURABLE_SLOTS_IMPL_MEMORY_HPP

// The definitions of slots/memory.hpp.
//
// A memory is one value with its version, a mutex, and the watches. Slot objects and watches share
// the ownership of a memory. The last of them destroys it.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/memory.hpp>

#include <cerrno>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

// A pipe whose reading end is readable from signal() to drain().
class signal_pipe {
public:
    signal_pipe() noexcept {
        if (::pipe(ends_) != 0) {
            ends_[0] = ends_[1] = -1;
            return;
        }
        for (const int fd : ends_) {
            ::fcntl(fd, F_SETFD, FD_CLOEXEC);
            ::fcntl(fd, F_SETFL, O_NONBLOCK);
        }
    }

    signal_pipe(const signal_pipe&) = delete;
    signal_pipe& operator=(const signal_pipe&) = delete;
    ~signal_pipe() { close(); }

    // Whether the system had descriptors for the pipe.
    bool is_made() const noexcept { return ends_[0] >= 0; }
    int fd() const noexcept { return ends_[0]; }
    void signal() const noexcept { // a full pipe is readable already
        [[maybe_unused]] const ssize_t n = ::write(ends_[1], "", 1);
    }

    void drain() const noexcept {
        char some[256];
        ssize_t n = 0;
        do {
            n = ::read(ends_[0], some, sizeof some);
        } while (n > 0 || (n < 0 && errno == EINTR));
    }
    void close() noexcept {
        for (int& fd : ends_) {
            if (fd >= 0) {
                ::close(std::exchange(fd, -1));
            }
        }
    }

private:
    int ends_[2];
};

class memory_watch;

struct slot_memory {
    slot_snapshot there() const {
        slot_snapshot copy;
        copy.version = version;
        copy.value = value;
        return copy;
    }
    cas_result put(std::string&& next) noexcept;

    std::mutex mutex;
    // The mutex guards the rest; both functions require it.
    slot_version version = 0;
    std::string value;
    std::vector<memory_watch*> watches;
};

class memory_watch final : public slot_watch {
public:
    explicit memory_watch(std::shared_ptr<slot_memory> of) : memory_(std::move(of)) {
        const std::lock_guard lock(memory_->mutex);
        memory_->watches.push_back(this);
    }
    ~memory_watch() override {
        const std::lock_guard lock(memory_->mutex);
        std::erase(memory_->watches, this);
    }

    bool is_made() const noexcept { return pipe_.is_made(); }
    int fd() const noexcept override { return pipe_.fd(); }

    std::error_code drain() noexcept override {
        if (::getpid() != maker_) {
            return std::make_error_code(std::errc::operation_not_permitted);
        }
        pipe_.drain();
        return {};
    }
    void notify() const noexcept {
        if (::getpid() == maker_) {
            pipe_.signal();
        }
    }

private:
    const std::shared_ptr<slot_memory> memory_;
    const pid_t maker_ = ::getpid(); // a child must not write or read its parent's pipe
    const signal_pipe pipe_;
};

inline cas_result slot_memory::put(std::string&& next) noexcept {
    if (next.size() > memory_slot::largest_value) {
        return {cas_status::failed, 0, {}, durable_errc::too_large};
    }
    value = std::move(next);
    ++version;
    for (const memory_watch* const watch : watches) {
        watch->notify();
    }
    return {cas_status::stored, version, {}, {}};
}

} // namespace detail

BIDE_DURABLE_INLINE memory_slot::memory_slot() : memory_(std::make_shared<detail::slot_memory>()) {}

BIDE_DURABLE_INLINE result<std::unique_ptr<slot_watch>, std::error_code> memory_slot::watch() {
    auto made = std::make_unique<detail::memory_watch>(memory_);
    if (!made->is_made()) {
        return unexpected{std::make_error_code(std::errc::too_many_files_open)};
    }
    return std::unique_ptr<slot_watch>(std::move(made));
}

BIDE_DURABLE_INLINE result<slot_snapshot, std::error_code> memory_slot::load() {
    const std::lock_guard lock(memory_->mutex);
    return memory_->there();
}

BIDE_DURABLE_INLINE cas_result memory_slot::compare_exchange(slot_version version,
                                                             std::string_view value) {
    const std::lock_guard lock(memory_->mutex);
    return memory_->version == version ? memory_->put(std::string(value))
                                       : cas_result{cas_status::conflict, 0, memory_->there(), {}};
}

BIDE_DURABLE_INLINE cas_result memory_slot::update_locked(const slot_update& update) {
    const std::lock_guard lock(memory_->mutex);
    if (std::optional<std::string> value = update(memory_->there())) {
        return memory_->put(std::move(*value));
    }
    return {cas_status::stored, memory_->version, {}, {}};
}

}} // namespace bide::BIDE_ABI

#endif
