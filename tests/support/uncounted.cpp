// The functions of alloc.hpp in a program that keeps its operators new and delete: a test that calls one
// is in the wrong program.

#include "support/alloc.hpp"

#include <cstddef>
#include <cstdlib>

std::size_t test::allocations_here() noexcept { std::abort(); }
std::size_t test::allocations() noexcept { std::abort(); }
std::size_t test::live_allocations() noexcept { std::abort(); }
test::out_of_memory::out_of_memory() noexcept { std::abort(); }
test::out_of_memory::~out_of_memory() { std::abort(); }
test::failing_allocations::failing_allocations(std::size_t, shortage, bool) noexcept {
    std::abort();
}
test::failing_allocations::~failing_allocations() { std::abort(); }
bool test::failing_allocations::has_failed() const noexcept { std::abort(); }
bool test::fails_as_allocation() noexcept { std::abort(); }
bool test::counts_allocations() noexcept { std::abort(); }
