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

// Allocations of all threads that were not freed yet.
std::size_t live_allocations() noexcept;

// Which allocations fail: all from one on, or that one alone.
enum class shortage { lasting, single };

// While one lives, the n-th allocation from now on fails, counted from 0; in a lasting shortage all
// after it, too. It counts those of this thread, or of all threads. One at a time.
class failing_allocations {
public:
    failing_allocations(std::size_t n, shortage how, bool of_all_threads) noexcept;
    failing_allocations(const failing_allocations&) = delete;
    failing_allocations& operator=(const failing_allocations&) = delete;
    ~failing_allocations();

    // Whether one has failed.
    bool has_failed() const noexcept;
};

// Counts as an allocation. True: it fails.
bool fails_as_allocation() noexcept;

// Whether the operators are ours.
bool counts_allocations() noexcept;

} // namespace test

#endif
