#ifndef BIDE_TESTS_SUPPORT_TEST_HPP
#define BIDE_TESTS_SUPPORT_TEST_HPP

// What every test includes: the standard library, threads that start together (gate.hpp), and Catch2, whichever there is, 3 or 2.13. Tests stay
// in what the two have in common. Neither lets threads assert at the same time: assert on the main
// thread.

#include "gate.hpp"
#include "standard.hpp"

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

using namespace std::chrono_literals;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

#endif
