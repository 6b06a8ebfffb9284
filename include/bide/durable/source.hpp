// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SOURCE_HPP
#define BIDE_DURABLE_SOURCE_HPP

/// \file
/// The definitions of the durable locks and of file_slot.
///
/// The CMake target bide::durable compiles this file once. A program without that target includes
/// it in one of its files, or defines BIDE_DURABLE_HEADER_ONLY in all its files.

#include <bide/durable/impl/acquire_all.hpp>
#include <bide/durable/impl/leader_election.hpp>
#include <bide/durable/impl/locks.hpp>
#include <bide/durable/impl/rate_limiter.hpp>
#include <bide/durable/slots/impl/file.hpp>

#endif
