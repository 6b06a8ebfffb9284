// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_SOURCE_HPP
#define BIDE_MODEL_SOURCE_HPP

/// \file
/// The definitions of the model checker. The CMake target bide::model compiles this header once. A
/// program that is built without CMake includes it in exactly one file.
///
/// The header replaces the global operators new and delete of the program. So the checker counts
/// the memory of a body, and an abandoned execution leaks nothing.

#include <bide/model/impl/machine.hpp>
#include <bide/model/impl/ops.hpp>
#include <bide/model/impl/verdict.hpp>

#endif
