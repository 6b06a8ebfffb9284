// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_PER_PROCESS_HPP
#define BIDE_DURABLE_DETAIL_PER_PROCESS_HPP

// Gives an object one T in each process.
//
// A child of fork() makes a T of its own at its first use: the parent's T may be half changed, or
// locked by a thread that does not exist in the child. So the child never destroys the inherited T.
// If T has a function leave(), the child calls it once, for example to close files.

#include <bide/core/config.hpp>
#include <bide/core/detail/process_wide.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>

#include <atomic>
#include <memory>
#include <new>
#include <system_error>

#include <unistd.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// Distinguishes a process from its parents by an address. To read the address is cheaper than
// getpid(2), which is a system call.
struct BIDE_SHARED process_token {
    // Returns nullptr if there is no memory.
    static const process_token* here() noexcept {
        return process_wide<process_token, native_platform>::get(
            +[]() noexcept { return new (std::nothrow) process_token; });
    }
};

template <class T> class per_process {
public:
    per_process() = default;
    per_process(const per_process&) = delete;
    per_process& operator=(const per_process&) = delete;
    ~per_process() {
        // Order: relaxed; the last reference is gone.
        entry* const last = current_.load(std::memory_order_relaxed);
        if (last == nullptr) {
            return;
        }
        if (last->process == process_token::here()) {
            delete last;
        } else {
            leave(*last);
        }
    }

    // Returns the T of this process. The first call in a process makes it by make().
    // Throws: what make() throws, std::bad_alloc, std::system_error if there is no memory.
    template <class Make> T& get(Make make) {
        const process_token* const here = process_token::here();
        if (here == nullptr) {
            throw_error(std::make_error_code(std::errc::not_enough_memory));
        }
        // Order: acquire [per_process.publish]; the T is seen as it was made.
        entry* found = current_.load(std::memory_order_acquire);
        while (found == nullptr || found->process != here) {
            auto mine = std::make_unique<entry>(here, make);
            // Order: acq_rel [per_process.publish]; publishes the new T. Failure: acquire; the T
            // that another thread made is seen.
            if (current_.compare_exchange_strong(found, mine.get(), std::memory_order_acq_rel,
                                                 std::memory_order_acquire)) {
                if (found != nullptr) {
                    leave(*found);
                }
                found = mine.release();
            }
        }
        return found->value;
    }

private:
    struct entry {
        template <class Make>
        entry(const process_token* here, Make& make) : process(here), value(make()) {}

        const process_token* const process;
        T value;
    };

    static void leave(entry& inherited) noexcept {
        if constexpr (requires { inherited.value.leave(); }) {
            inherited.value.leave();
        }
    }

    native_platform::atomic<entry*> current_{nullptr};
};

}}} // namespace bide::BIDE_ABI::detail

#endif
