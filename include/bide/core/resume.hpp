// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_RESUME_HPP
#define BIDE_CORE_RESUME_HPP

/// \file
/// Resumes coroutines from ordinary code, and transfers from one coroutine to another. Finds the
/// executor of a coroutine, and counts the users of an executor.
//
// `co_await child` must not make the stack grow, however often it runs. So the awaiter returns the
// child's handle, and the compiler tail-calls it. It is not always known that the compiler makes
// the tail call (BIDE_SYMMETRIC_TRANSFER is 0). In that case transfer() looks at the stack. While
// the stack has not grown by more than max_stack bytes since the loop that resumed this thread's
// current coroutine, transfer() returns the child's handle. If not, transfer() does two things. It
// leaves the handle with that loop, and it returns a no-op coroutine. The stack unwinds to the
// loop, which resumes the handle. If code outside of bide resumed the coroutine, there is no such
// loop; transfer() then runs a loop itself.

#include <bide/core/wake_scope.hpp>

#include <coroutine>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

struct transfer_node {
    transfer_node* next = nullptr;
    std::coroutine_handle<> to;
};

struct transfer_loop;

// The loop of one thread.
struct BIDE_SHARED transfer_loop_place {
    transfer_loop* loop = nullptr;
};

struct transfer_loop {
    transfer_node* first = nullptr;
    transfer_node* last = nullptr;

    void push(transfer_node& n) noexcept {
        n.next = nullptr;
        (last == nullptr ? first : last->next) = &n;
        last = &n;
    }

    // Resumes `to`, and then each handle that is pushed meanwhile. Sets the `next` of a node to
    // nullptr before it resumes the node's handle. This is the last access to the node.
    template <class Platform> void run(std::coroutine_handle<> to) noexcept {
        transfer_loop* const outer = std::exchange(current<Platform>(), this);
        while (to) {
            to.resume();
            to = nullptr;
            if (first != nullptr) {
                to = first->to;
                first = std::exchange(first->next, nullptr);
                if (first == nullptr) {
                    last = nullptr;
                }
            }
        }
        current<Platform>() = outer;
    }

#if !BIDE_SYMMETRIC_TRANSFER
    // Returns true if the stack has grown by more than max_stack bytes since run() was called.
    // Requires: the calling thread is in run() of this loop.
    BIDE_INLINE bool is_far() const noexcept {
        const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
        return reinterpret_cast<std::uintptr_t>(this) - here > max_stack;
    }
#endif

    // Returns the loop that resumes the current coroutine of this thread.
    template <class Platform> BIDE_NEAR_LOCAL static transfer_loop*& current() noexcept {
        return Platform::template near_local<transfer_loop_place>().loop;
    }

    static constexpr std::size_t max_stack = 4096;
};

} // namespace detail

/// Resumes a coroutine from ordinary code. An exception that leaves the coroutine terminates.
template <class Platform> void resume(std::coroutine_handle<> to) noexcept {
    if constexpr (BIDE_SYMMETRIC_TRANSFER) {
        to.resume();
    } else {
        detail::transfer_loop loop;
        loop.run<Platform>(to);
    }
}

namespace detail {

// Leaves `to` with the loop that resumed the current coroutine of this thread. If there is no such
// loop, resumes `to`.
template <class Platform>
BIDE_NOINLINE void resume_later(std::coroutine_handle<> to, transfer_node& node) noexcept {
    if (auto* const loop = transfer_loop::current<Platform>()) {
        node.to = to;
        loop->push(node);
    } else {
        resume<Platform>(to);
    }
}

} // namespace detail

/// Returns the handle that await_suspend() has to return, so that `to` continues.
/// Requires: `node` lives until `to` is resumed.
template <class Platform>
BIDE_INLINE std::coroutine_handle<> transfer(std::coroutine_handle<> to,
                                             detail::transfer_node& node) noexcept {
#if BIDE_SYMMETRIC_TRANSFER
    static_cast<void>(node);
#else
    const auto* const loop = detail::transfer_loop::current<Platform>();
    if (loop == nullptr || loop->is_far()) {
        detail::resume_later<Platform>(to, node);
        return std::noop_coroutine();
    }
#endif
    return to;
}

/// Returns the executor of a coroutine's promise. promise.get_scheduler() returns a reference to an
/// executor, a pointer to one, or an executor_ref. If get_scheduler() returns nullptr, or if the
/// promise has no such member, the result refers to no executor.
template <class Promise> executor_ref executor_of(Promise& promise) noexcept {
    if constexpr (requires { promise.get_scheduler(); }) {
        using named = decltype(promise.get_scheduler());
        using type = std::remove_cvref_t<named>;
        if constexpr (std::is_same_v<type, executor_ref>) {
            return promise.get_scheduler();
        } else if constexpr (std::is_pointer_v<type>) {
            auto* const s = promise.get_scheduler();
            return s != nullptr ? executor_ref(*s) : executor_ref();
        } else {
            static_assert(std::is_lvalue_reference_v<named>,
                          "get_scheduler() returns an executor by reference or by pointer");
            return executor_ref(promise.get_scheduler());
        }
    } else {
        return executor_ref();
    }
}

namespace detail {

// Counts the users of an executor: the tasks that resume there, and the waits that name it by
// resume_on() (core/async_op.hpp). While a user waits, it is in no queue of the executor; it is
// posted to the executor when its wait ends. An executor that derives from executor_users counts
// its users. The destruction of such an executor terminates the program if there is a user.
//
// A user is not counted while the executor runs it, nor when it will never be posted again. Before
// an executor is destroyed, it runs everything that was posted to it. So a user that is still
// counted at the destruction would later be posted to a destroyed executor.

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

    // Order: acquire [executor.users]; sees the accesses of the users that have ended.
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
            // Order: release [executor.users]; the destructor sees the accesses of this user.
            users->count_.fetch_sub(1, std::memory_order_release);
        }
    }

private:
    executor_ref of_;
};

} // namespace detail

}} // namespace bide::BIDE_ABI

#endif
