#ifndef BIDE_TESTS_WEIGHT_ENTERED_HPP
#define BIDE_TESTS_WEIGHT_ENTERED_HPP

// Of a program that is compiled with --coverage, the lines that run between begin() and end() are counted.

extern "C" void __gcov_reset();
extern "C" void __gcov_dump();

namespace weight {

inline void begin() { __gcov_reset(); }

inline void end() { __gcov_dump(); }

} // namespace weight

#endif
