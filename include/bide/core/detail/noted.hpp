// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_NOTED_HPP
#define BIDE_CORE_DETAIL_NOTED_HPP

// What waits and primitives do for BIDE_DEADLOCK_CHECK (core/deadlock_check.hpp): BIDE_CHECKED(...) is its
// argument with the macro, and nothing without it. Only the primitives of the native platform are
// noted.

#include <bide/core/config.hpp>

#if !defined(BIDE_DEADLOCK_CHECK)

#define BIDE_CHECKED(...)

#else

#define BIDE_CHECKED(...) __VA_ARGS__

#include <bide/core/detail/actor.hpp>
#include <bide/core/detail/primitive_of.hpp>
#include <bide/core/detail/thread_mark.hpp>
#include <bide/core/detail/wait_notes.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/resume.hpp>

#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// True if the primitives of a platform are noted.
template <class Platform>
inline constexpr bool is_noted = std::is_same_v<Platform, native_platform>;

template <class Platform> void note_end_of(const basic_task_context<Platform>& task) noexcept {
    if constexpr (is_noted<Platform>) {
        wait_notes::all().ended(actor(&task));
    }
}

// The wait of a thread, for as long as this lives.
template <class Platform> class noted_wait {
public:
    noted_wait(const void* its_node, const wait_subject& on, bool may_end_early) noexcept
        : node_(its_node) {
        if constexpr (is_noted<Platform>) {
            wait_notes::all().waits(its_node, actor::here(), on, may_end_early);
        }
    }
    noted_wait(const noted_wait&) = delete;
    noted_wait& operator=(const noted_wait&) = delete;
    ~noted_wait() {
        if constexpr (is_noted<Platform>) {
            wait_notes::all().waits_no_more(node_);
        }
    }

private:
    const void* node_;
};

// The waker of a coroutine, while it runs on this thread. A stop and a time-out need no note: the
// thread that destroys the coroutine waits for their end first.
template <class Platform> class noted_wake {
public:
    explicit noted_wake(const void* node) noexcept : node_(node) {
        if constexpr (is_noted<Platform>) {
            const bool counts = !Platform::template local<resume_state>().is_away;
            wait_notes::all().wakes(node, counts ? thread_mark<Platform>() : nullptr);
        }
    }
    noted_wake(const noted_wake&) = delete;
    noted_wake& operator=(const noted_wake&) = delete;
    ~noted_wake() {
        if constexpr (is_noted<Platform>) {
            wait_notes::all().wakes_no_more(node_, thread_mark<Platform>());
        }
    }
    // This thread resumes the coroutine later.
    void lasts() noexcept { node_ = nullptr; }

private:
    const void* node_; // it may be destroyed meanwhile
};

// The task whose coroutine collects the outcome of its wait, on this thread.
struct BIDE_SHARED collecting {
    actor who;
    static actor& here() noexcept { return native_platform::local<collecting>().who; }

    class scope {
    public:
        explicit scope(actor who) noexcept : outer_(std::exchange(here(), who)) {}
        scope(const scope&) = delete;
        scope& operator=(const scope&) = delete;
        ~scope() { here() = outer_; }

    private:
        const actor outer_;
    };
};

// In the constructors and destructors of primitives.
template <class Platform, class T>
constexpr void note_made(const T* primitive, const char* kind,
                         const char* name = nullptr) noexcept {
    if constexpr (is_noted<Platform>) {
        if (!std::is_constant_evaluated() || name != nullptr) { // a name is kept at run time only
            wait_notes::all().made(primitive, sizeof(T), kind, name);
        }
    }
}
template <class Platform> void note_gone(const void* primitive) noexcept {
    if constexpr (is_noted<Platform>) {
        wait_notes::all().gone(primitive);
    }
}

// In the functions of mutexes. note_locked() returns `is_locked`.
template <class Platform>
bool note_locked(const void* lock, bool is_locked,
                 wait_notes::mode how = wait_notes::mode::exclusive) noexcept {
    if constexpr (is_noted<Platform>) {
        if (is_locked) {
            wait_notes::all().locked(lock, how, actor::here());
        }
    }
    return is_locked;
}
template <class Platform>
void note_unlocked(const void* lock, wait_notes::mode how = wait_notes::mode::exclusive) noexcept {
    if constexpr (is_noted<Platform>) {
        wait_notes::all().unlocked(lock, how);
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif

#endif
