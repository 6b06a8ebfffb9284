// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_VERSION_HPP
#define BIDE_VERSION_HPP

/// \file
/// States the version of the library. CMake reads the version from this file.

/// The first number of the version.
#define BIDE_VERSION_MAJOR 0
/// The second number of the version.
#define BIDE_VERSION_MINOR 1
/// The third number of the version.
#define BIDE_VERSION_PATCH 0

#endif
