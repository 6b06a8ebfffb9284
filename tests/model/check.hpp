#ifndef BIDE_TESTS_MODEL_CHECK_HPP
#define BIDE_TESTS_MODEL_CHECK_HPP

// The checker, for models that are Catch2 tests: an unexpected verdict fails the test case (checker.cpp).

#include <bide/model/check.hpp>

namespace model = bide::model;

#define MODEL_REQUIRE(...) BIDE_MODEL_REQUIRE(__VA_ARGS__)

#endif
