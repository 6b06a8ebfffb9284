#ifndef BIDE_TESTS_SUPPORT_STOP_HPP
#define BIDE_TESTS_SUPPORT_STOP_HPP

#include <bide/core/config.hpp>

#include <stop_token>

namespace test {

// A stop source, made out of line: g++ 12 with sanitizers warns of an uninitialised one where
// libstdc++'s constructor is inlined.
BIDE_NOINLINE inline std::stop_source new_stop() { return std::stop_source(); }

} // namespace test

#endif
