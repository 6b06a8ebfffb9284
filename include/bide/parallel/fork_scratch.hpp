// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_FORK_SCRATCH_HPP
#define BIDE_PARALLEL_FORK_SCRATCH_HPP

/// \file
/// Objects, such as buffers, that the functions of fork-joins borrow. Such a function is called an
/// arm. There is about one object for each thread that runs arms. Two arms never have the same
/// object at the same time.
//
// While a thread waits for an arm, it may run another arm on top of that wait. If each thread had
// one object, the arm on top would change the object while the arm below uses it. So an arm borrows
// an object that no other arm has. The objects are in shards, each with a lock. A thread always
// uses the same shard. So a thread usually gets the object that it had last. Threads that use the
// same shard share the objects of that shard.

#include <bide/parallel/parallel_for.hpp>

namespace bide { inline namespace BIDE_ABI {

/// Makes objects when arms need them, and keeps them for other arms. Several loops may use one
/// fork_scratch, one after the other or at the same time.
///
/// make() returns an object, which need not be movable. make() runs on the thread that borrows,
/// with no lock held. make() is called only if all objects that this thread may use are borrowed.
/// The destructor destroys all objects. Requires: no object is borrowed.
template <class Make> class fork_scratch {
    struct object {
        explicit object(Make& make) : value(std::invoke(make)) {}
        std::invoke_result_t<Make&> value;
        object* next_idle = nullptr;
        object* older = nullptr;
    };
    struct shard;

public:
    /// The type of the objects.
    using value_type = std::invoke_result_t<Make&>;
    static_assert(std::is_object_v<value_type>, "bide: make returns an object by value");

    /// Holds a borrowed object. The destructor gives the object back.
    class [[nodiscard]] lease {
    public:
        lease(const lease&) = delete;
        lease& operator=(const lease&) = delete;
        /// Gives the object back.
        ~lease() { from_.put(mine_); }
        /// Returns the object.
        value_type& operator*() const noexcept { return mine_.value; }
        /// Returns the address of the object.
        value_type* operator->() const noexcept { return std::addressof(mine_.value); }

    private:
        friend fork_scratch;
        lease(shard& from, object& mine) noexcept : from_(from), mine_(mine) {}
        shard& from_;
        object& mine_;
    };

    /// Constructs it without objects.
    explicit fork_scratch(Make make) : make_(std::move(make)) {}
    fork_scratch(const fork_scratch&) = delete;
    fork_scratch& operator=(const fork_scratch&) = delete;
    ~fork_scratch() {
        for (shard& in : shards_) {
            while (object* const last = in.newest) {
                in.newest = last->older;
                delete last;
            }
        }
    }

    /// Lends an object that no other lease has, preferably the one that this thread had last.
    /// borrow() and the destructor of the lease each take the lock of a shard.
    /// Throws: std::bad_alloc, and what make() throws.
    /// Requires: the lease is destroyed before the fork_scratch.
    /// Thread safety: several threads may call it at once. A lease may be destroyed by any thread.
    lease borrow() {
        const auto thread =
            reinterpret_cast<std::uintptr_t>(detail::thread_mark<native_platform>());
        shard& in = shards_[(std::uint64_t{thread} * 0x9E37'79B9'7F4A'7C15U) >> 60];
        if (object* const idle = in.take()) {
            return lease(in, *idle);
        }
        auto* const made = new object(make_);
        const typename lock::guard held(in.word);
        made->older = std::exchange(in.newest, made);
        return lease(in, *made);
    }

    /// Returns a function that borrows an object for each call, and calls f(object, arguments...).
    /// Pass the function to any parallel algorithm, for instance as the map of parallel_reduce().
    /// Each call costs one borrow(). If the function is small, use parallel_for() with a
    /// fork_scratch, which borrows once for many elements.
    /// Requires: the fork_scratch outlives the function.
    template <class F> auto with(F f) {
        return [this, of = std::move(f)](auto&&... arguments) -> decltype(auto) {
            const lease mine = borrow();
            return std::invoke(of, *mine, std::forward<decltype(arguments)>(arguments)...);
        };
    }

    /// Calls f(object) for each object that was made, in an unspecified order. Use it to combine
    /// the objects.
    /// Requires: no object is borrowed during the call.
    template <class F> void for_each(F f) {
        for (shard& in : shards_) {
            for (object* at = in.newest; at != nullptr; at = at->older) {
                static_cast<void>(std::invoke(f, at->value));
            }
        }
    }

private:
    using lock = lock_bits<native_platform, std::uint32_t>;

    static constexpr std::size_t shard_count = 16;

    struct alignas(cache_line_pair) shard {
        object* take() noexcept {
            const typename lock::guard held(word);
            return idle != nullptr ? std::exchange(idle, idle->next_idle) : nullptr;
        }
        void put(object& mine) noexcept {
            const typename lock::guard held(word);
            mine.next_idle = std::exchange(idle, &mine);
        }

        native_platform::atomic<std::uint32_t> word{0};
        // Guarded by the lock:
        object* idle = nullptr;
        object* newest = nullptr; // of all that were made
    };

    Make make_;
    std::array<shard, shard_count> shards_;
};

/// Calls body(object, element) for each element of the range, with an object that no other call has
/// at that time. The loop borrows an object once for many successive elements.
/// Blocks, throws, cancellation: as parallel_for() over a range. An exception of make() is treated
/// as an exception of the first call of body that needs the object.
/// Requires: as parallel_for() over a range. body is never copied.
template <parallel_range Range, class Make, class Body>
    requires std::invocable<Body&, std::invoke_result_t<Make&>&,
                            std::ranges::range_reference_t<Range>>
void parallel_for(const fork_policy& on, Range&& range, fork_scratch<Make>& scratch, Body&& body) {
    const auto all = detail::elements_of(range);
    detail::loop_over(on, all.numbers(), [&](std::uint64_t from, std::uint64_t to) {
        const auto mine = scratch.borrow();
        detail::each_element(all.at(from), all.at(to), [&](auto&& element) {
            static_cast<void>(std::invoke(body, *mine, static_cast<decltype(element)>(element)));
        });
    });
}

}} // namespace bide::BIDE_ABI

#endif
