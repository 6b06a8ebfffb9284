// The checker's functions for tests, once for all models.

#include <model/at_random.hpp>
#include <model/check.hpp>
#include <support/test.hpp>

namespace {

// Printed already, and not by Catch2, which wraps the lines of a trace.
void fail_test_case(const model::verdict& found) { FAIL_CHECK(found.message); }

[[maybe_unused]] const auto before = model::on_failure(&fail_test_case);

// The exploration that BIDE_MODEL_SHORT leaves of one.
model::options shortened(model::options how, const model::body& run) {
    const char* const number = std::getenv("BIDE_MODEL_SHORT");
    if (number == nullptr) {
        return how;
    }
    const std::uint64_t most = std::strtoull(number, nullptr, 10);
    if (how.how != model::options::method::pct) {
        model::options part = how;
        part.max_executions = most;
        if (bide::model::explore(part, run).what != model::failure::too_large) {
            return how;
        }
        how.how = model::options::method::pct;
    }
    how.runs = std::min(how.runs, most);
    return how;
}

} // namespace

bool model::is_long() { return std::getenv("BIDE_MODEL_LONG") != nullptr; }

void model::check(std::string_view name, const options& how, const body& run) {
    bide::model::check(name, shortened(how, run), run);
}

void model::check_at_random(std::string_view name, options how, const body& run) {
    how.how = options::method::pct;
    find(name, failure::none, shortened(how, run), run);
}
