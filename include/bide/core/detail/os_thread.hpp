// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_OS_THREAD_HPP
#define BIDE_CORE_DETAIL_OS_THREAD_HPP

// A thread of the library. If the thread cannot be started, start() returns an error code, even if
// exceptions are off. std::thread would throw.

#include <bide/core/config.hpp>

#include <cstddef>
#include <string_view>
#include <system_error>

#if defined(_WIN32)
#include <thread>
#else
#include <pthread.h>
#include <unistd.h>
#endif

namespace bide { inline namespace BIDE_ABI { namespace detail {

class BIDE_SHARED os_thread {
public:
    using function = void (*)(void*) noexcept;

    os_thread() noexcept = default;
    os_thread& operator=(os_thread&&) = delete;

    // Runs body(argument) on a new thread, which handles no signals. Returns an error if no thread
    // was started. The thread has a stack of `stack_size` bytes, rounded up to whole pages; 0 means
    // the default of the system. On Windows, the size has no effect.
    // Requires: this object runs no thread: it was never started, or was joined. This object is not
    // moved until the thread is joined.
    std::error_code start(function body, void* argument, std::size_t stack_size = 0) noexcept;
    // Returns false if no thread can have a stack of that size.
    static bool may_have_stack(std::size_t stack_size) noexcept;

    // Runs body(argument) on a new thread that is never joined, and that handles no signals.
    static std::error_code start_detached(function body, void* argument) noexcept;

    // Blocks: until the thread has ended and its thread-local objects are destroyed.
    void join() noexcept;

#if defined(__linux__) && !defined(__ANDROID__)
    // If the thread and its thread-local objects have ended, joins it. Otherwise returns false.
    bool try_join() noexcept { return ::pthread_tryjoin_np(thread_, nullptr) == 0; }
#endif

    // Names the running thread "<name><separator><index>", for debuggers and /proc. Linux allows 15
    // characters: if the whole is longer, `name` is cut and the index is kept.
    static void name_this(std::string_view name, const char* separator, unsigned index) noexcept;

    // Returns the number by which debuggers and /proc name the calling thread; 0 if it has none.
    static unsigned long number_of_this() noexcept {
#if defined(__linux__)
        return static_cast<unsigned long>(::gettid());
#else
        return 0;
#endif
    }

private:
#if defined(_WIN32)
    std::thread thread_;
#else
    static void* enter(void* self) noexcept {
        const os_thread& mine = *static_cast<const os_thread*>(self);
        mine.body_(mine.argument_);
        return nullptr;
    }

    pthread_t thread_{};
    function body_ = nullptr;
    void* argument_ = nullptr;
#endif
};

}}} // namespace bide::BIDE_ABI::detail

#if BIDE_DEFINITIONS

#include <cerrno>
#include <cstdio>
#include <new>

#if defined(__linux__)
#include <signal.h>
#endif

namespace bide { inline namespace BIDE_ABI { namespace detail {

// Blocks all signals of the calling thread while this object lives. Threads that are started
// meanwhile inherit the signal mask, so they handle no signals.
class signals_blocked {
public:
    signals_blocked() noexcept {
#if defined(__linux__)
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before_);
#endif
    }
    signals_blocked& operator=(signals_blocked&&) = delete;
    ~signals_blocked() {
#if defined(__linux__)
        ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
#endif
    }

private:
#if defined(__linux__)
    sigset_t before_;
#endif
};

#if defined(_WIN32)

BIDE_COMPILED_INLINE bool os_thread::may_have_stack(std::size_t) noexcept { return true; }

BIDE_COMPILED_INLINE std::error_code os_thread::start(function body, void* argument,
                                                      std::size_t) noexcept {
#if BIDE_EXCEPTIONS
    try {
        thread_ = std::thread(body, argument);
        return {};
    } catch (const std::system_error& e) {
        return e.code();
    } catch (...) {
        return std::make_error_code(std::errc::not_enough_memory);
    }
#else
    thread_ = std::thread(body, argument);
    return {};
#endif
}

BIDE_COMPILED_INLINE std::error_code os_thread::start_detached(function body,
                                                               void* argument) noexcept {
    os_thread thread;
    const std::error_code error = thread.start(body, argument);
    if (!error) {
        thread.thread_.detach();
    }
    return error;
}

BIDE_COMPILED_INLINE void os_thread::join() noexcept { thread_.join(); }

#else

namespace stack_sizes {

// Sets the stack size of `to`, unless `wanted` is 0. Returns an error number.
inline int set(pthread_attr_t& to, std::size_t wanted) noexcept {
    if (wanted == 0) {
        return 0;
    }
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t rounded = (wanted + page - 1) / page * page;
    return rounded < wanted ? EINVAL : ::pthread_attr_setstacksize(&to, rounded);
}

} // namespace stack_sizes

BIDE_COMPILED_INLINE bool os_thread::may_have_stack(std::size_t stack_size) noexcept {
    pthread_attr_t how;
    if (::pthread_attr_init(&how) != 0) {
        return true; // no memory: start() will report that
    }
    const int error = stack_sizes::set(how, stack_size);
    ::pthread_attr_destroy(&how);
    return error == 0;
}

BIDE_COMPILED_INLINE std::error_code os_thread::start(function body, void* argument,
                                                      std::size_t stack_size) noexcept {
    body_ = body;
    argument_ = argument;
    const signals_blocked blocked;
    pthread_attr_t how;
    int error = ::pthread_attr_init(&how);
    if (error == 0) {
        error = stack_sizes::set(how, stack_size);
        if (error == 0) {
            error = ::pthread_create(&thread_, &how, &enter, this);
        }
        ::pthread_attr_destroy(&how);
    }
    return {error, std::system_category()};
}

BIDE_COMPILED_INLINE std::error_code os_thread::start_detached(function body,
                                                               void* argument) noexcept {
    auto* const thread = new (std::nothrow) os_thread; // the new thread reads it
    if (thread == nullptr) {
        return std::make_error_code(std::errc::not_enough_memory);
    }
    thread->body_ = body;
    thread->argument_ = argument;
    const signals_blocked blocked;
    const auto enter_owning = [](void* self) -> void* {
        auto* const mine = static_cast<os_thread*>(self);
        const function run = mine->body_;
        void* const with = mine->argument_;
        delete mine;
        run(with);
        return nullptr;
    };
    pthread_t made{};
    const int error = ::pthread_create(&made, nullptr, enter_owning, thread);
    if (error != 0) {
        delete thread;
    } else {
        ::pthread_detach(made);
    }
    return {error, std::system_category()};
}

BIDE_COMPILED_INLINE void os_thread::join() noexcept { ::pthread_join(thread_, nullptr); }

#endif

BIDE_COMPILED_INLINE void os_thread::name_this(std::string_view name, const char* separator,
                                               unsigned index) noexcept {
#if defined(__linux__) || defined(__APPLE__)
    constexpr std::size_t most = 15;
    char end[most + 1];
    const int wanted = std::snprintf(end, sizeof end, "%s%u", separator, index);
    const std::size_t length = wanted < 0 ? 0 : static_cast<std::size_t>(wanted);
    const std::size_t kept = length < most ? length : most;
    char all[most + 1] = {};
    const std::size_t start = name.copy(all, most - kept);
    std::string_view(end, kept).copy(all + start, kept);
#if defined(__linux__)
    ::pthread_setname_np(::pthread_self(), all);
#else
    ::pthread_setname_np(all);
#endif
#else
    static_cast<void>(name);
    static_cast<void>(separator);
    static_cast<void>(index);
#endif
}

}}} // namespace bide::BIDE_ABI::detail

#endif

#endif
