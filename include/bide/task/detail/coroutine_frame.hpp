// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_DETAIL_COROUTINE_FRAME_HPP
#define BIDE_TASK_DETAIL_COROUTINE_FRAME_HPP

// The memory of coroutine frames, and the ownership of the frames that coroutines await.

#include <bide/core/detail/task_context.hpp>
#include <bide/core/resume.hpp>

// Sanitizers do not find a use after free in recycled memory. So builds with a sanitizer do not
// recycle.
#if !defined(BIDE_RECYCLE_FRAMES)
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BIDE_RECYCLE_FRAMES 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define BIDE_RECYCLE_FRAMES 0
#endif
#endif
#endif
#if !defined(BIDE_RECYCLE_FRAMES)
#define BIDE_RECYCLE_FRAMES 1
#endif

// With exceptions: try and catch (...). Without exceptions: the block after BIDE_CATCH never runs.
#if BIDE_EXCEPTIONS
#define BIDE_TRY try
#define BIDE_CATCH catch (...)
#else
#define BIDE_TRY if constexpr (true)
#define BIDE_CATCH else
#endif

namespace bide { inline namespace BIDE_ABI { namespace detail {

// ---- Memory
//
// Recycles the memory of objects that a scheduler allocates and frees often: coroutine frames and
// task cells.
//
// The size classes are 8 bytes apart. Half of the frames have 16 n + 8 bytes, and many allocators
// place such objects without a gap, so a coarser class would waste 8 bytes. For each class, a
// thread has a stack of free blocks and a reserve stack. The reserve stack is full or empty. A full
// stack is called a batch. Threads exchange whole batches through the depot, one store of batches
// in a process. So if one thread frees the blocks that another thread allocates, one exchange
// serves many blocks. (Bonwick and Adams, "Magazines and Vmem", 2001, section 3.)
//
// The memory that is kept is bounded: two batches of each class per thread, and `most_kept` bytes
// in the depot. Blocks that do not fit into the depot go back to operator delete. A thread that
// ends keeps no block. Each block is allocated by its own call of operator new. So an object may be
// allocated by a translation unit that recycles and freed by one that does not, or the reverse.
//
// A lock guards the depot. No thread sleeps on this lock. If a thread finds the lock taken, it
// tries again a few times, and then uses operator new or delete instead of the depot. So if a
// thread calls fork() while another thread holds the lock, the child process continues with
// operator new.

// A free block. A batch is a list of batch() blocks that ends with nullptr.
struct frame_block {
    frame_block* next;
    frame_block* next_batch; // set in the first block of a batch, while the depot has it
};

template <class Platform> class alignas(cache_line_pair) basic_frame_depot {
public:
    static constexpr std::size_t grain = 8;
    static constexpr std::size_t largest = 1024;
    static constexpr std::size_t kinds = largest / grain - 1;

    // Returns the size of the blocks of a class. The smallest block has room for a frame_block.
    static constexpr std::size_t size_of(std::size_t kind) noexcept { return (kind + 2) * grain; }
    // Returns the class for objects of a size. Requires: can_keep(size).
    static constexpr std::size_t kind_of(std::size_t size) noexcept {
        return (size - 1) / grain - 1;
    }
    static constexpr bool can_keep(std::size_t size) noexcept {
        return size > grain && size <= largest;
    }

    // Returns the number of blocks in a batch of a class.
    static constexpr std::uint32_t batch(std::size_t kind) noexcept {
        constexpr std::size_t most = 64;
        constexpr std::size_t bytes = 16 << 10;
        const std::size_t n = bytes / size_of(kind);
        return static_cast<std::uint32_t>(n < most ? n : most);
    }
    static constexpr std::size_t batch_bytes(std::size_t kind) noexcept {
        return batch(kind) * size_of(kind);
    }

    // Makes an empty depot that stores at most `most` bytes.
    constexpr explicit basic_frame_depot(std::size_t most) noexcept : most_(most) {}

    // Returns a batch of a class. Returns nullptr if there is none, or if the lock is taken.
    frame_block* take(std::size_t kind) noexcept {
        if (!enter()) {
            return nullptr;
        }
        frame_block* const first = batches_[kind];
        if (first != nullptr) {
            batches_[kind] = first->next_batch;
            bytes_ = bytes_ - batch_bytes(kind);
        }
        leave();
        return first;
    }

    // Stores a batch. Returns false if there is no room for it, or if the lock is taken.
    bool give(std::size_t kind, frame_block* first) noexcept {
        if (!enter()) {
            return false;
        }
        const bool fits = bytes_ + batch_bytes(kind) <= most_;
        if (fits) {
            first->next_batch = batches_[kind];
            batches_[kind] = first;
            bytes_ = bytes_ + batch_bytes(kind);
        }
        leave();
        return fits;
    }

    // Returns the bytes in the depot, possibly outdated. If the lock is taken, returns the limit.
    std::size_t bytes() noexcept {
        if (!enter()) {
            return most_;
        }
        const std::size_t now = bytes_;
        leave();
        return now;
    }

private:
    template <class T> using var = typename Platform::template var<T>;

    static constexpr int max_looks = Platform::model ? Platform::lock_looks : 64;

    bool enter() noexcept {
        for (int looked = 0; looked <= max_looks; ++looked) {
            // Order: relaxed; the CAS acquires.
            std::uint32_t seen = taken_.load(std::memory_order_relaxed);
            // Order: acquire [frame_depot.lock]; sees what the previous holder wrote to the depot
            // and to the blocks in the depot. Failure: retries.
            if (seen == 0 && taken_.compare_exchange_strong(seen, 1, std::memory_order_acquire,
                                                            std::memory_order_relaxed)) {
                return true;
            }
            if constexpr (!Platform::model) { // the checker explores each look
                Platform::pause();
            }
        }
        return false;
    }
    void leave() noexcept {
        // Order: release [frame_depot.lock]; the next holder sees the writes of this holder.
        taken_.store(0, std::memory_order_release);
    }

    typename Platform::template atomic<std::uint32_t> taken_{0};
    const std::size_t most_;

    // Accessed only by the holder of `taken_`:
    var<std::size_t> bytes_{0};
    var<frame_block*> batches_[kinds] = {};
};

template <class Platform, bool Recycles = BIDE_RECYCLE_FRAMES != 0 && !Platform::model>
class BIDE_SHARED basic_frame_memory {
public:
    static constexpr std::size_t most_kept = std::size_t{8} << 20;

    // Returns memory with the alignment of operator new.
    // Throws: what operator new throws.
    static void* allocate(std::size_t size) {
        if constexpr (Recycles) {
            if (depot::can_keep(size)) {
                const std::size_t kind = depot::kind_of(size);
                cache& mine = here();
                bin& b = mine.bins[kind];
                if (block* const top = b.top) {
                    b.top = top->next;
                    ++b.room;
                    return top;
                }
                return refill(mine, kind);
            }
        }
        return ::operator new(size);
    }

    // Requires: `size` is the argument of the allocate() that returned `memory`.
    static void release(void* memory, std::size_t size) noexcept {
        if constexpr (Recycles) {
            if (depot::can_keep(size)) {
                const std::size_t kind = depot::kind_of(size);
                cache& mine = here();
                bin& b = mine.bins[kind];
                if (b.room == 0 && !make_room(mine, kind)) {
                    ::operator delete(memory);
                    return;
                }
                b.top = ::new (memory) block{b.top, nullptr};
                --b.room;
                return;
            }
        }
        ::operator delete(memory);
    }

    // Returns all blocks of the depot to operator delete.
    static void trim() noexcept {
        for (std::size_t kind = 0; kind < kinds; ++kind) {
            while (block* const first = shared.take(kind)) {
                free_list(first);
            }
        }
    }

    static std::size_t kept() noexcept { return shared.bytes(); }

private:
    using block = frame_block;
    using depot = basic_frame_depot<Platform>;

    static constexpr std::size_t kinds = depot::kinds;

    struct bin {
        block* top = nullptr;
        block* reserve = nullptr; // a full batch, or nullptr
        std::uint32_t room = 0;   // how many more blocks fit on `top`
    };

    // The free blocks of one thread. While the cache is fresh or closed, all bins are empty and
    // have no room. So each allocate() calls refill(), and each release() calls make_room().
    enum class stage : unsigned char { fresh, open, closed };
    struct cache {
        bin bins[kinds];
        stage now = stage::fresh;
    };

    // Closes the cache when the thread ends. The destructor of the cache itself does not do this,
    // because destructors that run later on this thread may still free frames.
    struct closer {
        ~closer() { close(here()); }
    };

    inline static constinit depot shared{most_kept};

    BIDE_NEAR_LOCAL static cache& here() noexcept { return Platform::template near_local<cache>(); }

    static void free_list(block* first) noexcept {
        while (first != nullptr) {
            ::operator delete(std::exchange(first, first->next));
        }
    }

    static void open(cache& mine) noexcept {
        mine.now = stage::open;
        for (std::size_t kind = 0; kind < kinds; ++kind) {
            mine.bins[kind].room = depot::batch(kind);
        }
        static_cast<void>(Platform::template local<closer>()); // registers its destructor
    }

    static void close(cache& mine) noexcept {
        mine.now = stage::closed;
        for (std::size_t kind = 0; kind < kinds; ++kind) {
            const bin last = std::exchange(mine.bins[kind], bin());
            free_list(last.top);
            if (last.reserve != nullptr && !shared.give(kind, last.reserve)) {
                free_list(last.reserve);
            }
        }
    }

    // Returns a block. Called when the thread's stack is empty.
    BIDE_NOINLINE static void* refill(cache& mine, std::size_t kind) {
        if (mine.now == stage::fresh) {
            open(mine);
        }
        bin& b = mine.bins[kind];
        if (mine.now == stage::open) {
            block* top = std::exchange(b.reserve, nullptr);
            if (top == nullptr) {
                top = shared.take(kind);
            }
            if (top != nullptr) {
                b.top = top->next;
                b.room = 1;
                return top;
            }
        }
        return ::operator new(depot::size_of(kind));
    }

    // Makes room for one more block on a full stack. Returns false if this thread's cache is
    // closed.
    BIDE_NOINLINE static bool make_room(cache& mine, std::size_t kind) noexcept {
        if (mine.now == stage::fresh) {
            open(mine);
            return true;
        }
        if (mine.now == stage::closed) {
            return false;
        }
        bin& b = mine.bins[kind];
        block* const over = std::exchange(b.reserve, std::exchange(b.top, nullptr));
        b.room = depot::batch(kind);
        if (over != nullptr && !shared.give(kind, over)) {
            free_list(over);
        }
        return true;
    }
};

using frame_memory = basic_frame_memory<native_platform>;

// A base class that allocates objects from frame_memory. An over-aligned object is not recycled.
struct recycled {
    static void* operator new(std::size_t size) { return frame_memory::allocate(size); }
    static void operator delete(void* p, std::size_t size) noexcept {
        frame_memory::release(p, size);
    }
    static void* operator new(std::size_t size, std::align_val_t align) {
        return ::operator new(size, align);
    }
    static void operator delete(void* p, std::size_t, std::align_val_t align) noexcept {
        ::operator delete(p, align);
    }
};

// ---- Frames that await each other
//
// How a coroutine owns the frame of the coroutine that it awaits, the order in which frames are
// destroyed, and the common part of the promises.
//
// A chain of suspended coroutines may be destroyed before it has ended. The innermost coroutine is
// destroyed first, because it may refer to local variables of the coroutines that await it. The
// destruction of a long chain uses no more stack than that of a short one.
//
// An awaiter lies in the frame of the awaiting coroutine. The awaiter contains an awaited_frame,
// which owns the awaited frame. The promise of the awaiting coroutine points to the awaited_frame,
// or to the first one of a list. So the frames form a tree. destroy_awaited() destroys each frame
// before the frame that contains its awaiter. destroy_awaited() also empties the handle in that
// awaiter, so that the awaiter destroys nothing later.
//
// A coroutine whose promise has no awaited_frames() is a leaf of this tree. An awaiter in the frame
// of such a coroutine is the root of another tree.

// A node of the tree, for an awaited coroutine. The base class has two members. `to` is the handle
// of the coroutine, and is empty after the frame was destroyed. `next` links the nodes of all
// coroutines that one coroutine awaits. During the destruction, `next` links the nodes in
// destruction order. If the awaiting coroutine awaits only this one, the transfer of control to
// `to` uses this node, too.
struct awaited_frame : transfer_node {
    awaited_frame* const* awaits = nullptr; // the frames that `to` awaits: the list in its promise

    awaited_frame* exchange_next(awaited_frame* other) noexcept {
        return static_cast<awaited_frame*>(std::exchange(next, other));
    }
};

// Returns the promise of a coroutine. Requires: the promise has the type Promise.
template <class Promise> Promise& promise_of(std::coroutine_handle<> frame) noexcept {
    return std::coroutine_handle<Promise>::from_address(frame.address()).promise();
}

// Destroys the tree of frames that a coroutine awaits.
BIDE_COLD inline void destroy_awaited(awaited_frame* first) noexcept {
    awaited_frame* pending = nullptr; // a stack: the frames that are not in the order yet
    awaited_frame* order = nullptr;   // a stack: children are pushed after their parent
    const auto push_all = [&pending](awaited_frame* frames) {
        while (frames != nullptr) {
            awaited_frame* const one = frames;
            frames = one->exchange_next(pending);
            pending = one;
        }
    };
    push_all(first);
    while (pending != nullptr) {
        awaited_frame* const one = pending;
        pending = one->exchange_next(nullptr);
        // A coroutine that has ended awaits nothing, and its awaiter destroys it.
        if (one->to && !one->to.done()) {
            one->next = std::exchange(order, one);
            push_all(*one->awaits);
        }
    }
    while (order != nullptr) {
        awaited_frame* const one = order;
        order = one->exchange_next(nullptr);
        std::exchange(one->to, nullptr).destroy();
    }
}

// Destroys the frames that a suspended coroutine awaits, and then its own frame.
inline void destroy_frame(std::coroutine_handle<> frame, awaited_frame* awaits) noexcept {
    if (awaits != nullptr) {
        destroy_awaited(awaits);
    }
    frame.destroy();
}

// Between begin() and end(), a promise points to the frames that its coroutine awaits.
class awaiting {
public:
    awaiting() noexcept {}
    awaiting(const awaiting&) = delete;
    awaiting& operator=(const awaiting&) = delete;

    template <class Promise>
    void begin(std::coroutine_handle<Promise> h, awaited_frame* first) noexcept {
        if constexpr (requires {
                          { h.promise().awaited_frames() } -> std::same_as<awaited_frame*&>;
                      }) {
            promises_ = &h.promise().awaited_frames();
            *promises_ = first;
        }
    }

    // When the coroutine resumes, it first calls end(), before the awaited frames are destroyed.
    void end() noexcept {
        if (promises_ != nullptr) {
            *promises_ = nullptr;
        }
    }

private:
    awaited_frame** promises_ = nullptr;
};

// The common base of the promises of tasks and generators. It has the executor, the context and the
// awaited frames of a coroutine.
class chain_promise : public recycled {
public:
    std::suspend_always initial_suspend() const noexcept { return {}; }

    executor_ref get_scheduler() const noexcept { return executor_; }
    basic_task_context<native_platform>* task_context() const noexcept { return context_; }
    awaited_frame*& awaited_frames() noexcept { return awaited_frames_; }

protected:
    chain_promise() noexcept : executor_() {}
    ~chain_promise() = default;

    union {
        std::uint8_t tag_ = 0; // of a task, until it begins
        basic_task_context<native_platform>* context_;
    };
    union {
        executor_ref executor_;
        transfer_node to_parent_; // of a task, from its end on
    };
    awaited_frame* awaited_frames_ = nullptr; // the frames that the coroutine awaits, in a list
};

// Returns the awaiter of `a`, as `co_await` finds it. If `a` is its own awaiter, returns `a`.
template <class A> decltype(auto) awaiter_of(A&& a) {
    if constexpr (requires { std::forward<A>(a).operator co_await(); }) {
        return std::forward<A>(a).operator co_await();
    } else if constexpr (requires { operator co_await(std::forward<A>(a)); }) {
        return operator co_await(std::forward<A>(a));
    } else {
        return std::forward<A>(a);
    }
}

}}} // namespace bide::BIDE_ABI::detail

#endif
