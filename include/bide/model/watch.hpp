// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_WATCH_HPP
#define BIDE_MODEL_WATCH_HPP

/// \file
/// Makes the checker see plain memory that is no model::var. For one file of a program whose bodies are
/// compiled with -fsanitize=thread, and which is linked without it: the functions that the compiler calls at
/// each access are those of this file then, and the runtime of ThreadSanitizer is not there.
///
/// bide_add_model(... WATCH) does both. This file itself is compiled without that option. An access by
/// functions that were compiled without it is not seen.

#include <bide/model/impl/watch.hpp>

#endif
