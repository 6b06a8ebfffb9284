#ifndef BIDE_TASK_DETAIL_FRAME_MEMORY_HPP
#define BIDE_TASK_DETAIL_FRAME_MEMORY_HPP

// Memory for what a scheduler makes and drops all the time: coroutine frames and the heads of
// tasks. Blocks are kept in classes of 16 bytes. Each thread has, of each class, a stack that it
// takes from and returns to, and a second one, full or empty, in reserve: full stacks (batches) are
// what threads exchange through the depot of the process, so that what one frees and another needs
// travels at the price of a batch. (Bonwick and Adams, "Magazines and Vmem", 2001, section 3.)
//
// Bounded: two batches of each class for a thread, `most_kept` bytes in the depot; what is over
// goes back to operator delete, and a thread that ends leaves nothing behind. Every block comes
// from operator new alone, so one made by a translation unit that recycles may be released by one
// that does not.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/task/detail/frame_depot.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

// Sanitizers find a use after the end where memory is not recycled.
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

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform, bool Recycles = BIDE_RECYCLE_FRAMES != 0 && !Platform::model>
class basic_frame_memory {
public:
    static constexpr std::size_t most_kept = std::size_t{8} << 20;

    // Aligned as operator new's.
    // Throws: what operator new throws.
    static void* allocate(std::size_t size) {
        if constexpr (Recycles) {
            if (size - 1 < largest) {
                const std::size_t kind = (size - 1) / grain;
                cache& mine = Platform::template local<cache>();
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

    // `size` is what was asked for.
    static void release(void* memory, std::size_t size) noexcept {
        if constexpr (Recycles) {
            if (size - 1 < largest) {
                const std::size_t kind = (size - 1) / grain;
                cache& mine = Platform::template local<cache>();
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

    // Gives what is in the depot back to operator delete.
    static void trim() noexcept;

    // Bytes in the depot: a snapshot.
    static std::size_t kept() noexcept { return shared.bytes(); }

private:
    using block = frame_block;
    using depot = basic_frame_depot<Platform>;

    static constexpr std::size_t grain = depot::grain;
    static constexpr std::size_t kinds = depot::kinds;
    static constexpr std::size_t largest = depot::largest;

    struct bin {
        block* top = nullptr;
        block* reserve = nullptr; // a full batch, or none
        std::uint32_t room = 0;   // for how many more below `top`
    };

    // A thread's. All zero until it is opened, so that every first use comes to refill() or
    // make_room(); and again after it is closed.
    enum class stage : unsigned char { fresh, open, closed };
    struct cache {
        bin bins[kinds];
        stage now = stage::fresh;
    };

    // Closes the cache when the thread ends. Not the cache's own destructor: what ends later on
    // this thread may release frames still.
    struct closer {
        ~closer() { close(Platform::template local<cache>()); }
    };

    inline static constinit depot shared{most_kept};

    static void free_list(block* first) noexcept;

    static void open(cache& mine) noexcept;
    static void close(cache& mine) noexcept;
    BIDE_NOINLINE static void* refill(cache& mine, std::size_t kind);
    BIDE_NOINLINE static bool make_room(cache& mine, std::size_t kind) noexcept;
};

template <class Platform, bool Recycles>
void basic_frame_memory<Platform, Recycles>::free_list(block* first) noexcept {
    while (first != nullptr) {
        ::operator delete(std::exchange(first, first->next));
    }
}

template <class Platform, bool Recycles>
void basic_frame_memory<Platform, Recycles>::trim() noexcept {
    for (std::size_t kind = 0; kind < kinds; ++kind) {
        while (block* const first = shared.take(kind)) {
            free_list(first);
        }
    }
}

template <class Platform, bool Recycles>
void basic_frame_memory<Platform, Recycles>::open(cache& mine) noexcept {
    mine.now = stage::open;
    for (std::size_t kind = 0; kind < kinds; ++kind) {
        mine.bins[kind].room = depot::batch(kind);
    }
    static_cast<void>(Platform::template local<closer>()); // it is destroyed from now on
}

template <class Platform, bool Recycles>
void basic_frame_memory<Platform, Recycles>::close(cache& mine) noexcept {
    mine.now = stage::closed;
    for (std::size_t kind = 0; kind < kinds; ++kind) {
        const bin last = std::exchange(mine.bins[kind], bin());
        free_list(last.top);
        if (last.reserve != nullptr && !shared.give(kind, last.reserve)) {
            free_list(last.reserve);
        }
    }
}

// A block for a thread whose stack is empty.
template <class Platform, bool Recycles>
void* basic_frame_memory<Platform, Recycles>::refill(cache& mine, std::size_t kind) {
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
    return ::operator new((kind + 1) * grain);
}

// Room for one more block on a thread whose stack is full; false: nothing is kept any more.
template <class Platform, bool Recycles>
bool basic_frame_memory<Platform, Recycles>::make_room(cache& mine, std::size_t kind) noexcept {
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

using frame_memory = basic_frame_memory<native_platform>;

// A base whose operator new is that, for what needs no more than operator new's alignment.
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

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
