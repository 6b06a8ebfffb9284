#ifndef BIDE_TESTS_SUPPORT_ALLOC_HPP
#define BIDE_TESTS_SUPPORT_ALLOC_HPP

#include <cstddef>

namespace test {

// Calls of the global operator new so far, in all its forms: of this thread, of all threads. A
// program that asks has the counting operators of alloc.cpp linked in. With clang's
// ThreadSanitizer, which has operators of its own, nothing is counted.
std::size_t allocations_here() noexcept;
std::size_t allocations() noexcept;

// While one lives, this thread gets no memory from those operators.
class out_of_memory {
public:
    out_of_memory() noexcept;
    out_of_memory(const out_of_memory&) = delete;
    out_of_memory& operator=(const out_of_memory&) = delete;
    ~out_of_memory();
};

// Whether the operators are ours.
bool counts_allocations() noexcept;

} // namespace test

#endif
