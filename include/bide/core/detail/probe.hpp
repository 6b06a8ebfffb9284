// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_PROBE_HPP
#define BIDE_CORE_DETAIL_PROBE_HPP

// The static probes (USDT) for perf, bpftrace, SystemTap and gdb. A probe is a nop and a note in the
// program that says where it is and where its arguments are. README.md in core/ lists the probes.
// noted.hpp includes this header if BIDE_USDT is 1.

#include <bide/core/config.hpp>
#include <bide/core/detail/primitive_of.hpp>
#include <bide/core/wait_status.hpp>

#if !__has_include(<sys/sdt.h>)
#error "BIDE_USDT needs <sys/sdt.h>. Debian has it in systemtap-sdt-dev."
#endif

#include <sys/sdt.h>

// One of STAP_PROBE1 to STAP_PROBE3, by the number of arguments.
#define BIDE_PROBE_OF(a, b, c, probe, ...) probe
#define BIDE_PROBE(name, ...)                                                                      \
    BIDE_PROBE_OF(__VA_ARGS__, STAP_PROBE3, STAP_PROBE2, STAP_PROBE1, )(bide, name, __VA_ARGS__)

namespace bide { inline namespace BIDE_ABI { namespace detail {

enum class probed : int { thread, coroutine };

// Makes the probes of a thread's wait.
template <class Waiter> class probed_wait {
public:
    probed_wait(const void* primitive, const Waiter& its_node) noexcept : node_(its_node) {
        BIDE_PROBE(wait_begin, primitive, &its_node, static_cast<int>(probed::thread));
    }
    probed_wait(const probed_wait&) = delete;
    probed_wait& operator=(const probed_wait&) = delete;
    ~probed_wait() {
        wait_status what = node_.outcome();
        if (what <= wait_status::parked) { // it has left the queue at its deadline
            what = wait_status::timed_out;
        }
        BIDE_PROBE(wait_end, &node_, static_cast<int>(what));
    }

private:
    const Waiter& node_;
};

}}} // namespace bide::BIDE_ABI::detail

#define BIDE_PROBE_IF(when, name, ...)                                                             \
    if (when) {                                                                                    \
        BIDE_PROBE(name, __VA_ARGS__);                                                             \
    }                                                                                              \
    static_cast<void>(0)
#define BIDE_PROBE_WAIT(queue, node)                                                               \
    const detail::probed_wait probe_of_this_wait(detail::subject_of_queue(queue, 1).primitive, node)

#endif
