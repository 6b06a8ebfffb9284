// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_INTEROP_DETAIL_ASIO_FRAME_HPP
#define BIDE_INTEROP_DETAIL_ASIO_FRAME_HPP

#include <bide/core/config.hpp>
#include <bide/core/executor.hpp>
#include <bide/task/detail/coroutine_frame.hpp>
#include <bide/task/task.hpp>

#include <coroutine>
#include <cstddef>
#include <memory>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// Memory of an allocator, with a copy of the allocator behind it.
template <class Alloc> class asio_memory {
    struct alignas(__STDCPP_DEFAULT_NEW_ALIGNMENT__) unit {
        std::byte bytes[__STDCPP_DEFAULT_NEW_ALIGNMENT__];
    };
    using allocator = typename std::allocator_traits<Alloc>::template rebind_alloc<unit>;
    using traits = std::allocator_traits<allocator>;
    static_assert(alignof(allocator) <= alignof(unit));

    static constexpr std::size_t units_of(std::size_t bytes) noexcept {
        return (bytes + sizeof(unit) - 1) / sizeof(unit);
    }

public:
    static void* allocate(std::size_t bytes, const Alloc& from) {
        allocator a(from);
        unit* const at = std::to_address(traits::allocate(a, units_of(bytes) + units_of(sizeof a)));
        std::construct_at(reinterpret_cast<allocator*>(at + units_of(bytes)), std::move(a));
        return at;
    }
    static void release(void* memory, std::size_t bytes) noexcept {
        unit* const at = static_cast<unit*>(memory);
        auto* const kept = reinterpret_cast<allocator*>(at + units_of(bytes));
        allocator a(std::move(*kept));
        std::destroy_at(kept);
        traits::deallocate(a, std::pointer_traits<typename traits::pointer>::pointer_to(*at),
                           units_of(bytes) + units_of(sizeof a));
    }
};

// Owns the first coroutine of a job, whose frame comes from the allocator of the handler: a
// function of the allocator and a Source, which returns a V.
template <class V, class Alloc, class Source> class asio_frame {
public:
    struct promise_type : task_promise<V> {
        static void* operator new(std::size_t size, const Alloc& from, const Source&) {
            return asio_memory<Alloc>::allocate(size, from);
        }
        static void operator delete(void* frame, std::size_t size) noexcept {
            asio_memory<Alloc>::release(frame, size);
        }
        asio_frame get_return_object() noexcept {
            return asio_frame(std::coroutine_handle<promise_type>::from_promise(*this));
        }
    };

    asio_frame(asio_frame&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
    asio_frame& operator=(asio_frame&&) = delete;
    ~asio_frame() {
        if (frame_) {
            destroy_frame(frame_, frame_.promise().awaited_frames());
        }
    }

    promise_type& promise() const noexcept { return frame_.promise(); }
    std::coroutine_handle<> begin(basic_task_context<native_platform>& of,
                                  executor_ref where) const noexcept {
        promise().begin(of, where);
        return frame_;
    }

private:
    explicit asio_frame(std::coroutine_handle<promise_type> frame) noexcept : frame_(frame) {}

    std::coroutine_handle<promise_type> frame_;
};

}}} // namespace bide::BIDE_ABI::detail

#endif
