// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_EXECUTOR_USERS_HPP
#define BIDE_CORE_DETAIL_EXECUTOR_USERS_HPP

// Counts the users of an executor: the tasks that resume there, and the waits that name it by
// resume_on(). While a user waits, it is in no queue of the executor; it is posted to the executor
// when its wait ends. An executor that derives from executor_users counts its users. If it is
// destroyed while it has a user, it terminates the program.
//
// A user leaves the count while the executor runs it, or if it will never be posted. So if the
// executor has run everything that was posted and still has a user, that user would be posted to an
// executor that is destroyed.

#include <bide/core/config.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

class executor_users {
protected:
    executor_users() noexcept = default;
    executor_users(const executor_users&) noexcept {} // a copy is an executor of its own
    executor_users& operator=(const executor_users&) noexcept { return *this; }
    ~executor_users() = default;

    // Called by the destructor of the executor.
    bool has_users() const noexcept { return count() != 0; }
    // Terminates with a message if there is a user.
    void require_none(const char* name) const noexcept {
        if (const std::size_t left = count()) {
            fatal_left(name, left);
        }
    }

private:
    friend class executor_use;

    // Order: acquire [executor.users]; the accesses of the users that have ended are over.
    std::size_t count() const noexcept { return count_.load(std::memory_order_acquire); }
    [[noreturn]] BIDE_NOINLINE void fatal_left(const char* name, std::size_t left) const noexcept {
        std::fprintf(stderr, "bide: %s %p destroyed while tasks are to resume on it: %zu\n", name,
                     static_cast<const void*>(this), left);
        std::fflush(stderr);
        std::terminate();
    }

    native_platform::atomic<std::size_t> count_{0};
};

// Counts one user until end() or the destructor.
class executor_use {
public:
    explicit executor_use(executor_ref of) noexcept : of_(begin(of) ? of : executor_ref()) {}
    executor_use(executor_use&& other) noexcept : of_(std::exchange(other.of_, {})) {}
    executor_use& operator=(executor_use&&) = delete;
    ~executor_use() { end(); }

    // Ends the count. This is the last access to the executor.
    void end() noexcept { end(std::exchange(of_, {})); }

    // If the executor counts its users, counts one and returns true.
    static bool begin(executor_ref of) noexcept {
        executor_users* const users = of.users();
        if (users != nullptr) {
            // Order: relaxed; the caller keeps the executor alive.
            users->count_.fetch_add(1, std::memory_order_relaxed);
        }
        return users != nullptr;
    }
    static void end(executor_ref of) noexcept {
        if (executor_users* const users = of.users()) {
            // Order: release [executor.users]; the destructor of the executor comes after this.
            users->count_.fetch_sub(1, std::memory_order_release);
        }
    }

private:
    executor_ref of_;
};

}}} // namespace bide::BIDE_ABI::detail

#endif
