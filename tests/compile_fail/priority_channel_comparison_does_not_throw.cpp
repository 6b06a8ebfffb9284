// expect: the comparison of a priority_channel must be noexcept
#include <bide/channel/priority_channel.hpp>

struct by_length {
#if defined(BIDE_CONTROL)
    bool operator()(int a, int b) const noexcept;
#else
    bool operator()(int a, int b) const; // it runs for other threads, which it cannot throw to
#endif
};

void make(bide::priority_channel<int, by_length>*& out);

void make(bide::priority_channel<int, by_length>*& out) {
    out = new bide::priority_channel<int, by_length>(1);
}
