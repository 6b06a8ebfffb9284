// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_BLOCKING_SECTION_HPP
#define BIDE_DURABLE_DETAIL_BLOCKING_SECTION_HPP

#include <bide/core/config.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/platform.hpp>

namespace bide::inline BIDE_ABI {
namespace detail {

// Announces that this thread may block on a store. If the thread is a scheduler's worker, another
// thread takes over the worker.
class blocking_section {
public:
    blocking_section() noexcept : host_(worker_local<native_platform>::get().host) {
        if (host_ != nullptr) {
            host_->blocks();
        }
    }
    blocking_section(const blocking_section&) = delete;
    blocking_section& operator=(const blocking_section&) = delete;
    ~blocking_section() {
        if (host_ != nullptr) {
            host_->unblocks();
        }
    }

private:
    basic_worker_host<native_platform>* const host_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
