// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_PRIMITIVE_OF_HPP
#define BIDE_CORE_DETAIL_PRIMITIVE_OF_HPP

// Finds out what a wait waits for. Probes (probe.hpp) and the notes of BIDE_DEADLOCK_CHECK
// (wait_notes.hpp) record it. An operation (core/wait_ops.hpp), or the queue of a thread_wait,
// names it by these members:
//
//   const auto& primitive() const noexcept;   the primitive, or a part of it
//   const auto& relock() const noexcept;      the lock that is held after each outcome of the wait
//   static constexpr const char* waited_for;  the kind of the primitive, which may have
//                                             this member instead
//
// An operation may declare the two functions with a parameter for its payload.

#include <bide/core/config.hpp>

#include <concepts>
#include <cstddef>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// The object that a wait waits for, as an address.
struct wait_subject {
    const void* primitive = nullptr;
    const char* kind = nullptr;   // such as "event"; nullptr: not known by its type
    const char* name = nullptr;   // or nullptr
    std::ptrdiff_t amount = 0;    // the units that the wait asks for, if it counts units
    const void* relock = nullptr; // or nullptr
    std::ptrdiff_t relock_amount = 0;

    template <class Primitive> void is(const Primitive& p) noexcept {
        primitive = &p;
        if constexpr (requires { Primitive::waited_for; }) {
            kind = Primitive::waited_for;
        }
        if constexpr (requires {
                          { p.name() } -> std::same_as<const char*>;
                      }) {
            name = p.name();
        }
    }
    template <class Lock> void relocks(const Lock& lock) noexcept {
        relock = lock.address();
        relock_amount = lock.amount();
    }
};

// Returns the object that a wait waits for. If the wait does not name one, the result has no
// primitive.
template <class Wait, class... Payload>
wait_subject subject_of(const Wait& wait, const Payload&... carried) noexcept {
    wait_subject what;
    if constexpr (requires { wait.primitive(carried...); }) {
        what.is(wait.primitive(carried...));
    } else if constexpr (requires { wait.primitive(); }) {
        what.is(wait.primitive());
    }
    if constexpr (requires { Wait::waited_for; }) {
        what.kind = Wait::waited_for;
    }
    if constexpr (requires { wait.relock(carried...); }) {
        what.relocks(wait.relock(carried...));
    }
    if constexpr (requires { what.amount = wait.amount; }) {
        what.amount = wait.amount;
    }
    return what;
}

// Does the same as subject_of() for the queue of a thread_wait. The queue is a part of its
// primitive.
template <class Queue>
wait_subject subject_of_queue(const Queue& queue, std::ptrdiff_t amount) noexcept {
    wait_subject what = subject_of(queue);
    if constexpr (!requires { queue.primitive(); }) {
        what.is(queue);
    }
    what.amount = amount;
    return what;
}

}}} // namespace bide::BIDE_ABI::detail

#endif
