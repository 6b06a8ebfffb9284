// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_UNMODIFIED_HPP
#define BIDE_MODEL_UNMODIFIED_HPP

/// \file
/// Lets the checker explore code that was not written for it: std::atomic, std::thread, std::mutex,
/// plain memory. One file of the program includes this header. The bodies are compiled with
/// -fsanitize=thread, and the program is linked without that option. So the code of a body calls
/// the functions of this header at each access to memory. The program also gets its functions of
/// threads, locks, futexes, time and memory from this header. In a body, these functions are
/// operations of the checker, or the checker refuses them. Outside of a body, they are those of the
/// system. bide_add_model(... UNMODIFIED) sets all of this. README.md in this folder has the
/// limits.
///
/// Requires: Linux with glibc, x86-64 or AArch64, and libstdc++.

#include <bide/model/detail/unmodified_atomics.hpp>
#include <bide/model/detail/unmodified_memory.hpp>
#include <bide/model/detail/unmodified_nodes.hpp>
#include <bide/model/detail/unmodified_refused.hpp>
#include <bide/model/detail/unmodified_threads.hpp>

#endif
