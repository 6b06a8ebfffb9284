#ifndef BIDE_SYNC_PERMIT_HPP
#define BIDE_SYNC_PERMIT_HPP

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>

#include <cstddef>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace bide::inline BIDE_ABI {

template <class Platform> class basic_semaphore;

// Owns n permits of a semaphore and gives them back when it goes; constructors as
// std::unique_lock's. If other callers have released more than was acquired, so that not all n fit
// below max(), those that do not fit are dropped: the semaphore then has max() free permits.
// There is deliberately no release(): std::unique_lock's forgets the lock, a semaphore's gives
// back. Say reset() or forget().
template <class Platform> class [[nodiscard]] basic_permit {
    using semaphore = basic_semaphore<Platform>;

public:
    basic_permit() noexcept = default;

    // Takes n. Blocks and throws: as semaphore::acquire().
    explicit basic_permit(semaphore& s, std::ptrdiff_t n = 1) {
        s.acquire(n);
        own(s, n);
    }

    // Takes n if try_acquire() does; owns nothing otherwise.
    basic_permit(semaphore& s, std::try_to_lock_t, std::ptrdiff_t n = 1) noexcept {
        if (s.try_acquire(n)) {
            own(s, n);
        }
    }

    // Takes over n that the caller has acquired; owns nothing if n is outside [0, max()].
    basic_permit(semaphore& s, std::adopt_lock_t, std::ptrdiff_t n = 1) noexcept {
        if (semaphore::is_valid(n)) {
            own(s, n);
        }
    }

    basic_permit(basic_permit&& other) noexcept
        : from_(std::exchange(other.from_, nullptr)), count_(std::exchange(other.count_, 0)) {}

    basic_permit& operator=(basic_permit&& other) noexcept {
        if (this != &other) {
            reset();
            from_ = std::exchange(other.from_, nullptr);
            count_ = std::exchange(other.count_, 0);
        }
        return *this;
    }

    ~basic_permit() { reset(); }

    // True: of a semaphore, be it of 0 permits.
    explicit operator bool() const noexcept { return from_ != nullptr; }
    std::ptrdiff_t count() const noexcept { return count_; }

    // Gives back now.
    void reset() noexcept {
        if (semaphore* const s = std::exchange(from_, nullptr)) {
            s->give_back(std::exchange(count_, 0));
        }
    }

    // The permits vanish.
    void forget() noexcept {
        from_ = nullptr;
        count_ = 0;
    }

    // Moves n of them to a permit of their own.
    // Throws: std::invalid_argument when n < 0 or n > count(); nothing changes then.
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

    // Takes all of another's. An empty one may be merged into anything, and anything into an empty
    // one.
    // Throws: std::invalid_argument when they are of different semaphores, std::overflow_error when
    // they are more than max() together; nothing changes then.
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

} // namespace bide::inline BIDE_ABI

#endif
