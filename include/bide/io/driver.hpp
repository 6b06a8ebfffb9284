// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_IO_DRIVER_HPP
#define BIDE_IO_DRIVER_HPP

/// \file
/// The interface of drivers. An idle worker of a scheduler can sleep in a driver. The driver waits
/// for events of the operating system and for a wake at the same time. Then it completes the
/// operations that became ready. io/epoll_driver.hpp is a driver.

#include <bide/core/deadline.hpp>
#include <bide/core/wait_ops.hpp>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

// Records whether a driver has an attachment. It is a template, so that the model checker can run
// the end of an attachment concurrently with operations that begin.
template <class Platform> class basic_attachment_state {
public:
    // Returns false if there is an attachment.
    bool begin() noexcept {
        state seen = state::free;
        // Order: acquire [driver.attach]; sees the end of the previous attachment. Failure:
        // relaxed; another attachment exists.
        return word_.compare_exchange_strong(seen, state::attached, std::memory_order_acquire,
                                             std::memory_order_relaxed);
    }

    // Calls end_waits() when is_attached() is false.
    template <class EndWaits> void end(EndWaits&& end_waits) noexcept {
        // Order: seq_cst [driver.detach]; written before end_waits() looks for waits.
        word_.store(state::ending, std::memory_order_seq_cst);
        end_waits();
        // Order: release [driver.attach]; the next attachment sees the end of this one.
        word_.store(state::free, std::memory_order_release);
    }

    bool is_attached() const noexcept {
        // Order: seq_cst [driver.detach]. Before this load, the calling thread has found or made
        // the object in which end_waits() looks for the wait of this thread. If end_waits() has
        // missed that object, this load reads that there is no attachment.
        return word_.load(std::memory_order_seq_cst) == state::attached;
    }

private:
    enum class state : unsigned char { free, attached, ending };

    typename Platform::template atomic<state> word_{state::free};
};

} // namespace detail

/// The interface of a driver.
class driver {
public:
    /// The most operations that one wait() completes, so that tasks and timers run in between.
    static constexpr unsigned max_completions = 256;

    driver& operator=(driver&&) = delete;
    virtual ~driver() = default;

    /// Waits until an operation is ready, wake() was called, or the deadline has passed. With
    /// deadline::poll(), does not wait. Completes at most max_completions ready operations: ends
    /// their waits or runs their wakers, with no lock held. The next call completes the others. An
    /// operation that is always ready does not starve the others.
    /// Blocks: while it waits. Coroutines without an executor run inside this call.
    /// Returns: how many operations were completed.
    /// Requires: one thread at a time calls it, and each call happens after the previous one. A
    /// coroutine or a waker that runs inside of wait() does not call it.
    virtual unsigned wait(deadline until) noexcept = 0;

    /// Ends the present wait(). If no thread is in wait(), ends the next one. Several calls count
    /// as one.
    /// Memory order: the wait() that ends sees everything that happened before the call.
    /// Thread safety: any thread may call it.
    virtual void wake() noexcept = 0;

    /// While an attachment exists, some thread calls wait() again and again. A scheduler has an
    /// attachment from its construction until its shutdown.
    class [[nodiscard]] attachment {
    public:
        /// Attaches to the driver.
        /// Throws: std::system_error (device_or_resource_busy) if the driver has an attachment.
        explicit attachment(driver& to) : to_(to) {
            if (!to.state_.begin()) {
                BIDE_THROW(std::system_error(
                    std::make_error_code(std::errc::device_or_resource_busy),
                    "bide: the driver is attached to another scheduler; end that first"));
            }
        }
        attachment& operator=(attachment&&) = delete;
        /// Ends the operations that still wait, with errc::closed.
        /// Requires: no thread is in wait().
        ~attachment() {
            to_.state_.end([this]() noexcept { to_.detached(); });
        }

    private:
        driver& to_;
    };

protected:
    /// Constructs a driver without an attachment.
    driver() noexcept = default;

    /// Returns true if there is an attachment. If there is none, an operation that would wait must
    /// fail, because no thread would end its wait.
    bool is_attached() const noexcept { return state_.is_attached(); }

private:
    /// Called when the attachment has ended and is_attached() is false. An override must end all
    /// waits with errc::closed.
    virtual void detached() noexcept {}

    detail::basic_attachment_state<native_platform> state_;
};

/// The result of an operation of a driver: success; an errc (stopped, timeout, closed, no_driver);
/// or an error of the system.
using io_result = result<void, std::error_code>;

/// The value of an async_op<io_done>. The await of such an operation throws its error; the await of
/// an async_op<io_result> returns the error. with_timeout(), with_stop() and as_result() convert an
/// async_op<io_done> to an async_op<io_result>. An io_done has the same queries as an io_result, so
/// that code compiles for both. It always reports success.
struct io_done {
    /// Returns true.
    static constexpr bool has_value() noexcept { return true; }
    /// Returns true.
    constexpr explicit operator bool() const noexcept { return true; }
    /// Does nothing.
    static constexpr void value() noexcept {}
};
/// The result to which as_result() converts an io_done.
template <> struct as_result<io_done> {
    using type = io_result; ///< the result
};

/// The place where an operation of a driver keeps the system's error until the result is collected.
struct io_payload {
    /// Represents errc::no_driver. The system has no such error number.
    static constexpr int no_driver = 4096;

    int error = 0; ///< the system's error number, no_driver, or 0

    /// Returns the error code for a value of `error`.
    static std::error_code code_of(int number) noexcept {
        return number == no_driver ? make_error_code(errc::no_driver)
                                   : std::error_code(number, std::system_category());
    }
};
/// The payload of a wait with an io_result.
template <> struct wait_payload<io_result> {
    using type = io_payload; ///< the payload
};

/// For authors of drivers: the base class of an operation (core/wait_ops.hpp). The base class makes
/// the result. The derived class has the functions try_now(), enqueue() and cancel():
///
/// \code
/// using waiter = bide::basic_waiter<bide::native_platform>;
/// struct reading : bide::io_operation {
///     my_driver& of;
///     int file;
///
///     bide::wait_status try_now(bide::io_payload& mine) const noexcept;
///     bide::wait_status enqueue(waiter& w, bide::io_payload& mine) const noexcept;
///     bool cancel(waiter& w, bide::wait_status why) const noexcept;
/// };
///
/// bide::async_op<bide::io_result> async_read(int file) { return {reading{{}, *this, file}}; }
/// \endcode
///
/// The payload keeps its address until the wait is over. A queued waiter can carry the payload
/// (basic_waiter::carry). The driver then sets the payload's error before it ends the wait.
struct io_operation {
    /// The name of the awaited object in a dump.
    static constexpr const char* waited_for = "a file";

    /// Returns the result of a wait.
    io_result collect(wait_status what, const io_payload& mine) const noexcept {
        if (what != wait_status::granted) {
            return unexpected{make_error_code(errc_of(what))};
        }
        return mine.error == 0 ? io_result() : unexpected{io_payload::code_of(mine.error)};
    }
};

}} // namespace bide::BIDE_ABI

#endif
