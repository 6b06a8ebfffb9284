// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_MEMORY_HPP
#define BIDE_DURABLE_SLOTS_MEMORY_HPP

/// \file
/// A slot in the memory of this process: for tests, and for locks among the threads of one process.
//
// A memory is one value with its version, a mutex, and a list of the watches. Slot objects and
// watches share the ownership of a memory. The last of them destroys it.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#if defined(__unix__) || defined(__APPLE__)
#define BIDE_DURABLE_SLOTS_MEMORY_WATCHES 1
#include <cerrno>

#include <fcntl.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/eventfd.h>
#endif
#else
/// 1 if a memory_slot can be watched, else 0.
#define BIDE_DURABLE_SLOTS_MEMORY_WATCHES 0
#endif

namespace bide::inline BIDE_ABI {

namespace detail {

class memory_watch;

struct slot_memory {
    std::mutex mutex;
    // The mutex guards:
    slot_version version = 0;
    std::string value;
    memory_watch* watches = nullptr; // a list in no particular order
};

} // namespace detail

/// A slot in the memory of this process. A copy is a slot object over the same memory; two threads
/// may use two copies at the same time.
///
/// After fork() the child has a memory of its own with the same value. A change in one process does
/// not reach the other. The child's copies of the parent's watches return errors. If a process
/// forks while another thread uses the memory, the child's mutex may stay locked.
class memory_slot {
public:
    /// What the slot promises. A process that relies on the value ends with the value.
    static constexpr slot_guarantees guarantees{true, false, lock_clock::boottime};

    /// The largest value in bytes. A longer value fails with durable_errc::too_large.
    static constexpr std::size_t largest_value = std::size_t{64} << 20;

    /// Makes a new memory without a value.
    /// Throws: std::bad_alloc, as do all operations; the operation has no effect then.
    memory_slot() : memory_(std::make_shared<detail::slot_memory>()) {}

    /// Reads the value.
    /// Requires: the slot was not moved from; this holds for all operations.
    result<slot_snapshot, std::error_code> load();

    /// Stores the value if the version is still the current one.
    cas_result compare_exchange(slot_version version, std::string_view value);

    /// Calls the update under the mutex and stores what it returns.
    /// Requires: the update uses no slot object over this memory.
    /// Throws: what the update throws; nothing is stored then.
    cas_result update_locked(const slot_update& update);

#if BIDE_DURABLE_SLOTS_MEMORY_WATCHES
    /// Makes a watch, which may outlive the slot object.
    /// Returns: an error, if the process has no free file descriptor.
    result<std::unique_ptr<slot_watch>, std::error_code> watch();
#endif

private:
    void put(std::string&& value) noexcept; // requires the mutex

    std::shared_ptr<detail::slot_memory> memory_;
};

// ---- implementation

#if BIDE_DURABLE_SLOTS_MEMORY_WATCHES

namespace detail {

// An eventfd, or a pipe on systems without eventfd. Reads and writes do not block.
class memory_watch final : public slot_watch {
public:
    explicit memory_watch(std::shared_ptr<slot_memory> of) noexcept : memory_(std::move(of)) {}
    ~memory_watch() override;

    // Opens the descriptors and adds the watch to the list; call it once. Returns the error, if
    // any.
    std::error_code start() noexcept;

    int fd() const noexcept override { return read_; }
    std::error_code drain() noexcept override;

    // Makes fd() readable. Requires the memory's mutex.
    void notify() noexcept;
    memory_watch* next() const noexcept { return next_; }

private:
    bool open() noexcept;

    const std::shared_ptr<slot_memory> memory_;
    const pid_t maker_ = ::getpid(); // a child must not write or read its parent's descriptors
    int read_ = -1;
    int write_ = -1; // the same descriptor as read_, if it is an eventfd
    bool is_listed_ = false;
    // The memory's mutex guards:
    memory_watch* next_ = nullptr;
    memory_watch* before_ = nullptr;
};

inline bool memory_watch::open() noexcept {
#if defined(__linux__)
    read_ = write_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return read_ >= 0;
#else
    int ends[2];
    if (::pipe(ends) != 0) {
        return false;
    }
    read_ = ends[0];
    write_ = ends[1];
    for (const int end : ends) {
        if (::fcntl(end, F_SETFD, FD_CLOEXEC) != 0 || ::fcntl(end, F_SETFL, O_NONBLOCK) != 0) {
            return false;
        }
    }
    return true;
#endif
}

inline std::error_code memory_watch::start() noexcept {
    if (!open()) {
        return {errno, std::system_category()};
    }
    const std::lock_guard lock(memory_->mutex);
    next_ = memory_->watches;
    if (next_ != nullptr) {
        next_->before_ = this;
    }
    memory_->watches = this;
    is_listed_ = true;
    return {};
}

inline memory_watch::~memory_watch() {
    if (is_listed_) {
        const std::lock_guard lock(memory_->mutex);
        (before_ != nullptr ? before_->next_ : memory_->watches) = next_;
        if (next_ != nullptr) {
            next_->before_ = before_;
        }
    }
    if (read_ >= 0) {
        ::close(read_);
    }
    if (write_ >= 0 && write_ != read_) {
        ::close(write_);
    }
}

inline void memory_watch::notify() noexcept {
    if (::getpid() != maker_) {
        return;
    }
#if defined(__linux__)
    const eventfd_t one = 1;
#else
    const char one = 1;
#endif
    // EAGAIN means that so much was written and not drained that the descriptor is readable anyway.
    while (::write(write_, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

inline std::error_code memory_watch::drain() noexcept {
    if (::getpid() != maker_) {
        return std::make_error_code(std::errc::operation_not_permitted);
    }
    alignas(8) char some[64];
    for (;;) {
        const ssize_t n = ::read(read_, some, sizeof some);
        if (n < 0 && errno != EINTR) {
            return errno == EAGAIN ? std::error_code()
                                   : std::error_code(errno, std::system_category());
        }
    }
}

} // namespace detail

inline result<std::unique_ptr<slot_watch>, std::error_code> memory_slot::watch() {
    auto made = std::make_unique<detail::memory_watch>(memory_);
    if (const std::error_code error = made->start()) {
        return unexpected{error};
    }
    return std::unique_ptr<slot_watch>(std::move(made));
}

#endif

inline void memory_slot::put(std::string&& value) noexcept {
    memory_->value = std::move(value);
    ++memory_->version;
#if BIDE_DURABLE_SLOTS_MEMORY_WATCHES
    for (auto* watch = memory_->watches; watch != nullptr; watch = watch->next()) {
        watch->notify();
    }
#endif
}

inline result<slot_snapshot, std::error_code> memory_slot::load() {
    slot_snapshot there;
    const std::lock_guard lock(memory_->mutex);
    there.version = memory_->version;
    there.value = memory_->value;
    return there;
}

inline cas_result memory_slot::compare_exchange(slot_version version, std::string_view value) {
    if (value.size() > largest_value) {
        return {cas_status::failed, 0, {}, durable_errc::too_large};
    }
    std::string copy(value);
    const std::lock_guard lock(memory_->mutex);
    if (memory_->version != version) {
        cas_result other{cas_status::conflict, 0, slot_snapshot(), {}};
        other.current->version = memory_->version;
        other.current->value = memory_->value;
        return other;
    }
    put(std::move(copy));
    return {cas_status::stored, memory_->version, {}, {}};
}

inline cas_result memory_slot::update_locked(const slot_update& update) {
    slot_snapshot there;
    const std::lock_guard lock(memory_->mutex);
    there.version = memory_->version;
    there.value = memory_->value;
    if (std::optional<std::string> value = update(there)) {
        if (value->size() > largest_value) {
            return {cas_status::failed, 0, {}, durable_errc::too_large};
        }
        put(std::move(*value));
    }
    return {cas_status::stored, memory_->version, {}, {}};
}

} // namespace bide::inline BIDE_ABI

#endif
