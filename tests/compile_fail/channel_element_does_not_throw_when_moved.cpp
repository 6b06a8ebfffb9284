// expect: must not throw when moved: declare the move constructor noexcept, or send a
#include <bide/channel/channel.hpp>

struct element {
#if defined(BIDE_CONTROL)
    element(element&&) noexcept;
#else
    element(element&&); // half of it may be in the channel, and half of it outside
#endif
    ~element();
};

void make(bide::channel<element>*& out);

void make(bide::channel<element>*& out) { out = new bide::channel<element>(1); }
