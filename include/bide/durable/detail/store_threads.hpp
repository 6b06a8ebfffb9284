// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_STORE_THREADS_HPP
#define BIDE_DURABLE_DETAIL_STORE_THREADS_HPP

#include <bide/core/config.hpp>
#include <bide/core/detail/os_thread.hpp>
#include <bide/core/detail/process_wide.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/sched/blocking_pool.hpp>

#include <chrono>
#include <cstddef>
#include <new>
#include <string_view>
#include <system_error>

namespace bide::inline BIDE_ABI {
namespace detail {

// The threads that call stores for callers with a time limit: coroutines, and threads with a
// timeout or a stop token. The process has one set of them, started on demand. It is never
// destroyed, and the end of the process does not wait for its threads. A child of fork() starts its
// own.
//
// At most 256 calls run at once. A further call waits for a free thread, in order of arrival. So
// 256 calls that hang delay the calls to every other store, until each of their callers gives up at
// the end of its own time.
class store_threads {
public:
    static constexpr unsigned most = 256;
    static constexpr std::chrono::milliseconds keep_alive{5'000}; // how long an idle thread stays

    // Runs r.run.wake() on a store thread. Returns an error if there is no such thread and none can
    // be started; then r is not used.
    static std::error_code post(runnable& r) noexcept {
        pool* const all = process_wide<pool, native_platform>::get(
            +[]() noexcept { return new (std::nothrow) pool; });
        std::error_code why = std::make_error_code(std::errc::not_enough_memory);
        if (all != nullptr && all->post(r, why)) {
            why.clear();
        }
        return why;
    }

private:
    // A thread of the pool uses nothing of the pool after it has left it, so no join is needed.
    struct detached_thread {
        std::error_code start(os_thread::function body, void* argument,
                              std::size_t /* the pool asks for the system's size */) noexcept {
            return os_thread::start_detached(body, argument);
        }
        void join() noexcept {}
        static void name_this(std::string_view name, const char* separator,
                              unsigned index) noexcept {
            os_thread::name_this(name, separator, index);
        }
    };
    using pool_base = basic_blocking_pool<native_platform, detached_thread>;

    struct pool final : pool_base {
        pool() noexcept : pool_base({most, keep_alive, "bide-store"}) {}
    };
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
