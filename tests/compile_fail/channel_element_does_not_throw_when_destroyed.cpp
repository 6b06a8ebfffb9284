// expect: must not throw when destroyed
#include <bide/channel/channel.hpp>

struct element {
    element(element&&) noexcept;
#if defined(BIDE_CONTROL)
    ~element();
#else
    ~element() noexcept(false);
#endif
};

void make(bide::channel<element>*& out);

void make(bide::channel<element>*& out) { out = new bide::channel<element>(1); }
