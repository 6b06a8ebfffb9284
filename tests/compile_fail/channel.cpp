#include <bide/channel/channel.hpp>
#include <bide/channel/priority_channel.hpp>

void channel_async_recv_is_not_discarded() { // 1: co_await it
    bide::channel<int> ch(1);
#if BIDE_MISUSE != 1
    [[maybe_unused]] const auto operation = ch.async_recv();
#else
    ch.async_recv(); // does nothing
#endif
}

namespace channel_element_does_not_throw_when_destroyed { // 2: must not throw when destroyed
struct element {
    element(element&&) noexcept;
#if BIDE_MISUSE != 2
    ~element();
#else
    ~element() noexcept(false);
#endif
};

void make(bide::channel<element>*& out) { out = new bide::channel<element>(1); }
} // namespace channel_element_does_not_throw_when_destroyed

namespace channel_element_does_not_throw_when_moved { // 3: must not throw when moved: declare the move constructor noexcept, or send a
struct element {
#if BIDE_MISUSE != 3
    element(element&&) noexcept;
#else
    element(element&&); // half of it may be in the channel, and half of it outside
#endif
    ~element();
};

void make(bide::channel<element>*& out) { out = new bide::channel<element>(1); }
} // namespace channel_element_does_not_throw_when_moved

void channel_element_is_not_const() { // 4: elements must be objects that are not const
#if BIDE_MISUSE != 4
    bide::channel<int> ch(1);
#else
    bide::channel<const int> ch(1); // nothing could be moved out
#endif
    ch.close();
}

void channel_is_not_copyable() { // 5: deleted (copy )?(function|constructor)|is deleted|implicitly-deleted
    bide::channel<int> ch(1);
#if BIDE_MISUSE != 5
    bide::channel<int>& same = ch;
#else
    bide::channel<int> same = ch;
#endif
    same.close();
}

int channel_send_is_not_discarded() { // 6: nodiscard
    bide::channel<int> ch(1);
#if BIDE_MISUSE != 6
    return ch.send(1) ? 0 : 1;
#else
    ch.send(1); // sent, or lost in a closed channel? unknown
#endif
}

namespace priority_channel_comparison_does_not_throw { // 7: the comparison of a priority_channel must be noexcept
struct by_length {
#if BIDE_MISUSE != 7
    bool operator()(int a, int b) const noexcept;
#else
    bool operator()(int a, int b) const; // it runs for other threads, which it cannot throw to
#endif
};

void make(bide::priority_channel<int, by_length>*& out) {
    out = new bide::priority_channel<int, by_length>(1);
}
} // namespace priority_channel_comparison_does_not_throw
