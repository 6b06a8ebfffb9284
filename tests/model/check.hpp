#ifndef BIDE_TESTS_MODEL_CHECK_HPP
#define BIDE_TESTS_MODEL_CHECK_HPP

// The checker, for models that are Catch2 tests: an unexpected verdict fails the test case (checker.cpp).

#include <bide/model/check.hpp>

#include <string>

namespace model {

using namespace bide::model;

// As the checker's. With BIDE_MODEL_SHORT=number in the environment, at most about that many executions are
// explored: all, if there are no more, and else as many at random.
void check(std::string_view name, const options& how, const body& run);
inline void check(std::string_view name, const body& run) { check(name, {}, run); }

// Whether the test cases tagged [long] run for long, with BIDE_MODEL_LONG in the environment.
bool is_long();
inline options brief_or_long(const options& brief, const options& for_long) {
    return is_long() ? for_long : brief;
}

// Also with spurious failures of weak compare-exchanges.
inline void check_weak(const std::string& name, const body& run) {
    check(name, run);
    check(name + ", weak", {.weak_failures = 1}, run);
}

// What a thread does that writes plain data and then makes a call which publishes it.
template <class Call> auto after_writing(var<int>& data, Call call) {
    return [&data, call] {
        data = 1;
        call();
    };
}

} // namespace model

#define MODEL_REQUIRE(...) BIDE_MODEL_REQUIRE(__VA_ARGS__)

#endif
