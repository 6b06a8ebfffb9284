#ifndef BIDE_BENCH_SUPPORT_ISOLATED_HPP
#define BIDE_BENCH_SUPPORT_ISOLATED_HPP

namespace bench {

// Has two cache lines of its own (prefetchers fetch pairs), so no neighbour is measured with it.
template <class Subject> struct alignas(128) isolated {
    template <class... Args> explicit isolated(Args... args) : subject(args...) {}
    Subject subject;
};

} // namespace bench

#endif
