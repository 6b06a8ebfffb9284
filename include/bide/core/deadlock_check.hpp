// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DEADLOCK_CHECK_HPP
#define BIDE_CORE_DEADLOCK_CHECK_HPP

/// \file
/// A dump of all waits, and reports of deadlocks, for a program that is compiled with
/// BIDE_DEADLOCK_CHECK.
///
/// With the macro, each wait of a thread or a coroutine is noted: which thread or task waits, for which
/// primitive, and since when. The holders of each mutex, adaptive_mutex, shared_mutex and
/// biased_shared_mutex are noted, too. One lock guards the notes, so every wait and every lock of the
/// program takes it, and allocates: this is for debug builds. All files of a program must agree on the
/// macro; the linker refuses a mix that shares a primitive. Without the macro nothing is noted, and names
/// are dropped.
///
/// - A wait that closes a cycle of waits among threads and tasks is reported with the whole cycle, before
///   it begins. To lock a mutex again while holding it is a cycle of one. A wait with a time-out or a
///   stop token may end by itself, and so may the wait of a task with a deadline: a cycle with such a
///   wait is not reported. A task may also be cancelled by another one; a cycle with it is reported
///   nevertheless.
/// - Each outcome of a wait for a condition_variable has the lock again. So from its beginning on, that
///   wait is also one for the lock, whatever ends it: a cycle through that lock is reported.
/// - By default the report is printed and the program terminates. See set_deadlock_handler().
/// - The thread or task that locks a mutex is taken for its holder until it is unlocked. If the lock is
///   given to another thread or task, forget_holder() prevents a wrong report.
/// - Some holders are not known: a coroutine that is part of no task, an upgradable reader, a lock that a
///   select has taken, a key of a keyed_mutex, the turn of a once_flag. A cycle through such a lock is not
///   found, nor one through a semaphore, a channel, a join, or a reader that waits behind a writer for
///   other readers. Waits by callbacks are not noted.
/// - A static object with a name is initialised at run time, so that the name is kept: it cannot be
///   constinit. One without a name may be initialised at compile time. Then a dump shows its address, and
///   only the kind of its queue.
/// - A coroutine that is destroyed while a release on another thread resumes it terminates with a
///   message (core/async_op.hpp).
//
// core/detail/wait_notes.hpp says why no report is wrong.

#include <bide/core/config.hpp>
#include <bide/core/detail/noted.hpp>

#include <cstdio>

namespace bide::inline BIDE_ABI {

/// Gets the report of a deadlock, a text of several lines. It runs on the thread whose wait closes the
/// cycle, and must not wait for a primitive of the cycle. When it returns, the wait begins.
using deadlock_handler = void (*)(const char* report);

/// Sets the handler of deadlocks. nullptr stands for the default, which prints the report on stderr and
/// terminates. Any thread may call it at any time.
/// Returns: the handler before; nullptr without BIDE_DEADLOCK_CHECK.
inline deadlock_handler set_deadlock_handler([[maybe_unused]] deadlock_handler tell) noexcept {
    BIDE_CHECKED(return detail::wait_notes::all().set_handler(tell);)
    return nullptr;
}

/// Says that the lock of a mutex is given to another thread or task. Until the mutex is locked again, its
/// holder is not known.
template <class Mutex> void forget_holder([[maybe_unused]] const Mutex& held) noexcept {
    BIDE_CHECKED(detail::wait_notes::all().unlocked(&held, detail::wait_notes::mode::exclusive);)
}

/// Writes all waits: which thread or task waits for which primitive, its holder if that is known, and for
/// how long. Then writes the state of each scheduler, as scheduler::dump() does. Without
/// BIDE_DEADLOCK_CHECK, writes one line that says so. Any thread may call this at any time, but no signal
/// handler may.
/// Throws: std::bad_alloc.
inline void dump_all(std::FILE* to) {
    BIDE_CHECKED(return detail::wait_notes::all().dump(to);)
    std::fputs("bide: waits are not noted: the program was compiled without BIDE_DEADLOCK_CHECK\n",
               to);
}

} // namespace bide::inline BIDE_ABI

#endif
