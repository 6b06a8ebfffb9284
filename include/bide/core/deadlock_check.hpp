// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DEADLOCK_CHECK_HPP
#define BIDE_CORE_DEADLOCK_CHECK_HPP

/// \file
/// A dump of all waits, and reports of deadlocks, for a program that is compiled with
/// BIDE_DEADLOCK_CHECK.
///
/// With the macro, each wait of a thread or a coroutine is noted: which thread or task waits, for
/// which primitive, and since when. The holders of each mutex, adaptive_mutex, shared_mutex and
/// biased_shared_mutex are noted, too. One lock guards the notes. Every wait and every acquisition
/// of a lock takes it and allocates memory, so the check is for debug builds. All files of a
/// program must agree on the macro; the linker refuses a mix that shares a primitive. Without the
/// macro nothing is noted, and names are dropped.
///
/// - A wait that closes a cycle of waits among threads and tasks is reported with the whole cycle,
///   before it begins. If a holder of a mutex locks it again, that is a cycle of one. A cycle is
///   not reported if one of its waits may end early: a wait with a time-out or a stop token, or the
///   wait of a task with a deadline. A cycle of tasks is reported although another task could
///   cancel one of them.
/// - A wait for a condition_variable always ends with the lock held. So from its beginning on, it
///   counts as a wait for that lock, and a cycle through that lock is reported.
/// - By default the report is printed and the program terminates. See set_deadlock_handler().
/// - The thread or task that locks a mutex counts as its holder until the mutex is unlocked. If the
///   lock is given to another thread or task, forget_holder() prevents a wrong report.
/// - Some holders are not known: a coroutine that is part of no task, an upgradable reader, the
///   holder of a lock that a select has taken or of a key of a keyed_mutex, and the caller that
///   initialises a once_flag. A cycle through such a holder is not found. Neither is a cycle
///   through a semaphore, a channel or a join. Nor is a cycle through a reader that waits for other
///   readers because a writer waits in front of it. Waits by callbacks are not noted.
/// - A static primitive with a name is initialised at run time, so that the name is kept. It cannot
///   be constinit. A static primitive without a name may be initialised at compile time. Then a
///   dump shows its address and the kind of its queue only.
/// - If a coroutine is destroyed while a release on another thread resumes it, the program
///   terminates with a message (core/async_op.hpp).
//
// core/detail/wait_notes.hpp explains why no report is wrong.

#include <bide/core/config.hpp>
#include <bide/core/detail/noted.hpp>

#include <cstdio>

namespace bide { inline namespace BIDE_ABI {

/// The type of a deadlock handler. Its argument is the report, a text of several lines. The handler
/// runs on the thread whose wait closes the cycle. It must not wait for a primitive of the cycle.
/// When it returns, the wait begins.
using deadlock_handler = void (*)(const char* report);

/// Sets the handler of deadlocks. nullptr stands for the default, which prints the report on stderr and
/// terminates. Any thread may call it at any time.
/// Returns: the previous handler; nullptr without BIDE_DEADLOCK_CHECK.
inline deadlock_handler set_deadlock_handler([[maybe_unused]] deadlock_handler tell) noexcept {
    BIDE_CHECKED(return detail::wait_notes::all().set_handler(tell);)
    return nullptr;
}

/// Tells the check that the caller gives the lock of a mutex to another thread or task. Until the
/// mutex is locked again, its holder is not known.
template <class Mutex> void forget_holder([[maybe_unused]] const Mutex& held) noexcept {
    BIDE_CHECKED(detail::wait_notes::all().unlocked(&held, detail::wait_notes::mode::exclusive);)
}

/// Writes all waits. For each wait, writes the thread or task that waits, the primitive, its holder
/// if that is known, and how long the wait has lasted. Then writes the state of each scheduler, as
/// scheduler::dump() does. Without BIDE_DEADLOCK_CHECK, writes one line that says so. Any thread
/// may call this at any time, but no signal handler may.
/// Throws: std::bad_alloc.
inline void dump_all(std::FILE* to) {
    BIDE_CHECKED(return detail::wait_notes::all().dump(to);)
    std::fputs("bide: waits are not noted: the program was compiled without BIDE_DEADLOCK_CHECK\n",
               to);
}

}} // namespace bide::BIDE_ABI

#endif
