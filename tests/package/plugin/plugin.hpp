#ifndef BIDE_TESTS_PACKAGE_PLUGIN_HPP
#define BIDE_TESTS_PACKAGE_PLUGIN_HPP

// What the plugin sees of the program's library; the program knows the answers.

#include <bide/core/errc.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/task_tag.hpp>

struct seen {
    const void* current = nullptr;
    const void* shared = nullptr;
    const void* category = nullptr;
    bide::task_tag tag;
    bool is_cancelled = false;
    bool waited = false;
};

// Looks, and waits for the permit.
using look_function = void(seen& to, bide::semaphore& permit);
// Throws bide::closed_error.
using throw_function = void();

#endif
