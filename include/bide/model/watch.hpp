// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_WATCH_HPP
#define BIDE_MODEL_WATCH_HPP

/// \file
/// Makes the checker see accesses to plain memory that is not a model::var. One file of the program
/// includes this header. The bodies are compiled with -fsanitize=thread, and the program is linked
/// without that option. So the functions that the compiler calls at each access are those of this
/// header, and not those of ThreadSanitizer.
///
/// bide_add_model(... WATCH) sets these options. The file that includes this header is compiled
/// without -fsanitize=thread. Accesses by functions that were compiled without it are not seen.

#include <bide/model/impl/watch.hpp>

#endif
