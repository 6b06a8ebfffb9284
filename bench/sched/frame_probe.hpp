#ifndef BIDE_BENCH_SCHED_FRAME_PROBE_HPP
#define BIDE_BENCH_SCHED_FRAME_PROBE_HPP

// How large the frame of a coroutine that returns bide::task<> is: the same coroutine, written for
// any such type, returns this instead.

#include <bide/task/task.hpp>

#include <coroutine>
#include <cstddef>
#include <new>
#include <utility>

namespace bench {

class frame_probe {
public:
    struct promise_type : bide::task<>::promise_type {
        static void* operator new(std::size_t size) {
            last_size = size;
            return ::operator new(size);
        }
        static void operator delete(void* frame) { ::operator delete(frame); }

        frame_probe get_return_object() noexcept {
            return frame_probe(std::coroutine_handle<promise_type>::from_promise(*this));
        }

        static inline std::size_t last_size = 0;
    };

    frame_probe(frame_probe&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
    frame_probe& operator=(const frame_probe&) = delete;
    ~frame_probe() {
        if (frame_) {
            frame_.destroy();
        }
    }

    double size() const { return static_cast<double>(promise_type::last_size); }

private:
    explicit frame_probe(std::coroutine_handle<promise_type> frame) noexcept : frame_(frame) {}

    std::coroutine_handle<promise_type> frame_;
};

} // namespace bench

#endif
