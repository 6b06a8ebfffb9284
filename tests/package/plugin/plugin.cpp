#include "plugin.hpp"

#include <bide/task/this_task.hpp>

#include <chrono>

extern "C" [[gnu::visibility("default")]] void look(seen& to, bide::semaphore& permit) {
    to.current = bide::scheduler::current();
    to.shared = &bide::scheduler::shared();
    to.category = &bide::error_category();
    to.tag = bide::task_tag("of both");
    to.is_cancelled = bide::this_task::is_cancelled();
    to.waited = permit.try_acquire_for(std::chrono::seconds(20));
}

extern "C" [[gnu::visibility("default")]] void throw_closed() {
    bide::semaphore closed(0);
    closed.close();
    closed.acquire();
}
