// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_SEGMENT_QUEUE_HPP
#define BIDE_CHANNEL_DETAIL_SEGMENT_QUEUE_HPP

// A queue without a limit, for use under the lock of its owner: items lie in segments, which are
// linked from the oldest to the youngest.
//
// The queue neither allocates nor frees. It takes segments from the caller's `loose` segments,
// which the caller allocates before it acquires the lock. Segments that the queue no longer needs
// go to `loose`, and the caller frees them after it has released the lock. The queue keeps one
// emptied segment as a spare. So if pushes and pops are equally fast, nothing is allocated.
//
//   in a segment    [0, begin) are gone, [begin, end) are items, [end, size) are free
//   several         all but the last have end == size; those in the middle have begin == 0
//   an empty queue  has no segment, or one with begin == end == 0

#include <bide/channel/detail/element.hpp>
#include <bide/core/config.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class T, class Platform> class basic_segment_queue {
    static_assert(is_element<T>);

    template <class U> using var = typename Platform::template var<U>;
    using index = std::uint32_t;
    struct segment;

public:
    // How many items a segment holds: one if they are large.
    static constexpr std::size_t segment_size = Platform::model     ? 2
                                                : sizeof(T) <= 64   ? 64
                                                : sizeof(T) <= 4096 ? 4096 / sizeof(T)
                                                                    : 1;

    // Segments that belong to no queue but to the caller.
    class segments {
    public:
        segments() noexcept = default;
        segments(const segments&) = delete;
        segments& operator=(const segments&) = delete;
        ~segments() {
            while (first_ != nullptr) {
                delete pop();
            }
        }

        std::size_t size() const noexcept { return size_; }

        // Adds a segment. Returns false if there is no memory.
        bool allocate() noexcept {
            segment* const more = new (std::nothrow) segment;
            if (more != nullptr) {
                push(*more);
            }
            return more != nullptr;
        }

    private:
        friend class basic_segment_queue;

        void push(segment& s) noexcept {
            s.next = first_;
            first_ = &s;
            ++size_;
        }
        // Returns nullptr if there is no segment.
        segment* pop() noexcept {
            segment* const s = first_;
            if (s != nullptr) {
                first_ = s->next;
                --size_;
            }
            return s;
        }

        segment* first_ = nullptr;
        std::size_t size_ = 0;
    };

    basic_segment_queue() noexcept = default;
    basic_segment_queue(const basic_segment_queue&) = delete;
    basic_segment_queue& operator=(const basic_segment_queue&) = delete;

    // Destroys the items.
    ~basic_segment_queue();

    void swap(basic_segment_queue& other) noexcept {
        std::swap(first_, other.first_);
        std::swap(last_, other.last_);
        std::swap(spare_, other.spare_);
    }

    // Takes all items of `from`, and gives it its own segments, which are empty.
    // Requires: this queue is empty.
    void take_all(basic_segment_queue& from) noexcept {
        std::swap(first_, from.first_);
        std::swap(last_, from.last_);
        if (from.spare_ == nullptr) {
            std::swap(spare_, from.spare_);
        }
    }

    bool empty() const noexcept {
        segment* const first = first_;
        return first == nullptr || first->begin == first->end;
    }

    // Returns true if push_back() needs no further segment.
    bool has_room() const noexcept {
        segment* const last = last_;
        return (last != nullptr && last->end != segment_size) || spare_ != nullptr;
    }

    // Returns how many loose segments a push of n items needs.
    std::size_t lacking(std::size_t n) const noexcept;

    // Moves an item in, behind all items or before them. Returns false if it lacks a segment.
    bool push_back(T& item, segments& loose) noexcept;
    bool push_front(T& item, segments& loose) noexcept;

    // Calls put(T&), which moves the first item out.
    // Requires: not empty.
    template <class Put> void pop_front(Put& put, segments& loose) noexcept;

private:
    struct segment {
        var<segment*> next{nullptr};
        var<index> begin{0};
        var<index> end{0};
        alignas(T) std::byte places[segment_size * sizeof(T)];

        void* place(index i) noexcept { return places + i * sizeof(T); }
        T& item(index i) noexcept { return *std::launder(static_cast<T*>(place(i))); }
    };

    // Returns an unused segment, or nullptr.
    segment* take(segments& loose) noexcept {
        segment* more = spare_;
        if (more != nullptr) {
            spare_ = nullptr;
        } else {
            more = loose.pop();
        }
        if (more != nullptr) {
            more->next = nullptr;
        }
        return more;
    }

    var<segment*> first_{nullptr};
    var<segment*> last_{nullptr};
    var<segment*> spare_{nullptr};
};

template <class T, class Platform> basic_segment_queue<T, Platform>::~basic_segment_queue() {
    segments emptied;
    while (!empty()) {
        segment* const first = first_;
        const index at = first->begin;
        first->item(at).~T();
        first->begin = at + 1;
        if (first->begin == first->end && first != last_) {
            first_ = first->next;
            emptied.push(*first);
        }
    }
    for (segment* const left : {static_cast<segment*>(first_), static_cast<segment*>(spare_)}) {
        if (left != nullptr) {
            emptied.push(*left);
        }
    }
}

template <class T, class Platform>
std::size_t basic_segment_queue<T, Platform>::lacking(std::size_t n) const noexcept {
    segment* const last = last_;
    const std::size_t room =
        (last == nullptr ? 0 : segment_size - last->end) + (spare_ == nullptr ? 0 : segment_size);
    return n <= room ? 0 : (n - room - 1) / segment_size + 1;
}

template <class T, class Platform>
bool basic_segment_queue<T, Platform>::push_back(T& item, segments& loose) noexcept {
    segment* last = last_;
    if (last == nullptr || last->end == segment_size) {
        segment* const more = take(loose);
        if (more == nullptr) {
            return false;
        }
        (last == nullptr ? first_ : last->next) = more;
        last_ = last = more;
    }
    const index at = last->end;
    ::new (last->place(at)) T(std::move(item));
    last->end = at + 1;
    return true;
}

template <class T, class Platform>
bool basic_segment_queue<T, Platform>::push_front(T& item, segments& loose) noexcept {
    if (empty()) {
        return push_back(item, loose);
    }
    segment* first = first_;
    if (first->begin == 0) {
        segment* const more = take(loose);
        if (more == nullptr) {
            return false;
        }
        more->begin = more->end = static_cast<index>(segment_size);
        more->next = first;
        first_ = first = more;
    }
    const index at = first->begin - 1;
    ::new (first->place(at)) T(std::move(item));
    first->begin = at;
    return true;
}

template <class T, class Platform>
template <class Put>
void basic_segment_queue<T, Platform>::pop_front(Put& put, segments& loose) noexcept {
    segment* const first = first_;
    const index at = first->begin;
    T& item = first->item(at);
    put(item);
    item.~T();
    if (at + 1 != first->end) {
        first->begin = at + 1;
        return;
    }
    first->begin = first->end = 0;
    if (first == last_) {
        return;
    }
    first_ = first->next;
    if (spare_ == nullptr) {
        spare_ = first;
    } else {
        loose.push(*first);
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
