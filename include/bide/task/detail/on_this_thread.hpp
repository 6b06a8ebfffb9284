// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_DETAIL_ON_THIS_THREAD_HPP
#define BIDE_TASK_DETAIL_ON_THIS_THREAD_HPP

#include <bide/core/config.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/timer.hpp>
#include <bide/core/wake_scope.hpp>

namespace bide::inline BIDE_ABI {
namespace detail {

// An executor that resumes on the calling thread, as a releaser resumes a waiter without executor
// (core/resume.hpp).
template <class Platform> class BIDE_SHARED on_this_thread {
public:
    void post(runnable& r) noexcept { wake_scope<Platform>::run(r, &spare_executor<Platform>); }

    static executor_ref ref() noexcept {
        static constinit on_this_thread one;
        return one;
    }
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
