// The order in which a report shows steps, against random programs: it is an order that a machine could
// have made, and it is sequentially consistent wherever there is such an order.

#include <model/program.hpp>
#include <support/test.hpp>

namespace {

using model::failure;
using enum std::memory_order;

constexpr std::array<std::string_view, 14> operations = {
    "x",    "x.acq", "x=1",     "x.rel=2", "x.sc=1", "y",        "y.acq",
    "y.sc", "y=1",   "y.rel=2", "x.ar+=1", "y<>3",   "fence.sc", "x.acq?0:3"};

template <class Random> model::program random_program(Random& random) {
    std::string text;
    const unsigned threads = 2 + random() % 2;
    for (unsigned t = 0; t < threads; ++t) {
        text += t == 0 ? "" : " |";
        for (unsigned n = 0; n < 5 - threads; ++n) {
            text +=
                (text.empty() ? "" : " ") + std::string(operations[random() % operations.size()]);
        }
    }
    return model::to_program(text + " || x y");
}

model::program sequentially_consistent(model::program p) {
    for (auto& thread : p.threads) {
        for (model::operation& op : thread) {
            op.with = op.with_failure = seq_cst;
        }
    }
    return p;
}

// Runs the steps of a trace on one memory. Empty, or the step that does not follow.
std::string wrong_step(const std::string& trace) {
    std::map<std::string, std::string> memory;
    std::istringstream lines(trace);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string number, thread, what, object, order, arrow, value;
        words >> number >> thread >> what >> object >> order >> arrow >> value;
        if (what == "load" || what == "rmw") {
            value = value.substr(0, value.find(','));
            const auto at = memory.try_emplace(object, "0").first;
            const bool is_old = line.find("(old)") != std::string::npos;
            if (!is_old && at->second != value) {
                return line;
            }
        } else if ((what == "store" || what == "and") &&
                   line.find("(before one") == std::string::npos) {
            memory[object] = value;
        }
    }
    return {};
}

} // namespace

TEST_CASE("report: steps are shown as a sequentially consistent machine makes them, if one can") {
    std::mt19937 random(1);
    unsigned weak = 0;
    unsigned all = 0;
    for (int n = 0; n < 300; ++n) {
        const model::program p = random_program(random);
        const model::program strong = sequentially_consistent(p);
        INFO(model::to_text(p));
        std::set<std::string> expected;
        std::istringstream outcomes(model::outcomes(
            {}, [&] { model::record(model::to_text(strong, model::run(strong))); }));
        for (std::string one; outcomes >> one;) {
            expected.insert(one);
        }
        std::set<std::string> found;
        for (int stop = 1;; ++stop) { // the execution with that number fails at its end
            int ends = 0;
            model::reads outcome = 0;
            const auto v = model::explore({}, [&] {
                const model::reads seen = model::run(p);
                if (++ends == stop) {
                    outcome = seen;
                    MODEL_REQUIRE(false);
                }
            });
            if (v.what == failure::none) {
                break;
            }
            REQUIRE(v.what == failure::assertion);
            ++all;
            INFO(v.trace);
            CHECK(wrong_step(v.trace).empty());
            const bool consistent = v.report.find("no stronger order") != std::string::npos;
            CHECK(consistent == (v.trace.find("(old)") == std::string::npos &&
                                 v.trace.find("(before one") == std::string::npos));
            if (consistent) {
                found.insert(model::to_text(p, outcome));
            }
            weak += consistent ? 0 : 1;
        }
        CHECK(found == expected);
    }
    CHECK(weak > 100);
    CHECK(all - weak > 500);
}
