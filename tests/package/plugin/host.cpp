// Loads the plugin that argv[1] names, and compares what it sees of bide to what the program sees.

#include "plugin.hpp"

#include <bide/task/task_tag.hpp>

#include <cstdio>

#include <dlfcn.h>

namespace {

int failures = 0;

void check(bool is_right, const char* what) {
    if (!is_right) {
        std::printf("differs: %s\n", what);
        ++failures;
    }
}

} // namespace

int main(int, char** argv) {
    void* const plugin = ::dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (plugin == nullptr) {
        std::puts(::dlerror());
        return 2;
    }
    const auto look = reinterpret_cast<look_function*>(::dlsym(plugin, "look"));
    const auto throws = reinterpret_cast<throw_function*>(::dlsym(plugin, "throw_closed"));
    static_cast<void>(bide::task_tag("here alone"));
    const bide::task_tag tag("of both");
    {
        bide::scheduler workers({.num_workers = 1});
        bide::semaphore permit(0);
        seen there;
        auto looking = workers.spawn([&] { look(there, permit); });
        workers.spawn([&] { permit.release(); }).detach(); // by a substitute of the blocked worker
        std::move(looking).join();
        check(there.current == &workers, "scheduler::current()");
        check(there.shared == &bide::scheduler::shared(), "scheduler::shared()");
        check(there.category == &bide::error_category(), "error_category()");
        check(there.tag == tag, "task_tag");
        check(there.waited, "a blocking wait on a worker");
    }
    {
        bide::scheduler workers({.num_workers = 1});
        bide::semaphore permit(1);
        bide::semaphore begun(0);
        bide::semaphore cancelled(0);
        seen there;
        auto looking = workers.spawn([&] {
            begun.release();
            cancelled.acquire();
            look(there, permit);
        });
        begun.acquire();
        looking.cancel();
        cancelled.release();
        std::move(looking).join();
        check(there.is_cancelled, "this_task::is_cancelled()");
    }
    try {
        throws();
    } catch (const bide::closed_error& error) {
        check(error.code() == bide::errc::closed, "the code of an exception");
        return failures;
    } catch (...) {
    }
    check(false, "an exception");
    return failures;
}
