#ifndef BIDE_TASK_DETAIL_UNHANDLED_HPP
#define BIDE_TASK_DETAIL_UNHANDLED_HPP

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal_exception.hpp>
#include <bide/core/platform.hpp>

#include <cstdint>
#include <exception>
#include <functional>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// Who is told of exceptions that nobody asks for. Shared, for a handle may be dropped when the
// scheduler is gone; and one word, for every task has room for it.
class unhandled {
public:
    using function = std::function<void(std::exception_ptr)>;

    unhandled() noexcept = default;
    explicit unhandled(function tell) : shared_(new shared{std::move(tell)}) {}
    unhandled(const unhandled& other) noexcept : shared_(other.shared_) {
        if (shared_ != nullptr) {
            // Order: relaxed; the other holds it meanwhile.
            shared_->users.fetch_add(1, std::memory_order_relaxed);
        }
    }
    unhandled& operator=(unhandled other) noexcept {
        std::swap(shared_, other.shared_);
        return *this;
    }
    ~unhandled() {
        // Order: acq_rel; the last one comes after all others.
        if (shared_ != nullptr && shared_->users.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            delete shared_;
        }
    }

    // Without a function: says what the exception is and terminates.
    void tell(std::exception_ptr error) const noexcept {
        if (shared_ != nullptr && shared_->tell) {
            call_noexcept("on_unhandled", [&] { shared_->tell(std::move(error)); });
            return;
        }
#if BIDE_EXCEPTIONS
        call_noexcept("a task without on_unhandled", [&] { std::rethrow_exception(error); });
#else
        std::terminate();
#endif
    }

private:
    struct shared {
        function tell;
        native_platform::atomic<std::uint32_t> users{1};
    };

    shared* shared_ = nullptr;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
