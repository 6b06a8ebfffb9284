#ifndef BIDE_TESTS_SUPPORT_THROWN_BY_HPP
#define BIDE_TESTS_SUPPORT_THROWN_BY_HPP

#include <support/standard.hpp>

namespace test {

// Returns the text of the exception that f() throws, or "nothing".
template <class F> std::string thrown_by(F f) {
    try {
        f();
    } catch (const std::exception& e) {
        return e.what();
    }
    return "nothing";
}

} // namespace test

#endif
