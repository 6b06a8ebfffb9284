// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_PERMIT_HPP
#define BIDE_SYNC_PERMIT_HPP

/// \file
/// An object that owns permits of a semaphore.
#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>

#include <cstddef>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace bide { inline namespace BIDE_ABI {

/// A counting semaphore; see sync/semaphore.hpp.
template <class Platform> class basic_semaphore;

/// Owns n permits of a semaphore and releases them when it is destroyed. The constructors are those
/// of std::unique_lock. If other callers have released more permits than they acquired, the count
/// after the release of all n could exceed max(). Then max() permits are free, and the excess is
/// dropped. There is no release(), because the name is ambiguous: std::unique_lock::release()
/// forgets its lock, and semaphore::release() returns permits. Use reset() or forget().
template <class Platform> class [[nodiscard("name it")]] basic_permit {
    using semaphore = basic_semaphore<Platform>;

public:
    /// Constructs a permit that owns nothing.
    basic_permit() noexcept = default;

    /// Acquires `amount` permits of `from`.
    /// Blocks: as semaphore::acquire() does.
    /// Throws: as semaphore::acquire() does.
    [[nodiscard("name it")]] explicit basic_permit(semaphore& from, std::ptrdiff_t amount = 1) {
        from.acquire(amount);
        own(from, amount);
    }

    /// Acquires `amount` permits if from.try_acquire(amount) succeeds; otherwise owns nothing.
    [[nodiscard("name it")]] basic_permit(semaphore& from, std::try_to_lock_t,
                                          std::ptrdiff_t amount = 1) noexcept {
        if (from.try_acquire(amount)) {
            own(from, amount);
        }
    }

    /// Takes over `amount` permits that the caller has acquired. If that is outside [0, max()], owns nothing.
    [[nodiscard("name it")]] basic_permit(semaphore& from, std::adopt_lock_t,
                                          std::ptrdiff_t amount = 1) noexcept {
        if (semaphore::is_valid(amount)) {
            own(from, amount);
        }
    }

    /// Takes over the permits of `other`, which then owns nothing.
    basic_permit(basic_permit&& other) noexcept
        : from_(std::exchange(other.from_, nullptr)), count_(std::exchange(other.count_, 0)) {}

    /// Releases its permits and takes over those of `other`.
    basic_permit& operator=(basic_permit&& other) noexcept {
        if (this != &other) {
            reset();
            from_ = std::exchange(other.from_, nullptr);
            count_ = std::exchange(other.count_, 0);
        }
        return *this;
    }

    /// Releases its permits.
    ~basic_permit() { reset(); }

    /// Returns true if it belongs to a semaphore, even if it owns 0 permits.
    explicit operator bool() const noexcept { return from_ != nullptr; }
    /// Returns the number of permits that it owns.
    std::ptrdiff_t count() const noexcept { return count_; }

    /// Releases its permits. It owns nothing then.
    void reset() noexcept {
        if (semaphore* const s = std::exchange(from_, nullptr)) {
            s->give_back(std::exchange(count_, 0));
        }
    }

    /// Drops its permits: the semaphore never gets them back.
    void forget() noexcept {
        from_ = nullptr;
        count_ = 0;
    }

    /// Moves n of the permits to a new object.
    /// Throws: std::invalid_argument if n < 0 or n > count(); nothing changes then.
    basic_permit split(std::ptrdiff_t n) {
        if (n < 0 || n > count_) {
            BIDE_THROW(std::invalid_argument("bide::permit: split outside [0, count()]"));
        }
        basic_permit part;
        part.from_ = from_;
        part.count_ = n;
        count_ -= n;
        return part;
    }

    /// Takes over all permits of `other`. If one of the two objects belongs to no semaphore, the
    /// merge is allowed.
    /// Throws: std::invalid_argument if they belong to different semaphores, std::overflow_error if
    /// the permits of both are more than max(). Nothing changes then.
    void merge(basic_permit&& other) {
        if (other.from_ == nullptr || this == &other) {
            return;
        }
        if (from_ != nullptr && from_ != other.from_) {
            BIDE_THROW(std::invalid_argument("bide::permit: merge of another semaphore's"));
        }
        if (other.count_ > (semaphore::max)() - count_) {
            BIDE_THROW(std::overflow_error("bide::permit: merge past max()"));
        }
        from_ = std::exchange(other.from_, nullptr);
        count_ += std::exchange(other.count_, 0);
    }

private:
    void own(semaphore& s, std::ptrdiff_t n) noexcept {
        from_ = &s;
        count_ = n;
    }

    semaphore* from_ = nullptr;
    std::ptrdiff_t count_ = 0;
};

}} // namespace bide::BIDE_ABI

#endif
