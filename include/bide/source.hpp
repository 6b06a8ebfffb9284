// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SOURCE_HPP
#define BIDE_SOURCE_HPP

/// \file
/// Contains the definitions that the headers omit if BIDE_COMPILED is defined.
///
/// The CMake target bide::compiled compiles this file once. A program without that target includes
/// this file in one of its source files, before any other header of bide.

#if defined(BIDE_CORE_CONFIG_HPP)
#error "bide: include bide/source.hpp before any other header of bide"
#endif

#define BIDE_SOURCE

#include <bide/bide.hpp>

// Not included by bide.hpp.
#include <bide/sched/executor_runner.hpp>
#include <bide/sched/report.hpp>

#endif
