// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_VERSION_HPP
#define BIDE_VERSION_HPP

/// \file
/// States the version of the library. CMake reads it from here.
#define BIDE_VERSION_MAJOR 0
#define BIDE_VERSION_MINOR 1
#define BIDE_VERSION_PATCH 0

#endif
