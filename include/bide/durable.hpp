// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_HPP
#define BIDE_DURABLE_HPP

/// \file
/// Includes the durable locks, but no slot of durable/slots/. A slot keeps the record of a lock in
/// one kind of store. Most slots need the client library of their store.

#include <bide/durable/acquire_all.hpp>
#include <bide/durable/fence_gate.hpp>
#include <bide/durable/leader_election.hpp>
#include <bide/durable/rate_limiter.hpp>

#endif
