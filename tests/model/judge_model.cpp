// An outside judge: the outcomes of small programs as herd7 computed them from the text of C++20, stored in
// judge/outcomes.txt by judge/judge.py. The programs are those of litmus_model.cpp, the protocols of
// the library, each reduced to the steps in which threads meet (judge/cores.txt), and random ones.

#include <model/check.hpp>
#include <model/program.hpp>
#include <support/test.hpp>

namespace {

using model::failure;
using method = model::options::method;

constexpr std::string_view between = " = "; // the parts of a line

std::vector<std::string> split(std::string_view text, std::string_view at) {
    std::vector<std::string> out;
    for (;;) {
        const std::size_t end = text.find(at);
        out.emplace_back(text.substr(0, end));
        if (end == std::string_view::npos) {
            return out;
        }
        text.remove_prefix(end + at.size());
    }
}

struct row {
    std::string name;
    std::string program;
    std::string says; // the outcomes, or what must hold of them
};

// Of a file in judge/, the lines with three parts; those of a group, if there is one.
std::vector<row> read(std::string_view file, std::string_view group = {}) {
    std::ifstream in(BIDE_MODEL_JUDGE + std::string(file));
    std::vector<row> out;
    std::string now;
    for (std::string line; std::getline(in, line);) {
        if (line.starts_with("# ---- ")) {
            now = line.substr(7);
        }
        const auto parts = split(line, between);
        if (line[0] != '#' && parts.size() == 3 && (group.empty() || now == group)) {
            out.push_back({parts[0], parts[1], parts[2]});
        }
    }
    return out;
}

// All outcomes, or the failure if there is one.
std::string explore(const std::string& text, method how = method::exhaustive) {
    const model::program p = model::to_program(text);
    const auto verdict = model::explore({.how = how}, [&] { model::run(p); });
    if (verdict.what == failure::race) {
        return "race";
    }
    if (verdict.what != failure::none) {
        return verdict.message;
    }
    const auto body = [&] { model::record(model::to_text(p, model::run(p))); };
    return model::outcomes({.how = how}, body);
}

// Compares all of a group, or the first ones that BIDE_MODEL_PROGRAMS in the environment allows. Returns how
// many there are.
std::size_t compare(std::string_view group, bool are_random = false) {
    auto rows = read("outcomes.txt", group);
    const std::size_t all = rows.size();
    if (const char* const most = std::getenv("BIDE_MODEL_PROGRAMS");
        most != nullptr && are_random) {
        rows.resize(std::min<std::size_t>(all, std::strtoull(most, nullptr, 10)));
    }
    for (const row& r : rows) {
        INFO(r.name << ": " << r.program);
        CHECK(explore(r.program) == r.says);
    }
    return all;
}

// More are some seconds each.
constexpr std::size_t most_operations_enumerated = 7;

bool is_small(const std::string& text) {
    std::size_t operations = 0;
    for (const auto& thread : model::to_program(text).threads) {
        operations += thread.size();
    }
    return operations <= most_operations_enumerated;
}

bool matches(std::string_view outcome, std::string_view pattern) {
    return std::equal(outcome.begin(), outcome.end(), pattern.begin(), pattern.end(),
                      [](char o, char p) { return o == p || p == '.'; });
}

// Whether one of the outcomes matches one of the patterns.
bool has(std::string_view outcomes, std::string_view patterns) {
    for (const std::string& o : split(outcomes, " ")) {
        for (const std::string& p : split(patterns, " ")) {
            if (matches(o, p)) {
                return true;
            }
        }
    }
    return false;
}

} // namespace

TEST_CASE("judge: the litmus tests have the outcomes that herd7 computes", "[judge]") {
    REQUIRE(compare("litmus") >= 100);
}

TEST_CASE("judge: the cores of the protocols have the outcomes that herd7 computes", "[judge]") {
    REQUIRE(compare("cores") >= 50);
}

TEST_CASE("judge: of each protocol holds what it is for, and of its wrong twin it does not",
          "[judge]") {
    for (const row& r : read("cores.txt")) {
        INFO(r.name << ": " << r.program << ": " << r.says);
        const std::string outcomes = explore(r.program);
        const std::string_view says = r.says;
        if (says.starts_with("never ")) {
            CHECK(outcomes != "race");
            CHECK_FALSE(has(outcomes, says.substr(6)));
        } else if (says.starts_with("may ")) {
            CHECK(has(outcomes, says.substr(4)));
        } else {
            CHECK((says == "race" || says == "no race"));
            CHECK((outcomes == "race") == (says == "race"));
        }
    }
}

TEST_CASE("judge: random programs have the outcomes that herd7 computes", "[judge]") {
    REQUIRE(compare("random", true) >= 90);
    REQUIRE(compare("circles", true) >= 500);
}

TEST_CASE("judge: every schedule of the small ones has them, too", "[judge][.long]") {
    std::size_t compared = 0;
    for (const row& r : read("outcomes.txt")) {
        if (is_small(r.program)) {
            INFO(r.name << ": " << r.program);
            CHECK(explore(r.program, method::enumerate) == r.says);
            ++compared;
        }
    }
    REQUIRE(compared >= 500);
}
