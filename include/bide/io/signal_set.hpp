// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_IO_SIGNAL_SET_HPP
#define BIDE_IO_SIGNAL_SET_HPP

/// \file
/// Waits for signals of the operating system, in threads and coroutines. Linux only; empty on other
/// systems.

#include <bide/core/config.hpp>

#if defined(__linux__)

#include <bide/io/detail/process_monitor.hpp>

#include <concepts>
#include <cstdio>
#include <optional>
#include <string>

#include <dlfcn.h>

namespace bide { inline namespace BIDE_ABI {

/// Receives signals, such as SIGINT (Ctrl-C) and SIGTERM. While a set has a signal, the signal does
/// not end the process. System calls that it interrupts are restarted where the system does so
/// (SA_RESTART).
///
/// \code
/// bide::signal_set(SIGINT, SIGTERM).wait();                // in a thread
/// co_await bide::signal_set(SIGINT, SIGTERM).async_wait(); // in a coroutine
/// \endcode
///
/// Threads and coroutines wait in one queue, in order. A waiter receives one signal. If nothing
/// waits, the set keeps the signal for the next wait. If the same signal comes again before a wait
/// takes it, it counts once, as in the system. Of several signals, a wait takes the one with the
/// lowest number. If several sets have a signal, each of them receives it.
///
/// The first set of the process starts a thread, which never ends and which children use, too
/// (io/child_process.hpp). A set needs no driver, works whatever threads were started before, and
/// also if all threads block the signal. A select takes a set by on_event(). The loop of another
/// library waits for it by a pollable_wait. In a child of fork(), the signals have the actions that
/// they had before the sets of its parent; it may make sets of its own, and destroy those.
///
/// Thread safety: any thread calls any function.
class signal_set {
public:
    /// Takes the signals. A signal that was ignored is received, too. An empty set receives
    /// nothing.
    /// Throws: std::system_error, and takes none of the signals:
    /// - device_or_resource_busy if a handler has the signal that is not of a signal_set. The
    ///   message names the handler, or the file and the offset of its code.
    /// - invalid_argument if there is no such signal, if the system gives it to no handler (SIGKILL,
    ///   SIGSTOP), or if it is an error of a thread (SIGSEGV, SIGBUS, SIGFPE, SIGILL).
    /// - The error of the system if there are no descriptors or no memory for the thread.
    template <std::same_as<int>... Signals>
    explicit signal_set(Signals... numbers) : monitor_(detail::process_monitor::get()) {
        monitor_.enter(set_);
        (take(numbers), ...);
    }
    signal_set& operator=(signal_set&&) = delete;

    /// Removes the set. If no other set has a signal, restores the action that the signal had
    /// before. So after the first Ctrl-C, a program may destroy the set: the second Ctrl-C then ends
    /// the process. Signals that no wait has taken are dropped. If another handler was installed
    /// meanwhile, it stays.
    /// Requires: there are no waiters; terminates otherwise.
    ~signal_set() {
        monitor_.leave(set_);
        set_.arrived.require_no_waiters("signal_set", this);
    }

    /// Waits for a signal.
    /// Blocks: until a signal has come.
    /// Returns: the number of the signal.
    int wait() noexcept {
        set_.arrived.wait(deadline::never());
        return set_.arrived.take();
    }
    /// Waits as wait() does, but at most `rest`.
    /// Returns: the number of the signal; nothing after the time-out.
    std::optional<int> wait_for(deadline::from_now rest) noexcept {
        return wait_until(deadline(rest));
    }
    /// Waits as wait() does, but at most until a point in time.
    std::optional<int> wait_until(deadline when) noexcept {
        if (set_.arrived.wait(when) != wait_status::granted) {
            return std::nullopt;
        }
        return set_.arrived.take();
    }
    /// Waits as wait() does, unless a stop is requested first.
    /// Returns: the number of the signal, or errc::stopped.
    result<int> wait(const native_platform::stop_token& token) noexcept {
        return operation().collect(set_.arrived.wait(token));
    }

    /// Waits as wait() does, for a coroutine.
    /// Returns: an operation for co_await; its value is the number of the signal.
    /// Cancellation: a wait that ends early loses no signal.
    async_op<int> async_wait() noexcept { return {operation()}; }

    /// Returns the number of waiters. It may be outdated when the caller reads it.
    std::size_t waiters() const noexcept { return set_.arrived.waiters(); }

private:
    using taking = detail::basic_signal_queue<native_platform>::taking;

    taking operation() noexcept { return taking(set_.arrived); }

    void take(int signal) {
        struct sigaction other{};
        if (const int error = monitor_.add(set_, signal, other); error != 0) {
            monitor_.leave(set_);
            fail(signal, error, other);
        }
    }

    [[noreturn]] static void fail(int signal, int error, const struct sigaction& other) {
        std::string what = "bide::signal_set: signal " + std::to_string(signal);
        if (error == EBUSY) {
            what += " is taken by the handler " + name_of(other);
        }
        BIDE_THROW(std::system_error(error, std::system_category(), what));
    }

    // Names a handler: by its symbol and file, or by the offset of its code in the file.
    static std::string name_of(const struct sigaction& handler) {
        void* code = nullptr;
        std::memcpy(&code, &handler.sa_handler, sizeof code); // or sa_sigaction, its union
        Dl_info found{};
#if !defined(__GLIBC__) || __GLIBC__ > 2 || __GLIBC_MINOR__ >= 34 // else it needs -ldl
        ::dladdr(code, &found);
#endif
        const auto offset = reinterpret_cast<std::uintptr_t>(code) -
                            reinterpret_cast<std::uintptr_t>(found.dli_fbase);
        char text[32];
        std::snprintf(text, sizeof text, "+0x%zx", std::size_t{offset});
        const std::string file = found.dli_fname != nullptr ? found.dli_fname : "";
        return found.dli_sname != nullptr ? found.dli_sname + (" of " + file) : file + text;
    }

    detail::process_monitor& monitor_;
    detail::monitored_signals set_;
};

}} // namespace bide::BIDE_ABI

#endif

#endif
