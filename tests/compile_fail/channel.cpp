#include <bide/channel/channel.hpp>
#include <bide/channel/priority_channel.hpp>
#include <bide/core/async_op.hpp>

void channel_async_recv_is_not_discarded(bide::channel<int>& ch) { // co_await it
    [[maybe_unused]] const auto operation = ch.async_recv();
    //! ch.async_recv(); // does nothing
}

int channel_recv_is_not_discarded(bide::channel<int>& ch) { // it is the item
    return ch.recv().value_or(0);
    //! ch.recv();
}

namespace channel_element_does_not_throw_when_destroyed { // must not throw when destroyed
struct element {
    element(element&&) noexcept;
    ~element();
    //! ~element() noexcept(false);
};

void make(bide::channel<element>*& out) { out = new bide::channel<element>(1); }
} // namespace channel_element_does_not_throw_when_destroyed

namespace channel_element_does_not_throw_when_moved { // must not throw when moved: declare the move constructor noexcept, or send a
struct element {
    element(element&&) noexcept;
    //! element(element&&); // half of it may be in the channel, and half of it outside
    ~element();
};

void make(bide::channel<element>*& out) { out = new bide::channel<element>(1); }
} // namespace channel_element_does_not_throw_when_moved

void channel_element_is_not_const() { // elements must be objects that are not const
    bide::channel<int> ch(1);
    //! bide::channel<const int> ch(1); // nothing could be moved out
    ch.close();
}

void channel_is_not_copyable() { // deleted (copy )?(function|constructor)|is deleted|implicitly-deleted
    bide::channel<int> ch(1);
    bide::channel<int>& same = ch;
    //! bide::channel<int> same = ch;
    same.close();
}

int channel_send_is_not_discarded(bide::channel<int>& ch) { // nodiscard
    return ch.send(1) ? 0 : 1;
    //! ch.send(1); // sent, or lost in a closed channel? unknown
}

namespace priority_channel_comparison_does_not_throw { // the comparison of a priority_channel must be noexcept
struct by_length {
    bool operator()(int a, int b) const noexcept;
    //! bool operator()(int a, int b) const; // it runs for other threads, which it cannot throw to
};
using by_lengths = bide::priority_channel<int, by_length>;

void make(by_lengths*& out) { out = new by_lengths(1); }
} // namespace priority_channel_comparison_does_not_throw
