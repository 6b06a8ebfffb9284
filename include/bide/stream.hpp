// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_STREAM_HPP
#define BIDE_STREAM_HPP

/// \file
/// Includes all of stream/.

#include <bide/stream/buffered.hpp>
#include <bide/stream/merge.hpp>
#include <bide/stream/operators.hpp>
#include <bide/stream/stream.hpp>

#endif
