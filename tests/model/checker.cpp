// The checker, once for all models, and what it does where a verdict is not the expected one.

#include <bide/model/source.hpp>
#include <model/check.hpp>
#include <support/catch.hpp>

namespace {

// Printed already, and not by Catch2, which wraps the lines of a trace.
void fail_test_case(const model::verdict& found) { FAIL_CHECK(found.message); }

[[maybe_unused]] const auto before = model::on_failure(&fail_test_case);

} // namespace
