// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_PROBE_HPP
#define BIDE_CORE_DETAIL_PROBE_HPP

// Describes what a wait waits for, and defines the static probes (USDT) for perf, bpftrace,
// SystemTap and gdb. A probe is a nop, and a note in the program that says where the nop is and
// where the arguments of the probe are. README.md in core/ lists the probes. noted.hpp includes
// this header if BIDE_USDT is 1, or if BIDE_DEADLOCK_CHECK is defined.

#include <bide/core/wait_status.hpp>

#include <concepts>

#if BIDE_USDT
#if !__has_include(<sys/sdt.h>)
#error "BIDE_USDT needs <sys/sdt.h>. Debian has it in systemtap-sdt-dev."
#endif

#include <sys/sdt.h>

// One of STAP_PROBE1 to STAP_PROBE3, by the number of arguments.
#define BIDE_PROBE_OF(a, b, c, probe, ...) probe
#define BIDE_PROBE(name, ...)                                                                      \
    BIDE_PROBE_OF(__VA_ARGS__, STAP_PROBE3, STAP_PROBE2, STAP_PROBE1, )(bide, name, __VA_ARGS__)
#define BIDE_PROBE_IF(when, name, ...)                                                             \
    if (when) {                                                                                    \
        BIDE_PROBE(name, __VA_ARGS__);                                                             \
    }                                                                                              \
    static_cast<void>(0)
#define BIDE_PROBE_WAIT(queue, node)                                                               \
    const detail::probed_wait probe_of_this_wait(detail::subject_of_queue(queue, 1).primitive, node)
#endif

namespace bide { inline namespace BIDE_ABI { namespace detail {

// The operation of a wait (core/wait_ops.hpp), or the queue of a thread_wait (core/waiter.hpp),
// names what the wait waits for by these members:
//
//   const auto& primitive() const noexcept;   the primitive, or a part of it
//   const auto& relock() const noexcept;      the lock that is held after each outcome of the wait
//   static constexpr const char* waited_for;  the kind of the primitive; the class of the
//                                             primitive may have this member instead
//
// An operation may declare the two functions with a parameter for its payload.

// The object that a wait waits for, as an address.
struct wait_subject {
    const void* primitive = nullptr;
    const char* kind = nullptr;   // such as "event"; nullptr: neither class names it (see above)
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

// Returns a description of the object that a wait waits for. If the wait names no such object, the
// description has no primitive.
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

// Describes the primitive that a thread waits for, from the queue of its thread_wait. The queue is
// a part of the primitive.
template <class Queue>
wait_subject subject_of_queue(const Queue& queue, std::ptrdiff_t amount) noexcept {
    wait_subject what = subject_of(queue);
    if constexpr (!requires { queue.primitive(); }) {
        what.is(queue);
    }
    what.amount = amount;
    return what;
}

#if BIDE_USDT
// Makes the probes of a thread's wait.
template <class Waiter> class probed_wait {
public:
    probed_wait(const void* primitive, const Waiter& its_node) noexcept : node_(its_node) {
        BIDE_PROBE(wait_begin, primitive, &its_node, 0);
    }
    probed_wait& operator=(probed_wait&&) = delete;
    ~probed_wait() {
        wait_status what = node_.outcome();
        if (what <= wait_status::parked) { // it has left the queue at its deadline
            what = wait_status::timed_out;
        }
        BIDE_PROBE(wait_end, &node_, static_cast<int>(what));
    }

private:
    const Waiter& node_;
};
#endif

}}} // namespace bide::BIDE_ABI::detail

#endif
