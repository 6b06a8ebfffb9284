#ifndef BIDE_DURABLE_DETAIL_PER_PROCESS_HPP
#define BIDE_DURABLE_DETAIL_PER_PROCESS_HPP

// What an object has of a T in each process. A child of fork() makes a T of its own on its first
// use: the parent's may be locked by a thread that the child does not have, or half changed. So the
// child never destroys what it inherited. It calls leave() once where T has that: to close files,
// say.

#include <bide/core/config.hpp>
#include <bide/core/detail/process_wide.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>

#include <atomic>
#include <memory>
#include <new>
#include <system_error>

namespace bide::inline BIDE_ABI {
namespace detail {

// Tells a process from those that it was forked from, by its address: a load, where getpid(2) is a
// call of the system.
struct process_token {
    // nullptr: no memory.
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

    // This process's. make() makes it.
    // Throws: what make() throws, std::bad_alloc, std::system_error where there is no memory.
    template <class Make> T& get(Make make) {
        const process_token* const here = process_token::here();
        if (here == nullptr) {
            throw_error(std::make_error_code(std::errc::not_enough_memory));
        }
        // Order: acquire [PP1]; the T is seen as it was made.
        entry* found = current_.load(std::memory_order_acquire);
        while (found == nullptr || found->process != here) {
            auto mine = std::make_unique<entry>(here, make);
            // Order: acq_rel [PP1]; publishes what was made. Failure: acquire; what another made.
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

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
