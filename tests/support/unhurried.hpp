#ifndef BIDE_TESTS_SUPPORT_UNHURRIED_HPP
#define BIDE_TESTS_SUPPORT_UNHURRIED_HPP

#include <bide/durable/options.hpp>

#include <support/gate.hpp>

namespace test {

// For tests that are not about a store's time: a machine that is busy with other work may give a
// store thread no time within the usual attempt_limit.
inline bide::durable_options unhurried(bide::durable_options o = {}) {
    o.attempt_limit = patience;
    return o;
}

} // namespace test

#endif
