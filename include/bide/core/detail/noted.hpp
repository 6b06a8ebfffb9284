// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_NOTED_HPP
#define BIDE_CORE_DETAIL_NOTED_HPP

// The macros by which operations report their waits to the deadlock check and to static probes.
// Without BIDE_DEADLOCK_CHECK and BIDE_USDT, the macros expand to nothing, and their arguments are
// not evaluated.
//
//   BIDE_CHECKED(code)                code for BIDE_DEADLOCK_CHECK (core/deadlock_check.hpp)
//   BIDE_PROBE(name, arguments...)    a static probe, if BIDE_USDT is 1 (probe.hpp)
//   BIDE_PROBE_IF(when, name, ...)    a probe, reached if `when` is true
//   BIDE_PROBE_WAIT(queue, node)      the probe wait_begin, and at the end of the scope wait_end
//
// And the macro by which operations let a simulation run other tasks (README.md in test/). Without
// BIDE_SWITCH_POINTS, it expands to nothing.
//
//   BIDE_SWITCH_AFTER()               at the end of the scope, other tasks may run

#include <bide/core/config.hpp>

#if defined(BIDE_DEADLOCK_CHECK)
#define BIDE_CHECKED(...) __VA_ARGS__
#else
#define BIDE_CHECKED(...)
#endif

#if !defined(BIDE_USDT)
#define BIDE_USDT 0
#endif
#if !BIDE_USDT
#define BIDE_PROBE(...) static_cast<void>(0)
#define BIDE_PROBE_IF(...) static_cast<void>(0)
#define BIDE_PROBE_WAIT(...) static_cast<void>(0)
#endif

#if !defined(BIDE_SWITCH_POINTS)
#define BIDE_SWITCH_POINTS 0
#endif
#if BIDE_SWITCH_POINTS
#include <bide/core/detail/switch_after.hpp>
#define BIDE_SWITCH_AFTER() const ::bide::detail::switch_after bide_switch_after
#else
#define BIDE_SWITCH_AFTER() static_cast<void>(0)
#endif

#if defined(BIDE_DEADLOCK_CHECK)
#include <bide/core/deadlock_check.hpp>
#elif BIDE_USDT
#include <bide/core/detail/probe.hpp>
#endif

#endif
