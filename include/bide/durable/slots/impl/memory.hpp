// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_IMPL_MEMORY_HPP
#define BIDE_DURABLE_SLOTS_IMPL_MEMORY_HPP

// The definitions of slots/memory.hpp. Slot objects and watches share the ownership of a memory.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/memory.hpp>

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

class memory_watch;

struct slot_memory {
    // Requires the mutex.
    cas_result put(std::string&& next) noexcept;

    std::mutex mutex;
    // The mutex guards:
    slot_snapshot current{};
    std::vector<const memory_watch*> watches{};
};

// A pipe whose reading end is readable from notify() to drain().
class memory_watch final : public slot_watch {
public:
    explicit memory_watch(std::shared_ptr<slot_memory> of) : memory_(std::move(of)) {
        const std::lock_guard lock(memory_->mutex);
        memory_->watches.push_back(this);
        if (::pipe(ends_) == 0) { // otherwise leaves both ends at -1
            for (const int end : ends_) {
                ::fcntl(end, F_SETFD, FD_CLOEXEC);
                ::fcntl(end, F_SETFL, O_NONBLOCK);
            }
        }
    }
    ~memory_watch() override {
        const std::lock_guard lock(memory_->mutex);
        std::erase(memory_->watches, this);
        for (const int end : ends_) {
            if (end >= 0) {
                ::close(end);
            }
        }
    }

    int fd() const noexcept override { return ends_[0]; }

    std::error_code drain() noexcept override {
        if (::getpid() != maker_) {
            return std::make_error_code(std::errc::operation_not_permitted);
        }
        char some[256];
        while (::read(ends_[0], some, sizeof some) > 0) {
        }
        return {};
    }
    void notify() const noexcept {
        if (::getpid() == maker_) {
            // If the pipe is full, it is readable already.
            [[maybe_unused]] const ssize_t written = ::write(ends_[1], "", 1);
        }
    }

private:
    const std::shared_ptr<slot_memory> memory_;
    const pid_t maker_ = ::getpid(); // a child must not write or read its parent's pipe
    int ends_[2] = {-1, -1};
};

inline cas_result slot_memory::put(std::string&& next) noexcept {
    if (next.size() > memory_slot::largest_value) {
        return {cas_status::failed, 0, {}, durable_errc::too_large};
    }
    current.value = std::move(next);
    ++current.version;
    for (const memory_watch* const watch : watches) {
        watch->notify();
    }
    return {cas_status::stored, current.version, {}, {}};
}

} // namespace detail

BIDE_DURABLE_INLINE memory_slot::memory_slot() : memory_(std::make_shared<detail::slot_memory>()) {}

BIDE_DURABLE_INLINE result<std::unique_ptr<slot_watch>, std::error_code> memory_slot::watch() {
    auto made = std::make_unique<detail::memory_watch>(memory_);
    if (made->fd() < 0) {
        return unexpected{std::make_error_code(std::errc::too_many_files_open)};
    }
    return std::unique_ptr<slot_watch>(std::move(made));
}

BIDE_DURABLE_INLINE result<slot_snapshot, std::error_code> memory_slot::load() {
    const std::lock_guard lock(memory_->mutex);
    return memory_->current;
}

BIDE_DURABLE_INLINE cas_result memory_slot::compare_exchange(slot_version version,
                                                             std::string_view value) {
    const std::lock_guard lock(memory_->mutex);
    return memory_->current.version == version
               ? memory_->put(std::string(value))
               : cas_result{cas_status::conflict, 0, memory_->current, {}};
}

BIDE_DURABLE_INLINE cas_result memory_slot::update_locked(const slot_update& update) {
    const std::lock_guard lock(memory_->mutex);
    if (std::optional<std::string> value = update(memory_->current)) {
        return memory_->put(std::move(*value));
    }
    return {cas_status::stored, memory_->current.version, {}, {}};
}

}} // namespace bide::BIDE_ABI

#endif
